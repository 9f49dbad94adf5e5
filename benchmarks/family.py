"""The family side by side: RNN, GRU, LSTM, Transformers on tag, classify and write, with equal parameters and minutes.

    python benchmarks/family.py [--minutes 2] [--output-dir runs/family]

Pooled word vectors stand beside them on classify. The widths below give bodies of about 0.8 M parameters each without
the embedding, but for the pooled one, which has hardly any. Data: UD English EWT (tag), CLINC150 (classify),
tinyshakespeare by characters (write). Scores are of the validation sets, which nothing was tuned on.
"""

from __future__ import annotations

from pathlib import Path

from clinc import written
from corpus import SHARED
from recipes import machine, options, trained

from regard.training.loop import num_parameters

EWT = SHARED / "ud_english_ewt"
RECURRENT = {"model": "recurrent", "layers": 2}
BODIES = {
    "tag": {
        "RNN": RECURRENT | {"cell": "rnn", "dim": 512},
        "GRU": RECURRENT | {"cell": "gru", "dim": 296},
        "LSTM": RECURRENT | {"cell": "lstm", "dim": 256},
        "BERT": {"model": "bert", "layers": 4, "dim": 128, "heads": 4, "hidden": 512},
        "ModernBERT": {"model": "modernbert", "layers": 4, "dim": 128, "heads": 4, "hidden": 344},
    },
    "write": {
        "RNN": RECURRENT | {"cell": "rnn", "dim": 448},
        "GRU": RECURRENT | {"cell": "gru", "dim": 256},
        "LSTM": RECURRENT | {"cell": "lstm", "dim": 224},
        "GPT": {"model": "gpt", "layers": 4, "dim": 128, "heads": 4, "hidden": 512},
        "nano": {"model": "nano", "layers": 4, "dim": 128, "heads": 4, "hidden": 512},
    },
}
BODIES["classify"] = BODIES["tag"] | {"pooled": {"model": "pooled", "dim": 256, "hidden": 512}}
SCORES = {"tag": "accuracy", "classify": "accuracy", "write": "loss"}


def data(task: str, folder: Path) -> dict[str, object]:
    if task == "tag":
        return {"data": [EWT / "en_ewt-ud-train.conllu.gz"], "valid": [EWT / "en_ewt-ud-dev.conllu.gz"]}
    if task == "classify":
        files = written(folder)
        return {"data": [files["train"]], "valid": [files["val"]]}
    text = (SHARED / "tinyshakespeare" / "input.txt").read_text()
    cut = int(0.9 * len(text))
    folder.mkdir(parents=True, exist_ok=True)
    for name, some in (("train", text[:cut]), ("valid", text[cut:])):
        (folder / f"{name}.txt").write_text(some)
    sets = {"data": [folder / "train.txt"], "valid": [folder / "valid.txt"]}
    return sets | {"pieces": "characters", "context": 128, "eval-examples": 200_000}


def main() -> None:
    given, more = options(str(__doc__), 2, "runs/family")
    folder = Path(given.output_dir)
    print(f"{machine()}, seed {given.seed}, {given.minutes:g} minutes each")
    for task, bodies in BODIES.items():
        for name, body in bodies.items():
            recipe = data(task, folder / "data") | body | {"minutes": given.minutes, "seed": given.seed}
            loaded = trained(task, folder / f"{task}-{name.lower()}", recipe, more)
            table = num_parameters(loaded.model.body.tokens)
            inner = num_parameters(loaded.model.body) - table
            best = best_of(folder / f"{task}-{name.lower()}", SCORES[task])
            print(
                f"{task:<10}{name:<13}{SCORES[task]} {best:6.2f}   {inner / 1e6:.2f} M + {table / 1e6:.2f} M",
                flush=True,
            )


def best_of(folder: Path, score: str) -> float:
    from regard.training.run_folder import RunFolder

    found = [line["valid"][score] for line in RunFolder(folder).metrics() if "valid" in line]
    return min(found) if score == "loss" else max(found)


if __name__ == "__main__":
    main()
