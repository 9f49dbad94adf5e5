"""Settings: defaults, then the named size, then the options of the user; invalid values are refused by name."""

import json
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

from regard.data.documents import DocumentOptions
from regard.data.splits import DataOptions
from regard.modalities.text.modality import TextOptions
from regard.models import MODELS
from regard.options import choices_of, normalize_value, options_of
from regard.tasks import TASKS
from regard.tasks.compatibility import fitting_modalities
from regard.training.loop import TrainOptions
from regard.training.provenance import FORMAT
from regard.training.settings import RunOptions, default_overrides, options, resolve
from regard.training.start import make_settings, resume_settings
from regard.training.task_aliases import TASK_ALIASES, resolve_task

FIT = [(task, model) for task, kind in TASKS.items() for model in MODELS if fitting_modalities(kind, model)]
every_fit = pytest.mark.parametrize(("task", "model"), FIT)


def sizes_of(model: str) -> dict[str, dict[str, Any]]:
    return MODELS[model].sizes


@every_fit
def test_defaults_then_the_size_then_the_user(task: str, model: str) -> None:
    first, *_, last = sizes_of(model)
    defaults, large = resolve(task, model), resolve(task, model, last)
    assert (defaults.model, defaults.size, large.size) == (model, first, last)
    for settings, size in (defaults, first), (large, last):
        named = dict(sizes_of(model)[size])
        if "image_size" in named:  # an option of the image transform
            assert settings.input_options.to_dict()["image_size"] == named.pop("image_size")
        overrides = default_overrides(task, settings.fit)
        assert settings.body.items() >= (named | {k: v for k, v in overrides.items() if k in settings.body}).items()
        assert not {"vocab", "pad", "image_size", "channels"} & {*settings.body}
    changed = resolve(task, model, last, dim=40, steps=7)
    assert changed.body == large.body | {"dim": 40}
    assert (changed.train_options.steps, defaults.train_options) == (7, TrainOptions())


def test_a_task_may_override_defaults_of_the_model() -> None:
    """--help shows the override, and the user overrides it."""
    assert (resolve("predict").body["context"], resolve("decide").body["context"]) == (4, 20)
    for size in sizes_of("world_model"):
        assert (
            options("decide", "world_model", size)["context"].default
            == resolve("decide", size=size).body["context"]
            == 20
        )
    assert resolve("decide", context=7).body["context"] == 7
    assert "context" not in resolve("decide").task_options


@every_fit
def test_every_option_has_help_and_none_is_derived(task: str, model: str) -> None:
    available = options(task, model, next(iter(sizes_of(model))))
    assert [name for name, option in available.items() if not option.help] == []
    fitted = {field.name for field in fields(TASKS[task]) if field.kw_only}  # type: ignore[arg-type]
    assert not {"pad", "sep", "channels", *fitted} - {"documents", "tokenizer"} & {*available}
    for name in ("data", "steps", "output_dir", "dim"):
        assert name in available


@every_fit
def test_settings_survive_json(task: str, model: str) -> None:
    read = {"fields": ("x", "y")} if "fields" in options(task, model, next(iter(sizes_of(model)))) else {}
    for settings in (resolve(task, model), resolve(task, model, data=["a", "b"], dim=24, epochs=0.5, **read)):
        stored = json.loads(json.dumps(settings.to_dict()))
        assert resolve(**stored) == settings


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "translat"}, "unknown task 'translat': did you mean translate?"),
        ({"task": "translate", "model": "transfromer"}, "did you mean transformer?"),
        ({"task": "translate", "size": "tinny"}, "unknown size of transformer 'tinny': did you mean tiny?"),
        ({"task": "translate", "droput": 0.1}, "unknown option 'droput': did you mean dropout?"),
        ({"task": "write", "model": "gpt", "layer": 2}, "did you mean layers?"),
        ({"task": "translate", "layers": 2}, "unknown option 'layers'"),
        ({"task": "classify", "pad": 2}, "unknown option 'pad'"),
        ({"task": "classify", "labels": ["a"]}, "unknown option 'labels'"),
        ({"task": "write", "max_words": 9}, "unknown option 'max_words'"),
        ({"task": "tag", "model": "protein_encoder", "max_words": 9}, "unknown option 'max_words'"),
        ({"task": "classify", "model": "audio_encoder", "max_words": 9}, "unknown option 'max_words'"),
        ({"task": "regress", "model": "graphormer", "max_words": 9}, "unknown option 'max_words'"),
        ({"task": "classify", "model": "vit", "tokenizer": "bpe"}, "unknown option 'tokenizer'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(**values)


@every_fit
def test_an_unknown_choice_is_refused_with_all_choices(task: str, model: str) -> None:
    available = options(task, model, next(iter(sizes_of(model))))
    worded = {name: words for name, option in available.items() if (words := choices_of(option.kind))}
    assert {"optimizer", "schedule"} <= {*worded}
    for name, words in worded.items():
        for word in words:
            assert resolve(task, model, **{name: word})
        with pytest.raises(ValueError, match=f"unknown {name} 'qqq': choose one of {', '.join(words)}"):
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
        *((DataOptions, "valid_share", value) for value in (0.0, 1.0)),
        (TextOptions, "max_words", 0),
    ],
)
def test_an_invalid_number_is_refused_by_name(group: Any, name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name.replace('_', '-')} must be .*, not {value}"):
        group(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
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
def test_a_value_of_another_type_is_refused_with_the_right_type(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^{name.replace('_', '-')} must be {expected}$"):
        resolve("tag", **{name: value})


def test_an_integer_is_a_number_and_a_text_is_one_field() -> None:
    settings = resolve("tag", minutes=3, dropout=0, fields="words", optimizer="sgd")
    assert (settings.train_options.minutes, settings.body["dropout"], settings.files.fields) == (3, 0, ("words",))
    assert resolve("write", documents=None).input_options[DocumentOptions].documents is None
    with pytest.raises(ValueError, match="unknown optimizer None"):
        resolve("tag", optimizer=None)


@pytest.mark.parametrize("group", [TrainOptions, RunOptions, DataOptions])
def test_options_are_frozen(group: Any) -> None:
    first = fields(group)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(group(), first, None)
    assert all(option.help for option in options_of(group).values())


def test_only_one_length_may_be_set() -> None:
    assert make_settings("translate", steps=3).train_options.steps == 3
    assert make_settings("translate", minutes=3.0, steps=None).train_options.minutes == 3.0
    for two in ({"steps": 3, "minutes": 1.0}, {"epochs": 1.0, "minutes": 1.0}, {"steps": 3, "epochs": 1.0}):
        with pytest.raises(ValueError, match="choose one of --steps, --epochs and --minutes"):
            make_settings("translate", **two)


@pytest.mark.parametrize("value", ["a.tsv", Path("a.tsv"), ["a.tsv"], (Path("a.tsv"),)])
def test_paths_become_tuples_of_text(value: Any) -> None:
    assert normalize_value("data", value, tuple[str, ...]) == ("a.tsv",)
    assert resolve("translate", data=value, valid=value).files == DataOptions(data=("a.tsv",), valid=("a.tsv",))


def test_a_resumed_run_keeps_its_settings(tmp_path: Path) -> None:
    original = resolve("write", "gpt", dim=24, steps=9, seed=4, output_dir="elsewhere", data="a.txt")
    stored = original.to_dict() | {"format": FORMAT, "fingerprint": "0123"}
    (tmp_path / "train.json").write_text(json.dumps(stored))
    resumed = resume_settings("write", output_dir=str(tmp_path), resume=True, threads=1)
    assert (resumed.body, resumed.train_options, resumed.files, resumed.input_options) == (
        original.body,
        original.train_options,
        original.files,
        original.input_options,
    )
    assert resumed.run_options == RunOptions(output_dir=str(tmp_path), resume=True, threads=1)
    assert make_settings("write", output_dir=str(tmp_path), resume=True) == resume_settings(
        "write", output_dir=str(tmp_path), resume=True
    )
    for name, value in {"dim": 24, "steps": 9, "batch_tokens": 4, "data": "a.txt"}.items():
        with pytest.raises(ValueError, match=f"uses the settings of the run: leave out --{name.replace('_', '-')}"):
            make_settings("write", output_dir=str(tmp_path), resume=True, **{name: value})


@pytest.mark.parametrize("content", ["{}", '{"task": "write", "bogus": 1}', "[1]", "{", '{"model": "gpt"}'])
def test_a_foreign_train_json_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "train.json").write_text(content)
    with pytest.raises(ValueError, match=r"train\.json|bogus"):
        resume_settings("write", output_dir=str(tmp_path), resume=True)


def test_a_folder_without_a_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} is not a model folder: it has no train.json"):
        resume_settings("write", output_dir=str(tmp_path), resume=True)


def test_a_path_equals_its_text() -> None:
    settings = resolve("write", output_dir="runs/a", cache="b").to_dict()
    assert resolve("write", output_dir=Path("runs/a"), cache=Path("b")).to_dict() == settings


@pytest.mark.parametrize("stored", [{}, {"format": 1}, {"format": FORMAT + 1}, {"format": None}])
def test_a_train_json_of_another_format_is_refused_in_one_line(tmp_path: Path, stored: dict[str, Any]) -> None:
    (tmp_path / "train.json").write_text(json.dumps(resolve("write").to_dict() | stored))
    for values in ({"resume": True}, {"steps": 1}):
        with pytest.raises(ValueError, match=rf"^{tmp_path}/train\.json has format .* reads format {FORMAT}: .*$"):
            make_settings("write", output_dir=tmp_path, **values)


@pytest.mark.parametrize("alias", TASK_ALIASES)
def test_the_task_names_of_hugging_face_are_aliases(alias: str) -> None:
    task, model = resolve_task(alias)
    assert make_settings(alias, steps=1) == make_settings(task, model, steps=1)
    assert resolve_task(task) == (task, None), "no alias hides a task of ours"
    first = next(name for name in MODELS if fitting_modalities(TASKS[task], name))
    assert make_settings(alias, first, steps=1).model == first
