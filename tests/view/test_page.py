"""The page is whole in itself, no text breaks it, and what a real browser shows of it are the numbers it was given."""

import base64
import io
import json
import re
import zlib
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from regard.view import page as pages
from regard.view.page import Page, blob, page

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
            "layers": {"attention": [1.0, 0.5, 0.4, 0.3, 0.2], "feed-forward": [0.9, 0.4, 0.0, 0.01, 0.3]},
        },
        {
            "kind": "heads",
            "layers": L,
            "heads": H,
            "names": [f"cross {layer + 1}" for layer in range(L)],
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

    def test_every_script_is_on_the_page_and_is_one_idea(self):
        scripts = {file.stem: file.read_text(encoding="utf-8") for file in pages.PARTS.glob("*.js")}
        assert set(scripts) == {*pages.SHARED, *pages.KINDS, "tabs"}
        assert set(pages.KINDS) == set(KINDS)
        html = page(about_nothing())
        for name, text in scripts.items():
            assert html.count(text) == 1, name
            assert text.startswith("/* "), name
            assert text.count("\n") < 300, name

    def test_twelve_layers_of_twelve_heads_of_128_tokens_stay_below_5_megabytes(self):
        assert len(page(large()).encode()) < 5e6

    def test_a_page_is_saved_as_it_is_and_shows_itself_in_a_notebook(self, tmp_path):
        made = Page(about_nothing(title="Größe <3"))
        assert made.save(tmp_path / "look.html").read_text(encoding="utf-8") == made.html == page(made.data)
        inside = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', made._repr_html_())[1]
        assert unescape(inside) == made.html


def large():
    """As much as fits on a page: weights as of a small GPT-2, and as many opened heads as `regard look` gives."""
    rng, size = np.random.default_rng(0), 128
    tokens, places = [f"▁word{i}" for i in range(size)], list(range(size))
    scores = rng.normal(size=(12, 12, size, size)) * 2
    weights = softmax(np.where(np.tril(np.ones((size, size), bool)), scores, -np.inf)).astype(np.float32)
    vectors = {name: blob(rng.normal(size=(size, 64))) for name in ("queries", "keys", "values")}
    known = {**vectors, "size": 64, "scale": 1 / 8, "mask": blob(np.tri(size, dtype=bool)), "bias": None}
    one = {
        **attention_map("cross", ANSWERS, ANSWER_WORDS, []),
        "asks": tokens,
        "answers": tokens,
        "askWords": places,
        "answerWords": places,
        "layers": 12,
        "heads": 12,
        "weights": blob(np.round(255 * weights).astype(np.uint8)),
        "opened": [{"layer": 0, "head": i, "weights": blob(weights[0, i]), **known} for i in range(6)],
    }
    return about_nothing(tabs=[{"kind": "attention", "title": "Attention", "says": "", "maps": [one]}])


@pytest.fixture
def browser(chromium):
    """A browser that shows the page with a tab of every kind, and must have had nothing to complain of."""
    chromium.open(page(everything()))
    chromium.wait("section[data-ready]")
    yield chromium
    assert chromium.problems == []


def test_the_browser_notices_what_a_page_does_wrong(chromium):
    chromium.open("<script>console.error('oh'); setTimeout(() => { throw 1 })</script><img src='http://localhost:1/a'>")
    chromium.settle()
    told = " ".join(chromium.problems)
    assert "oh" in told
    assert "Uncaught" in told
    assert "asks for http://localhost:1/a" in told


PANEL = 'section[data-kind="{}"] '
ATTENTION, STEPS, BEAM = (PANEL.format(kind) for kind in ("attention", "steps", "beam"))


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
def test_every_tab_opens_and_fits_the_window(chromium, width, scheme):
    chromium.open(page(everything()), width, scheme)
    for kind in KINDS:
        chromium.turn_to(kind)
        over = chromium.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, kind
        empty = [
            f"{kind} {text}"
            for text in ("undefined", "NaN", "[object", "null")
            if text in chromium.text(PANEL.format(kind))
        ]
        assert empty == []
    assert chromium.problems == []


def test_tabs_are_tabs(browser):
    def state():
        return [browser.all("[role=tab]", "e.ariaSelected").index("true"), browser.all("[role=tabpanel]", "e.hidden")]

    assert browser.all("[role=tab]", "e.getAttribute('aria-controls')") == browser.all("[role=tabpanel]", "e.id")
    assert browser.all("[role=tabpanel]", "e.getAttribute('aria-labelledby')") == browser.all("[role=tab]", "e.id")
    browser.focus("#tab-0")
    last = len(KINDS) - 1
    for key, at in [("ArrowRight", 1), ("End", last), ("ArrowRight", 0), ("ArrowLeft", last), ("Home", 0)]:
        browser.press(key)
        assert state() == [at, [i != at for i in range(len(KINDS))]]
        assert browser.run("document.activeElement.id") == f"tab-{at}"
    assert browser.all("[role=tab]", "e.tabIndex") == [0] + [-1] * last


def test_light_and_dark_by_the_system_and_by_the_button(chromium):
    def colours():
        chromium.run("new Promise(requestAnimationFrame).then(() => null)")
        pixel = "[...document.querySelector('.stage canvas').getContext('2d').getImageData(0, 0, 1, 1).data].join()"
        paper = chromium.run("getComputedStyle(document.documentElement).backgroundColor")
        return paper, chromium.run(pixel)

    seen = {}
    for scheme in ("light", "dark"):
        chromium.open(page(everything()), scheme=scheme)
        chromium.wait("section[data-ready]")
        seen[scheme] = colours()
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] != seen["dark"][1]
    chromium.click("#theme")
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
    browser.click(ATTENTION + "[role=option][data-word='4']")
    assert woven(browser) == wanted(weights[4])
    browser.press("ArrowLeft")
    assert woven(browser) == wanted(weights[3])
    assert browser.values(ATTENTION + ".ranks li") == sorted(weights[3].astype(float), reverse=True)
    browser.hover(ATTENTION + "[role=option][data-word='0']")
    assert woven(browser) == wanted(weights[0])
    browser.hover("h1")
    assert woven(browser) == wanted(weights[3])


def test_a_small_map_is_enlarged_by_enter_and_says_how_exact_it_is(browser):
    assert len(browser.all(ATTENTION + ".maps button", "e")) == L * H
    browser.focus(ATTENTION + ".maps button[aria-pressed=true]")
    browser.press("ArrowDown")
    browser.press("Enter")
    assert browser.text(ATTENTION + ".pair figure:last-child h3") == "Layer 2, head 2"
    assert "nearest 1/255" in browser.text(ATTENTION + ".pair figure:last-child .note:last-child")
    rough = np.round(255 * TENSORS["cross"]["weight"][1, 1, 2]) / 255
    assert browser.values(ATTENTION + ".answers .word") == rough.astype(np.float32).astype(float).tolist()
    browser.click(ATTENTION + ".maps button[data-layer='1'][data-map='2']")
    assert "are exact" in browser.text(ATTENTION + ".pair figure:last-child .note:last-child")
    assert browser.values(ATTENTION + ".answers .word") == TENSORS["cross"]["weight"][1, 2, 2].astype(float).tolist()


def test_the_large_map_is_walked_over_with_arrow_keys(browser):
    weights = TENSORS["cross"]["weight"][0, 1].astype(float)
    row, column = 2, int(weights[2].argmax())
    assert browser.values(ATTENTION + "figure .readout") == [weights[row, column]]
    browser.focus(ATTENTION + ".stage")
    browser.press("ArrowDown")
    row, column = row + 1, int(weights[row + 1].argmax())
    assert browser.values(ATTENTION + "figure .readout") == [weights[row, column]]
    assert browser.all(ATTENTION + "[aria-selected=true]", "e.dataset.word") == [str(row)]


def test_joined_words_get_the_sum_and_give_the_mean_of_their_pieces(browser):
    browser.click(ATTENTION + "[data-control='whole words']")
    assert browser.all(ATTENTION + "[role=option]", "e.textContent") == ["<s>", "Wasser", "bitte"]
    assert browser.all(ATTENTION + ".answers .word", "e.firstChild.data") == ["water", ",", "please", "</s>"]
    weights = TENSORS["cross"]["weight"][0, 1]
    wanted = np.add.reduceat(weights[1:3].mean(0), [0, 2, 3, 6])  # the piece that asked was "ser"
    assert browser.values(ATTENTION + ".answers .word") == pytest.approx(wanted.tolist(), abs=1e-6)


def test_letters_are_joined_from_the_start(chromium):
    data = everything()
    letters = {"asks": list("a tree"), "askWords": [0, 1, 1, 1, 1, 1]}
    weights = np.full((L, H, 6, S), 255 // S, np.uint8)
    data["tabs"][0]["maps"] = [data["tabs"][0]["maps"][0] | letters | {"weights": blob(weights), "opened": []}]
    chromium.open(page(data))
    chromium.wait(ATTENTION + "input[type=checkbox]:checked")
    assert chromium.all(ATTENTION + "[role=option]", "e.textContent") == ["a", "tree"]


@pytest.mark.parametrize("name", TENSORS)
def test_step_by_step_the_numbers_are_those_of_the_tensors(browser, name):
    at = OPENED[0] if name == "cross" else (1, 0)
    tensors = {what: array[at] for what, array in TENSORS[name].items() if what not in ("mask", "bias")}
    browser.turn_to("steps")
    browser.click(STEPS + f"[data-option={name}]")
    browser.click(STEPS + "[data-option='every word']")
    shown = {
        step: np.array(browser.values(STEPS + f"td[data-step={step}]"))
        for step in ("score", "scaled", "masked", "weight")
    }
    np.testing.assert_allclose(shown["score"], tensors["score"].ravel(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(shown["scaled"], tensors["score"].ravel() * E**-0.5, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(shown["masked"], tensors["masked"].ravel(), rtol=1e-5, atol=1e-5)
    assert shown["weight"].tolist() == tensors["weight"].astype(float).ravel().tolist()
    assert browser.values(STEPS + ".check")[0] < 1e-6

    browser.click(STEPS + ".more")
    browser.click(STEPS + "[role=option][data-word='3']")
    heard = tensors["weight"][3] > 0
    parts = tensors["weight"][3][heard, None].astype(float) * tensors["v"][heard].astype(float)
    np.testing.assert_allclose(browser.values(STEPS + "td[data-step=value]"), parts.ravel(), rtol=1e-12)
    np.testing.assert_allclose(browser.values(STEPS + "td[data-step=output]"), parts.sum(0), rtol=1e-9, atol=1e-12)


def test_pointing_focusing_or_tapping_a_number_writes_out_how_it_was_made(browser):
    tensors = {what: array[OPENED[0]] for what, array in TENSORS["cross"].items() if what not in ("mask", "bias")}
    browser.turn_to("steps")
    browser.hover(STEPS + "td[data-step=score][data-column='3']")
    written = browser.text(STEPS + ".arithmetic .sum").replace("−", "-").replace("(", "").replace(")", "")
    terms, result = written.split(" = ")
    factors = np.array([term.split(" × ") for term in terms.split(" + ")], float)
    np.testing.assert_allclose(factors[:, 0], tensors["q"][2], atol=1e-4)
    np.testing.assert_allclose(factors[:, 1], tensors["k"][3], atol=1e-4)
    assert float(result) == pytest.approx(tensors["score"][2, 3], abs=1e-4)

    browser.focus(STEPS + "td[data-step=score][data-column='3']")
    for _ in range(3):
        browser.press("ArrowRight")
    written = browser.text(STEPS + ".arithmetic .sum").replace("−", "-")
    assert float(written.split(" = ")[-1]) == pytest.approx(tensors["weight"][2, 3], rel=0.01)
    assert browser.values(STEPS + ".arithmetic") == [float(tensors["weight"][2, 3])]

    browser.open(page(everything()), width=400, touch=True)
    browser.turn_to("steps")
    browser.tap(STEPS + "td[data-step=scaled][data-column='1']")
    assert browser.values(STEPS + ".arithmetic") == pytest.approx([tensors["score"][2, 1] * E**-0.5], abs=1e-5)


def test_step_by_step_begins_with_the_head_that_was_looked_at(browser):
    browser.choose(ATTENTION + "[data-control=layer] select", OPENED[1][0])
    browser.choose(ATTENTION + "[data-control=head] select", OPENED[1][1])
    browser.click(ATTENTION + "[role=option][data-word='1']")
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
    browser.focus(cells)
    browser.press("ArrowDown")
    assert browser.values(PANEL.format("stream") + ".ranks li") == [p for _, p in LENS[1][0]]


def test_positions_are_read_where_the_keys_lead(browser):
    browser.turn_to("positions")
    panel = PANEL.format("positions")
    browser.focus(panel + ".stage")
    browser.press("ArrowRight")
    browser.press("ArrowUp")
    assert browser.values(panel + "> .readout") == [float(POSITIONS[4, 1])]
    assert browser.text(panel + "> .readout").endswith("in binary 100")


def test_the_length_penalty_ranks_the_answers_again(browser):
    browser.turn_to("beam")
    browser.focus(BEAM + "input[name=penalty]")
    for key, penalty, order, path in [
        ("End", 2, ["Der Tee", "Tee"], ["0", "2", "5", "6"]),
        ("Home", 0, ["Tee", "Der Tee"], ["0", "1", "4"]),
    ]:
        browser.press(key)
        assert browser.all(BEAM + "ol li span", "e.textContent") == order
        scores = [float(score) for score in browser.all(BEAM + "ol li", "e.dataset.score")]
        assert scores == pytest.approx(sorted((-1.5 / 2**penalty, -1.8 / 3**penalty), reverse=True))
        assert sorted(browser.all(BEAM + ".node.lit", "e.dataset.node")) == path


def test_the_tree_shows_what_was_cut_off_and_is_climbed_with_arrow_keys(browser):
    browser.turn_to("beam")
    assert browser.all(BEAM + ".node.pruned", "e.dataset.node") == ["3"]
    assert sorted(browser.all(BEAM + ".node.ended", "e.dataset.node")) == ["4", "6"]
    browser.focus(BEAM + ".node[data-node='0']")
    for key, node in [
        ("ArrowRight", 1),
        ("ArrowDown", 2),
        ("ArrowDown", 3),
        ("ArrowUp", 2),
        ("ArrowRight", 5),
        ("ArrowLeft", 2),
    ]:
        browser.press(key)
        assert browser.run("document.activeElement.dataset.node") == str(node)
        assert browser.values(BEAM + "> .readout") == [NODES[node][3]]


def test_a_picture_is_veiled_by_the_map_that_is_chosen(browser):
    browser.turn_to("picture")
    panel = PANEL.format("picture")
    assert browser.values(panel + ".readout") == [float(ROLLOUT[-1].max())]
    browser.click(panel + ".maps button[data-layer='0'][data-map='2']")
    assert browser.values(panel + ".readout") == pytest.approx([PATCHES[0, 1].max()], abs=1 / 510 + 1e-7)
    copy = "const copy = new OffscreenCanvas(4, 3).getContext('2d'); copy.drawImage(e, 0, 0)"
    opacity = "[...copy.getImageData(0, 0, 4, 3).data].filter((_, i) => i % 4 == 3)"
    alphas = f"(() => {{ {copy}; return {opacity} }})()"
    (veil,) = browser.all(panel + ".stage canvas", alphas)
    assert np.argmin(veil) == PATCHES[0, 1].argmax()
    assert min(veil) == 0
    browser.click(panel + "[data-control='the picture alone']")
    assert browser.all(panel + ".stage canvas", alphas) == [[0] * 12]


def test_pictures_and_texts_meet_in_a_table(browser):
    browser.turn_to("similarity")
    cells = PANEL.format("similarity") + "tbody td"
    assert browser.values(cells) == SCORES.T.astype(float).ravel().tolist()
    best = browser.all(cells + ".hit", "[Number(e.dataset.row), Number(e.dataset.column)]")
    assert sorted(best) == [[i, int(row.argmax())] for i, row in enumerate(SCORES)]


def test_a_loss_that_is_not_a_number_leaves_a_gap(browser):
    browser.turn_to("training")
    browser.wait(PANEL.format("training") + ".chart .main path")
    (drawn,) = browser.all(PANEL.format("training") + "> figure .main path", "e.getAttribute('d')")
    assert re.findall("[ML]", drawn) == ["M", "L", "M", "L"]
    assert len(browser.all(PANEL.format("training") + "> figure .dots circle", "e")) == 2


def test_the_gradient_of_each_part_is_read_where_the_keys_lead(browser):
    browser.turn_to("training")
    gradients = PANEL.format("training") + "> figure:last-child "
    browser.focus(gradients + ".stage")
    browser.press("ArrowDown")
    browser.press("ArrowLeft")
    assert browser.text(gradients + ".readout") == "feed-forward, step 4: 0.0100"
    assert browser.values(gradients + ".readout") == [0.01]


def test_a_head_in_the_table_leads_to_its_map(browser):
    browser.turn_to("heads")
    panel = PANEL.format("heads")
    assert browser.values(panel + "td") == pytest.approx([*(30 + ROLES).ravel(), *ROLES.ravel()])
    browser.focus(panel + "td")
    browser.press("ArrowDown")
    assert browser.values(panel + ".readout") == pytest.approx([30 + ROLES[1, 0]])
    browser.press("Enter")
    assert browser.all("[role=tab][aria-selected=true]", "e.dataset.kind") == ["attention"]
    assert browser.text(ATTENTION + ".pair figure:last-child h3") == "Layer 2, head 1"


def test_texts_that_look_like_code_stay_texts(chromium):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
    data = everything()
    data["title"] = evil
    data["about"] = [["model", evil + "."]]
    data["tabs"][0]["maps"][0]["asks"] = [evil] * T
    chromium.open(page(data))
    chromium.wait("section[data-ready]")
    assert chromium.text("h1") == chromium.text("[role=option]") == evil
    assert chromium.text("#about dd") == evil + "."
    assert chromium.problems == []


def test_a_notebook_shows_the_page_in_a_frame(chromium):
    chromium.open(f"<!doctype html><meta charset=utf-8>{Page(everything())._repr_html_()}")
    inside = "document.querySelector('iframe')?.contentDocument"
    chromium.wait_for(f"{inside}?.querySelector('section[data-ready] .threads path')")
    assert chromium.problems == []


def test_as_much_as_fits_on_a_page_is_all_drawn(chromium):
    chromium.open(page(large()))
    chromium.wait("section[data-ready]")
    assert len(chromium.all(".maps canvas", "e")) == 144
    assert chromium.problems == []


def test_a_kind_that_the_page_does_not_know_is_said_to_be_unknown(chromium):
    chromium.open(page(about_nothing(tabs=[{"kind": "smell", "title": "Smell", "says": ""}])))
    chromium.wait("section[data-ready]")
    assert "smell" in chromium.text("section")
