"""regard look MODEL "text": what happens inside of a model while it reads or writes, as one page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import tyro

from regard import __version__
from regard.choose import must
from regard.cli.model import Fetching, found
from regard.cli.models import short
from regard.cli.options import parse
from regard.load import Loaded, load
from regard.models import MODELS
from regard.tasks import TASKS
from regard.tasks.translate import Translate
from regard.training.loop import parameters
from regard.training.settings import options_of
from regard.view.attention import Map, attention_tab, maps, steps_tab
from regard.view.history import training_tab
from regard.view.inside import refuse_blind, run, sees
from regard.view.page import Page
from regard.view.positions import positions_tab
from regard.view.roles import heads_tab
from regard.view.rollout import picture_tab, similarity_tab
from regard.view.stills import stills
from regard.view.stream import Stream, stream, stream_tab
from regard.view.tree import beam_tab

Tab = dict[str, Any]
Builder = Callable[[Loaded, str, str | None], Tab | None]
# More than one run tells, in the order in which it is shown. What does not fit a model is None.
BUILDERS: list[Builder] = [beam_tab, picture_tab, similarity_tab, heads_tab]


@dataclass
class Look:
    """What to look at."""

    model: Annotated[str, tyro.conf.Positional]  # a model folder, or the name of one on the hub: owner/repo
    text: Annotated[str, tyro.conf.Positional]  # what it reads; the file of a picture if it sees
    target: str | None = None  # what a translator should say; what it says itself unless given
    word: str | None = None  # find the head that looks most from this word to another; a pronoun unless given
    out: str = "look.html"  # the page
    png: bool = False  # still pictures too, beside the page
    device: str = "auto"  # cpu, cuda or mps; the best there is if auto

    def __post_init__(self) -> None:
        must(self, out=(self.out.endswith(".html"), "a .html file"))


def main(args: list[str]) -> int:
    given = parse("regard look", args, options_of(Look) | options_of(Fetching))
    wish = Look(**{name: given.pop(name) for name in options_of(Look)})
    folder = found(wish.model, Fetching(**given))
    loaded = load(folder, wish.device)
    target = wish.target
    if target is None and isinstance(loaded.task, Translate):
        target = loaded(wish.text)
    tabs, heads, layers = from_one_run(loaded, wish.text, target, wish.word)
    more = [*(build(loaded, wish.text, target) for build in BUILDERS), training_tab(folder)]
    out = Path(wish.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    told = {
        "title": shorten(wish.text, 80, placeholder=" …"),
        "made": f"regard {__version__}",
        "about": about(loaded, wish, target),
    }
    Page({**told, "tabs": [tab for tab in (*tabs, *more) if tab]}).save(out)
    for one in heads:
        if one.found:
            print(f"{one.name}: {one.found}")
    for file in stills(heads, layers, out) if wish.png else []:
        print(f"a still picture is in {file}")
    print(f"the page is in {out}: open it in a browser")
    return 0


def from_one_run(
    loaded: Loaded, text: str, target: str | None, word: str | None
) -> tuple[list[Tab | None], list[Map], Stream | None]:
    """Attention, its steps, the stream and the positions of a model that reads text; nothing of one that sees."""
    refuse_blind(loaded.model)
    if sees(loaded):
        if target or word:
            raise ValueError("--target and --word are for models that read text, and this one sees pictures")
        return [], [], None
    inside = run(loaded, text, target)
    heads, layers = maps(inside, word), stream(inside)
    attention = attention_tab(heads, inside)
    through = stream_tab(layers) if layers else None
    return [attention, steps_tab(attention), through, positions_tab(loaded.model.body)], heads, layers


def about(loaded: Loaded, wish: Look, target: str | None) -> list[list[str]]:
    """What stands above it all."""
    config = loaded.model.body.config
    family = next(name for name, one in MODELS.items() if isinstance(config, one.config))
    task = next(name for name, one in TASKS.items() if type(loaded.task) is one)
    facts = [["model", wish.model], ["family", family], ["task", f"{task}: {loaded.task.about}"]]
    facts.append(["parameters", short(parameters(loaded.model))])
    facts.append(["text", wish.text])
    if target is not None:
        facts.append(["target", target if wish.target else f"{target} (its own)"])
    return facts
