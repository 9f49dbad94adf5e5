"""The page of a large model, 12 layers of 12 heads and 128 tokens: its size, and the time to open it.

    python benchmarks/look_page.py [--rounds 7] [-o runs/page]

The model has the shape of GPT-2 small and random weights: the page of a trained model holds as many numbers. Opening is
everything from the command to a drawn page, in a Chromium that already runs. Needs Chromium.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median

from recipes import describe_machine

from regard.cli import main as regard
from regard.modalities.synthetic import stories

sys.path.append(str(Path(__file__).parents[1] / "tests" / "view"))
from conftest import Browser, installed

TOKENS = 128
DRAW = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("-o", "--output-dir", type=Path, default=Path("runs/page"))
    args = parser.parse_args()
    if not installed():
        parser.error("Chromium is not installed")
    folder = args.output_dir
    run, page, data = folder / "run", folder / "look.html", folder / "text.txt"
    folder.mkdir(parents=True, exist_ok=True)
    data.write_text("\n".join(stories.stories(20)), encoding="utf-8")
    sizes = "--model gpt --size gpt2 --tokenizer characters --context 128 --batch-tokens 256 --steps 1 --evals 1"
    if not (run / "README.md").exists() and regard(
        ["train", "write", "--data", str(data), "--output-dir", str(run), *sizes.split()]
    ):
        raise SystemExit(1)
    text = " ".join(stories.stories(1)[0].split())[: TOKENS - 1]
    if regard(["look", str(run), text, "--output", str(page)]):
        raise SystemExit(1)
    browser, seconds = Browser(folder), []
    for _ in range(args.rounds):
        start = time.perf_counter()
        browser.visit(page.resolve())
        browser.run(DRAW)
        seconds.append(time.perf_counter() - start)
    assert not browser.problems, browser.problems
    browser.close()
    print(f"{describe_machine()}\n{page.stat().st_size / 1e6:.2f} MB, opens in {median(seconds):.2f} s", end=" ")
    print(f"(median of {args.rounds}, {min(seconds):.2f} to {max(seconds):.2f})")


if __name__ == "__main__":
    main()
