"""POST /v1/run/{model} answers as the model itself does, for every task, and says what is wrong with a request."""

import base64
import json

import numpy as np
import pytest

import regard
from regard.modalities.synthetic import cart
from regard.modalities.trajectory.episode_files import write_episodes
from regard.receipts import replay
from regard.training.train import train
from regard.view.alignment import align
from regard.view.attention_maps import attention_maps
from regard.view.trace import trace_text

# The input of each task over HTTP, and in Python.
INPUTS = {
    "translate": ("tea and milk", "tea and milk"),
    "write": ("tea and", "tea and"),
    "fill": ("tea [MASK] milk", "tea [MASK] milk"),
    "classify": ("tea and milk", "tea and milk"),
    "regress": ("tea and milk", "tea and milk"),
    "tag": ("tea and milk", "tea and milk"),
    "answer": ({"question": "what?", "document": "tea and milk"}, "what?\ttea and milk"),
    "embed": ({"text": "tea", "candidates": ["milk", "tea tea"]}, "tea\tmilk\ttea tea"),
}
OPTIONS = {
    "write": {"temperature": 0.7, "seed": 3, "max_new_tokens": 12},
    "translate": {"num_beams": 3, "num_return": 2},
}


@pytest.fixture(scope="module")
def loaded(model_folder):
    models = {}

    def load(name):
        return models.setdefault(name, regard.load(model_folder(name), speed="exact"))

    return load


def as_json(prediction):
    fields = {"text": prediction.text, "logprob": prediction.logprob, "score": prediction.score, **prediction.extra}
    return {
        name: pytest.approx(value, abs=1e-5) if isinstance(value, float) else value for name, value in fields.items()
    }


def events(response):
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = response.body.decode().split("\n")
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


@pytest.mark.parametrize("task", INPUTS)
def test_every_task_answers_as_the_model_does(server, loaded, task):
    query, raw = INPUTS[task]
    options = OPTIONS.get(task, {})
    response = server.post(f"/v1/run/{task}", {"input": query, "options": options})
    assert response.status == 200, response.body
    answer = response.json
    expected = loaded(task).generate(raw, **options)
    assert answer["predictions"] == [as_json(prediction) for prediction in expected]
    assert (answer["model"], answer["task"]) == (task, task)
    assert len(answer["finish_reasons"]) == len(expected)
    assert answer["usage"]["prompt_tokens"] > 0
    assert {*answer} == {"model", "task", "predictions", "finish_reasons", "usage"}


TINY = {"dim": 16, "heads": 2, "layers": 1, "steps": 2, "evals": 1, "seed": 1, "device": "cpu", "batch_tokens": 200}
SMILES = ["CCO", "CCN", "CCC", "COC", "CNC", "CC=O"] * 5
CHAINS = [("MKTAYIAKQRLDEFGH" * 3)[i : i + 12] for i in range(16)]


@pytest.fixture(scope="module")
def other_folders(tmp_path_factory):
    """Models of molecules, proteins, series and trajectories."""
    folder = tmp_path_factory.mktemp("others")
    molecules, proteins, series, episodes = (folder / name for name in ("m.tsv", "p.fasta", "series.csv", "cart.jsonl"))
    molecules.write_text("".join(f"{smiles}\t{i % 6}\n" for i, smiles in enumerate(SMILES)))
    proteins.write_text("".join(f">{i}\n{chain}\n" for i, chain in enumerate(CHAINS)))
    labels = folder / "labels.fasta"
    labels.write_text("".join(f">{i}\n{'HHHCCCEEEHHC'}\n" for i, _ in enumerate(CHAINS)))
    values = np.sin(np.arange(200) / 5)
    series.write_text("value\n" + "".join(f"{value:.4f}\n" for value in values))
    write_episodes(episodes, [episode for episode, _ in zip(cart.carts(6), range(6), strict=False)])
    recipes = {
        "molecule": ("regress", molecules, {"model": "graphormer", "hidden": 24, "modality": "molecule"}),
        "protein": ("tag", [proteins, labels], {"hidden": 24, "conv_layers": 1, "context": 32, "modality": "protein"}),
        "forecast": ("predict", series, {"hidden": 24, "context": 16, "modality": "series"}),
        "decide": ("decide", episodes, {"hidden": 24, "context": 8, "modality": "trajectory"}),
    }
    for name, (task, data, options) in recipes.items():
        for _ in train(task, data=data, valid_share=0.2, output_dir=folder / name, **TINY, **options):
            pass
    return {name: folder / name for name in recipes}


def test_molecules_proteins_series_and_trajectories(start_server, other_folders):
    pytest.importorskip("rdkit")
    others = start_server(folders=other_folders)
    folder = other_folders["forecast"].parent
    for name, raw in (("molecule", "CCO"), ("protein", "MKTAYIAKQRQI")):
        answer = others.post(f"/v1/run/{name}", {"input": raw}).json
        assert answer["predictions"] == [as_json(p) for p in regard.load(other_folders[name]).generate(raw)]
    for name, file in (("forecast", "series.csv"), ("decide", "cart.jsonl")):
        content = base64.b64encode((folder / file).read_bytes()).decode()
        answer = others.post(f"/v1/run/{name}", {"file": content, "filename": file}).json
        [expected] = regard.load(other_folders[name]).generate(str(folder / file))
        assert answer["predictions"][0]["text"] == expected.text
        assert others.post(f"/v1/run/{name}", {"input": str(folder / file)}).status == 422
    inline = {"input": json.dumps(np.sin(np.arange(60) / 5).tolist()), "options": {"horizon": 3, "ahead": True}}
    assert len(others.post("/v1/run/forecast", inline).json["predictions"][0]["observations"]) == 3
    for options, message in (
        ({"save": str(folder / "x.png")}, "unknown option"),
        ({"horizon": 10**9}, "at most 10,000"),
    ):
        refused = others.post("/v1/run/forecast", inline | {"options": options})
        assert (refused.status, message in refused.json["error"]["message"]) == (422, True)
    assert not (folder / "x.png").exists()


def test_a_text_to_embed_without_candidates_gives_its_vector(server, loaded):
    answer = server.post("/v1/run/embed", {"input": "tea and milk"}).json
    assert answer["vector"] == pytest.approx(loaded("embed").embed("tea and milk"), abs=1e-5)
    assert answer["predictions"] == []


def test_fields_by_name_and_in_order_are_the_same_request(server):
    named = server.post("/v1/run/answer", {"input": {"document": "tea and milk", "question": "what?"}}).json
    ordered = server.post("/v1/run/answer", {"input": ["what?", "tea and milk"]}).json
    assert named["predictions"] == ordered["predictions"]
    pair = server.post("/v1/run/classify", {"input": ["tea", "milk"]})
    assert pair.status in (200, 422)  # this tokenizer may have no layout for two texts
    assert pair.status == 200 or "two texts" in pair.json["error"]["message"]


@pytest.mark.parametrize("task", ["write", "translate"])
def test_the_pieces_of_a_stream_are_the_answer(server, task):
    query = {"input": INPUTS[task][0], "options": {"max_new_tokens": 12}}
    plain = server.post(f"/v1/run/{task}", query).json
    *tokens, done, end = events(server.post(f"/v1/run/{task}", query | {"stream": True}))
    tokens = [json.loads(token) for token in tokens]
    best = plain["predictions"][0]
    assert "".join(token["text"] for token in tokens) == best.get("continuation", best["text"])
    assert json.loads(done)["done"] == plain
    assert end == "[DONE]"
    assert all({*token} == {"text", "token", "logprob"} for token in tokens)


def test_a_stream_of_a_task_without_tokens_is_one_event(server):
    done, end = events(server.post("/v1/run/classify", {"input": "tea", "stream": True}))
    assert json.loads(done)["done"]["predictions"][0]["text"]
    vector, end = events(server.post("/v1/run/embed", {"input": "tea", "stream": True}))
    assert len(json.loads(vector)["done"]["vector"]) == 16
    assert end == "[DONE]"


def test_the_alignment_is_that_of_cross_attention(server, loaded):
    text = "tea  and milk\n\nwater please"
    answer = server.post("/v1/run/translate", {"input": text, "alignment": True}).json
    translation = answer["predictions"][0]["text"]
    lines = [(s, t) for s, t in zip(text.split("\n"), translation.split("\n"), strict=True) if s]
    assert len(answer["alignment"]) == len(lines) == 2
    model = regard.load(loaded("translate").reload[1][0])
    for (source, target), line in zip(lines, answer["alignment"], strict=True):
        expected = align(model, source, target)
        assert [word["text"] for word in line["source"]] == expected.source
        np.testing.assert_allclose(line["weights"], expected.weights, atol=1e-4)
    for side, whole in (("source", text), ("target", translation)):
        words = [word for line in answer["alignment"] for word in line[side] if word["start"] is not None]
        assert [whole[word["start"] : word["end"]] for word in words] == [word["text"] for word in words]
        assert [word["text"] for word in words] == whole.split()


def test_attention_is_the_mean_of_the_heads_of_every_layer(server, loaded):
    answer = server.post("/v1/run/tag", {"input": "tea and milk", "attention": True}).json
    [weights] = answer["attention"]
    model = regard.load(loaded("tag").reload[1][0])
    [expected] = attention_maps(trace_text(model, "tea and milk"))
    np.testing.assert_allclose(weights["weights"], expected.weights.mean(1), atol=1e-4)
    assert weights["keys"] == expected.keys.tokens


def test_models_without_an_alignment_say_so(server, start_server, model_folder, tmp_path):
    data, folder = model_folder("translate").parent / "pairs.tsv", tmp_path / "plain"
    sizes = {"dim": 16, "layers": 1, "context": 64, "batch_tokens": 300, "device": "cpu", "seed": 1}
    for _ in train("translate", model="recurrent", attention=False, data=data, steps=2, output_dir=folder, **sizes):
        pass
    plain = start_server(folders={"plain": folder})
    query = {"input": "tea", "alignment": True}
    refused = [server.post("/v1/run/write", query), plain.post("/v1/run/plain", query | {"stream": True})]
    for response in refused:
        assert response.status == 422
        assert response.json["error"]["param"] == "alignment"
    assert plain.post("/v1/run/plain", {"input": "tea"}).status == 200


@pytest.mark.parametrize(
    ("model", "body", "status", "message"),
    [
        ("transalte", {"input": "tea"}, 404, "did you mean translate?"),
        ("translate", {}, 422, "the field text is missing"),
        ("translate", {"input": {"txt": "tea"}}, 422, "it has text"),
        ("translate", {"input": ["tea", "milk"]}, 422, "has 2 fields"),
        ("translate", {"input": 3}, 422, "input"),
        ("translate", {"inputs": "tea"}, 422, "inputs"),
        ("translate", {"input": "tea", "options": {"num_beam": 2}}, 422, "did you mean num_beams?"),
        ("translate", {"input": "tea", "options": {"num_beams": "two"}}, 422, "must be a whole number"),
        ("translate", {"input": "tea", "options": {"num_beams": 0}}, 422, "at least 1"),
        ("translate", {"input": "tea", "options": {"num_beams": 5000}}, 422, "at most 64"),
        ("translate", {"input": "tea", "file": "AAAA"}, 422, "reads texts as text"),
        ("translate", {"input": "tea \0"}, 422, "NUL"),
        ("answer", {"input": {"question": "what?"}}, 422, "document is missing"),
        ("answer", {"input": "what?"}, 422, "question and document"),
        ("answer", {"input": {"question": ["a", "b"], "document": "c"}}, 422, "one text"),
        ("answer", {"input": {"question": "a\tb", "document": "c"}}, 422, "a tab"),
        ("classify", {"input": "tea\tmilk"}, 422, "as a list"),
        ("embed", {"input": {"text": "tea", "candidates": ["a\tb"]}}, 422, "a tab"),
        ("fill", {"input": "tea"}, 422, "[MASK]"),
        ("write", {"input": "tea", "attention": True, "options": {"stop": ""}}, 422, "stop"),
    ],
)
def test_a_wrong_request_gets_one_message(server, model, body, status, message):
    for path in ("run", "look"):
        if path == "look" and message in ("[MASK]", "NUL"):
            continue  # the page of a text without a mask, or with this character, exists
        response = server.post(f"/v1/{path}/{model}", body)
        assert response.status == status, response.body
        assert message in response.json["error"]["message"]
    assert server.post("/v1/run/translate", {"input": "tea"}).status == 200


def test_a_tab_counts_as_a_space_where_it_separates_nothing(server, loaded):
    for task, query in (("tag", "tea\tmilk"), ("answer", {"question": "what?", "document": "tea\tand milk"})):
        raw = query if task == "tag" else "what?\ttea\tand milk"
        answer = server.post(f"/v1/run/{task}", {"input": query}).json
        assert answer["predictions"][0]["text"] == loaded(task)(raw)


def test_a_text_beyond_the_context_is_refused_with_both_numbers(server):
    response = server.post("/v1/run/write", {"input": "tea and milk please " * 200})
    if response.status == 413:  # models that write drop the oldest tokens instead
        assert "64" in response.json["error"]["message"]
    response = server.post("/v1/look/tag", {"input": "tea " * 300})
    assert response.status in (413, 422)
    assert any(number in response.json["error"]["message"] for number in ("256", "64"))


def test_options_that_name_files_or_environments_of_the_server_are_refused():
    from regard.serve.model_description import remote_options
    from regard.tasks.decide import DecideOptions
    from regard.tasks.predict import ForecastOptions
    from regard.tasks.write import WriteOptions

    assert {"save", "env"} < {*ForecastOptions.__dataclass_fields__, *DecideOptions.__dataclass_fields__}
    assert "save" not in remote_options(ForecastOptions)
    assert "env" not in remote_options(DecideOptions)
    assert {"stop", "temperature"} < {*remote_options(WriteOptions)}


def test_every_model_describes_its_input_with_an_example_that_it_answers(server):
    models = server.get("/v1/models").json["data"]
    assert [model["id"] for model in models] == [*INPUTS]
    for model in models:
        assert model["input"] == ("fields" if model["id"] in ("answer", "embed") else "text")
        assert model["streams"] == (model["id"] in ("translate", "write"))
        response = server.post(f"/v1/run/{model['id']}", {"input": model["example"]})
        assert response.status == 200, (model, response.body)
        defaults = {
            option["name"]: option["default"] for option in model["options"] if option["default"] not in ("", [])
        }
        response = server.post(f"/v1/run/{model['id']}", {"input": model["example"], "options": defaults})
        assert response.status == 200, response.body


def test_the_look_page_is_sandboxed_html_or_a_link_that_expires(server, monkeypatch):
    query = {"input": "tea and milk", "target": "Tee und Milch"}
    page = server.post("/v1/look/translate", query)
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("sandbox allow-scripts;")
    assert b"Tee und Milch" in page.body
    url = server.post("/v1/look/translate", query | {"link": True}).json["url"]
    linked = server.get(url)
    assert (linked.status, linked.body) == (200, page.body)
    assert linked.headers["content-security-policy"] == page.headers["content-security-policy"]
    monkeypatch.setattr("regard.serve.look_api.LINK_SECONDS", -1)
    expired = server.get(server.post("/v1/look/translate", query | {"link": True}).json["url"])
    assert (expired.status, expired.json["error"]["code"]) == (404, "expired")


def test_a_story_is_looked_at_to_its_end(server):
    story = "tea and water please, milk and bread. " * 30
    page = server.post("/v1/look/write", {"input": story})
    assert page.status == 200, page.body


def test_a_reproducible_server_gives_a_receipt_that_can_be_replayed(start_server, model_folder):
    exact = start_server("translate", "write", "image", reproducible=True)
    picture = next(model_folder("image").parent.glob("pictures/red/*.png"))
    upload = {"file": base64.b64encode(picture.read_bytes()).decode(), "filename": "x.png"}
    for name, query in (("translate", {"input": "tea and milk"}), ("write", {"input": "tea and"}), ("image", upload)):
        receipt = exact.post(f"/v1/run/{name}", query).json["receipt"]
        verdict = replay(receipt, regard.load(model_folder(name)), picture if name == "image" else None)
        assert verdict.holds, verdict
        assert str(model_folder(name)) not in json.dumps(receipt)
    receipt["answer"]["predictions"][0]["logprob"] += 1e-6
    assert not replay(receipt, regard.load(model_folder("image")), picture).same_bits
