"""LibreTranslate's routes, by clients of LibreTranslate; expected values are those of the loaded model itself."""

import json
import shutil
import subprocess
from urllib.parse import urlencode

import pytest
import requests

import regard
from regard.training.train import train

libretranslatepy = pytest.importorskip("libretranslatepy")
deep_translator = pytest.importorskip("deep_translator")

WORDS = {"tea": "Tee", "water": "Wasser", "milk": "Milch", "bread": "Brot", "and": "und", "please": "bitte"}
SIZES = {"dim": 16, "heads": 2, "hidden": 24, "context": 64, "batch_tokens": 300, "seed": 1, "evals": 1}
TEXTS = ["tea and water", "milk please"]


def train_folder(task, folder, rows, **options):
    data = folder / "data.tsv"
    data.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    for _ in train(task, data=data, output_dir=folder / "model", **SIZES, **options):
        pass
    return folder / "model"


@pytest.fixture(scope="module")
def both_ways(tmp_path_factory):
    """A translator of both directions."""
    pairs = [(first, second) for first in WORDS for second in WORDS if first != second]
    rows = [f"{a} {b}\t{WORDS[a]} {WORDS[b]}" for a, b in pairs]
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    return train_folder("translate", tmp_path_factory.mktemp("both"), rows, both_ways=True, steps=40, lr=0.02, **layers)


@pytest.fixture(scope="module")
def detector(tmp_path_factory):
    """A classifier whose labels are en and de."""
    rows = [
        f"{word} {i}\t{code}"
        for i in range(6)
        for pair in WORDS.items()
        for word, code in zip(pair, ("en", "de"), strict=False)
    ]
    options = {"model": "bert", "layers": 1, "tokenizer": "characters", "steps": 60, "lr": 0.02}
    return train_folder("classify", tmp_path_factory.mktemp("detect"), rows, **options)


@pytest.fixture(scope="module")
def live(start_server, both_ways, detector):
    return start_server("translate", folders={"both": both_ways, "detect": detector}, detect="detect")


@pytest.fixture(scope="module")
def back_server(start_server, both_ways, detector):
    """Its first model translates both ways."""
    return start_server(folders={"both": both_ways, "detect": detector}, detect="detect")


@pytest.fixture(scope="module")
def loaded(model_folder):
    return regard.load(model_folder("translate"))


def test_libretranslatepy(live, loaded):
    client = libretranslatepy.LibreTranslateAPI(live.url)
    assert [client.translate(text, "en", "de") for text in TEXTS] == loaded(TEXTS)
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": ["en"]},
    ]


def test_detection(live, detector):
    client, model = libretranslatepy.LibreTranslateAPI(live.url), regard.load(detector)
    for text in ("tea please", "Wasser bitte"):
        best = model.generate(text, num_return=2)
        answers = client.detect(text)
        assert answers[0]["language"] == best[0].text
        assert answers[0]["confidence"] == pytest.approx(100 * best[0].score, abs=0.01)
    long = "Milch und Brot " * 50  # beyond the context: the beginning decides
    assert client.detect(long)[0]["language"] == model(long)


def test_deep_translator(live, loaded):
    client = deep_translator.LibreTranslator("en", "de", api_key="unused", custom_url=f"{live.url}/")
    assert client.translate(TEXTS[0]) == loaded(TEXTS[0])
    assert client.translate_batch(TEXTS) == loaded(TEXTS)


def test_lists_as_json(live, loaded):
    response = live.post("/translate", {"q": [*TEXTS, "", " \n"], "source": "en", "target": "de"})
    assert response.json == {"translatedText": [*loaded(TEXTS), "", " \n"]}


def test_a_repeated_field_of_a_form_is_a_list(live, loaded):
    form = urlencode([("q", TEXTS[0]), ("q", TEXTS[1]), ("source", "en"), ("target", "de"), ("alternatives", 1)])
    response = live.request("POST", "/translate", form.encode())
    assert response.json["translatedText"] == loaded(TEXTS)
    assert [len(others) for others in response.json["alternatives"]] == [1, 1]


def test_alternatives(live, loaded):
    body = {"q": TEXTS[0], "source": "en", "target": "de", "alternatives": 5, "format": "text"}
    best, *others = loaded(TEXTS[0], num_return=6, num_beams=6)
    assert live.post("/translate", body).json == {"translatedText": best, "alternatives": others}


def test_lines_are_translated_one_by_one(live, loaded):
    text = "tea and water\n\nmilk"
    response = live.post("/translate", {"q": text, "source": "en", "target": "de"})
    assert response.json["translatedText"] == loaded(text)
    assert response.json["translatedText"].count("\n") == 2


def test_both_directions(live, back_server, both_ways):
    model = regard.load(both_ways)
    forward, back = {"source": "en", "target": "de"}, {"source": "de", "target": "en"}
    assert back_server.post("/translate", {"q": "tea milk", **forward}).json["translatedText"] == model("tea milk")
    assert back_server.post("/translate", {"q": "Tee Milch", **back}).json["translatedText"] == model(
        "Tee Milch", back=True
    )
    named = live.post("/translate", {"q": "Tee Milch", "model": "both", **back})
    assert named.json["translatedText"] == model("Tee Milch", back=True)


def test_source_auto(back_server, both_ways, detector):
    model, labels = regard.load(both_ways), regard.load(detector)
    texts = ["tea bread", "Tee Brot"]
    assert labels(texts) == ["en", "de"], "the detector was trained to tell them apart"
    response = back_server.post("/translate", {"q": texts, "source": "auto", "target": "de"})
    assert response.json["translatedText"] == [model(texts[0]), texts[1]]
    assert [item["language"] for item in response.json["detectedLanguage"]] == ["en", "de"]
    alone = back_server.post("/translate", {"q": texts[1], "source": "auto", "target": "en"})
    assert alone.json["translatedText"] == model(texts[1], back=True)
    assert alone.json["detectedLanguage"]["language"] == "de"


def test_other_languages(start_server, loaded):
    other = start_server("translate", languages=("fr", "xx"))
    assert other.get("/languages").json == [
        {"code": "fr", "name": "French", "targets": ["xx"]},
        {"code": "xx", "name": "xx", "targets": []},
    ]
    answer = other.post("/translate", {"q": TEXTS[0], "source": "fr", "target": "xx"})
    assert answer.json["translatedText"] == loaded(TEXTS[0])
    assert other.post("/translate", {"q": TEXTS[0], "source": "en", "target": "de"}).status == 400


def test_settings(live):
    settings = live.get("/frontend/settings").json
    assert settings["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "de", "name": "German"},
    }
    assert settings["keyRequired"] is False


def test_keys_in_forms_and_queries(start_server, loaded):
    locked = start_server("translate", api_key="secret")
    client = libretranslatepy.LibreTranslateAPI(locked.url, api_key="secret")
    assert client.translate(TEXTS[0], "en", "de") == loaded(TEXTS[0])
    deep = deep_translator.LibreTranslator("en", "de", api_key="secret", custom_url=f"{locked.url}/")
    assert deep.translate(TEXTS[0]) == loaded(TEXTS[0])
    refused = locked.post("/translate", {"q": "tea", "source": "en", "target": "de", "api_key": "wrong"})
    assert refused.status == 401
    assert {*refused.json} == {"error"}
    assert locked.get("/languages").status == 401


def test_a_server_without_a_detector(start_server):
    plain = start_server("translate")
    for path, body in (("/detect", {"q": "tea"}), ("/translate", {"q": "tea", "source": "auto", "target": "de"})):
        response = plain.post(path, body)
        assert response.status == 501
        assert "--detect FOLDER" in response.json["error"]


BAD = {
    "unknown target": ({"q": "tea", "source": "en", "target": "fr"}, 400, "en to fr: it translates en to de"),
    "unknown source": ({"q": "tea", "source": "it", "target": "de"}, 400, "it to de"),
    "html": ({"q": "<b>tea</b>", "source": "en", "target": "de", "format": "html"}, 400, "format must be text"),
    "no q": ({"source": "en", "target": "de"}, 400, "`q`"),
    "a number": ({"q": 5, "source": "en", "target": "de"}, 400, "q: Expected"),
    "too many": ({"q": "tea", "source": "en", "target": "de", "alternatives": 99}, 400, "alternatives"),
    "unknown model": ({"q": "tea", "source": "en", "target": "de", "model": "bot"}, 404, "did you mean both"),
    "wrong model": ({"q": "tea", "source": "en", "target": "de", "model": "detect"}, 400, "needs translate"),
    "NUL": ({"q": "te\0a", "source": "en", "target": "de"}, 400, "NUL"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_get_libretranslate_errors(live, name):
    body, status, message = BAD[name]
    response = live.post("/translate", body)
    assert (response.status, [*response.json]) == (status, ["error"]), response.json
    assert message in response.json["error"]


def test_other_content(live):
    assert live.request("POST", "/translate", b"<q/>", Content_Type="text/xml").status == 415
    assert live.request("POST", "/translate", b'{"q":', Content_Type="application/json").status == 400
    assert requests.post(f"{live.url}/translate", timeout=60).status_code == 400
    assert requests.get(f"{live.url}/translate", timeout=60).json().keys() == {"error"}


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl(live, loaded):
    form = [part for pair in (f"q={TEXTS[0]}", "source=en", "target=de") for part in ("--data-urlencode", pair)]
    run = subprocess.run(["curl", "-sS", f"{live.url}/translate", *form], capture_output=True)
    assert json.loads(run.stdout)["translatedText"] == loaded(TEXTS[0])
