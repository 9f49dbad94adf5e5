"""The page is self-contained, no text breaks it, and a real browser shows the numbers of its data."""

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

from regard.view import page as assets
from regard.view.page import Page, blob, render_page

L, H, T, S, E, P, D = 2, 3, 5, 7, 10, 6, 8
QUERY_TOKENS, QUERY_WORD_IDS = ["<s>", "▁Was", "ser", "▁bit", "te"], [-1, 0, 0, 1, 1]
KEY_TOKENS, KEY_WORD_IDS = ["▁wa", "ter", "▁,", "▁ple", "a", "se", "</s>"], [0, 0, 1, 2, 2, 2, -1]
EXACT_HEADS = [(0, 1), (1, 2)]  # of the (layer, head) of the map "cross"


def random(*shape):
    return np.random.default_rng(len(shape) + sum(shape)).normal(size=shape).astype(np.float32)


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def random_attention(queries, keys, causal, bias):
    """All tensors of attention with random queries and keys, as arrays (L,H,...)."""
    t, s = len(queries), len(keys)
    q, k, v = 1.5 * random(L, H, t, E), random(L, H, s, E), random(L, H, s, E + 1)[..., :E]
    scores = q @ k.transpose(0, 1, 3, 2)
    mask = np.tril(np.ones((t, s), bool)) if causal else None
    added = random(t, s) if bias else None
    masked = scores * E**-0.5 + (added if bias else 0)
    masked = np.where(mask, masked, -np.inf) if causal else masked
    weights = softmax(masked).astype(np.float32)
    return {"q": q, "k": k, "v": v, "score": scores, "masked": masked, "weight": weights, "mask": mask, "bias": added}


TENSORS = {
    "cross": random_attention(QUERY_TOKENS, KEY_TOKENS, causal=False, bias=True),
    "decoder": random_attention(QUERY_TOKENS, QUERY_TOKENS, causal=True, bias=False),
}


def exact_head(tensors, layer, head):
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


def attention_map(name, keys, key_word_ids, exact_heads):
    return {
        "name": name,
        "description": "Attention weights.",
        "queryTokens": QUERY_TOKENS,
        "keyTokens": keys,
        "queryWordIds": QUERY_WORD_IDS,
        "keyWordIds": key_word_ids,
        "layers": L,
        "heads": H,
        "weights": blob(np.round(255 * TENSORS[name]["weight"]).astype(np.uint8)),
        "exactHeads": [exact_head(TENSORS[name], *item) for item in exact_heads],
        "initial": {"layer": 0, "head": 1, "query": 2},
        "highlight": None,
    }


def image_url(colour, side=12):
    file = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


PREDICTIONS = [
    [[[f"▁{token}{layer}{rank}", 0.5 / (1 + rank)] for rank in range(5)] for token in "abcd"] for layer in range(3)
]
POSITIONS = random(P, D)
NODES = [  # id, parent, token, joint log-probability, length, pruned, finished
    (0, None, "<s>", 0.0, 0, False, False),
    (1, 0, "▁Tee", -0.4, 1, False, False),
    (2, 0, "▁Der", -1.2, 1, False, False),
    (3, 0, "▁Ein", -3.0, 1, True, False),
    (4, 1, "</s>", -1.5, 2, False, True),
    (5, 2, "▁Tee", -1.6, 2, False, False),
    (6, 5, "</s>", -1.8, 3, False, True),
]
ROLLOUT, PATCHES = softmax(random(L, 12)), softmax(random(L, H, 12))
COSINES = random(3, 4)
HEAD_VALUES = random(L, H)


def full_report():
    """Data of a page with a tab of every kind, of different sizes."""
    names = ("id", "parent", "token", "logp", "length", "pruned", "finished")
    tabs = [
        {
            "kind": "attention",
            "maps": [
                attention_map("cross", KEY_TOKENS, KEY_WORD_IDS, EXACT_HEADS),
                attention_map("decoder", QUERY_TOKENS, QUERY_WORD_IDS, [(1, 0)]),
            ],
        },
        {"kind": "steps"},
        {
            "kind": "lens",
            "tokens": ["▁a", "▁b", "▁c", "▁d"],
            "layers": ["embedding", "block 1", "block 2"],
            "norms": random(3, 4).tolist(),
            "predictions": PREDICTIONS,
            "targets": ["▁a20", "▁x", "▁c20", "▁x"],
        },
        {
            "kind": "positions",
            "name": "learned",
            "table": blob(POSITIONS),
            "shape": [P, D],
            "similarity": [1.0, 0.5, 0.2],
            "binary": [[p & 1, p >> 1 & 1, p >> 2 & 1] for p in range(P)],
        },
        {
            "kind": "beam",
            "nodes": [dict(zip(names, node, strict=True)) for node in NODES],
            "hypotheses": [
                {"node": 4, "text": "Tee", "logp": -1.5, "length": 2},
                {"node": 6, "text": "Der Tee", "logp": -1.8, "length": 3},
            ],
            "penalty": 0.0,
        },
        {
            "kind": "image",
            "image": image_url("teal"),
            "grid": [3, 4],
            "layers": L,
            "heads": H,
            "rollout": blob(ROLLOUT),
            "weights": blob(np.round(255 * PATCHES).astype(np.uint8)),
            "predictions": [["a pond", 0.7], ["a lawn", 0.3]],
        },
        {
            "kind": "similarity",
            "images": [image_url(colour) for colour in ("red", "green", "blue")],
            "texts": ["red", "green", "blue", "none of these"],
            "cosines": COSINES.tolist(),
            "probabilities": softmax(COSINES).tolist(),
        },
        {
            "kind": "training",
            "steps": [1, 2, 3, 4, 5],
            "loss": [5.0, 4.0, float("nan"), 3.0, 2.5],
            "lr": [0.1, 0.2, 0.2, 0.1, 0.0],
            "gradNorm": [2.0, 1.0, 1.0, 1.0, 1.0],
            "valid": [{"step": 2, "loss": 4.5, "bleu": 10.0}, {"step": 5, "loss": 3.0, "bleu": 20.0}],
            "moduleNorms": {"attention": [1.0, 0.5, 0.4, 0.3, 0.2], "feed-forward": [0.9, 0.4, 0.0, 0.01, 0.3]},
        },
        {
            "kind": "heads",
            "layers": L,
            "heads": H,
            "names": [f"cross {layer + 1}" for layer in range(L)],
            "measures": [{"name": "previous", "description": "The previous token.", "values": HEAD_VALUES.tolist()}],
            "ablation": {"score": "BLEU", "baseline": 30.0, "values": (30 + HEAD_VALUES).tolist()},
        },
    ]
    described = [{"title": tab["kind"].title(), "description": "What to look for.", **tab} for tab in tabs]
    return {"title": "Wasser bitte", "generator": "regard 0", "about": [["model", "small"]], "tabs": described}


KINDS = [tab["kind"] for tab in full_report()["tabs"]]


def empty_report(**changed):
    return {"title": "t", "generator": "regard 0", "about": [], "tabs": [], **changed}


class PageParser(HTMLParser):
    """The scripts, tags and title of a page, as a browser parses them."""

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


class TestWithoutBrowser:
    def test_the_page_makes_no_requests(self):
        html = render_page(full_report())
        assert not re.search(r"https?:|//\w+\.\w", html)
        assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|\bimport\(|sendBeacon", html)
        tags = PageParser(html).tags
        assert not [tag for tag, attributes in tags if tag in ("link", "iframe", "object", "embed")]
        assert all(attributes["src"].startswith("data:") for _, attributes in tags if "src" in attributes)
        policy = next(
            attributes["content"] for _, attributes in tags if attributes.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy.startswith("default-src 'none'")

    @given(text=st.text())
    @example("</script><script>alert(1)</script>")
    @example("<!--<script>")
    @example("$data ${script} $$ {}")
    @settings(max_examples=10)
    def test_no_text_breaks_out_of_the_data(self, text):
        data = empty_report(title="t" + text, about=[[text, text]])
        parsed = PageParser(render_page(data))
        assert [tag for tag, _ in parsed.tags].count("script") == len(parsed.scripts) == 3
        assert json.loads(parsed.scripts[1]) == data

    def test_the_title_is_escaped(self):
        parsed = PageParser(render_page(empty_report(title='<b>"a" & b</b></title>')))
        assert parsed.title == '<b>"a" & b</b></title>'
        assert "b" not in [tag for tag, _ in parsed.tags]

    def test_no_asset_ends_its_own_script(self):
        assert "</script" not in PageParser(render_page(empty_report())).scripts[-1]
        assert render_page(empty_report()).count("</script>") == 3

    @given(values=st.lists(st.floats(width=32, allow_nan=False)), count=st.integers(1, 3))
    def test_a_blob_is_lossless(self, values, count):
        for array in (np.array([values] * count, np.float32), np.array([values] * count, np.float32) > 0):
            raw = zlib.decompress(base64.b64decode(blob(array)))
            assert np.array_equal(np.frombuffer(raw, "<f4" if array.dtype != bool else bool), array.ravel())

    def test_a_blob_is_little_endian_float32(self):
        expected = blob(np.array([1.5, -2.0], "<f4"))
        assert blob(np.array([1.5, -2.0], ">f4")) == blob(np.array([1.5, -2.0])) == expected
        assert blob(np.arange(6, dtype=np.float32).reshape(2, 3).T) == blob(np.array([0, 3, 1, 4, 2, 5], np.float32))

    def test_a_blob_refuses_integers(self):
        with pytest.raises(ValueError, match="not int64"):
            blob(np.array([1, 300]))

    def test_numpy_numbers_become_json_and_nonfinite_ones_null(self):
        data = empty_report(tabs=[{"a": np.float32(0.5), "b": np.arange(2), "c": (float("nan"), -np.inf), "d": None}])
        (tab,) = json.loads(PageParser(render_page(data)).scripts[1])["tabs"]
        assert tab == {"a": 0.5, "b": [0, 1], "c": [None, None], "d": None}

    def test_every_script_is_on_the_page_once(self):
        scripts = {file.stem: file.read_text(encoding="utf-8") for file in assets.ASSETS.glob("*.js")}
        assert set(scripts) == {*assets.LIBRARY, *assets.KINDS, "tabs"}
        assert set(assets.KINDS) == set(KINDS)
        html = render_page(empty_report())
        for name, text in scripts.items():
            assert html.count(text) == 1, name
            assert text.startswith("/* "), name
            assert text.count("\n") < 300, name

    def test_12_layers_of_12_heads_of_128_tokens_stay_below_5_MB(self):
        assert len(render_page(large_report()).encode()) < 5e6

    def test_a_page_is_saved_and_displayed_in_a_notebook(self, tmp_path):
        page = Page(empty_report(title="Größe <3"))
        assert page.save(tmp_path / "look.html").read_text(encoding="utf-8") == page.html == render_page(page.data)
        source = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', page._repr_html_())[1]
        assert unescape(source) == page.html


def large_report():
    """The largest page: weights of the size of GPT-2 small, and as many exact heads as `regard look` stores."""
    rng, size = np.random.default_rng(0), 128
    tokens, places = [f"▁word{i}" for i in range(size)], list(range(size))
    scores = rng.normal(size=(12, 12, size, size)) * 2
    weights = softmax(np.where(np.tril(np.ones((size, size), bool)), scores, -np.inf)).astype(np.float32)
    vectors = {name: blob(rng.normal(size=(size, 64))) for name in ("queries", "keys", "values")}
    tensors = {**vectors, "size": 64, "scale": 1 / 8, "mask": blob(np.tri(size, dtype=bool)), "bias": None}
    attention = {
        **attention_map("cross", KEY_TOKENS, KEY_WORD_IDS, []),
        "queryTokens": tokens,
        "keyTokens": tokens,
        "queryWordIds": places,
        "keyWordIds": places,
        "layers": 12,
        "heads": 12,
        "weights": blob(np.round(255 * weights).astype(np.uint8)),
        "exactHeads": [{"layer": 0, "head": i, "weights": blob(weights[0, i]), **tensors} for i in range(6)],
    }
    return empty_report(tabs=[{"kind": "attention", "title": "Attention", "description": "", "maps": [attention]}])


@pytest.fixture
def browser(chromium):
    """A browser that shows the full report; it must log no problem."""
    chromium.open(render_page(full_report()))
    chromium.wait("section[data-ready]")
    yield chromium
    assert chromium.problems == []


def test_the_browser_collects_problems(chromium):
    chromium.open("<script>console.error('oh'); setTimeout(() => { throw 1 })</script><img src='http://localhost:1/a'>")
    chromium.settle()
    problems = " ".join(chromium.problems)
    assert "oh" in problems
    assert "Uncaught" in problems
    assert "requests http://localhost:1/a" in problems


PANEL = 'section[data-kind="{}"] '
ATTENTION, STEPS, BEAM = (PANEL.format(kind) for kind in ("attention", "steps", "beam"))


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
def test_every_tab_opens_and_fits_the_window(chromium, width, scheme):
    chromium.open(render_page(full_report()), width, scheme)
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


def test_tabs_follow_the_aria_pattern(browser):
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


def test_theme_follows_the_system_and_the_button(chromium):
    def colours():
        chromium.run("new Promise(requestAnimationFrame).then(() => null)")
        pixel = "[...document.querySelector('.stage canvas').getContext('2d').getImageData(0, 0, 1, 1).data].join()"
        paper = chromium.run("getComputedStyle(document.documentElement).backgroundColor")
        return paper, chromium.run(pixel)

    by_scheme = {}
    for scheme in ("light", "dark"):
        chromium.open(render_page(full_report()), scheme=scheme)
        chromium.wait("section[data-ready]")
        by_scheme[scheme] = colours()
    assert by_scheme["light"][0] != by_scheme["dark"][0]
    assert by_scheme["light"][1] != by_scheme["dark"][1]
    chromium.click("#theme")
    assert colours() == by_scheme["light"]


def drawn_lines(browser):
    """Weight and width of the lines from the query word, by key word."""
    lines = browser.all(
        ATTENTION + ".weight-lines path", "[e.dataset.word, e.dataset.value, e.getAttribute('stroke-width')]"
    )
    return {int(word): (float(value), float(width)) for word, value, width in lines}


def test_lines_are_as_thick_as_the_weights_of_the_query(browser):
    def expected(weights):
        return {i: pytest.approx((w, 20 * w)) for i, w in enumerate(weights.astype(float)) if w >= 0.01}

    weights = TENSORS["cross"]["weight"][0, 1]
    assert drawn_lines(browser) == expected(weights[2])
    assert browser.values(ATTENTION + ".keys .word") == weights[2].astype(float).tolist()
    browser.click(ATTENTION + "[role=option][data-word='4']")
    assert drawn_lines(browser) == expected(weights[4])
    browser.press("ArrowLeft")
    assert drawn_lines(browser) == expected(weights[3])
    assert browser.values(ATTENTION + ".ranks li") == sorted(weights[3].astype(float), reverse=True)
    browser.hover(ATTENTION + "[role=option][data-word='0']")
    assert drawn_lines(browser) == expected(weights[0])
    browser.hover("h1")
    assert drawn_lines(browser) == expected(weights[3])


def test_enter_enlarges_a_small_map_and_states_its_precision(browser):
    assert len(browser.all(ATTENTION + ".maps button", "e")) == L * H
    browser.focus(ATTENTION + ".maps button[aria-pressed=true]")
    browser.press("ArrowDown")
    browser.press("Enter")
    assert browser.text(ATTENTION + ".pair figure:last-child h3") == "Layer 2, head 2"
    assert "rounded to 1/255" in browser.text(ATTENTION + ".pair figure:last-child .note:last-child")
    rough = np.round(255 * TENSORS["cross"]["weight"][1, 1, 2]) / 255
    assert browser.values(ATTENTION + ".keys .word") == rough.astype(np.float32).astype(float).tolist()
    browser.click(ATTENTION + ".maps button[data-layer='1'][data-map='2']")
    assert "are exact" in browser.text(ATTENTION + ".pair figure:last-child .note:last-child")
    assert browser.values(ATTENTION + ".keys .word") == TENSORS["cross"]["weight"][1, 2, 2].astype(float).tolist()


def test_arrow_keys_move_over_the_large_map(browser):
    weights = TENSORS["cross"]["weight"][0, 1].astype(float)
    row, column = 2, int(weights[2].argmax())
    assert browser.values(ATTENTION + "figure .readout") == [weights[row, column]]
    browser.focus(ATTENTION + ".stage")
    browser.press("ArrowDown")
    row, column = row + 1, int(weights[row + 1].argmax())
    assert browser.values(ATTENTION + "figure .readout") == [weights[row, column]]
    assert browser.all(ATTENTION + "[aria-selected=true]", "e.dataset.word") == [str(row)]


def test_word_attention_is_the_mean_of_queries_and_the_sum_of_keys(browser):
    browser.click(ATTENTION + "[data-control='whole words']")
    assert browser.all(ATTENTION + "[role=option]", "e.textContent") == ["<s>", "Wasser", "bitte"]
    assert browser.all(ATTENTION + ".keys .word", "e.firstChild.data") == ["water", ",", "please", "</s>"]
    weights = TENSORS["cross"]["weight"][0, 1]
    expected = np.add.reduceat(weights[1:3].mean(0), [0, 2, 3, 6])  # the query token is "ser"
    assert browser.values(ATTENTION + ".keys .word") == pytest.approx(expected.tolist(), abs=1e-6)


def test_letters_are_joined_by_default(chromium):
    data = full_report()
    letters = {"queryTokens": list("a tree"), "queryWordIds": [0, 1, 1, 1, 1, 1]}
    weights = np.full((L, H, 6, S), 255 // S, np.uint8)
    data["tabs"][0]["maps"] = [data["tabs"][0]["maps"][0] | letters | {"weights": blob(weights), "exactHeads": []}]
    chromium.open(render_page(data))
    chromium.wait(ATTENTION + "input[type=checkbox]:checked")
    assert chromium.all(ATTENTION + "[role=option]", "e.textContent") == ["a", "tree"]


@pytest.mark.parametrize("name", TENSORS)
def test_steps_show_the_numbers_of_the_tensors(browser, name):
    at = EXACT_HEADS[0] if name == "cross" else (1, 0)
    tensors = {what: array[at] for what, array in TENSORS[name].items() if what not in ("mask", "bias")}
    browser.turn_to("steps")
    browser.click(STEPS + f"[data-option={name}]")
    browser.click(STEPS + "[data-option='all queries']")
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
    attended = tensors["weight"][3] > 0
    parts = tensors["weight"][3][attended, None].astype(float) * tensors["v"][attended].astype(float)
    np.testing.assert_allclose(browser.values(STEPS + "td[data-step=value]"), parts.ravel(), rtol=1e-12)
    np.testing.assert_allclose(browser.values(STEPS + "td[data-step=output]"), parts.sum(0), rtol=1e-9, atol=1e-12)


def test_pointing_focusing_or_tapping_a_number_shows_its_arithmetic(browser):
    tensors = {what: array[EXACT_HEADS[0]] for what, array in TENSORS["cross"].items() if what not in ("mask", "bias")}
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

    browser.open(render_page(full_report()), width=400, touch=True)
    browser.turn_to("steps")
    browser.tap(STEPS + "td[data-step=scaled][data-column='1']")
    assert browser.values(STEPS + ".arithmetic") == pytest.approx([tensors["score"][2, 1] * E**-0.5], abs=1e-5)


def test_steps_open_with_the_head_of_the_attention_tab(browser):
    browser.choose(ATTENTION + "[data-control=layer] select", EXACT_HEADS[1][0])
    browser.choose(ATTENTION + "[data-control=head] select", EXACT_HEADS[1][1])
    browser.click(ATTENTION + "[role=option][data-word='1']")
    browser.turn_to("steps")
    expected = TENSORS["cross"]["weight"][EXACT_HEADS[1]][1].astype(float).tolist()
    assert browser.values(STEPS + "td[data-step=weight]") == expected


def test_the_lens_shows_the_top_prediction_of_every_layer_and_marks_targets(browser):
    browser.turn_to("lens")
    cells = PANEL.format("lens") + "tbody td"
    first = [guesses[0] for row in PREDICTIONS for guesses in row]
    assert browser.all(cells, "e.textContent") == [piece.removeprefix("▁") for piece, _ in first]
    assert browser.values(cells) == [p for _, p in first]
    assert browser.all(cells + ".hit", "e.textContent") == ["a20", "c20"]
    browser.focus(cells)
    browser.press("ArrowDown")
    assert browser.values(PANEL.format("lens") + ".ranks li") == [p for _, p in PREDICTIONS[1][0]]


def test_arrow_keys_read_positions(browser):
    browser.turn_to("positions")
    panel = PANEL.format("positions")
    browser.focus(panel + ".stage")
    browser.press("ArrowRight")
    browser.press("ArrowUp")
    assert browser.values(panel + "> .readout") == [float(POSITIONS[4, 1])]
    assert browser.text(panel + "> .readout").endswith("in binary 100")


def test_the_length_penalty_reranks_hypotheses(browser):
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


def test_the_tree_marks_pruned_nodes_and_arrow_keys_move_in_it(browser):
    browser.turn_to("beam")
    assert browser.all(BEAM + ".node.pruned", "e.dataset.node") == ["3"]
    assert sorted(browser.all(BEAM + ".node.finished", "e.dataset.node")) == ["4", "6"]
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


def test_the_selected_map_overlays_the_image(browser):
    browser.turn_to("image")
    panel = PANEL.format("image")
    assert browser.values(panel + ".readout") == [float(ROLLOUT[-1].max())]
    browser.click(panel + ".maps button[data-layer='0'][data-map='2']")
    assert browser.values(panel + ".readout") == pytest.approx([PATCHES[0, 1].max()], abs=1 / 510 + 1e-7)
    copy = "const copy = new OffscreenCanvas(4, 3).getContext('2d'); copy.drawImage(e, 0, 0)"
    opacity = "[...copy.getImageData(0, 0, 4, 3).data].filter((_, i) => i % 4 == 3)"
    alphas = f"(() => {{ {copy}; return {opacity} }})()"
    (veil,) = browser.all(panel + ".stage canvas", alphas)
    assert np.argmin(veil) == PATCHES[0, 1].argmax()
    assert min(veil) == 0
    browser.click(panel + "[data-control='image only']")
    assert browser.all(panel + ".stage canvas", alphas) == [[0] * 12]


def test_similarity_is_a_table_of_images_and_texts(browser):
    browser.turn_to("similarity")
    cells = PANEL.format("similarity") + "tbody td"
    assert browser.values(cells) == COSINES.T.astype(float).ravel().tolist()
    best = browser.all(cells + ".hit", "[Number(e.dataset.row), Number(e.dataset.column)]")
    assert sorted(best) == [[i, int(row.argmax())] for i, row in enumerate(COSINES)]


def test_a_nan_loss_leaves_a_gap(browser):
    browser.turn_to("training")
    browser.wait(PANEL.format("training") + ".chart .main path")
    (drawn,) = browser.all(PANEL.format("training") + "> figure .main path", "e.getAttribute('d')")
    assert re.findall("[ML]", drawn) == ["M", "L", "M", "L"]
    assert len(browser.all(PANEL.format("training") + "> figure .dots circle", "e")) == 2


def test_arrow_keys_read_gradient_norms(browser):
    browser.turn_to("training")
    gradients = PANEL.format("training") + "> figure:last-child "
    browser.focus(gradients + ".stage")
    browser.press("ArrowDown")
    browser.press("ArrowLeft")
    assert browser.text(gradients + ".readout") == "feed-forward, step 4: 0.0100"
    assert browser.values(gradients + ".readout") == [0.01]


def test_a_head_in_the_table_links_to_its_map(browser):
    browser.turn_to("heads")
    panel = PANEL.format("heads")
    assert browser.values(panel + "td") == pytest.approx([*(30 + HEAD_VALUES).ravel(), *HEAD_VALUES.ravel()])
    browser.focus(panel + "td")
    browser.press("ArrowDown")
    assert browser.values(panel + ".readout") == pytest.approx([30 + HEAD_VALUES[1, 0]])
    browser.press("Enter")
    assert browser.all("[role=tab][aria-selected=true]", "e.dataset.kind") == ["attention"]
    assert browser.text(ATTENTION + ".pair figure:last-child h3") == "Layer 2, head 1"


def test_html_in_texts_is_not_executed(chromium):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
    data = full_report()
    data["title"] = evil
    data["about"] = [["model", evil + "."]]
    data["tabs"][0]["maps"][0]["queryTokens"] = [evil] * T
    chromium.open(render_page(data))
    chromium.wait("section[data-ready]")
    assert chromium.text("h1") == chromium.text("[role=option]") == evil
    assert chromium.text("#about dd") == evil + "."
    assert chromium.problems == []


def test_a_notebook_displays_the_page_in_a_frame(chromium):
    chromium.open(f"<!doctype html><meta charset=utf-8>{Page(full_report())._repr_html_()}")
    inside = "document.querySelector('iframe')?.contentDocument"
    chromium.wait_for(f"{inside}?.querySelector('section[data-ready] .weight-lines path')")
    assert chromium.problems == []


def test_the_largest_page_is_drawn(chromium):
    chromium.open(render_page(large_report()))
    chromium.wait("section[data-ready]")
    assert len(chromium.all(".maps canvas", "e")) == 144
    assert chromium.problems == []


def test_an_unknown_kind_of_tab_is_reported(chromium):
    chromium.open(render_page(empty_report(tabs=[{"kind": "smell", "title": "Smell", "description": ""}])))
    chromium.wait("section[data-ready]")
    assert "smell" in chromium.text("section")
