"""LoadedModel as Python uses it: calls, generate, stream, embed, save_pretrained, to, copies; and `regard.train`."""

import copy
import inspect
import json
import os
import pickle
import pydoc
import subprocess
import sys
import threading

import pytest
import torch

import regard
from regard.cli import main
from regard.load import load
from regard.tasks.task import DecodeOptions, Prediction
from regard.training.settings import options

TEXT = "tea and water please"


@pytest.fixture(scope="module")
def loaded(small_run):
    return load(small_run)


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "write"
    file = tmp_path_factory.mktemp("data") / "story.txt"
    file.write_text("tea and water please, milk and bread. " * 40, encoding="utf-8")
    options = {"dim": 16, "heads": 2, "layers": 1, "context": 32, "batch_tokens": 64}
    for _ in regard.train("write", model="gpt", data=file, output_dir=folder, steps=30, evals=1, **options):
        pass
    return load(folder, "cpu")


def test_num_return_gives_a_list_of_that_many(loaded):
    best = loaded(TEXT, num_return=3)
    assert len(best) == len({*best}) == 3
    assert best[0] == loaded(TEXT)
    assert loaded([TEXT, "milk"], num_return=3) == [best, loaded("milk", num_return=3)]
    assert loaded(TEXT, num_return=1) == best[:1]
    assert loaded([]) == []


def test_generate_gives_answers_with_log_probabilities(loaded):
    answers = loaded.generate(TEXT, num_return=3)
    assert [answer.text for answer in answers] == loaded(TEXT, num_return=3)
    assert all(answer.logprob < 0 for answer in answers)
    assert answers == sorted(answers, key=lambda answer: -answer.score)
    with regard.reproducible():
        together = loaded.generate([TEXT, "milk"], num_return=3)
        assert together == [loaded.generate(text, num_return=3) for text in (TEXT, "milk")]
    assert [*loaded.predict([TEXT], loaded.make_options(num_return=3))] == [answers]
    assert loaded.generate([]) == []


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 60},
        {"temperature": 0.0, "max_new_tokens": 60},
        {"temperature": 0.0, "num_beams": 3},
        {"temperature": 1.5, "max_new_tokens": 40, "seed": 3},
        {"stop": "milk and", "max_new_tokens": 60},
        {"stop": "and water p", "temperature": 1.2, "max_new_tokens": 60},
    ],
    ids=str,
)
def test_a_stream_has_the_text_of_a_call(writer, options):
    for prompt in ("", "tea", "tea and", "milk and bread. tea "):
        assert "".join(writer.stream(prompt, **options)) == writer(prompt, **options)


def test_a_stream_yields_while_it_generates(writer, monkeypatch):
    pieces = [*writer.stream("tea", temperature=0.0, max_new_tokens=40)]
    assert len(pieces) > 5
    steps, step = [], writer.model.next_logits
    monkeypatch.setattr(writer.model, "next_logits", lambda *args: steps.append(1) or step(*args))
    stream = writer.stream("tea", temperature=0.0, max_new_tokens=2000)
    assert next(stream)
    stream.close()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon:
            thread.join(5)
    assert len(steps) < 1000, "a closed stream ends its thread"


def test_a_stream_is_in_the_mode_and_the_trace_of_its_caller(writer):
    with regard.reproducible(), regard.look(writer.model) as activations:
        text = "".join(writer.stream("tea", max_new_tokens=9))
    assert activations
    with regard.reproducible():
        assert text == writer("tea", max_new_tokens=9)
        with pytest.raises(ValueError, match="is not known to be batch-invariant"):
            torch.linalg.svd(torch.ones(2, 2))


def test_a_stream_of_a_translation_is_its_text(loaded):
    assert "".join(loaded.stream(TEXT)) == loaded(TEXT)
    assert "".join(loaded.stream(TEXT, num_beams=1)) == loaded(TEXT, num_beams=1)


def test_a_stream_refuses_what_it_cannot_do(loaded, writer, monkeypatch):
    with pytest.raises(ValueError, match="a stream is one answer: leave out num_return"):
        writer.stream(TEXT, num_return=2, temperature=1.0)
    with pytest.raises(TypeError, match="each text must be a str, not int"):
        writer.stream(3)
    monkeypatch.setattr(type(loaded.task), "decode_options", DecodeOptions)
    with pytest.raises(ValueError, match="the task translate generates no text to stream"):
        loaded.stream(TEXT)


def test_an_error_of_the_model_reaches_the_reader_of_a_stream(writer, monkeypatch):
    def broken(*args):
        raise FloatingPointError("no numbers")

    monkeypatch.setattr(writer.model, "next_logits", broken)
    with pytest.raises(FloatingPointError, match="no numbers: all its weights are finite"):
        [*writer.stream("tea")]


def test_embed_gives_a_vector_for_a_text_and_a_list_for_a_list(tmp_path):
    file = tmp_path / "labels.tsv"
    file.write_text("".join(f"tea {i}\tx\nmilk {i}\ty\n" for i in range(40)), encoding="utf-8")
    options = {"dim": 16, "heads": 2, "layers": 1, "context": 16}
    assert list(
        regard.train("classify", model="bert", data=file, output_dir=tmp_path / "run", steps=1, evals=1, **options)
    )
    model = load(tmp_path / "run")
    vector = model.embed("tea 1")
    assert len(vector) == 16
    assert all(type(value) is float for value in vector)
    together = model.embed(["tea 1", "milk 2"])
    torch.testing.assert_close(torch.tensor(together), torch.tensor([vector, model.embed("milk 2")]))
    assert together == [*model.iter_embeddings(["tea 1", "milk 2"])]
    assert model.embed([]) == []
    with pytest.raises(TypeError, match="expected a list of texts, not 'tea'"):
        model.iter_embeddings("tea")


def test_a_task_without_one_vector_refuses_to_embed(loaded):
    with pytest.raises(ValueError, match="has no embedding of a whole input"):
        loaded.embed(TEXT)


@pytest.mark.parametrize("speed", [None, "exact", "int8"])
def test_a_saved_model_gives_the_same_answers(small_run, speed, tmp_path):
    model = load(small_run, "cpu", speed=speed)
    model.save_pretrained(tmp_path / "copy")
    copied = load(tmp_path / "copy", "cpu", speed=speed)
    assert copied.generate(TEXT, num_return=3) == model.generate(TEXT, num_return=3)
    with pytest.raises(ValueError, match="copy exists and is not empty: choose another folder"):
        model.save_pretrained(tmp_path / "copy")


def test_a_model_moves_to_a_device(small_run):
    model = load(small_run, "cpu")
    assert model.to("cpu") is model
    assert repr(model.to("meta")).endswith("device='meta')")
    with pytest.raises(ValueError, match="unknown device 'gpu': did you mean cpu"):
        model.to("gpu")
    engine = load(small_run, "cpu", speed="exact")
    assert engine.to("cpu") is engine
    with pytest.raises(ValueError, match="an engine model runs on the CPU only"):
        engine.to("meta")


def test_everything_public_is_documented():
    page = pydoc.render_doc(regard, renderer=pydoc.plaintext)
    for name in ("load", "look", "page", "reproducible", "train"):
        function = getattr(regard, name)
        assert inspect.getdoc(function), name
        assert all(p.annotation is not p.empty for p in inspect.signature(function).parameters.values()), name
        assert f"{name}(" in page
    for name, method in vars(regard.LoadedModel).items():
        if not name.startswith("_"):
            assert inspect.getdoc(method), name
            assert name in page
    assert loaded_names(regard.LoadedModel) >= {"generate", "stream", "embed", "save_pretrained", "to", "tokenizer"}


def loaded_names(kind):
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (3, "a text or a list of texts, not 3"),
        (None, "a text or a list of texts, not None"),
        (["a", None], "each text must be a str, not NoneType: None"),
        (b"tea", "expected a list of texts, not b'tea'"),
        ([["tea"]], "each text must be a str, not list"),
    ],
)
def test_anything_but_a_text_is_refused(loaded, inputs, message):
    with pytest.raises(TypeError, match=message):
        loaded(inputs)
    with pytest.raises(TypeError, match=message):
        loaded.generate(inputs)


def test_one_text_is_no_list_of_letters(loaded):
    with pytest.raises(TypeError, match="expected a list of texts, not 'tea'"):
        loaded.predict("tea", loaded.make_options())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": "3"}, "num-beams must be a whole number, not '3'"),
        ({"num_return": 2.5}, "num-return must be a whole number, not 2.5"),
        ({"num_beam": 3}, "unknown generation option 'num_beam': did you mean num_beams"),
        ({"num_return": 9}, r"num-return \(9\) must not exceed num-beams \(4\)"),
    ],
)
def test_generation_options_are_checked(loaded, options, message):
    with pytest.raises(ValueError, match=message):
        loaded(TEXT, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "unknown device 'gpu': did you mean cpu"),
        ({"device": None}, "device must be a text, not None"),
        ({"device": 0}, "device must be a text, not 0"),
        ({"speed": "fast"}, "unknown speed 'fast'"),
        ({"threads": 0}, "threads must be from 1"),
        ({"threads": "2"}, "threads must be a whole number, not '2'"),
    ],
)
def test_load_refuses_invalid_arguments(small_run, options, message):
    with pytest.raises(ValueError, match=message):
        load(small_run, **options)


def test_a_name_is_a_text_or_a_path():
    with pytest.raises(TypeError, match="the name of a model must be a str or a path, not 3"):
        load(3)


def test_load_sets_the_number_of_threads(small_run):
    before = torch.get_num_threads()
    try:
        load(small_run, threads=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("speed", "name"), [(None, "reference"), ("exact", "exact"), ("int8", "int8")])
def test_repr_has_task_model_parameters_speed_and_device(small_run, speed, name):
    model = load(small_run, "cpu", speed=speed)
    count = sum(weight.numel() for weight in load(small_run, "cpu").model.parameters())
    start = f"LoadedModel({str(small_run)!r}, task='translate', model='transformer', parameters="
    assert repr(model).startswith(start if speed == "int8" else f"{start}{count:_}, ")
    assert repr(model).endswith(f", speed='{name}', device='cpu')")


@pytest.mark.parametrize("speed", [None, "exact", "int8"])
def test_a_model_can_be_copied_and_pickled(small_run, speed):
    model = load(small_run, "cpu", speed=speed)
    for duplicate in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert duplicate(TEXT, num_return=2) == model(TEXT, num_return=2)
        assert repr(duplicate) == repr(model)


def test_engine_modules_alone_cannot_be_copied(small_run):
    model = load(small_run, "cpu", speed="int8").model
    for duplicate in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="an engine model cannot be copied or pickled"):
            duplicate(model)


ESCAPES = "\x1b[2Jtea\x9b31m\x07\x7f and\tmilk\r"


def test_control_characters_do_not_reach_the_terminal(small_run, capsys, monkeypatch):
    """Those of an answer; a newline and a tab are harmless."""
    task = type(load(small_run).task)
    monkeypatch.setattr(
        task, "predict", lambda self, model, raw, options, first=0: ([Prediction(ESCAPES)] for _ in raw)
    )
    assert main(["run", str(small_run), TEXT]) == 0
    assert capsys.readouterr().out == "\\x1b[2Jtea\\x9b31m\\x07\\x7f and\tmilk\\x0d\n"
    assert main(["run", str(small_run), TEXT, "--json"]) == 0
    line = capsys.readouterr().out
    assert not {*line} & {chr(code) for code in (*range(10), *range(11, 32), *range(127, 160))}
    assert json.loads(line)["predictions"][0]["text"] == ESCAPES


def test_control_characters_of_a_message_do_not_reach_the_terminal(capsys):
    assert main(["run", "no\x1b[2Jmodel", TEXT]) == 2
    assert "\x1b" not in capsys.readouterr().err


FORKING = """
import os, sys, threading, time, torch
from regard.load import load
torch.set_num_threads(2)
models = [load(sys.argv[1], "cpu", speed=speed) for speed in ("exact", "int8")]
expected = [model("tea and water please") for model in models]
busy = True

def call(model):
    while busy:
        model("tea and water please")

threads = [threading.Thread(target=call, args=(model,)) for model in models * 2]
for thread in threads:
    thread.start()
codes = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        os._exit(0 if [model("tea and water please") for model in models] == expected else 1)
    codes.append(os.waitpid(child, 0)[1])
busy = False
for thread in threads:
    thread.join()
print(codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_of_a_busy_process_answers(small_run):
    """When a process forks, another thread may hold the engine's lock and its worker pool."""
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, str(small_run)], capture_output=True, text=True, timeout=120
    )
    assert child.stdout.strip() == str([0] * 8), child.stderr


def test_train_documents_its_options():
    """Each has a name and a type, is documented, and is an option of the command."""
    parameters = inspect.signature(regard.train).parameters
    named = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    assert {"data", "model", "size", "steps", "minutes", "output_dir", "seed", "device", "threads", "resume"} <= {
        *named
    }
    assert all(parameters[name].annotation not in (inspect.Parameter.empty, "Any") for name in named)
    docstring = inspect.getdoc(regard.train)
    assert [name for name in named if name not in docstring] == []
    assert {*named} - {"model", "size", "modality"} <= {*options("write", "nanochat", "tiny")}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"stesp": 3}, "unknown option 'stesp': did you mean steps"),
        ({"steps": "3"}, "steps must be a whole number or None, not '3'"),
        ({"steps": 3, "minutes": 1}, "choose one of --steps, --epochs and --minutes"),
        ({"data": 3}, "data must be one text or several, not 3"),
        ({"device": "gpu", "steps": 1}, "unknown device 'gpu'"),
        ({"overwrite": "yes"}, "overwrite must be True or False"),
        ({"model": "gtp"}, "did you mean gpt"),
    ],
)
def test_train_refuses_invalid_options(wrong, message, pairs_file, tmp_path):
    with pytest.raises(ValueError, match=message):
        list(regard.train("translate", **{"data": pairs_file, "output_dir": tmp_path / "run"} | wrong))


def test_train_takes_its_options_by_name(pairs_file, tmp_path):
    steps = regard.train(
        "translate", data=pairs_file, output_dir=tmp_path / "run", steps=2, evals=1, seed=3, dim=16, heads=2
    )
    assert [step.number for step in steps] == [1, 2]
    settings = json.loads((tmp_path / "run" / "train.json").read_text())
    assert (settings["seed"], settings["steps"], settings["dim"], settings["data"]) == (3, 2, 16, [str(pairs_file)])
    assert list(regard.train("translate", output_dir=tmp_path / "run", resume=True)) == []
