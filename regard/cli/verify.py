"""regard verify RECEIPT: replay an answer of `regard serve --reproducible`, and compare it bit by bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from regard.cli.model_argument import FetchOptions, fetch_model
from regard.cli.options import parse
from regard.device import set_num_threads
from regard.load import load
from regard.options import Positional, make, options_of
from regard.receipts import read_receipt, replay


@dataclass
class VerifyOptions:
    """The receipt, and the model that gave the answer."""

    receipt: Annotated[str, Positional]  # JSON file: a receipt, or an answer of the server with a receipt in it
    file: str | None = None  # the file that was uploaded, if the input was one
    model: str | None = None  # model folder; default: a folder with the name in the receipt, here or in runs/


def main(args: list[str]) -> int:
    values = parse("regard verify", args, options_of(VerifyOptions) | options_of(FetchOptions))
    options = make(VerifyOptions, values)
    receipt = read_receipt(Path(options.receipt))
    name = str(receipt["model"])
    folders = [folder for folder in (Path(name), Path("runs") / name) if (folder / "config.json").exists()]
    if not options.model and not folders:
        raise ValueError(f"no folder {name} here or in runs/: name the model with --model FOLDER")
    folder = fetch_model(options.model or str(folders[0]), make(FetchOptions, values))
    set_num_threads(receipt["threads"])
    file = Path(options.file) if options.file else None
    verdict = replay(receipt, load(folder, "cpu", speed=receipt["speed"]), file)
    texts = [prediction["text"] for prediction in verdict.answer.get("predictions", ())]
    print("\n".join(texts))
    if verdict.same_bits:
        print(f"verified: the same bits as the receipt of {name}")
    elif verdict.holds:
        print(f"verified: the same text; other bits, as the receipt is from another processor: {receipt['processor']}")
    else:
        print(f"NOT verified: the receipt of {name} has another answer: {receipt['answer']}")
    return 0 if verdict.holds else 1
