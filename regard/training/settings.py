"""Settings: the fields of a few dataclasses, each option in exactly one of them, under one flat set of names.

They come from three places, in order: defaults, the named size, and what the user says. An unknown name is refused with
the nearest known one. The comment beside a field is its documentation.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from regard.data.files import Files
from regard.data.sounds import media_in
from regard.hub.files import there
from regard.hub.folder import read_config, read_json
from regard.hub.remote import find
from regard.models import MODELS, ability_for
from regard.purpose import WITH_HEADS, pooling_of
from regard.tasks import TASKS
from regard.training.changes import differing, flag, plain, shown
from regard.training.loop import Plan
from regard.training.run import LOCK
from regard.training.save import ASIDE, saves
from regard.validate import Option, check_choice, check_fields, check_type


@dataclass(frozen=True)
class Keeping:
    """What is kept of a run, and where it runs."""

    out: str | None = None  # the run folder; runs/TASK unless given
    from_: str | None = None  # start from this model: a folder, or a name on the hub
    download: bool = False  # fetch that model if it is not here
    new_head: bool = False  # put a new head on it, though it has one for this task
    freeze: tuple[str, ...] = ()  # parts of the body that stay as they are: tokens, blocks.0, body ...
    vectors: str | None = None  # start whole words with the vectors in this file (word2vec's form)
    resume: bool = False  # go on with the run in that folder, from its newest whole save
    overwrite: bool = False  # start again in that folder
    allow_changed: bool = False  # go on with a run though data, settings, files or versions are not those of its save
    checks: int = 10  # how often to validate and save, over the whole run
    check_examples: int | None = None  # examples looked at in each check; as many as the task likes unless given
    keep: int = 2  # newest saves kept
    patience: int = 0  # stop after this many checks without a better one; 0 for never
    average_last: int = 0  # also try the mean of the last saves at the end; 0 for no
    device: str = "auto"  # cpu, cuda or mps; the best there is if auto
    threads: int | None = None  # processor threads; all cores unless given
    compile: bool = False  # compile the model first: half a minute, for long runs

    def __post_init__(self) -> None:
        check_fields(
            self,
            checks=(self.checks >= 1, "at least 1"),
            check_examples=(self.check_examples is None or self.check_examples >= 1, "at least 1"),
            keep=(self.keep >= 1, "at least 1"),
            patience=(self.patience >= 0, "0 or more"),
            average_last=(self.average_last >= 0, "0 or more"),
            threads=(self.threads is None or self.threads >= 1, "at least 1"),
        )


@dataclass(frozen=True)
class Settings:
    task: str
    model: str
    size: str
    files: Files
    reading: dict[str, Any]  # how the input is read: fields of the task's groups
    body: dict[str, Any]  # fields of the model's config
    aim: dict[str, Any]  # fields of the task
    plan: Plan
    keeping: Keeping

    @property
    def ability(self) -> str:
        """What the body has to do."""
        return ability_for(self.model, self.task, TASKS[self.task].asks)

    def flat(self) -> dict[str, Any]:
        """As train.json keeps them, and as `settle` takes them again."""
        groups = (self.body, self.aim, self.reading, asdict(self.files), asdict(self.plan), asdict(self.keeping))
        said = {name: value for group in groups for name, value in group.items()}
        left_out = TASKS[self.task].leaves_out(self.ability)
        used = {name: value for name, value in said.items() if name not in left_out}
        return {"task": self.task, "model": self.model, "size": self.size, **used}


SEVERAL = ("data", "valid", "test", "fields", "freeze", "revisions")  # options that take one text or more
FROM_DATA = {  # fields of a config that follow from the data
    *("vocab", "pad", "sep", "segment_start", "image", "channels", "mels", "stride"),
    *("observation", "places", "actions", "properties", "pairs"),
}


@cache
def options_of(group: Any) -> dict[str, Option]:
    """The fields of a dataclass, with what stands beside each."""
    kinds = get_type_hints(group, include_extras=True)
    sources = [inspect.getsource(kind) for kind in reversed(group.__mro__) if hasattr(kind, "__dataclass_fields__")]
    lines = re.finditer(r"^    (\w+): [^#\n]*  # (.*)$", "\n".join(sources), re.MULTILINE)
    helps = {line[1]: line[2] for line in lines}
    return {f.name: Option(kinds[f.name], f.default, helps.get(f.name, "")) for f in fields(group)}


def options(task: str, model: str, size: str) -> dict[str, Option]:
    """Every option there is for this task and model, by name."""
    aim, family = TASKS[task], MODELS[model]
    ability = ability_for(model, task, aim.asks)
    groups = (Files, Plan, Keeping, *aim.groups(ability), aim, family.config)
    found: dict[str, Option] = {}
    for group in groups:
        for name, option in options_of(group).items():
            if not follows(group, name) and name not in aim.leaves_out(ability):
                assert name not in found, f"two options are named {name}"
                found[name] = option
    for name, value in {**size_of(model, size), **aim.usual(ability)}.items():
        found[name] = found[name]._replace(default=value)
    return found


def size_of(model: str, size: str) -> dict[str, Any]:
    """What a named size says, by the names of options: the image of a body is as large as the pictures given to it."""
    return {"side" if name == "image" else name: value for name, value in MODELS[model].sizes[size].items()}


def usual_size(model: str, acts: bool = False) -> str:
    """The first, or one for the few numbers that are seen by somebody who acts."""
    sizes = MODELS[model].sizes
    return "state" if acts and "state" in sizes else next(iter(sizes))


def words_of(kind: Any) -> tuple[str, ...]:
    """Those that an option is one of, if it is one of some words."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(word for part in get_args(kind) for word in words_of(part))


def follows(group: Any, name: str) -> bool:
    """Whether a field follows from the data, so that it is no option."""
    if any(group is family.config for family in MODELS.values()):
        return name in FROM_DATA
    return bool(group.__dataclass_fields__[name].kw_only)


def settle(task: str, model: str | None = None, size: str | None = None, **given: Any) -> Settings:
    check_choice("task", task, TASKS)
    aim = TASKS[task]
    given = {name: as_text(name, value) for name, value in given.items()}
    starts = given.get("from_") and not given.get("resume")  # a run that goes on has all it needs
    begun = read_config(find(str(given["from_"]), given.get("download") or None)) if starts else None
    if begun and model not in (None, begun[0].model):
        raise ValueError(f"{given['from_']} is a {begun[0].model}, not a {model}: leave out --model")
    model = begun[0].model if begun else model or aim.default
    check_choice("model", model, MODELS)
    family = MODELS[model]
    size = size or usual_size(model, bool(given.get("env")))
    check_choice(f"size of {model}", size, family.sizes)
    ability = ability_for(model, task, aim.asks)
    known = options(task, model, size)
    for name, value in given.items():
        check_choice("option", name, (*known, "model", "size"))
        must_suit(name, value, known[name].kind)

    def of(group: Any, said: dict[str, Any] = given) -> dict[str, Any]:
        return {f.name: said[f.name] for f in fields(group) if f.name in said and not follows(group, f.name)}

    usual = aim.usual(ability)
    named = size_of(model, size)
    if "side" in named:
        given.setdefault("side", named.pop("side"))
    body = defaults(family.config) | named | of(family.config, usual)
    if begun:
        fixed = {name: value for name, value in asdict(begun[1]).items() if not follows(family.config, name)}
        for name, value in of(family.config).items():
            if name == "context" and not 1 <= value <= fixed[name]:
                raise ValueError(f"{given['from_']} has context {fixed[name]}: --context must be from 1 to that")
            if name not in ("dropout", "context") and value != fixed[name]:
                raise ValueError(f"{given['from_']} has {name} {fixed[name]}: leave out --{name.replace('_', '-')}")
        body |= fixed | ({"context": None} if "context" in fixed else {})  # unless given, as the data needs it
    must_take(str((given.get("data") or ("",))[0]), task, model, ability)
    reading = {name: value for group in aim.groups(ability) for name, value in asdict(group(**of(group))).items()}
    chosen_aim = defaults(aim) | of(aim, usual) | of(aim, pooling_for(task, given) if begun else {}) | of(aim)
    return Settings(
        task, model, size, Files(**of(Files)), reading, body | of(family.config), chosen_aim,
        Plan(**of(Plan)), Keeping(**of(Keeping)),
    )  # fmt: skip


def pooling_for(task: str, given: dict[str, Any]) -> dict[str, Any]:
    """That of the family, if others have made the body: so they can open what is trained, with its head."""
    folder = find(str(given["from_"]))
    if task not in ("classify", "regress") or there(folder / "task.json") or there(folder / "modules.json"):
        return {}
    config = read_json(folder / "config.json")
    return {"pooling": pooling_of(config, folder)} if config.get("model_type") in WITH_HEADS else {}


def start(task: str, model: str | None = None, size: str | None = None, **given: Any) -> Settings:
    """Settings as the user gives them; of a run that goes on, those that it began with."""
    if given.get("resume"):
        return resumed(task, **given)
    if sum(given.get(name) is not None for name in ("steps", "epochs", "minutes")) > 1:
        raise ValueError("choose one of --steps, --epochs and --minutes")
    if given.get("revisions") and given.get("steps") is None:
        raise ValueError("--revisions repeats a run of --minutes: give the --steps that it planned first, too")
    settings = settle(task, model, size, **given)
    return settings if settings.keeping.overwrite else once_more(settings, given)


MAY_CHANGE = ("resume", "out", "device", "threads", "allow_changed")


def once_more(settings: Settings, given: dict[str, Any]) -> Settings:
    """The same command again goes on with the run that it began; another one is refused with what is different."""
    folder = Path(settings.keeping.out or f"runs/{settings.task}")
    file, kept = folder / "train.json", [*saves(folder), *folder.glob(f"{ASIDE}*"), *folder.glob("README.md")]
    anew = replace(settings, keeping=replace(settings.keeping, overwrite=True))
    began = file.is_file() and (folder / LOCK).exists()
    if began and not kept and not file.stat().st_size:  # as a crash of the machine may leave it
        return anew
    asked = read_json(file).get("asked") if file.is_file() else None
    if not isinstance(asked, dict):
        return settings
    wanted = plain(settings.flat())
    if other := differing(asked, wanted):
        lines = [f"  {flag(name)} {shown(asked.get(name))} there, {shown(wanted.get(name))} here" for name in other]
        raise ValueError(
            f"{folder} holds a run that began with other settings:\n" + "\n".join(lines) + "\ngo on with it with "
            "--resume, start again with --overwrite, or choose another --out"
        )
    if not kept:  # neither saved nor finished: nothing can be lost
        return anew
    return resumed(settings.task, **{name: value for name, value in given.items() if name in MAY_CHANGE}, resume=True)


def resumed(task: str, **given: Any) -> Settings:
    for name in given:
        if name not in MAY_CHANGE:
            raise ValueError(
                f"a resumed run keeps its settings: leave out --{name.replace('_', '-')}, or start a new run"
            )
    file = Path(given.get("out") or f"runs/{task}") / "train.json"
    kept = read_json(file)
    for name in ("fingerprint", "asked"):
        kept.pop(name, None)
    try:
        return settle(**{**kept, **given})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{file} is not what a run wrote: {error}") from None


def as_text(name: str, value: Any) -> Any:
    """Paths as text; what may be one text or several as several."""
    if name not in SEVERAL or value is None:
        value = tuple(value) if name == "hide" and isinstance(value, list) else value  # as JSON has it
        return str(value) if isinstance(value, Path) else value
    if isinstance(value, str | Path):
        return (str(value),)
    if not isinstance(value, list | tuple) or not all(isinstance(one, str | Path) for one in value):
        raise ValueError(f"{name} must be one text or several, not {value!r}")
    return tuple(map(str, value))


def must_suit(name: str, value: Any, kind: Any) -> None:
    """Refuse what is none of an option's words, or not of its type."""
    if words := words_of(kind):
        if value is not None or type(None) not in get_args(kind):
            check_choice(name, value, words)
    elif name not in SEVERAL:
        check_type(name, value, kind)


TAKEN_BY = {"pictures": ("sees", "matches"), "sounds": ("hears", "transcribes")}  # by bodies that can do this


def must_take(path: str, task: str, model: str, ability: str) -> None:
    """Refuse a folder of pictures or sounds for a body that takes none, with the models that do."""
    media = media_in(path)
    if media is None or ability in TAKEN_BY[media]:
        return
    able = {*TASKS[task].asks} & {*TAKEN_BY[media]}
    fit = [name for name, family in MODELS.items() if able & {*family.bodies}]
    remedy = f"add --model {' or --model '.join(fit)}" if fit else f"no model for {task} does"
    raise ValueError(f"{path}: a folder of {media}, which {model} does not take: {remedy}")


def defaults(group: Any) -> dict[str, Any]:
    return {f.name: f.default for f in fields(group) if not follows(group, f.name) and f.default is not MISSING}
