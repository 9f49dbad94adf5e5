"""regard look MODEL "text": what happens inside of a model while it reads or writes, as one page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from regard.choose import must
from regard.cli.model import Fetching, found
from regard.cli.options import parse
from regard.data.files import as_in_training
from regard.load import load
from regard.training.settings import options_of
from regard.view.report import Whole


@dataclass
class Look:
    """What to look at."""

    model: Annotated[str, tyro.conf.Positional]  # a model folder, or the name of one on the hub: owner/repo
    text: Annotated[str, tyro.conf.Positional]  # what it reads; the file of a picture if it sees
    target: str | None = None  # what a translator should say; what it says itself unless given
    word: str | None = None  # find the head that looks most from this word to another; a pronoun unless given
    rows: tuple[str, ...] = ()  # files as for regard score: what each head is worth on them; on the text unless given
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
    files, _ = as_in_training(folder, wish.rows)
    rows = loaded.rows(files.data, files.fields, dialect=files.dialect) if wish.rows else None
    whole = Whole(loaded, wish.text, wish.target, wish.word, rows, folder)
    out = whole.save(Path(wish.out))
    for one in whole.maps:
        if one.found:
            print(f"{one.name}: {one.found}")
    for file in whole.stills(out) if wish.png else []:
        print(f"a still picture is in {file}")
    print(f"the page is in {out}: open it in a browser")
    return 0
