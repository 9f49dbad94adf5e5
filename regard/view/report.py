"""Report of one model on one text: all tabs on one page.

    regard.page(regard.load("runs/demo"), "Tea and water please")             a notebook displays it
    regard.page(...).save("look.html")

Each file of this folder builds one tab; a tab that does not apply to the model is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import shorten

from regard import __version__
from regard.data.documents import RowSet
from regard.loaded_model import LoadedModel
from regard.training.loop import num_parameters
from regard.view.attention_maps import AttentionMap, attention_maps, attention_tab, steps_tab
from regard.view.attention_rollout import image_tab, similarity_tab
from regard.view.beam_tree import beam_tab
from regard.view.figures import save_figures
from regard.view.head_stats import heads_tab
from regard.view.logit_lens import LogitLens, lens_tab, logit_lens
from regard.view.page import Page, Tab
from regard.view.position_table import positions_tab
from regard.view.trace import is_translator, require_page, trace_text
from regard.view.training_history import training_tab

TabBuilder = Callable[[LoadedModel, str, str | None], Tab | None]
# Tabs that run the model themselves, in the order of the page.
BUILDERS: list[TabBuilder] = [beam_tab, image_tab, similarity_tab]


class ModelReport:
    """The page of one text, its attention maps and its PNG figures."""

    def __init__(
        self,
        loaded: LoadedModel,
        text: str,
        target: str | None = None,
        word: str | None = None,
        rows: RowSet | None = None,  # on which each head is ablated, as `loaded.rows` reads them
        folder: Path | None = None,
    ):
        require_page(loaded)
        self.maps: list[AttentionMap] = []
        self.lens: LogitLens | None = None
        own = target is None and is_translator(loaded.task)
        target = loaded(text) if own else target
        images = loaded.task.preprocessor.has_pictures
        if images and (target or word):
            unit = loaded.modality.unit
            raise ValueError(f"--target and --word are for models that read text, and this model reads {unit}")
        tabs = [] if images else self.text_tabs(loaded, text, target, word)
        tabs += [build(loaded, text, target) for build in BUILDERS]
        tabs += [heads_tab(loaded, text, target, rows), training_tab(folder) if folder else None]
        self.page = Page(
            {
                "title": title_of(text) if images else shorten(text, 80, placeholder=" …"),
                "generator": f"regard {__version__}",
                "about": [*about_model(loaded, folder), ["text", text], *about_target(target, own)],
                "tabs": [tab for tab in tabs if tab],
            }
        )

    def text_tabs(self, loaded: LoadedModel, text: str, target: str | None, word: str | None) -> list[Tab | None]:
        trace = trace_text(loaded, text, target)
        self.maps, self.lens = attention_maps(trace, word), logit_lens(trace)
        lens = lens_tab(self.lens) if self.lens else None
        tabs = [attention_tab(self.maps, trace), steps_tab(self.maps, trace), lens]
        return [*tabs, positions_tab(loaded.model.body)]

    def save(self, file: Path) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        return self.page.save(file)

    def save_figures(self, file: Path) -> list[Path]:
        return save_figures(self.maps, self.lens, file)


def page(
    loaded: LoadedModel, text: str, target: str | None = None, word: str | None = None, rows: RowSet | None = None
) -> Page:
    """The page of a forward pass over `text` (or the image file of that name), with `target` as decoder input."""
    return ModelReport(loaded, text, target, word, rows).page


def about_model(loaded: LoadedModel, folder: Path | None) -> list[list[str]]:
    return [
        *([["model", str(folder)]] if folder else []),
        ["family", loaded.model_name],
        ["task", f"{loaded.task_name}: {loaded.task.description}"],
        ["parameters", f"{num_parameters(loaded.model):,}"],
    ]


def title_of(images: str) -> str:
    """Image files without their folders, and captions as they are."""
    return shorten(" · ".join(Path(name).name for name in images.split("\t")), 80, placeholder=" …")


def about_target(target: str | None, own: bool) -> list[list[str]]:
    return [] if target is None else [["target", f"{target} (the model's own)" if own else target]]
