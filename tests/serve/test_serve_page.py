"""The page in a real browser: every task's input, a stream, alignment, stop, key, code; no error, nothing foreign."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard

sys.path.append(str(Path(__file__).parent))
from page_browser import EXAMPLE, LOOK, RUN, STOP, PageBrowser, installed  # noqa: E402

from regard.serve import page_files  # noqa: E402

PAGE = Path(page_files.__file__).parent / "page"
WORDS = ".aligned.{} .word"
ANSWERS = {  # what is typed, and what the page shows of the prediction
    "write": ({"text": "tea and"}, ".story", lambda p: p.text),
    "fill": ({"text": "tea [MASK] milk"}, ".bars li:first-child .bar-name", lambda p: p.text),
    "classify": ({"text": "tea and milk"}, ".bars li:first-child .bar-name", lambda p: p.text),
    "regress": ({"text": "tea and milk"}, ".result", lambda p: f"{p.extra['value']:.4f}".replace("-", "−")),
    "tag": ({"text": "tea and milk"}, ".tags", lambda p: None),
    "answer": ({"question": "what?", "document": "tea and milk"}, ".document", lambda p: None),
    "embed": ({"text": "tea", "candidates": "milk\ntea tea"}, ".bars li:first-child .bar-name", lambda p: p.text),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not installed():
        pytest.skip("Chromium is not installed")
    window = PageBrowser(tmp_path_factory.mktemp("page"))
    yield window
    window.close()


@pytest.fixture
def page(browser, server):
    browser.goto(f"{server.url}/")
    yield browser
    assert browser.problems == []


def clear(browser):
    browser.run("document.querySelector('#answer').replaceChildren()")


@pytest.mark.parametrize("task", ANSWERS)
def test_every_task_of_text_shows_the_answer_of_the_model(page, model_folder, task):
    fields, place, expected = ANSWERS[task]
    page.choose_model(task)
    for name, text in fields.items():
        page.fill_in(name, text)
    page.ask()
    raw = "\t".join(fields.values()).replace("\n", "\t")
    [best, *_] = regard.load(model_folder(task), speed="exact").generate(raw)
    if (text := expected(best)) is not None:
        assert page.text(place) == text
    if task == "tag":
        assert page.all(".tags > span", "e.dataset.tag") == [tag.removeprefix("B-") for tag in best.extra["tags"]]
    if task == "answer":
        assert page.text(place) == "tea and milk"
        assert page.all(f"{place} mark", "e.textContent") == ([best.text] if best.text else [])
    if task in ("classify", "fill"):
        assert page.values(".bars li")[0] == pytest.approx(best.score, abs=1e-5)


def test_a_vector_is_drawn(page):
    page.choose_model("embed")
    page.fill_in("text", "tea")
    page.ask()
    assert page.text(".result") == "16 numbers"
    assert page.run("document.querySelector('canvas.vector').width") == 16


def test_files_are_dropped_shown_and_answered(browser, start_server, model_folder):
    media = start_server("image", "match", "speech")
    picture = next(model_folder("image").parent.glob("pictures/red/*.png"))
    recording = next(model_folder("speech").parent.glob("*.wav"))
    browser.goto(f"{media.url}/")
    browser.choose_model("image")
    browser.drop(picture)
    browser.ask()
    [best] = regard.load(model_folder("image")).generate(str(picture))
    assert browser.text(".bars .bar-name") == best.text
    browser.choose_model("match")
    browser.drop(picture)
    browser.fill_in("texts", "a red box\na blue box")
    browser.ask()
    [best] = regard.load(model_folder("match")).generate(f"{picture}\ta red box\ta blue box")
    assert browser.text(".bars .bar-name") == best.text
    assert len(browser.all(".bars li", "1")) == 2
    browser.choose_model("speech")
    assert browser.all("[data-field=file]", "e.accept")[0].startswith(".wav,")
    browser.drop(recording)
    browser.ask()
    assert (browser.text(".result") or "") in (
        regard.load(model_folder("speech"))(str(recording)),
        "The answer is empty.",
    )
    assert browser.problems == []


def test_a_pasted_picture_is_taken_and_a_wrong_file_refused(browser, start_server):
    browser.goto(f"{start_server('image').url}/")
    browser.wait("[data-field=file]")
    event = """((name, type) => {{
        const transfer = new DataTransfer();
        transfer.items.add(new File(["x"], "{0}", {{ type: "{1}" }}));
        const kind = "{2}" === "paste" ? ClipboardEvent : DragEvent;
        const data = {{ clipboardData: transfer, dataTransfer: transfer, bubbles: true, cancelable: true }};
        document.body.dispatchEvent(new kind("{2}", data));
    }})()"""
    browser.run(event.format("a.sh", "text/plain", "drop"))
    assert ".png" in browser.text("#notice")
    assert not browser.all(".drop.filled", "1")
    browser.run(event.format("a.png", "image/png", "paste"))
    browser.wait(".drop.filled")
    assert browser.text(".drop.filled .file-name").startswith("a.png")


def test_a_story_streams_in(page, server):
    """Every text that the page shows on the way is the beginning of the story."""
    page.choose_model("write")
    page.fill_in("text", "tea and")
    page.click("[data-disclosure=options]")
    page.fill_option("max_new_tokens", "40")
    page.run("""(() => {
        window.seen = [];
        const watch = () => seen.push(document.querySelector('#answer .story')?.textContent ?? "");
        new MutationObserver(watch).observe(document.querySelector('#answer'),
            { subtree: true, childList: true, characterData: true });
    })()""")
    page.ask()
    seen = [text for text in dict.fromkeys(page.run("window.seen")) if text]
    final = page.text(".story")
    assert len(seen) > 5
    assert all(final.startswith(text) for text in seen)
    assert page.run("document.querySelector('#answer').getAttribute('aria-live')") == "polite"


def test_pointing_at_a_word_lights_up_the_words_that_it_attends_to(page, server):
    page.choose_model("translate")
    page.fill_in("text", "tea and water please")
    page.control_enter()
    page.wait_for("document.querySelector('.aligned.target .word')")
    answer = server.post("/v1/run/translate", {"input": "tea and water please", "alignment": True}).json
    [line] = answer["alignment"]
    for side, other in (("target", "source"), ("source", "target")):
        page.hover(f"{WORDS.format(side)}[data-word='1']")
        page.settle()
        assert page.all(".aligned .lit", "e.dataset.side + e.dataset.word") == [f"{side}1"]
        weights = line["weights"][1] if side == "target" else [row[1] for row in line["weights"]]
        placed = [i for i, word in enumerate(line[other]) if word["start"] is not None]
        shown = page.all(WORDS.format(other), "Number(e.dataset.share)")
        assert shown == [weights[i] for i in placed]
        best = max(placed, key=lambda i: weights[i])
        lit = page.all(f"{WORDS.format(other)}[data-word='{best}']", "e.style.getPropertyValue('--shade')")
        assert lit == ["1"]
    page.focus(f"{WORDS.format('target')}[tabindex='0']")
    page.press("ArrowRight")
    assert len(page.all(".aligned .lit", "1")) == 1


def test_stop_cancels_the_job(page, server):
    page.choose_model("write")
    page.fill_in("text", "tea")
    page.ask()  # the model is loaded now
    [served] = [model for model in server.registry.served() if model.name == "write"]
    with served.scheduler.lock:  # no step runs
        clear(page)
        page.click(RUN)
        page.wait(f"{STOP}:not([hidden])")
        server.wait_for(lambda: any(server.job_counts(served)))
        page.click(STOP)
        page.wait_for("document.querySelector('#answer[aria-busy=false]')?.textContent.includes('Stopped')")
    server.wait_until_idle()
    assert page.all(f"{RUN}:not([hidden])", "1") == [1]
    page.ask()


def test_the_code_of_an_answer_gives_the_same_answer(page, server):
    page.choose_model("classify")
    page.fill_in("text", 'it\'s "tea" & $milk `x` \\ ümlaut')
    page.ask()
    shown = page.all(".bars .bar-name", "e.textContent")
    page.click("[data-disclosure=code]")
    curl = page.text("[data-code=curl]")
    output = subprocess.run(
        ["bash", "-c", curl.replace("curl ", "curl -s ", 1)], capture_output=True, check=True
    ).stdout
    assert [p["text"] for p in json.loads(output)["predictions"]] == shown
    pytest.importorskip("requests")
    code = page.text("[data-code=Python]")
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert re.findall(r"'text': '(.*?)'", output) == shown


def test_look_inside_opens_the_page_of_the_answer(page):
    page.choose_model("translate")
    page.fill_in("text", "tea and milk")
    page.ask()
    page.click(LOOK)
    page.wait_for("document.querySelector('#look[open] iframe')?.src")
    link = page.run("document.querySelector('#look-link').href")
    html = page.run(f"fetch({json.dumps(link)}).then((response) => response.text())")
    assert "tea and milk" in html
    page.click("#look-close")
    assert not page.all("#look[open]", "1")


def test_the_look_page_runs_in_its_frame(browser, server):
    link = server.post("/v1/look/translate", {"input": "tea and milk", "link": True}).json["url"]
    browser.goto(server.url + link)
    browser.wait("section[data-ready] .weight-lines path")
    assert browser.run("origin") == "null"
    assert browser.problems == []


def test_earlier_answers_come_back_with_their_input(page):
    page.choose_model("tag")
    page.fill_in("text", "tea and milk")
    page.ask()
    page.choose_model("classify")
    page.fill_in("text", "water")
    page.ask()
    page.click("#history li button")
    assert page.run("document.querySelector('#model').value") == "tag"
    assert page.run("document.querySelector('[data-field=text]').value") == "tea and milk"
    assert page.all(".tags > span", "1") == [1, 1, 1]
    assert page.run("[localStorage.length, sessionStorage.length]") == [0, 0]


def test_a_server_with_a_key_asks_for_it(browser, start_server):
    keyed = start_server("classify", api_key="secret")
    browser.goto(f"{keyed.url}/", expected=("401",))
    browser.wait("#key:not([hidden])")
    for key, sign in (("wrong", "key-note').textContent.includes('key is wrong')"), ("secret", "work:not([hidden])')")):
        browser.focus("#key-field")
        browser("Input.insertText", text=key)
        browser.press("Enter")
        browser.wait_for(f"document.querySelector('#{sign}")
    browser.fill_in("text", "tea")
    browser.ask()
    assert browser.run("[localStorage.length, sessionStorage.length]") == [0, 1]
    assert "secret" not in browser.run("document.documentElement.outerHTML")
    assert browser.problems == []
    browser.run("sessionStorage.clear()")


def test_what_is_wrong_is_said_in_one_sentence(browser, server):
    browser.goto(f"{server.url}/", expected=("422",))
    browser.choose_model("fill")
    browser.click(RUN)
    assert browser.text("#notice") == "Text is empty."
    browser.fill_in("text", "tea")
    browser.click(RUN)
    browser.wait_for("document.querySelector('#notice').textContent.includes('[MASK]')")
    assert browser.run("document.querySelector('#notice').getAttribute('role')") == "alert"
    browser.click(EXAMPLE)
    browser.ask()
    assert browser.run("document.querySelector('#notice').hidden")
    assert browser.problems == []


def test_texts_are_never_markup(page):
    evil = "<img src=x onerror=alert(1)> [MASK] <script>alert(2)</script>"
    page.choose_model("fill")
    page.fill_in("text", evil)
    page.ask()
    assert page.text(".bars .bar-name").startswith("<img src=x onerror=alert(1)> ")
    assert not page.all("#answer img, #answer script", "1")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_the_whole_width(browser, server, scheme):
    browser.goto(f"{server.url}/", width=400, scheme=scheme)
    for model in ("translate", "answer", "tag", "write"):
        browser.choose_model(model)
        browser.click(EXAMPLE)
        browser.ask()
        for name in ("options", "code"):
            for place in browser.all(f"[data-disclosure={name}]", "e.dataset.disclosure"):
                browser.click(f"[data-disclosure={place}]")
        assert browser.overflow() <= 0
    assert browser.run("document.documentElement.dataset.theme") == scheme
    assert browser.problems == []


def test_every_control_has_a_name_and_the_keyboard_reaches_run(page):
    page.choose_model("answer")
    controls = "#composer :is(textarea, input, button), #model"
    names = page.all(controls, "(e.labels?.[0]?.textContent || e.getAttribute('aria-label') || e.textContent).trim()")
    assert all(names)
    page.focus("[data-field=question]")
    reached = []
    for _ in range(4):
        page.press("Tab")
        reached.append(page.run("Object.values(document.activeElement.dataset)[0]"))
    assert reached == ["document", "example", "options", "run"]


def test_the_policy_blocks_inline_scripts(browser, server):
    policy = server.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    browser.goto(f"{server.url}/", expected=("Content Security Policy",))
    browser.wait(f"#composer {RUN}")
    inject = (
        "const s = document.createElement('script'); s.textContent = 'window.injected = 1'; document.body.append(s)"
    )
    browser.run(f"(() => {{ {inject} }})()")
    assert browser.run("window.injected ?? null") is None


def test_a_foreign_request_is_noticed_and_blocked(browser, server):
    """The negative control of all tests that expect no problems."""
    browser.goto(f"{server.url}/")
    browser.wait(f"#composer {RUN}")
    assert browser.problems == []
    browser.run("fetch('http://127.0.0.1:9/').catch(() => null)")
    browser.run(
        "new Promise((done) => { const i = new Image(); i.onerror = () => done(0); i.src = 'http://127.0.0.1:9/' })"
    )
    assert any("Content Security Policy" in problem for problem in browser.problems)


def test_all_files_of_the_page_exist_and_import_only_what_is_exported(server):
    files = page_files.read_files()
    html = files["index.html"]
    assert server.get("/").body.decode() == html
    for name in re.findall(r'(?:src|href)="/page/([^"]+)"', html):
        assert name in files
    assert {file.name for file in PAGE.iterdir()} <= {*files}
    exported = {
        name: {*re.findall(r"^export (?:async )?(?:function\*?|class|const) (\w+)", text, re.MULTILINE)}
        for name, text in files.items()
    }
    exported["library.js"] = {*page_files.EXPORTS}
    for name, text in files.items():
        for names, source in re.findall(r'^import \{ ([^}]+) \} from "/page/([^"]+)";', text, re.MULTILINE):
            assert {*names.split(", ")} <= exported[source], (name, source)
    assert "http://" not in re.sub(
        r'xmlns="[^"]+"', "", "".join(text for name, text in files.items() if name != "library.js")
    )


def test_nothing_but_the_files_of_the_page_is_served(server):
    for name in ("..%2frun_api.py", "run_api.py", "%2e%2e/app.py", "index.html%00", "page.html"):
        assert server.get(f"/page/{name}").status in (400, 404)
