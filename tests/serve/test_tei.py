"""TEI's routes, by the client of huggingface_hub; expected values are those of the loaded model itself."""

import json
import math
import shutil
import subprocess

import numpy as np
import pytest

import regard
from regard.training.train import train

TEXTS = ["tea and water", "milk please", "bread"]
SIZES = {"dim": 16, "heads": 2, "hidden": 24, "context": 64, "batch_tokens": 300, "seed": 1, "evals": 1, "steps": 3}
LONG = "tea and water please " * 20


def train_pairs(task, folder, targets):
    """A model that reads two texts."""
    words = ("tea", "water", "milk", "bread", "please")
    rows = [f"{a} {b}\t{b} {i}\t{targets[i % len(targets)]}\n" for i, a in enumerate(words) for b in words]
    file = folder / "pairs.tsv"
    file.write_text("".join(rows), encoding="utf-8")
    options = {"model": "bert", "layers": 1, "tokenizer": "characters", **SIZES}
    for _ in train(task, data=file, output_dir=folder / "model", **options):
        pass
    return folder / "model"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        "pair": train_pairs("classify", tmp_path_factory.mktemp("pair"), ("no", "yes")),
        "fit": train_pairs("regress", tmp_path_factory.mktemp("fit"), ("0.5", "2")),
    }


@pytest.fixture(scope="module")
def live(start_server, folders):
    return start_server("image", "embed", "classify", "regress", folders=folders)


@pytest.fixture(scope="module")
def classifier_server(start_server):
    return start_server("classify")


@pytest.fixture(scope="module")
def embedder(model_folder):
    return regard.load(model_folder("embed"))


@pytest.fixture(scope="module")
def classifier(model_folder):
    return regard.load(model_folder("classify"))


@pytest.fixture(scope="module")
def hub_client(live):
    hub = pytest.importorskip("huggingface_hub")
    return lambda url="": hub.InferenceClient(url or live.url, token="unused")


def cosines(embedder, query, texts):
    answers = embedder.generate("\t".join([query, *texts]), num_return=len(texts))
    scores = {answer.text: answer.extra["cosine"] for answer in answers}
    return [scores[text] for text in texts]


def test_feature_extraction(hub_client, live, embedder):
    for url in (live.url, f"{live.url}/embed"):
        vectors = hub_client(url).feature_extraction(TEXTS, normalize=True)
        np.testing.assert_allclose(vectors, embedder.embed(TEXTS), atol=2e-6)
    assert hub_client().feature_extraction("tea").shape == (1, 16)


def test_text_classification(hub_client, live, classifier_server, classifier):
    best = classifier.generate("tea and water", num_return=6)
    for url in (classifier_server.url, f"{live.url}/predict"):
        answer = hub_client(url).text_classification("tea and water", top_k=2)
        assert answer.label == best[0].text
        assert answer.score == pytest.approx(best[0].score, abs=1e-5)


def test_sentence_similarity(hub_client, live, embedder):
    for url in (live.url, f"{live.url}/similarity"):
        answer = hub_client(url).sentence_similarity("tea", other_sentences=TEXTS)
        assert answer == pytest.approx(cosines(embedder, "tea", TEXTS), abs=2e-6)


def test_normalize_can_be_switched_off(start_server, model_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw") / "raw"
    shutil.copytree(model_folder("embed"), folder, ignore=shutil.ignore_patterns("step-*"))
    task = json.loads((folder / "task.json").read_text())
    (folder / "task.json").write_text(json.dumps(task | {"unit": False}))
    served, raw = start_server(folders={"raw": folder}), np.array(regard.load(folder).embed(TEXTS))
    np.testing.assert_allclose(served.post("/embed", {"inputs": TEXTS, "normalize": False}).json, raw, atol=1e-5)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    np.testing.assert_allclose(served.post("/embed", {"inputs": TEXTS}).json, unit, atol=1e-5)


def test_long_texts(live, embedder, classifier):
    tokens = len(embedder.tokenizer.encode([LONG])[0])
    for path, body in (("/embed", {"inputs": LONG}), ("/predict", {"inputs": LONG}), ("/", {"inputs": ["tea", LONG]})):
        response = live.post(path, body)
        assert (response.status, response.json["error_type"]) == (413, "Validation")
        assert f"{tokens} tokens" in response.json["error"]
        assert "64" in response.json["error"]
    cut = live.post("/embed", {"inputs": LONG, "truncate": True})
    np.testing.assert_allclose(cut.json[0], embedder.embed(LONG), atol=2e-6)
    scores = {item["label"]: item["score"] for item in live.post("/predict", {"inputs": LONG, "truncate": True}).json}
    assert scores == pytest.approx({p.text: p.score for p in classifier.generate(LONG, num_return=6)}, abs=1e-5)


@pytest.mark.parametrize(("first", "second"), [(1, 20), (20, 1), (20, 20)])
def test_a_long_pair_is_cut_as_the_tokenizer_cuts_it(live, folders, first, second):
    pair = ["tea water " * first, "milk bread " * second]
    body = {"inputs": pair, "model": "fit"}
    assert live.post("/predict", body).status == 413
    [answer] = live.post("/predict", {**body, "truncate": True}).json
    [expected] = regard.load(folders["fit"]).generate("\t".join(pair))
    assert answer["score"] == pytest.approx(expected.extra["value"], abs=1e-5)


def test_predict(live, classifier):
    def scores(text):
        return [(p.text, pytest.approx(p.score, abs=1e-5)) for p in classifier.generate(text, num_return=6)]

    def pairs(answer):
        return [(item["label"], item["score"]) for item in answer]

    assert pairs(live.post("/predict", {"inputs": TEXTS[0]}).json) == scores(TEXTS[0])
    batch = live.post("/predict", {"inputs": [[TEXTS[0]], [TEXTS[1]]]}).json
    assert [pairs(answer) for answer in batch] == [scores(TEXTS[0]), scores(TEXTS[1])]
    raw = live.post("/predict", {"inputs": TEXTS[0], "raw_scores": True}).json
    total = sum(math.exp(item["score"]) for item in raw)
    assert [(item["label"], math.exp(item["score"]) / total) for item in raw] == scores(TEXTS[0])


def test_predict_pairs_and_values(live, folders):
    [pair] = regard.load(folders["pair"]).generate(["tea\tmilk"])
    answer = live.post("/predict", {"inputs": ["tea", "milk"], "model": "pair"}).json
    assert (answer[0]["label"], answer[0]["score"]) == (pair[0].text, pytest.approx(pair[0].score, abs=1e-5))
    [value] = regard.load(folders["fit"]).generate("tea\tmilk")
    [answer] = live.post("/predict", {"inputs": ["tea", "milk"], "model": "fit"}).json
    assert answer == {"label": "LABEL_0", "score": pytest.approx(value.extra["value"], abs=1e-5)}


def test_rerank(live, embedder):
    texts = [*TEXTS, "tea"]
    ranks = live.post("/rerank", {"query": "tea", "texts": texts, "return_text": True}).json
    expected = cosines(embedder, "tea", texts)
    assert [rank["score"] for rank in ranks] == pytest.approx(sorted(expected, reverse=True), abs=2e-6)
    assert [rank["text"] for rank in ranks] == [texts[rank["index"]] for rank in ranks]
    assert ranks[0]["index"] == 3
    plain = live.post("/rerank", {"query": "tea", "texts": TEXTS}).json
    assert all({*rank} == {"index", "score"} for rank in plain)


@pytest.mark.parametrize("raw", [False, True])
def test_rerank_by_models_of_pairs(live, folders, raw):
    body = {"query": "tea", "texts": TEXTS, "raw_scores": raw}
    values = [x.extra["value"] for [x] in regard.load(folders["fit"]).generate([f"tea\t{text}" for text in TEXTS])]
    by_value = {rank["index"]: rank["score"] for rank in live.post("/rerank", {**body, "model": "fit"}).json}
    expected = values if raw else [1 / (1 + math.exp(-value)) for value in values]
    assert [by_value[i] for i in range(3)] == pytest.approx(expected, abs=1e-5)
    best = regard.load(folders["pair"]).generate([f"tea\t{text}" for text in TEXTS], num_return=2)
    chances = [next(p.score for p in predictions if p.text == "yes") for predictions in best]
    ranks = live.post("/rerank", {**body, "model": "pair"}).json
    scores = sorted((math.log(p / (1 - p)) if raw else p for p in chances), reverse=True)
    assert [rank["score"] for rank in ranks] == pytest.approx(scores, abs=1e-4)


def test_info(live, classifier):
    info = live.get("/info").json
    assert (info["model_id"], info["model_type"]) == ("embed", {"embedding": {"pooling": "mean"}})
    assert (info["max_input_length"], info["auto_truncate"], info["model_dtype"]) == (64, False, "float32")
    labels = live.get("/info?model=classify").json["model_type"]["classifier"]["id2label"]
    assert [*labels.values()] == classifier.task.labels
    assert live.get("/info?model=clasify").status == 404


def test_health_and_metrics_exist(live):
    assert live.get("/health").status == 200
    assert live.get("/metrics").status == 200


BAD = {
    "no inputs": ("/embed", {"texts": "tea"}, 422, "texts"),
    "empty": ("/embed", {"inputs": ""}, 422, "inputs"),
    "no texts": ("/embed", {"inputs": []}, 422, "inputs"),
    "token ids": ("/embed", {"inputs": [1, 2]}, 422, "inputs"),
    "prompt": ("/embed", {"inputs": "tea", "prompt_name": "query"}, 422, "prompt_name is not supported"),
    "dimensions": ("/embed", {"inputs": "tea", "dimensions": 4}, 422, "16 numbers, not 4"),
    "unknown model": ("/embed", {"inputs": "tea", "model": "embd"}, 404, "did you mean embed"),
    "a model of pictures": ("/predict", {"inputs": "/etc/passwd", "model": "image"}, 422, "reads images, not texts"),
    "wrong task": ("/predict", {"inputs": "tea", "model": "embed"}, 422, "needs classify or regress"),
    "three texts": ("/predict", {"inputs": ["a", "b", "c"]}, 422, "send a batch as"),
    "a tab": ("/predict", {"inputs": "a\tb"}, 422, "tab"),
    "NUL": ("/embed", {"inputs": "a\0"}, 422, "NUL"),
    "labels": ("/rerank", {"query": "a", "texts": ["b"], "model": "classify"}, 422, "no label of this model"),
    "similarity": ("/", {"inputs": {"source_sentence": "a"}}, 422, "sentences"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_get_tei_errors(live, name):
    path, body, status, message = BAD[name]
    response = live.post(path, body)
    assert (response.status, {*response.json}) == (status, {"error", "error_type"}), response.json
    assert message in response.json["error"]


def test_a_full_queue(live, monkeypatch):
    from regard.scheduler import QueueFull, Scheduler

    def refuse(*args, **kwargs):
        raise QueueFull(7)

    monkeypatch.setattr(Scheduler, "submit", refuse)
    response = live.post("/embed", {"inputs": "tea"})
    assert (response.status, response.headers["retry-after"], response.json["error_type"]) == (429, "7", "Overloaded")


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl(live, embedder):
    command = ["curl", "-sS", f"{live.url}/embed", "-H", "Content-Type: application/json", "-d", '{"inputs": "tea"}']
    run = subprocess.run(command, capture_output=True)
    np.testing.assert_allclose(json.loads(run.stdout), [embedder.embed("tea")], atol=2e-6)
