"""Everything that there is to see of one model and one text, as one page.

    regard.page(regard.load("runs/demo"), "Tea and water please")             in a notebook it shows itself
    regard.page(...).save("look.html")

A tab is what one file of this folder made of it; what does not fit the model is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import shorten
from typing import Any

from regard import __version__
from regard.load import Loaded
from regard.models import MODELS
from regard.tasks import TASKS
from regard.tasks.translate import Translate
from regard.training.loop import parameters
from regard.view.attention_maps import Map, attention_tab, maps, steps_tab
from regard.view.attention_rollout import picture_tab, similarity_tab
from regard.view.beam_tree import beam_tab
from regard.view.figures import stills
from regard.view.head_stats import heads_tab
from regard.view.logit_lens import Stream, stream, stream_tab
from regard.view.page import Page
from regard.view.position_table import positions_tab
from regard.view.trace import refuse_blind, run, sees
from regard.view.training_history import training_tab

Tab = dict[str, Any]
Builder = Callable[[Loaded, str, str | None], Tab | None]
# What takes more than one run of the model, in the order in which it is shown.
BUILDERS: list[Builder] = [beam_tab, picture_tab, similarity_tab]


class Whole:
    """The page of one text, what was found on it, and its still pictures."""

    def __init__(
        self,
        loaded: Loaded,
        text: str,
        target: str | None = None,
        word: str | None = None,
        rows: Any = None,  # on which each head is taken out, as `loaded.rows` reads them
        folder: Path | None = None,
    ):
        refuse_blind(loaded)
        self.maps: list[Map] = []
        self.stream: Stream | None = None
        own = target is None and isinstance(loaded.task, Translate)
        said = loaded(text) if own else target
        tabs = self.of_pictures(said, word) if sees(loaded) else self.of_text(loaded, text, said, word)
        more = [build(loaded, text, said) for build in BUILDERS]
        more += [heads_tab(loaded, text, said, rows), training_tab(folder) if folder else None]
        self.page = Page(
            {
                "title": title_of(text) if sees(loaded) else shorten(text, 80, placeholder=" …"),
                "made": f"regard {__version__}",
                "about": [*about(loaded, folder), ["text", text], *told(said, own)],
                "tabs": [tab for tab in (*tabs, *more) if tab],
            }
        )

    def of_text(self, loaded: Loaded, text: str, target: str | None, word: str | None) -> list[Tab | None]:
        inside = run(loaded, text, target)
        self.maps, self.stream = maps(inside, word), stream(inside)
        attention = attention_tab(self.maps, inside)
        through = stream_tab(self.stream) if self.stream else None
        return [attention, steps_tab(attention), through, positions_tab(loaded.model.body)]

    def of_pictures(self, target: str | None, word: str | None) -> list[Tab | None]:
        """One run says nothing more of them than the tabs that take several."""
        if target or word:
            raise ValueError("--target and --word are for models that read text, and this one sees pictures")
        return []

    def save(self, file: Path) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        return self.page.save(file)

    def stills(self, file: Path) -> list[Path]:
        return stills(self.maps, self.stream, file)


def page(loaded: Loaded, text: str, target: str | None = None, word: str | None = None, rows: Any = None) -> Page:
    """What happens inside of a model while it reads `text`, or the picture in that file, and says `target`."""
    return Whole(loaded, text, target, word, rows).page


def about(loaded: Loaded, folder: Path | None) -> list[list[str]]:
    """What stands above it all."""
    family = next(name for name, one in MODELS.items() if isinstance(loaded.model.body.config, one.config))
    task = next(name for name, one in TASKS.items() if type(loaded.task) is one)
    return [
        *([["model", str(folder)]] if folder else []),
        ["family", family],
        ["task", f"{task}: {loaded.task.about}"],
        ["parameters", f"{parameters(loaded.model):,}"],
    ]


def title_of(pictures: str) -> str:
    """Names of files without their folders, and captions as they are."""
    return shorten(" · ".join(Path(name).name for name in pictures.split("\t")), 80, placeholder=" …")


def told(target: str | None, own: bool) -> list[list[str]]:
    return [] if target is None else [["target", f"{target} (its own)" if own else target]]
