"""Settings: defaults, then the named size, then what the user says; whatever makes no sense is refused by its name."""

import json
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from regard.data.files import Files
from regard.models import MODELS
from regard.tasks import TASKS
from regard.training.loop import TrainOptions
from regard.training.settings import (
    RunOptions,
    as_text,
    choices_of,
    make_settings,
    options,
    options_of,
    resolve,
    resumed,
)

FIT = [(task, model) for task, kind in TASKS.items() for model, f in MODELS.items() if {*kind.asks} & {*f.bodies}]
every_fit = pytest.mark.parametrize(("task", "model"), FIT)


def sizes_of(model: str) -> dict[str, dict[str, Any]]:
    return MODELS[model].sizes


@every_fit
def test_defaults_then_the_size_then_the_user(task: str, model: str) -> None:
    first, *_, last = sizes_of(model)
    usual, large = resolve(task, model), resolve(task, model, last)
    assert (usual.model, usual.size, large.size) == (model, first, last)
    for settings, size in (usual, first), (large, last):
        named = dict(sizes_of(model)[size])
        if "image" in named:  # as large as the pictures are made
            assert settings.input_options["side"] == named.pop("image")
        usual_here = TASKS[task].usual(settings.ability)
        assert settings.body.items() >= (named | {k: v for k, v in usual_here.items() if k in settings.body}).items()
        assert not {"vocab", "pad", "image", "channels"} & {*settings.body}
    said = resolve(task, model, last, dim=40, steps=7)
    assert said.body == large.body | {"dim": 40}
    assert (said.train_options.steps, usual.train_options) == (7, TrainOptions())


def test_a_task_may_have_another_usual_size_of_its_body() -> None:
    """Told by --help as it is taken; the user has the last word."""
    assert (resolve("predict").body["context"], resolve("decide").body["context"]) == (4, 20)
    for size in sizes_of("world"):
        assert options("decide", "world", size)["context"].default == resolve("decide", size=size).body["context"] == 20
    assert resolve("decide", context=7).body["context"] == 7
    assert "context" not in resolve("decide").task_options


@every_fit
def test_every_option_is_explained_and_none_follows_from_the_data(task: str, model: str) -> None:
    known = options(task, model, next(iter(sizes_of(model))))
    assert [name for name, option in known.items() if not option.help] == []
    learnt = {field.name for field in fields(TASKS[task]) if field.kw_only}  # type: ignore[arg-type]
    assert not {"pad", "sep", "image", "channels", *learnt} - {"documents"} & {*known}
    for name in ("data", "steps", "output_dir", "dim"):
        assert name in known


@every_fit
def test_what_a_run_keeps_is_what_it_goes_on_with(task: str, model: str) -> None:
    read = {} if "fields" in TASKS[task].unused else {"fields": ("x", "y")}
    for settings in (resolve(task, model), resolve(task, model, data=["a", "b"], dim=24, epochs=0.5, **read)):
        kept = json.loads(json.dumps(settings.to_dict()))
        assert resolve(**kept) == settings


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"task": "translat"}, "no task named 'translat': did you mean translate?"),
        ({"task": "translate", "model": "transfromer"}, "did you mean transformer?"),
        ({"task": "translate", "size": "tinny"}, "no size of transformer named 'tinny': did you mean tiny?"),
        ({"task": "translate", "droput": 0.1}, "no option named 'droput': did you mean dropout?"),
        ({"task": "write", "model": "gpt", "layer": 2}, "did you mean layers?"),
        ({"task": "translate", "layers": 2}, "no option named 'layers'"),
        ({"task": "classify", "pad": 2}, "no option named 'pad'"),
        ({"task": "classify", "labels": ["a"]}, "no option named 'labels'"),
        ({"task": "write", "longest": 9}, "no option named 'longest'"),
        ({"task": "tag", "model": "chain", "longest": 9}, "no option named 'longest'"),
        ({"task": "classify", "model": "listener", "longest": 9}, "no option named 'longest'"),
        ({"task": "regress", "model": "graph", "longest": 9}, "no option named 'longest'"),
        ({"task": "classify", "model": "vit", "pieces": "bpe"}, "no option named 'pieces'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(how: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        resolve(**how)


@every_fit
def test_a_word_that_is_none_of_those_it_may_be_is_refused_with_all(task: str, model: str) -> None:
    known = options(task, model, next(iter(sizes_of(model))))
    worded = {name: words for name, option in known.items() if (words := choices_of(option.kind))}
    assert {"optimizer", "schedule"} <= {*worded}
    for name, words in worded.items():
        for word in words:
            assert resolve(task, model, **{name: word})
        with pytest.raises(ValueError, match=f"no {name} named 'qqq': there are {', '.join(words)}"):
            resolve(task, model, **{name: "qqq"})


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        *((TrainOptions, name, value) for name in ("steps", "batch_tokens", "grad_accum") for value in (0, -3)),
        *((TrainOptions, name, value) for name in ("epochs", "minutes", "lr") for value in (0.0, -1.0, float("inf"))),
        *((TrainOptions, name, -1) for name in ("warmup_steps", "weight_decay", "grad_clip", "seed")),
        *((TrainOptions, "decay_share", value) for value in (0.0, 1.1)),
        *((TrainOptions, "ema", value) for value in (-0.1, 1.0)),
        *((RunOptions, name, 0) for name in ("evals", "eval_examples", "keep", "threads")),
        *((RunOptions, name, -1) for name in ("patience", "average_checkpoints")),
        *((Files, "held_out", value) for value in (0.0, 1.0)),
        (Files, "longest", 0),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_by_name(group: Any, name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name.replace('_', '-')} must be .*, not {value}"):
        group(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("dim", "x", "a whole number, not 'x'"),
        ("dim", 2.0, "a whole number, not 2.0"),
        ("dim", True, "a whole number, not True"),
        ("dim", None, "a whole number, not None"),
        ("steps", "9", "a whole number or None, not '9'"),
        ("batch_tokens", [9], r"a whole number, not \[9\]"),
        ("dropout", "0", "a number, not '0'"),
        ("minutes", "3", "a number or None, not '3'"),
        ("compile", 1, "True or False, not 1"),
        ("output_dir", 5, "a text or None, not 5"),
        ("data", 5, "one text or several, not 5"),
        ("valid", ["a.tsv", 5], r"one text or several, not \['a.tsv', 5\]"),
        ("fields", {"a": 1}, r"one text or several, not \{'a': 1\}"),
    ],
)
def test_what_is_of_another_type_is_refused_with_the_one_that_is_wanted(name: str, value: Any, wanted: str) -> None:
    with pytest.raises(ValueError, match=f"^{name.replace('_', '-')} must be {wanted}$"):
        resolve("tag", **{name: value})


def test_a_whole_number_is_a_number_and_a_word_is_one_field() -> None:
    settings = resolve("tag", minutes=3, dropout=0, fields="words", optimizer="sgd")
    assert (settings.train_options.minutes, settings.body["dropout"], settings.files.fields) == (3, 0, ("words",))
    assert resolve("write", documents=None).input_options["documents"] is None
    with pytest.raises(ValueError, match="no optimizer named None"):
        resolve("tag", optimizer=None)


@pytest.mark.parametrize("group", [TrainOptions, RunOptions, Files])
def test_settings_do_not_change(group: Any) -> None:
    first = fields(group)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(group(), first, None)
    assert all(option.help for option in options_of(group).values())


def test_only_one_length_may_be_given() -> None:
    assert make_settings("translate", steps=3).train_options.steps == 3
    assert make_settings("translate", minutes=3.0, steps=None).train_options.minutes == 3.0
    for two in ({"steps": 3, "minutes": 1.0}, {"epochs": 1.0, "minutes": 1.0}, {"steps": 3, "epochs": 1.0}):
        with pytest.raises(ValueError, match="choose one of --steps, --epochs and --minutes"):
            make_settings("translate", **two)


@pytest.mark.parametrize("given", ["a.tsv", Path("a.tsv"), ["a.tsv"], (Path("a.tsv"),)])
def test_one_path_or_several_are_taken_as_text(given: Any) -> None:
    assert as_text("data", given) == ("a.tsv",)
    assert resolve("translate", data=given, valid=given).files == Files(data=("a.tsv",), valid=("a.tsv",))


def test_a_resumed_run_keeps_all_but_where_it_runs(tmp_path: Path) -> None:
    began = resolve("write", "gpt", dim=24, steps=9, seed=4, output_dir="elsewhere", data="a.txt")
    kept = began.to_dict() | {"fingerprint": "0123"}
    (tmp_path / "train.json").write_text(json.dumps(kept))
    again = resumed("write", output_dir=str(tmp_path), resume=True, threads=1)
    assert (again.body, again.train_options, again.files, again.input_options) == (
        began.body,
        began.train_options,
        began.files,
        began.input_options,
    )
    assert again.run_options == RunOptions(output_dir=str(tmp_path), resume=True, threads=1)
    assert make_settings("write", output_dir=str(tmp_path), resume=True) == resumed(
        "write", output_dir=str(tmp_path), resume=True
    )
    for name, value in {"dim": 24, "steps": 9, "batch_tokens": 4, "data": "a.txt"}.items():
        with pytest.raises(ValueError, match=f"keeps its settings: leave out --{name.replace('_', '-')}"):
            make_settings("write", output_dir=str(tmp_path), resume=True, **{name: value})


@pytest.mark.parametrize("content", ["{}", '{"task": "write", "bogus": 1}', "[1]", "{", '{"model": "gpt"}'])
def test_what_no_run_wrote_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "train.json").write_text(content)
    with pytest.raises(ValueError, match=r"train\.json|bogus"):
        resumed("write", output_dir=str(tmp_path), resume=True)


def test_a_folder_without_a_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} is not a model folder: it has no train.json"):
        resumed("write", output_dir=str(tmp_path), resume=True)


def test_a_path_is_as_good_as_its_name() -> None:
    as_text = resolve("write", output_dir="runs/a", cache="b").to_dict()
    assert resolve("write", output_dir=Path("runs/a"), cache=Path("b")).to_dict() == as_text
