"""regard look MODEL "text": attention, logit lens and other views of one forward pass, as one HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from regard.cli.model_argument import parse_command
from regard.data.splits import data_options_from_run
from regard.load import load
from regard.options import Positional
from regard.validate import check_fields
from regard.view.report import ModelReport


@dataclass
class LookOptions:
    """Input and output of the report."""

    model: Annotated[str, Positional]  # model folder, or a repository on the Hugging Face hub: owner/repo
    text: Annotated[str, Positional]  # input text; an image file if the model reads images
    target: str | None = None  # target text of a translator; default: its own translation
    word: str | None = None  # first show the head that attends most from this word to another; default: a pronoun
    rows: tuple[str, ...] = ()  # files as for regard score, to measure the loss with a head ablated; default: the text
    output: str = "look.html"  # HTML file to write
    png: bool = False  # also write PNG figures beside the page
    device: str = "auto"  # cpu, cuda or mps; auto = the best available

    def __post_init__(self) -> None:
        check_fields(self, output=(self.output.endswith(".html"), "a .html file"))


def main(args: list[str]) -> int:
    options, folder = parse_command("look", args, LookOptions)
    loaded = load(folder, options.device)
    files, _ = data_options_from_run(folder, options.rows)
    rows = loaded.rows(files.data, files.fields, dialect=files.dialect) if options.rows else None
    report = ModelReport(loaded, options.text, options.target, options.word, rows, folder)
    page = report.save(Path(options.output))
    for attention in report.maps:
        if attention.highlight:
            print(f"{attention.name}: {attention.highlight}")
    for file in report.save_figures(page) if options.png else []:
        print(f"wrote figure {file}")
    print(f"wrote page {page}: open it in a browser")
    return 0
