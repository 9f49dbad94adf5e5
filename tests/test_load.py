"""The model that `load` returns, as Python uses it: what it takes, what it refuses, and how it travels."""

import copy
import inspect
import io
import json
import os
import pickle
import subprocess
import sys

import pytest
import torch

import regard
from regard.cli import main
from regard.load import load
from regard.tasks.task import Answer
from regard.training.settings import options

TEXT = "tea and water please"


@pytest.fixture(scope="module")
def loaded(small_run):
    return load(small_run)


def test_n_best_gives_a_list_of_so_many(loaded):
    best = loaded(TEXT, num_return=3)
    assert len(best) == len({*best}) == 3
    assert best == [answer.text for answer in next(loaded.answers([TEXT], num_return=3))]
    assert best[0] == loaded(TEXT)
    assert loaded([TEXT, "milk"], num_return=3) == [best, loaded("milk", num_return=3)]
    assert loaded(TEXT, num_return=1) == best[:1]
    assert loaded([]) == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (3, "a text or a list of texts, not with 3"),
        (None, "a text or a list of texts, not with None"),
        (["a", None], "each text must be a str, not NoneType: None"),
        (b"tea", "give a list of texts, not b'tea'"),
        ([["tea"]], "each text must be a str, not list"),
    ],
)
def test_what_is_no_text_is_refused(loaded, asked, message):
    with pytest.raises(TypeError, match=message):
        loaded(asked)


def test_one_text_is_no_list_of_letters(loaded):
    with pytest.raises(TypeError, match="give a list of texts, not 'tea'"):
        loaded.answers("tea")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"beam": "3"}, "beam must be a whole number, not '3'"),
        ({"num_return": 2.5}, "n-best must be a whole number, not 2.5"),
        ({"bem": 3}, "did you mean beam"),
        ({"num_return": 9}, r"n-best \(9\) answers need a beam of at least as many, not 4"),
    ],
)
def test_ways_of_answering_are_checked(loaded, how, message):
    with pytest.raises(ValueError, match=message):
        loaded(TEXT, **how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"device": "gpu"}, "there is no device named 'gpu': did you mean cpu"),
        ({"device": None}, "device must be a text, not None"),
        ({"device": 0}, "device must be a text, not 0"),
        ({"speed": "fast"}, "there is no speed named 'fast'"),
        ({"threads": 0}, "threads must be from 1"),
        ({"threads": "2"}, "threads must be a whole number, not '2'"),
    ],
)
def test_load_refuses_what_makes_no_sense(small_run, how, message):
    with pytest.raises(ValueError, match=message):
        load(small_run, **how)


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


@pytest.mark.parametrize(("speed", "shown"), [(None, "plain"), ("exact", "exact"), ("int8", "int8")])
def test_it_tells_what_it_is(small_run, speed, shown):
    told = repr(load(small_run, "cpu", speed=speed))
    assert told.startswith(f"Loaded({str(small_run)!r}, task='translate', model='transformer', weights=")
    assert told.endswith(f", speed='{shown}', device='cpu')")


@pytest.mark.parametrize("speed", [None, "exact", "int8"])
def test_a_model_can_be_copied_and_pickled(small_run, speed):
    model = load(small_run, "cpu", speed=speed)
    stream = io.BytesIO()
    pickle.dump(model, stream)
    stream.seek(0)
    for other in (pickle.load(stream), copy.deepcopy(model), copy.copy(model)):
        assert other(TEXT, num_return=2) == model(TEXT, num_return=2)
        assert repr(other) == repr(model)


def test_fast_modules_alone_say_why_they_cannot(small_run):
    model = load(small_run, "cpu", speed="int8").model
    for way in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="an engine model cannot be copied or pickled"):
            way(model)


ESCAPES = "\x1b[2Jtea\x9b31m\x07\x7f and\tmilk\r"


def test_control_characters_do_not_reach_the_terminal(small_run, capsys, monkeypatch):
    """Those of an answer; a line and a tab are no danger."""
    task = type(load(small_run).task)
    monkeypatch.setattr(task, "predict", lambda self, model, raw, how, first=0: ([Answer(ESCAPES)] for _ in raw))
    assert main(["run", str(small_run), TEXT]) == 0
    assert capsys.readouterr().out == "\\x1b[2Jtea\\x9b31m\\x07\\x7f and\tmilk\\x0d\n"
    assert main(["run", str(small_run), TEXT, "--json"]) == 0
    line = capsys.readouterr().out
    assert not {*line} & {chr(code) for code in (*range(10), *range(11, 32), *range(127, 160))}
    assert json.loads(line)["answers"][0]["text"] == ESCAPES


def test_control_characters_of_a_message_do_not_reach_the_terminal(capsys):
    assert main(["run", "no\x1b[2Jmodel", TEXT]) == 2
    assert "\x1b" not in capsys.readouterr().err


FORKING = """
import os, sys, threading, time, torch
from regard.load import load
from regard.tasks.task import Answer
from regard.training.settings import options
torch.set_num_threads(2)
models = [load(sys.argv[1], "cpu", speed=speed) for speed in ("exact", "int8")]
right = [model("tea and water please") for model in models]
busy = True

def ask(model):
    while busy:
        model("tea and water please")

threads = [threading.Thread(target=ask, args=(model,)) for model in models * 2]
for thread in threads:
    thread.start()
codes = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        os._exit(0 if [model("tea and water please") for model in models] == right else 1)
    codes.append(os.waitpid(child, 0)[1])
busy = False
for thread in threads:
    thread.join()
print(codes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_of_a_busy_process_answers(small_run):
    """Another thread may be in the middle of a program, with its lock and its helpers, when a process forks."""
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, str(small_run)], capture_output=True, text=True, timeout=120
    )
    assert said.stdout.strip() == str([0] * 8), said.stderr


def test_train_tells_what_it_takes():
    """By name and type, each of which it documents; and each is an option of the command."""
    takes = inspect.signature(regard.train).parameters
    named = [name for name, one in takes.items() if one.kind is one.KEYWORD_ONLY]
    assert {"data", "model", "size", "steps", "minutes", "out", "seed", "device", "threads", "resume"} <= {*named}
    assert all(one.annotation not in (inspect.Parameter.empty, "Any") for name, one in takes.items() if name in named)
    documented = inspect.getdoc(regard.train)
    assert [name for name in named if name not in documented] == []
    assert {*named} - {"model", "size"} <= {*options("write", "nano", "tiny")}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stesp": 3}, "there is no option named 'stesp': did you mean steps"),
        ({"steps": "3"}, "steps must be a whole number or None, not '3'"),
        ({"steps": 3, "minutes": 1}, "choose one of --steps, --epochs and --minutes"),
        ({"data": 3}, "data must be one text or several, not 3"),
        ({"device": "gpu", "steps": 1}, "there is no device named 'gpu'"),
        ({"overwrite": "yes"}, "overwrite must be True or False"),
        ({"model": "gtp"}, "did you mean gpt"),
    ],
)
def test_train_refuses_what_makes_no_sense(given, message, pairs_file, tmp_path):
    with pytest.raises(ValueError, match=message):
        list(regard.train("translate", **{"data": pairs_file, "out": tmp_path / "run"} | given))


def test_train_takes_its_options_by_name(pairs_file, tmp_path):
    steps = regard.train("translate", data=pairs_file, out=tmp_path / "run", steps=2, checks=1, seed=3, dim=16, heads=2)
    assert [step.number for step in steps] == [1, 2]
    kept = json.loads((tmp_path / "run" / "train.json").read_text())
    assert (kept["seed"], kept["steps"], kept["dim"], kept["data"]) == (3, 2, 16, [str(pairs_file)])
    assert list(regard.train("translate", out=tmp_path / "run", resume=True)) == []
