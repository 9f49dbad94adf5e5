"""`regard VERB --help` of every verb, without importing torch."""

from __future__ import annotations

from contextlib import suppress

from regard.cli import static_options
from regard.cli.options import make_parser, parse
from regard.lab import EXPERIMENTS
from regard.training.task_aliases import TASK_ALIASES

Group = tuple[str, str]  # a module, and a dataclass in it

FETCH_OPTIONS: Group = ("regard.cli.model_argument", "FetchOptions")
OPTION_GROUPS: dict[str, tuple[Group, ...]] = {
    "run": (("regard.cli.run", "RunCommandOptions"), FETCH_OPTIONS),
    **{v: ((f"regard.cli.{v}", f"{v.title()}Options"), FETCH_OPTIONS) for v in ("score", "check", "bench", "look")},
    "imitate": (("regard.cli.imitate", "ImitateOptions"), ("regard.rl.gail", "GAILOptions")),
    "serve": (("regard.serve.serve_options", "ServeOptions"), FETCH_OPTIONS),
    "verify": (("regard.cli.verify", "VerifyOptions"), FETCH_OPTIONS),
    "plan": (("regard.cli.plan", "PlanOptions"),),
    "log": (("regard.cli.log", "LogOptions"),),
    "demo": (("regard.cli.demo", "DemoOptions"),),
}
PLAY_OPTIONS: Group = ("regard.cli.act", "PlayOptions")


def show_help(verb: str) -> int:
    if verb == "train":
        return show_train_help()
    if verb == "lab":
        return show_lab_help()
    if verb in ("models", "tasks"):
        print(f"usage: regard {verb}\n\n{static_options.docstring(f'regard.cli.{verb}')}")
        return 0
    rows = {name: option for group in OPTION_GROUPS[verb] for name, option in static_options.options(*group).items()}
    with suppress(SystemExit):
        parse(f"regard {verb}", ["--help"], rows, static_options.docstring(f"regard.cli.{verb}"))
    if verb in ("run", "score"):
        show_task_options(verb)
    return 0


def show_task_options(verb: str) -> None:
    """The options that depend on the task of the model, with their defaults."""
    print(f"\noptions by the task of the model (regard {verb} MODEL --help lists those of one):")
    sections: dict[str, list[str]] = {}  # names of tasks with the same options
    for name, task in static_options.tasks().items():
        module, node = static_options.decode_options(task)
        rows = static_options.options(module, node.name)
        if verb == "run" and static_options.literal_value(static_options.class_attribute(task, "can_play")):
            rows |= static_options.options(*PLAY_OPTIONS)
        lines = make_parser("", rows, add_help=False).format_help().partition("options:\n")[2]
        sections.setdefault(lines.rstrip(), []).append(name)
    for lines, names in sections.items():
        print(f"\n{', '.join(names)}\n{lines}")


def show_train_help() -> int:
    print("usage: regard train TASK [options]          regard train TASK --help lists the options\n")
    for name, task in static_options.tasks().items():
        print(f"  {name:<11}{static_options.literal_value(static_options.class_attribute(task, 'description'))}")
    print(f"\nThe task names of Hugging Face work as well: {', '.join(TASK_ALIASES)}")
    return 0


def show_lab_help() -> int:
    print("usage: regard lab NAME [options] [--output-dir FOLDER]      regard lab NAME --help lists its options")
    print("       regard lab --all [--output-dir FOLDER]               all experiments, on one page\n")
    for name in EXPERIMENTS:
        summary = static_options.docstring(f"regard.lab.{name}").splitlines()[0]
        print(f"  {name:<12}{summary.removeprefix(f'{name}: ')}")
    return 0
