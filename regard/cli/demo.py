"""regard demo: train a translator on the bundled phrasebook, translate held-out sentences, and draw its attention."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.cli.interrupts import resume_command
from regard.cli.options import parse
from regard.cli.train import prepare_and_print, train_and_print
from regard.load import load
from regard.modalities.synthetic import phrasebook
from regard.options import make, options_of
from regard.training.start import make_settings

SENTENCE = "Tea and water please"
# A short run sees most sentences once, so it needs no dropout; many small batches learn faster.
RECIPE: dict[str, Any] = {"dropout": 0.0, "batch_tokens": 1536, "evals": 4}


@dataclass
class DemoOptions:
    """Length and folder of the demo."""

    output_dir: str = "runs/demo"  # run folder
    minutes: float = 2.5  # minutes of the training run
    overwrite: bool = False  # replace the run in --output-dir
    seed: int = 1  # random seed


def main(args: list[str]) -> int:
    options = make(DemoOptions, parse("regard demo", args, options_of(DemoOptions)))
    folder = Path(options.output_dir)
    if options.overwrite or not (folder / "README.md").exists():
        resume = (folder / "LATEST").exists() and not options.overwrite
        values = {"minutes": options.minutes, "seed": options.seed, "overwrite": options.overwrite, **RECIPE}
        settings = make_settings("translate", output_dir=options.output_dir, **{"resume": True} if resume else values)
        job = prepare_and_print(settings)
        if code := train_and_print(job, resume_command("translate", job.run.folder)):
            return code
    translate = load(folder)
    held_out = [p for p in phrasebook.phrases() if phrasebook.split(p) == "test"]
    scores = translate.task.score(translate.model, [*translate.modality.synthetic(translate.task.target)["test"]])
    print(f"\n{len(held_out)} held-out sentences:", end=" ")
    print(f"BLEU {scores['bleu']:.1f}, chrF {scores['chrf']:.1f}\n")
    indices = [next(i for i, p in enumerate(held_out) if p.kind == kind) for kind in phrasebook.KINDS]
    for i in indices:
        answer, phrase = scores["predictions"][i], held_out[i]
        verdict = "correct" if answer == phrase.german else f"reference: {phrase.german}"
        print(f"  {phrase.english}\n  {answer}          ({verdict})\n")
    print(f"  {SENTENCE}\n  {translate(SENTENCE)}\n")

    from regard.view.alignment import save_alignment

    longest = max(indices, key=lambda i: len(held_out[i].english))
    save_alignment(translate, held_out[longest].english, folder / "alignment.png")
    print(f"wrote figure of the cross-attention: {folder / 'alignment.png'}")
    print(f'serve it: pip install "regard[serve]", then: regard serve {folder}')
    return 0
