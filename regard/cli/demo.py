"""regard demo: learn the phrasebook, translate what was never seen, and show where the model looked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.cli.interrupts import go_on
from regard.cli.options import parse
from regard.cli.train import prepare_and_print, train_and_print
from regard.data.bundled import phrasebook
from regard.load import load
from regard.training.settings import make_settings, options_of

TEA = "Tea and water please"
# Hardly a sentence is seen twice in so short a time: nothing to drop, and many small steps.
RECIPE: dict[str, Any] = {"dropout": 0.0, "batch_tokens": 1536, "evals": 4}


@dataclass
class DemoOptions:
    """What to show."""

    output_dir: str = "runs/demo"  # the run folder
    minutes: float = 2.5  # how long to train
    overwrite: bool = False  # train again if the folder is there
    seed: int = 1  # of everything random


def main(args: list[str]) -> int:
    demo = DemoOptions(**parse("regard demo", args, options_of(DemoOptions)))
    folder = Path(demo.output_dir)
    if demo.overwrite or not (folder / "README.md").exists():
        begun = (folder / "LATEST").exists() and not demo.overwrite
        said: dict[str, Any] = {"minutes": demo.minutes, "seed": demo.seed, "overwrite": demo.overwrite, **RECIPE}
        job = prepare_and_print(
            make_settings("translate", output_dir=demo.output_dir, **{"resume": True} if begun else said)
        )
        if code := train_and_print(job, go_on("translate", job.run.folder)):
            return code
    translate = load(folder)
    unseen = [p for p in phrasebook.phrases() if phrasebook.split(p) == "test"]
    scores = translate.task.score(translate.model, [(p.english, p.german) for p in unseen])
    print(f"\n{len(unseen)} held-out sentences, never seen in training:", end=" ")
    print(f"BLEU {scores['bleu']:.1f}, chrF {scores['chrf']:.1f}\n")
    chosen = [next(i for i, p in enumerate(unseen) if p.kind == kind) for kind in phrasebook.KINDS]
    for i in chosen:
        right = "as wanted" if scores["answers"][i] == unseen[i].german else f"wanted: {unseen[i].german}"
        print(f"  {unseen[i].english}\n  {scores['answers'][i]}          ({right})\n")
    print(f"  {TEA}\n  {translate(TEA)}\n")

    from regard.view.alignment import save_alignment

    longest = max(chosen, key=lambda i: len(unseen[i].english))
    save_alignment(translate, unseen[longest].english, folder / "alignment.png")
    print(f"where it looked while it wrote: {folder / 'alignment.png'}")
    return 0
