"""The page is whole in itself, no text breaks it, and what a real browser shows of it are the numbers it was given."""

import base64
import io
import json
import os
import re
import shutil
import subprocess
import zlib
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from regard.view.page import Page, blob, page

ROOT = Path(__file__).parents[2]
L, H, T, S, E, P, D = 2, 3, 5, 7, 10, 6, 8
ASKS, ASK_WORDS = ["<s>", "▁Was", "ser", "▁bit", "te"], [-1, 0, 0, 1, 1]
ANSWERS, ANSWER_WORDS = ["▁wa", "ter", "▁,", "▁ple", "a", "se", "</s>"], [0, 0, 1, 2, 2, 2, -1]
OPENED = [(0, 1), (1, 2)]  # of the (layer, head) of the map "cross"


def random(*shape):
    return np.random.default_rng(len(shape) + sum(shape)).normal(size=shape).astype(np.float32)


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attended(asks, answers, causal, bias):
    """Everything about attention of random questions and keys, as arrays (L,H,...)."""
    t, s = len(asks), len(answers)
    q, k, v = 1.5 * random(L, H, t, E), random(L, H, s, E), random(L, H, s, E + 1)[..., :E]
    scores = q @ k.transpose(0, 1, 3, 2)
    seen = np.tril(np.ones((t, s), bool)) if causal else None
    added = random(t, s) if bias else None
    masked = scores * E**-0.5 + (added if bias else 0)
    masked = np.where(seen, masked, -np.inf) if causal else masked
    weights = softmax(masked).astype(np.float32)
    return {"q": q, "k": k, "v": v, "score": scores, "masked": masked, "weight": weights, "mask": seen, "bias": added}


TENSORS = {
    "cross": attended(ASKS, ANSWERS, causal=False, bias=True),
    "decoder": attended(ASKS, ASKS, causal=True, bias=False),
}


def exact(tensors, layer, head):
    at = (layer, head)
    return {
        "layer": layer,
        "head": head,
        "weights": blob(tensors["weight"][at]),
        "queries": blob(tensors["q"][at]),
        "keys": blob(tensors["k"][at]),
        "values": blob(tensors["v"][at]),
        "size": E,
        "scale": E**-0.5,
        "mask": None if tensors["mask"] is None else blob(tensors["mask"]),
        "bias": None if tensors["bias"] is None else blob(tensors["bias"]),
    }


def attention_map(name, answers, answer_words, opened):
    return {
        "name": name,
        "says": "Who listens to whom.",
        "asks": ASKS,
        "answers": answers,
        "askWords": ASK_WORDS,
        "answerWords": answer_words,
        "layers": L,
        "heads": H,
        "weights": blob(np.round(255 * TENSORS[name]["weight"]).astype(np.uint8)),
        "opened": [exact(TENSORS[name], *one) for one in opened],
        "start": {"layer": 0, "head": 1, "ask": 2},
        "found": None,
    }


def picture_url(colour, side=12):
    file = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


LENS = [[[[f"▁{token}{layer}{rank}", 0.5 / (1 + rank)] for rank in range(5)] for token in "abcd"] for layer in range(3)]
POSITIONS = random(P, D)
NODES = [  # id, parent, piece, joint logarithm, time, kept, ended
    (0, None, "<s>", 0.0, 0, True, False),
    (1, 0, "▁Tee", -0.4, 1, True, False),
    (2, 0, "▁Der", -1.2, 1, True, False),
    (3, 0, "▁Ein", -3.0, 1, False, False),
    (4, 1, "</s>", -1.5, 2, True, True),
    (5, 2, "▁Tee", -1.6, 2, True, False),
    (6, 5, "</s>", -1.8, 3, True, True),
]
ROLLOUT, PATCHES = softmax(random(L, 12)), softmax(random(L, H, 12))
SCORES = random(3, 4)
ROLES = random(L, H)


def everything():
    """A page with a tab of every kind, of sizes that differ."""
    names = ("id", "parent", "piece", "logp", "time", "kept", "ended")
    tabs = [
        {
            "kind": "attention",
            "maps": [
                attention_map("cross", ANSWERS, ANSWER_WORDS, OPENED),
                attention_map("decoder", ASKS, ASK_WORDS, [(1, 0)]),
            ],
        },
        {"kind": "steps"},
        {
            "kind": "stream",
            "tokens": ["▁a", "▁b", "▁c", "▁d"],
            "layers": ["embedding", "block 1", "block 2"],
            "norms": random(3, 4).tolist(),
            "lens": LENS,
            "wanted": ["▁a20", "▁x", "▁c20", "▁x"],
        },
        {
            "kind": "positions",
            "name": "learned",
            "table": blob(POSITIONS),
            "shape": [P, D],
            "alike": [1.0, 0.5, 0.2],
            "counter": [[p & 1, p >> 1 & 1, p >> 2 & 1] for p in range(P)],
        },
        {
            "kind": "beam",
            "nodes": [dict(zip(names, node, strict=True)) for node in NODES],
            "answers": [
                {"node": 4, "text": "Tee", "logp": -1.5, "length": 2},
                {"node": 6, "text": "Der Tee", "logp": -1.8, "length": 3},
            ],
            "penalty": 0.0,
        },
        {
            "kind": "picture",
            "image": picture_url("teal"),
            "grid": [3, 4],
            "layers": L,
            "heads": H,
            "rollout": blob(ROLLOUT),
            "weights": blob(np.round(255 * PATCHES).astype(np.uint8)),
            "answers": [["a pond", 0.7], ["a lawn", 0.3]],
        },
        {
            "kind": "similarity",
            "pictures": [picture_url(colour) for colour in ("red", "green", "blue")],
            "texts": ["red", "green", "blue", "none of these"],
            "scores": SCORES.tolist(),
            "chances": softmax(SCORES).tolist(),
        },
        {
            "kind": "training",
            "steps": [1, 2, 3, 4, 5],
            "loss": [5.0, 4.0, float("nan"), 3.0, 2.5],
            "rate": [0.1, 0.2, 0.2, 0.1, 0.0],
            "norm": [2.0, 1.0, 1.0, 1.0, 1.0],
            "valid": [{"step": 2, "loss": 4.5, "bleu": 10.0}, {"step": 5, "loss": 3.0, "bleu": 20.0}],
            "layers": {"attention": [1.0, 0.5], "feed-forward": [0.9, 0.4]},
        },
        {
            "kind": "heads",
            "map": "cross",
            "layers": L,
            "heads": H,
            "measures": [{"name": "previous", "says": "The token before.", "values": ROLES.tolist()}],
            "without": {"score": "BLEU", "whole": 30.0, "values": (30 + ROLES).tolist()},
        },
    ]
    told = [{"title": tab["kind"].title(), "says": "What to look for.", **tab} for tab in tabs]
    return {"title": "Wasser bitte", "made": "regard 0", "about": [["model", "small"]], "tabs": told}


KINDS = [tab["kind"] for tab in everything()["tabs"]]


def about_nothing(**changed):
    return {"title": "t", "made": "regard 0", "about": [], "tabs": [], **changed}


class Scripts(HTMLParser):
    """The scripts of a page and its title, as a browser would see them."""

    def __init__(self, html):
        super().__init__()
        self.scripts, self.tags, self.title, self.inside = [], [], "", None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, text):
        if self.inside == "script":
            self.scripts[-1] += text
        if self.inside == "title":
            self.title += text


class TestInPython:
    def test_nothing_comes_from_elsewhere(self):
        html = page(everything())
        assert not re.search(r"https?:|//\w+\.\w", html)
        assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|\bimport\(|sendBeacon", html)
        tags = Scripts(html).tags
        assert not [tag for tag, given_ in tags if tag in ("link", "iframe", "object", "embed")]
        assert all(given_["src"].startswith("data:") for _, given_ in tags if "src" in given_)
        policy = next(given_["content"] for _, given_ in tags if given_.get("http-equiv") == "Content-Security-Policy")
        assert policy.startswith("default-src 'none'")

    @given(text=st.text())
    @example("</script><script>alert(1)</script>")
    @example("<!--<script>")
    @example("$data ${script} $$ {}")
    @settings(max_examples=10)
    def test_no_text_breaks_out_of_the_data(self, text):
        data = about_nothing(title="t" + text, about=[[text, text]])
        seen = Scripts(page(data))
        assert [tag for tag, _ in seen.tags].count("script") == len(seen.scripts) == 3
        assert json.loads(seen.scripts[1]) == data

    def test_the_title_is_text(self):
        seen = Scripts(page(about_nothing(title='<b>"a" & b</b></title>')))
        assert seen.title == '<b>"a" & b</b></title>'
        assert "b" not in [tag for tag, _ in seen.tags]

    def test_no_part_of_the_page_ends_its_own_script(self):
        assert "</script" not in Scripts(page(about_nothing())).scripts[-1]
        assert page(about_nothing()).count("</script>") == 3

    @given(values=st.lists(st.floats(width=32, allow_nan=False)), count=st.integers(1, 3))
    def test_a_blob_holds_every_bit(self, values, count):
        for array in (np.array([values] * count, np.float32), np.array([values] * count, np.float32) > 0):
            raw = zlib.decompress(base64.b64decode(blob(array)))
            assert np.array_equal(np.frombuffer(raw, "<f4" if array.dtype != bool else bool), array.ravel())

    def test_a_blob_is_little_endian_and_single_whatever_comes(self):
        wanted = blob(np.array([1.5, -2.0], "<f4"))
        assert blob(np.array([1.5, -2.0], ">f4")) == blob(np.array([1.5, -2.0])) == wanted
        assert blob(np.arange(6, dtype=np.float32).reshape(2, 3).T) == blob(np.array([0, 3, 1, 4, 2, 5], np.float32))

    def test_a_blob_refuses_whole_numbers_that_may_not_fit(self):
        with pytest.raises(ValueError, match="not int64"):
            blob(np.array([1, 300]))

    def test_numbers_of_numpy_are_numbers_and_those_that_are_not_finite_are_none(self):
        data = about_nothing(tabs=[{"a": np.float32(0.5), "b": np.arange(2), "c": (float("nan"), -np.inf), "d": None}])
        (found,) = json.loads(Scripts(page(data)).scripts[1])["tabs"]
        assert found == {"a": 0.5, "b": [0, 1], "c": [None, None], "d": None}

    def test_twelve_layers_of_twelve_heads_of_128_tokens_stay_below_5_megabytes(self):
        assert len(page(large()).encode()) < 5e6

    def test_a_page_is_saved_as_it_is_and_shows_itself_in_a_notebook(self, tmp_path):
        made = Page(about_nothing(title="Größe <3"))
        assert made.save(tmp_path / "look.html").read_text(encoding="utf-8") == made.html == page(made.data)
        inside = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', made._repr_html_())[1]
        assert unescape(inside) == made.html


def large():
    """As much as fits on a page: weights as of a small GPT-2."""
    tokens = [f"▁word{i}" for i in range(128)]
    scores = np.random.default_rng(0).normal(size=(12, 12, 128, 128)) * 2
    weights = softmax(np.where(np.tril(np.ones((128, 128), bool)), scores, -np.inf))
    one = {
        **attention_map("cross", ANSWERS, ANSWER_WORDS, []),
        "asks": tokens,
        "answers": tokens,
        "askWords": list(range(128)),
        "answerWords": list(range(128)),
        "layers": 12,
        "heads": 12,
        "weights": blob(np.round(255 * weights).astype(np.uint8)),
    }
    return about_nothing(tabs=[{"kind": "attention", "title": "Attention", "says": "", "maps": [one]}])


# Reads commands as lines of JSON and answers each with one: a browser that stays open between tests.
DRIVER = """
const { chromium } = require("playwright-core");
const lines = require("readline").createInterface({ input: process.stdin });
(async () => {
  const browser = await chromium.launch({ executablePath: process.argv[1], args: ["--no-sandbox"] });
  const local = /^(file|data|blob|about):/;
  let context, page, problems, kind;
  async function begin(kind) {
    await context?.close();
    context = await browser.newContext({ ...kind, reducedMotion: "reduce" });
    page = await context.newPage();
    page.setDefaultTimeout(20000);
    page.on("console", (told) => ["error", "warning"].includes(told.type()) && problems.push(told.text()));
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("dialog", (dialog) => problems.push("dialog") && dialog.dismiss());
    page.on("request", (asked) => local.test(asked.url()) || problems.push("asks for " + asked.url()));
  }
  const commands = {
    async open({ file, width, scheme, touch }) {
      const wanted = { viewport: { width, height: 900 }, colorScheme: scheme, hasTouch: touch };
      if (JSON.stringify(wanted) !== kind) await begin(wanted);
      kind = JSON.stringify(wanted);
      problems = [];
      await page.goto("file://" + file);
      await page.mouse.move(0, 0);
    },
    evaluate: ({ code }) => page.evaluate(code),
    wait: ({ selector, frame }) => (frame ? page.frameLocator(frame) : page).locator(selector).first().waitFor(),
    click: ({ selector }) => page.click(selector),
    tap: ({ selector }) => page.tap(selector),
    hover: ({ selector }) => page.hover(selector),
    focus: ({ selector }) => page.focus(selector),
    press: ({ key }) => page.keyboard.press(key),
    choose: ({ selector, at }) => page.selectOption(selector, { index: at }),
    fill: ({ selector, text }) => page.fill(selector, text),
    problems: () => problems,
  };
  console.log("ready");
  for await (const line of lines) {
    const [name, given] = JSON.parse(line);
    const done = Promise.resolve(commands[name](given));
    const answer = await done.then((value) => ({ value }), (error) => ({ error: error.message }));
    console.log(JSON.stringify(answer));
  }
  await browser.close();
})();
"""


def missing():
    """Why there is no browser to drive, if there is none."""
    for name in ("chromium", "node"):
        if shutil.which(name) is None:
            return f"there is no {name} on the PATH"
    found = subprocess.run(["node", "-e", "require.resolve('playwright-core')"], cwd=ROOT, capture_output=True)
    return "node finds no playwright-core: npm install it here, or set NODE_PATH" if found.returncode else None


class Browser:
    def __init__(self, folder):
        self.folder, self.opened = folder, 0
        command = ["node", "-e", DRIVER, shutil.which("chromium")]
        env = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
        self.node = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        assert self.node.stdout.readline().strip() == "ready"

    def __call__(self, name, **given_):
        self.node.stdin.write(json.dumps([name, given_]) + "\n")
        self.node.stdin.flush()
        answer = json.loads(self.node.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer.get("value")

    def open(self, html, width=1200, scheme="light", touch=False):
        self.opened += 1
        file = self.folder / f"{self.opened}.html"
        file.write_text(html, encoding="utf-8")
        self("open", file=str(file), width=width, scheme=scheme, touch=touch)

    def turn_to(self, kind):
        self("click", selector=f'[role=tab][data-kind="{kind}"]')
        self("wait", selector=f'section[data-kind="{kind}"][data-ready]')

    def all(self, selector, what):
        return self("evaluate", code=f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => {what})")

    def values(self, selector):
        return [float(value) for value in self.all(selector, "e.dataset.value")]

    def text(self, selector):
        return self("evaluate", code=f"document.querySelector({json.dumps(selector)}).textContent")

    def close(self):
        self.node.stdin.close()
        self.node.wait(timeout=20)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if reason := missing():
        pytest.skip(reason)
    browser = Browser(tmp_path_factory.mktemp("pages"))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium):
    """A browser that shows the page with a tab of every kind, and must have had nothing to complain of."""
    chromium.open(page(everything()))
    chromium("wait", selector="section[data-ready]")
    yield chromium
    assert chromium("problems") == []


PANEL = 'section[data-kind="{}"] '
ATTENTION, STEPS, BEAM = (PANEL.format(kind) for kind in ("attention", "steps", "beam"))


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
def test_every_tab_opens_and_fits_the_window(chromium, width, scheme):
    chromium.open(page(everything()), width, scheme)
    for kind in KINDS:
        chromium.turn_to(kind)
        over = chromium("evaluate", code="document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, kind
        empty = [
            f"{kind} {text}"
            for text in ("undefined", "NaN", "[object", "null")
            if text in chromium.text(PANEL.format(kind))
        ]
        assert empty == []
    assert chromium("problems") == []


def test_tabs_are_tabs(browser):
    def state():
        return [browser.all("[role=tab]", "e.ariaSelected").index("true"), browser.all("[role=tabpanel]", "e.hidden")]

    assert browser.all("[role=tab]", "e.getAttribute('aria-controls')") == browser.all("[role=tabpanel]", "e.id")
    assert browser.all("[role=tabpanel]", "e.getAttribute('aria-labelledby')") == browser.all("[role=tab]", "e.id")
    browser("focus", selector="#tab-0")
    last = len(KINDS) - 1
    for key, at in [("ArrowRight", 1), ("End", last), ("ArrowRight", 0), ("ArrowLeft", last), ("Home", 0)]:
        browser("press", key=key)
        assert state() == [at, [i != at for i in range(len(KINDS))]]
        assert browser("evaluate", code="document.activeElement.id") == f"tab-{at}"
    assert browser.all("[role=tab]", "e.tabIndex") == [0] + [-1] * last


def test_light_and_dark_by_the_system_and_by_the_button(chromium):
    def colours():
        chromium("evaluate", code="new Promise(requestAnimationFrame).then(() => null)")
        pixel = "[...document.querySelector('.stage canvas').getContext('2d').getImageData(0, 0, 1, 1).data].join()"
        paper = chromium("evaluate", code="getComputedStyle(document.body).backgroundColor")
        return paper, chromium("evaluate", code=pixel)

    seen = {}
    for scheme in ("light", "dark"):
        chromium.open(page(everything()), scheme=scheme)
        chromium("wait", selector="section[data-ready]")
        seen[scheme] = colours()
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] != seen["dark"][1]
    chromium("click", selector="#theme")
    assert colours() == seen["light"]


def woven(browser):
    """The weights of the lines from the word that asks, by the word that answers."""
    found = browser.all(
        ATTENTION + ".threads path", "[e.dataset.word, e.dataset.value, e.getAttribute('stroke-width')]"
    )
    return {int(word): (float(value), float(width)) for word, value, width in found}


def test_lines_are_as_thick_as_the_weights_of_the_word_that_asks(browser):
    def wanted(weights):
        return {i: pytest.approx((w, 20 * w)) for i, w in enumerate(weights.astype(float)) if w >= 0.01}

    weights = TENSORS["cross"]["weight"][0, 1]
    assert woven(browser) == wanted(weights[2])
    assert browser.values(ATTENTION + ".answers .word") == weights[2].astype(float).tolist()
    browser("click", selector=ATTENTION + "[role=option][data-word='4']")
    assert woven(browser) == wanted(weights[4])
    browser("press", key="ArrowLeft")
    assert woven(browser) == wanted(weights[3])
    assert browser.values(ATTENTION + ".ranks li") == sorted(weights[3].astype(float), reverse=True)
    browser("hover", selector=ATTENTION + "[role=option][data-word='0']")
    assert woven(browser) == wanted(weights[0])
    browser("hover", selector="h1")
    assert woven(browser) == wanted(weights[3])


def test_a_small_map_is_enlarged_by_enter_and_says_how_exact_it_is(browser):
    assert len(browser.all(ATTENTION + ".maps button", "e")) == L * H
    browser("focus", selector=ATTENTION + ".maps button[aria-pressed=true]")
    browser("press", key="ArrowDown")
    browser("press", key="Enter")
    assert browser.text(ATTENTION + ".pair figure:last-child h3") == "Layer 2, head 2"
    assert "nearest 1/255" in browser.text(ATTENTION + ".pair figure:last-child .note")
    rough = np.round(255 * TENSORS["cross"]["weight"][1, 1, 2]) / 255
    assert browser.values(ATTENTION + ".answers .word") == rough.astype(np.float32).astype(float).tolist()
    browser("click", selector=ATTENTION + ".maps button[data-layer='1'][data-map='2']")
    assert "are exact" in browser.text(ATTENTION + ".pair figure:last-child .note")
    assert browser.values(ATTENTION + ".answers .word") == TENSORS["cross"]["weight"][1, 2, 2].astype(float).tolist()


def test_the_large_map_is_walked_over_with_arrow_keys(browser):
    weights = TENSORS["cross"]["weight"][0, 1].astype(float)
    row, column = 2, int(weights[2].argmax())
    assert browser.values(ATTENTION + "figure .readout") == [weights[row, column]]
    browser("focus", selector=ATTENTION + ".stage")
    browser("press", key="ArrowDown")
    row, column = row + 1, int(weights[row + 1].argmax())
    assert browser.values(ATTENTION + "figure .readout") == [weights[row, column]]
    assert browser.all(ATTENTION + "[aria-selected=true]", "e.dataset.word") == [str(row)]


def test_joined_words_get_the_sum_and_give_the_mean_of_their_pieces(browser):
    browser("click", selector=ATTENTION + "[data-control='whole words']")
    assert browser.all(ATTENTION + "[role=option]", "e.textContent") == ["<s>", "Wasser", "bitte"]
    assert browser.all(ATTENTION + ".answers .word", "e.firstChild.data") == ["water", ",", "please", "</s>"]
    weights = TENSORS["cross"]["weight"][0, 1]
    wanted = np.add.reduceat(weights[1:3].mean(0), [0, 2, 3, 6])  # the piece that asked was "ser"
    assert browser.values(ATTENTION + ".answers .word") == pytest.approx(wanted.tolist(), abs=1e-6)


@pytest.mark.parametrize("name", TENSORS)
def test_step_by_step_the_numbers_are_those_of_the_tensors(browser, name):
    at = OPENED[0] if name == "cross" else (1, 0)
    tensors = {what: array[at] for what, array in TENSORS[name].items() if what not in ("mask", "bias")}
    browser.turn_to("steps")
    browser("click", selector=STEPS + f"[data-option={name}]")
    browser("click", selector=STEPS + "[data-option='every word']")
    shown = {
        step: np.array(browser.values(STEPS + f"td[data-step={step}]"))
        for step in ("score", "scaled", "masked", "weight")
    }
    np.testing.assert_allclose(shown["score"], tensors["score"].ravel(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(shown["scaled"], tensors["score"].ravel() * E**-0.5, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(shown["masked"], tensors["masked"].ravel(), rtol=1e-5, atol=1e-5)
    assert shown["weight"].tolist() == tensors["weight"].astype(float).ravel().tolist()
    assert browser.values(STEPS + ".check")[0] < 1e-6

    browser("click", selector=STEPS + ".more")
    browser("click", selector=STEPS + "[role=option][data-word='3']")
    parts = tensors["weight"][3][:, None].astype(float) * tensors["v"].astype(float)
    np.testing.assert_allclose(browser.values(STEPS + "td[data-step=value]"), parts.ravel(), rtol=1e-12)
    np.testing.assert_allclose(browser.values(STEPS + "td[data-step=output]"), parts.sum(0), rtol=1e-9, atol=1e-12)


def test_pointing_focusing_or_tapping_a_number_writes_out_how_it_was_made(browser):
    tensors = {what: array[OPENED[0]] for what, array in TENSORS["cross"].items() if what not in ("mask", "bias")}
    browser.turn_to("steps")
    browser("hover", selector=STEPS + "td[data-step=score][data-column='3']")
    written = browser.text(STEPS + ".arithmetic .sum").replace("−", "-").replace("(", "").replace(")", "")
    terms, result = written.split(" = ")
    factors = np.array([term.split(" × ") for term in terms.split(" + ")], float)
    np.testing.assert_allclose(factors[:, 0], tensors["q"][2], atol=1e-4)
    np.testing.assert_allclose(factors[:, 1], tensors["k"][3], atol=1e-4)
    assert float(result) == pytest.approx(tensors["score"][2, 3], abs=1e-4)

    browser("focus", selector=STEPS + "td[data-step=score][data-column='3']")
    for _ in range(3):
        browser("press", key="ArrowRight")
    written = browser.text(STEPS + ".arithmetic .sum").replace("−", "-")
    assert float(written.split(" = ")[-1]) == pytest.approx(tensors["weight"][2, 3], rel=0.01)
    assert browser.values(STEPS + ".arithmetic") == [float(tensors["weight"][2, 3])]

    browser.open(page(everything()), width=400, touch=True)
    browser.turn_to("steps")
    browser("tap", selector=STEPS + "td[data-step=scaled][data-column='1']")
    assert browser.values(STEPS + ".arithmetic") == pytest.approx([tensors["score"][2, 1] * E**-0.5], abs=1e-5)


def test_step_by_step_begins_with_the_head_that_was_looked_at(browser):
    browser("choose", selector=ATTENTION + "[data-control=layer] select", at=OPENED[1][0])
    browser("choose", selector=ATTENTION + "[data-control=head] select", at=OPENED[1][1])
    browser("click", selector=ATTENTION + "[role=option][data-word='1']")
    browser.turn_to("steps")
    wanted = TENSORS["cross"]["weight"][OPENED[1]][1].astype(float).tolist()
    assert browser.values(STEPS + "td[data-step=weight]") == wanted


def test_the_stream_shows_the_first_guess_of_every_layer_and_marks_the_wanted_one(browser):
    browser.turn_to("stream")
    cells = PANEL.format("stream") + "tbody td"
    first = [guesses[0] for row in LENS for guesses in row]
    assert browser.all(cells, "e.textContent") == [piece.removeprefix("▁") for piece, _ in first]
    assert browser.values(cells) == [p for _, p in first]
    assert browser.all(cells + ".hit", "e.textContent") == ["a20", "c20"]
    browser("focus", selector=cells)
    browser("press", key="ArrowDown")
    assert browser.values(PANEL.format("stream") + ".ranks li") == [p for _, p in LENS[1][0]]


def test_positions_are_read_where_the_keys_lead_and_even_numbers_stand_first(browser):
    browser.turn_to("positions")
    panel = PANEL.format("positions")
    browser("focus", selector=panel + ".stage")
    browser("press", key="ArrowRight")
    browser("press", key="ArrowUp")
    assert browser.values(panel + "> .readout") == [float(POSITIONS[4, 2])]
    assert browser.text(panel + "> .readout").endswith("counter 0 0 1")
    browser("click", selector=panel + "[data-control='even numbers first']")
    browser("focus", selector=panel + ".stage")
    browser("press", key="ArrowRight")
    assert browser.values(panel + "> .readout") == [float(POSITIONS[4, 2])]
    browser("press", key="ArrowRight")
    assert browser.values(panel + "> .readout") == [float(POSITIONS[4, 3])]


def test_the_length_penalty_ranks_the_answers_again(browser):
    browser.turn_to("beam")
    for penalty, order, path in [
        ("0", ["Tee", "Der Tee"], ["0", "1", "4"]),
        ("1.5", ["Der Tee", "Tee"], ["0", "2", "5", "6"]),
    ]:
        browser("fill", selector=BEAM + "input[name=penalty]", text=penalty)
        assert browser.all(BEAM + "ol li span", "e.textContent") == order
        scores = [float(score) for score in browser.all(BEAM + "ol li", "e.dataset.score")]
        wanted = sorted((-1.5 / 2 ** float(penalty), -1.8 / 3 ** float(penalty)), reverse=True)
        assert scores == pytest.approx(wanted)
        assert sorted(browser.all(BEAM + ".node.lit", "e.dataset.node")) == path


def test_the_tree_shows_what_was_cut_off_and_is_climbed_with_arrow_keys(browser):
    browser.turn_to("beam")
    assert browser.all(BEAM + ".node.pruned", "e.dataset.node") == ["3"]
    assert sorted(browser.all(BEAM + ".node.ended", "e.dataset.node")) == ["4", "6"]
    browser("focus", selector=BEAM + ".node[data-node='0']")
    for key, node in [
        ("ArrowRight", 1),
        ("ArrowDown", 2),
        ("ArrowDown", 3),
        ("ArrowUp", 2),
        ("ArrowRight", 5),
        ("ArrowLeft", 2),
    ]:
        browser("press", key=key)
        assert browser("evaluate", code="document.activeElement.dataset.node") == str(node)
        assert browser.values(BEAM + "> .readout") == [NODES[node][3]]


@pytest.mark.parametrize("exactly", [False, True])
def test_a_picture_is_veiled_by_the_map_that_is_chosen(chromium, exactly):
    data = everything()
    if exactly:
        data["tabs"][KINDS.index("picture")]["weights"] = blob(PATCHES)
    chromium.open(page(data))
    chromium.turn_to("picture")
    panel = PANEL.format("picture")
    assert chromium.values(panel + ".readout") == [float(ROLLOUT[-1].max())]
    chromium("click", selector=panel + ".maps button[data-layer='0'][data-map='2']")
    step = 0 if exactly else 1 / 510
    assert chromium.values(panel + ".readout") == pytest.approx([PATCHES[0, 1].max()], abs=step + 1e-7)
    alphas = "[...e.getContext('2d').getImageData(0, 0, 4, 3).data].filter((_, i) => i % 4 == 3)"
    (veil,) = chromium.all(panel + ".stage canvas", alphas)
    assert np.argmin(veil) == PATCHES[0, 1].argmax()
    assert min(veil) == 0
    assert chromium("problems") == []


def test_pictures_and_texts_meet_in_a_table(browser):
    browser.turn_to("similarity")
    cells = PANEL.format("similarity") + "tbody td"
    assert browser.values(cells) == SCORES.T.astype(float).ravel().tolist()
    best = browser.all(cells + ".hit", "[Number(e.dataset.row), Number(e.dataset.column)]")
    assert sorted(best) == [[i, int(row.argmax())] for i, row in enumerate(SCORES)]


def test_a_loss_that_is_not_a_number_leaves_a_gap(browser):
    browser.turn_to("training")
    browser("wait", selector=PANEL.format("training") + ".chart .main path")
    (drawn,) = browser.all(PANEL.format("training") + "> figure .main path", "e.getAttribute('d')")
    assert re.findall("[ML]", drawn) == ["M", "L", "M", "L"]
    assert len(browser.all(PANEL.format("training") + "> figure .dots circle", "e")) == 2


def test_a_head_in_the_table_leads_to_its_map(browser):
    browser.turn_to("heads")
    panel = PANEL.format("heads")
    assert browser.values(panel + "td") == pytest.approx([*ROLES.ravel(), *(30 + ROLES).ravel()])
    browser("focus", selector=panel + "td")
    browser("press", key="ArrowDown")
    assert browser.values(panel + ".readout") == pytest.approx([ROLES[1, 0]])
    browser("press", key="Enter")
    assert browser.all("[role=tab][aria-selected=true]", "e.dataset.kind") == ["attention"]
    assert browser.text(ATTENTION + ".pair figure:last-child h3") == "Layer 2, head 1"


def test_texts_that_look_like_code_stay_texts(chromium):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
    data = everything()
    data["title"] = evil
    data["about"] = [[evil, evil]]
    data["tabs"][0]["maps"][0]["asks"] = [evil] * T
    chromium.open(page(data))
    chromium("wait", selector="section[data-ready]")
    assert chromium.text("h1") == chromium.text("#about dd") == chromium.text("[role=option]") == evil
    assert chromium("problems") == []


def test_a_notebook_shows_the_page_in_a_frame(chromium):
    chromium.open(f"<!doctype html><meta charset=utf-8>{Page(everything())._repr_html_()}")
    chromium("wait", selector="section[data-ready] .threads path", frame="iframe")
    assert chromium("problems") == []


def test_as_much_as_fits_on_a_page_is_all_drawn(chromium):
    chromium.open(page(large()))
    chromium("wait", selector="section[data-ready]")
    assert len(chromium.all(".maps canvas", "e")) == 144
    assert chromium("problems") == []


def test_a_kind_that_the_page_does_not_know_is_said_to_be_unknown(chromium):
    chromium.open(page(about_nothing(tabs=[{"kind": "smell", "title": "Smell", "says": ""}])))
    chromium("wait", selector="section[data-ready]")
    assert "smell" in chromium.text("section")
