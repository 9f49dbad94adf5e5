"""OpenAI's routes, by the client of OpenAI; expected values are those of the loaded model itself."""

import base64
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import regard

openai = pytest.importorskip("openai")

GREEDY = {"temperature": 0.0}
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: tea{% endif %}"
)


@pytest.fixture(scope="module")
def chat_folder(model_folder, tmp_path_factory):
    """The model of `write`, with a chat template."""
    folder = tmp_path_factory.mktemp("chat") / "chat"
    shutil.copytree(model_folder("write"), folder, ignore=shutil.ignore_patterns("step-*"))
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def live(start_server, chat_folder):
    return start_server("write", "embed", "classify", "speech", "translate", folders={"chat": chat_folder})


@pytest.fixture(scope="module")
def client(live):
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def writer(model_folder):
    return regard.load(model_folder("write"))


def continuations(writer, prompt, **options):
    return [answer.extra["continuation"] for answer in writer.generate(prompt, **options)]


def count_tokens(writer, text):
    return len(writer.tokenizer.encode([text])[0])


def test_models(client):
    assert [model.id for model in client.models.list()] == ["write", "embed", "classify", "speech", "translate", "chat"]
    model = client.models.retrieve("embed")
    assert (model.id, model.object, model.owned_by, model.task) == ("embed", "model", "regard", "embed")
    with pytest.raises(openai.NotFoundError, match="did you mean write"):
        client.models.retrieve("wrte")


@pytest.mark.parametrize(
    "options", [GREEDY, {"temperature": 0.9, "seed": 5}, {"temperature": 1.0, "top_p": 0.5, "seed": 2}]
)
def test_completion(client, writer, options):
    response = client.completions.create(model="write", prompt="tea and", max_tokens=9, **options)
    [expected] = continuations(writer, "tea and", max_new_tokens=9, **{"top_p": 0.95, **options})
    [choice] = response.choices
    assert (choice.text, choice.index, choice.finish_reason) == (expected, 0, "length")
    assert response.object == "text_completion"
    assert response.model == "write"
    usage = response.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (count_tokens(writer, "tea and"), 9)
    assert usage.total_tokens == usage.prompt_tokens + 9


def test_a_list_of_prompts_with_echo(client, writer):
    prompts = ["tea", "milk and"]
    response = client.completions.create(model="write", prompt=prompts, max_tokens=4, echo=True, **GREEDY)
    assert [choice.index for choice in response.choices] == [0, 1]
    assert [c.text for c in response.choices] == [writer(p, max_new_tokens=4, **GREEDY) for p in prompts]
    assert response.usage.prompt_tokens == sum(count_tokens(writer, prompt) for prompt in prompts)
    assert response.usage.completion_tokens == 8


@pytest.mark.parametrize("options", [{"temperature": 1.0, "seed": 3}, GREEDY])
def test_several_answers(client, writer, options):
    beams = {"num_beams": 3} if options == GREEDY else {"top_p": 0.95}
    expected = continuations(writer, "tea", num_return=3, max_new_tokens=5, **options, **beams)
    response = client.completions.create(model="write", prompt="tea", n=3, max_tokens=5, **options)
    assert [choice.text for choice in response.choices] == expected
    assert [choice.index for choice in response.choices] == [0, 1, 2]
    chunks = client.completions.create(model="write", prompt="tea", n=3, max_tokens=5, stream=True, **options)
    texts = ["", "", ""]
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == expected


def test_without_a_seed_answers_differ(client):
    sampled = [
        client.completions.create(model="write", prompt="t", max_tokens=30, temperature=2.0).choices[0].text
        for _ in range(3)
    ]
    assert len({*sampled}) > 1


@pytest.mark.parametrize("count", [1, 2])
def test_stop(client, writer, count):
    options = {"temperature": 1.5, "top_p": 0.95, "seed": 4}
    [full] = continuations(writer, "tea and", max_new_tokens=40, **options)
    stops = [full[12:15], "zzz"][:count]
    expected = full.split(stops[0])[0]
    body = {
        "model": "write",
        "prompt": "tea and",
        "max_tokens": 40,
        "stop": stops if count > 1 else stops[0],
        **options,
    }
    response = client.completions.create(**body)
    assert (response.choices[0].text, response.choices[0].finish_reason) == (expected, "stop")
    assert response.usage.completion_tokens < 40
    chunks = [*client.completions.create(stream=True, **body)]
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_streamed_completion(client, writer):
    prompts = ["tea and", "milk"]
    chunks = [
        *client.completions.create(
            model="write", prompt=prompts, max_tokens=12, stream=True, stream_options={"include_usage": True}, **GREEDY
        )
    ]
    texts, reasons = ["", ""], ["", ""]
    for chunk in chunks[:-1]:
        [choice] = chunk.choices
        texts[choice.index] += choice.text
        reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        assert chunk.usage is None
        assert chunk.id == chunks[0].id
    assert texts == [continuations(writer, prompt, max_new_tokens=12, **GREEDY)[0] for prompt in prompts]
    assert reasons == ["length", "length"]
    assert len(chunks) > 5
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 24
    assert chunks[-1].usage.prompt_tokens == sum(count_tokens(writer, prompt) for prompt in prompts)


def test_the_last_event_of_a_stream_is_done(live):
    body = {"model": "write", "prompt": "tea", "stream": True, "max_tokens": 2}
    response = live.post("/v1/completions", body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.body.endswith(b"data: [DONE]\n\n")
    events = [json.loads(line[6:]) for line in response.body.decode().splitlines() if line.startswith("data: {")]
    assert all("usage" not in event or event["usage"] is None for event in events)


def test_logprobs(client, writer):
    options = {"model": "write", "prompt": "tea and", "max_tokens": 8, **GREEDY}
    [answer] = writer.generate("tea and", max_new_tokens=8, **GREEDY)
    choice = client.completions.create(logprobs=1, **options).choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text == answer.extra["continuation"]
    assert choice.logprobs.text_offset == [len("".join(choice.logprobs.tokens[:i])) for i in range(8)]
    assert [*choice.logprobs.top_logprobs[0].values()] == choice.logprobs.token_logprobs[:1]
    assert len(choice.logprobs.token_logprobs) == 8
    assert max(choice.logprobs.token_logprobs) <= 0
    chunks = client.completions.create(logprobs=0, stream=True, **options)
    streamed = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    assert [token for part in streamed for token in part.tokens] == choice.logprobs.tokens
    assert [x for part in streamed for x in part.token_logprobs] == choice.logprobs.token_logprobs
    assert streamed[-1].text_offset == choice.logprobs.text_offset[-1:]


def test_chat(client, writer):
    messages = [
        {"role": "system", "content": " brief "},
        {"role": "user", "content": [{"type": "text", "text": "tea?"}, {"type": "text", "text": "milk?"}]},
    ]
    prompt = "system: brief\nuser: tea?\nmilk?\nassistant: tea"
    [expected] = continuations(writer, prompt, max_new_tokens=7, **GREEDY)
    response = client.chat.completions.create(model="chat", messages=messages, max_completion_tokens=7, **GREEDY)
    [choice] = response.choices
    assert (choice.message.content, choice.message.role, choice.finish_reason) == (expected, "assistant", "length")
    assert response.object == "chat.completion"
    assert response.usage.completion_tokens == 7
    assert response.usage.prompt_tokens == count_tokens(writer, prompt)
    chunks = [
        *client.chat.completions.create(
            model="chat", messages=messages, max_tokens=7, stream=True, stream_options={"include_usage": True}, **GREEDY
        )
    ]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == expected
    assert [c.choices[0].finish_reason for c in chunks[:-1] if c.choices[0].finish_reason] == ["length"]
    assert chunks[-1].usage == response.usage.model_copy()
    assert chunks[-1].choices == []


def test_chat_logprobs(client):
    options = {"model": "chat", "messages": [{"role": "user", "content": "tea"}], "max_tokens": 5, **GREEDY}
    choice = client.chat.completions.create(logprobs=True, top_logprobs=1, **options).choices[0]
    tokens = choice.logprobs.content
    assert "".join(token.token for token in tokens) == choice.message.content
    assert all(token.top_logprobs[0].logprob == token.logprob for token in tokens)
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == choice.message.content


def test_an_assistant_message_can_be_sent_back(client):
    messages = [{"role": "user", "content": "tea"}]
    answer = client.chat.completions.create(model="chat", messages=messages, max_tokens=3)
    messages += [answer.choices[0].message.model_dump(), {"role": "user", "content": "and?"}]
    assert client.chat.completions.create(model="chat", messages=messages, max_tokens=3).choices[0].message.content


def test_a_model_without_a_template_refuses_chat(client):
    with pytest.raises(openai.BadRequestError, match="no chat template: add chat_template.jinja") as caught:
        client.chat.completions.create(model="write", messages=[{"role": "user", "content": "tea"}])
    assert caught.value.code == "no_chat_template"
    assert caught.value.param == "model"


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_embeddings(client, model_folder, encoding):
    texts = ["tea and water", "milk", "please " * 3]
    expected = regard.load(model_folder("embed")).embed(texts)
    chosen = {"encoding_format": encoding} if encoding else {}  # without it, the client asks for base64 and decodes it
    response = client.embeddings.create(model="embed", input=texts, **chosen)
    vectors = [item.embedding for item in response.data]
    if encoding == "base64":
        vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in vectors]
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert [item.index for item in response.data] == [0, 1, 2]
    assert response.usage.total_tokens == response.usage.prompt_tokens > 10


def test_embeddings_of_a_classifier(client, model_folder):
    response = client.embeddings.create(model="classify", input="tea", dimensions=16)
    np.testing.assert_allclose(
        response.data[0].embedding, regard.load(model_folder("classify")).embed("tea"), atol=2e-5
    )


def test_many_embeddings(client, model_folder):
    texts = [f"tea {i}" for i in range(150)]  # more than are queued at once
    response = client.embeddings.create(model="embed", input=texts)
    np.testing.assert_allclose(
        response.data[149].embedding, regard.load(model_folder("embed")).embed("tea 149"), atol=2e-6
    )


@pytest.mark.parametrize("form", ["json", "text", "verbose_json"])
def test_transcription(client, model_folder, form):
    file = model_folder("speech").parent / "3.wav"
    expected = regard.load(model_folder("speech"))(file)
    with open(file, "rb") as audio:
        answer = client.audio.transcriptions.create(model="speech", file=audio, response_format=form)
    assert (answer.rstrip("\n") if form == "text" else answer.text) == expected
    if form == "verbose_json":
        assert answer.duration == pytest.approx(0.1)


def cancelled_jobs(live):
    return sum(served.scheduler.stats().cancelled for served in live.registry.served())


LONG = {"model": "write", "max_tokens": 100_000, "temperature": 1.0}


def test_a_closed_stream_cancels_its_jobs(live, client):
    before = cancelled_jobs(live)
    with client.completions.create(prompt=["tea", "milk"], stream=True, **LONG) as stream:
        assert [next(stream).object for _ in range(3)] == ["text_completion"] * 3
    live.wait_for(lambda: cancelled_jobs(live) == before + 2)
    live.wait_until_idle()


@pytest.mark.parametrize("fields", [{}, {"logprobs": 0}])
def test_a_client_that_leaves_cancels_its_jobs(live, client, fields):
    before = cancelled_jobs(live)
    with pytest.raises(openai.APITimeoutError):
        client.completions.create(prompt="tea", timeout=0.3, **LONG, **fields)
    live.wait_for(lambda: cancelled_jobs(live) == before + 1)
    live.wait_until_idle()


BAD = {
    "unknown model": ("completions", {"model": "wriet", "prompt": "a"}, 404, "did you mean write"),
    "wrong task": ("completions", {"model": "embed", "prompt": "a"}, 400, "needs write"),
    "no model": ("completions", {"prompt": "a"}, 400, "model"),
    "best_of": ("completions", {"model": "write", "prompt": "a", "best_of": 3}, 400, "best_of is not supported"),
    "suffix": ("completions", {"model": "write", "prompt": "a", "suffix": "b"}, 400, "suffix is not supported"),
    "token ids": ("completions", {"model": "write", "prompt": [1, 2]}, 400, r"prompt\[0\]"),
    "stops": ("completions", {"model": "write", "prompt": "a", "stop": ["a"] * 5}, 400, "stop"),
    "penalty": ("completions", {"model": "write", "prompt": "a", "presence_penalty": 1}, 400, "repetition_penalty"),
    "logprobs": ("completions", {"model": "write", "prompt": "a", "logprobs": 3}, 400, "logprobs is 3"),
    "echo and logprobs": ("completions", {"model": "write", "echo": True, "logprobs": 0}, 400, "leave out echo"),
    "temperature": ("completions", {"model": "write", "temperature": 3}, 400, "temperature"),
    "NUL": ("completions", {"model": "write", "prompt": "a\0b"}, 400, "NUL"),
    "unknown field": ("completions", {"model": "write", "promt": "a"}, 400, "promt"),
    "streamed unknown model": ("completions", {"model": "x", "stream": True}, 404, "unknown model"),
    "streamed n": ("completions", {"model": "write", "n": 0, "stream": True}, 400, "n"),
    "no messages": ("chat/completions", {"model": "chat", "messages": []}, 400, "messages"),
    "picture": (
        "chat/completions",
        {"model": "chat", "messages": [{"role": "user", "content": [{"type": "image_url", "text": ""}]}]},
        *(400, "image_url"),
    ),
    "tools": (
        "chat/completions",
        {"model": "chat", "messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]},
        *(400, "tools is not supported"),
    ),
    "format": (
        "chat/completions",
        {"model": "chat", "messages": [{"role": "user"}], "response_format": {"type": "json_object"}},
        *(400, "response_format"),
    ),
    "dimensions": ("embeddings", {"model": "embed", "input": "a", "dimensions": 5}, 400, "16 numbers, not 5"),
    "empty text": ("embeddings", {"model": "embed", "input": ""}, 400, "input"),
    "long text": (
        "embeddings",
        {"model": "embed", "input": "a" * 99},
        413,
        r"\d+ tokens, and the context of the model 64",
    ),
    "recording as text": ("embeddings", {"model": "speech", "input": "a.wav"}, 400, "speech is a model for translate"),
    "transcription as JSON": ("audio/transcriptions", {"model": "speech"}, 415, "multipart/form-data"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_get_openai_errors(live, name):
    route, body, status, message = BAD[name]
    response = live.post(f"/v1/{route}", body)
    error = response.json["error"]
    assert response.status == status, error
    assert re.search(message, error["message"]), error
    assert {*error} == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "speech", "response_format": "srt"}, "response_format"),
        ({"model": "translate"}, "reads texts, not recordings"),
        ({"model": "speech", "prompt": "words"}, "prompt is not supported"),
    ],
)
def test_bad_transcriptions(client, model_folder, fields, message):
    with pytest.raises(openai.BadRequestError, match=message):
        client.audio.transcriptions.create(file=model_folder("speech").parent / "1.wav", **fields)


def test_a_broken_recording_names_no_path(client):
    with pytest.raises(openai.BadRequestError, match="the uploaded file") as caught:
        client.audio.transcriptions.create(model="speech", file=("a.wav", b"RIFF0000"))
    assert "/tmp" not in str(caught.value)


def test_curl(live, writer):
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    body = json.dumps({"model": "write", "prompt": "tea", "max_tokens": 3, **GREEDY})
    url = f"{live.url}/v1/completions"
    run = subprocess.run(["curl", "-sS", url, "-H", "Content-Type: application/json", "-d", body], capture_output=True)
    assert json.loads(run.stdout)["choices"][0]["text"] == continuations(writer, "tea", max_new_tokens=3, **GREEDY)[0]
    forgotten = subprocess.run(["curl", "-sS", url, "-d", body], capture_output=True)
    assert "Content-Type: application/json" in json.loads(forgotten.stdout)["error"]["message"]
