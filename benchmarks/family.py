"""RNN, GRU, LSTM and Transformers on tag, classify and write, with equal numbers of parameters and equal minutes.

    python benchmarks/family.py [--minutes 2] [-o runs/family]

Each body has about 0.8 M parameters without the embedding; on classify the pooled model is added, which has hardly any.
Data: UD English EWT (tag), CLINC150 (classify), tinyshakespeare by characters (write). Scores are on the validation
sets; nothing was tuned on them.
"""

from __future__ import annotations

from pathlib import Path

from clinc import write_data
from corpus import SHARED
from recipes import describe_machine, parse_args, train_or_load

from regard.training.loop import num_parameters
from regard.training.run_folder import RunFolder

EWT = SHARED / "ud_english_ewt"
RECURRENT = {"--model": "recurrent", "--layers": 2}
BODIES = {
    "tag": {
        "RNN": RECURRENT | {"--cell": "rnn", "--dim": 512},
        "GRU": RECURRENT | {"--cell": "gru", "--dim": 296},
        "LSTM": RECURRENT | {"--cell": "lstm", "--dim": 256},
        "BERT": {"--model": "bert", "--layers": 4, "--dim": 128, "--heads": 4, "--hidden": 512},
        "ModernBERT": {"--model": "modernbert", "--layers": 4, "--dim": 128, "--heads": 4, "--hidden": 344},
    },
    "write": {
        "RNN": RECURRENT | {"--cell": "rnn", "--dim": 448},
        "GRU": RECURRENT | {"--cell": "gru", "--dim": 256},
        "LSTM": RECURRENT | {"--cell": "lstm", "--dim": 224},
        "GPT": {"--model": "gpt", "--layers": 4, "--dim": 128, "--heads": 4, "--hidden": 512},
        "nanochat": {"--model": "nanochat", "--layers": 4, "--dim": 128, "--heads": 4, "--hidden": 512},
    },
}
BODIES["classify"] = BODIES["tag"] | {"pooled": {"--model": "pooled", "--dim": 256, "--hidden": 512}}
SCORES = {"tag": "accuracy", "classify": "accuracy", "write": "loss"}


def data_options(task: str, folder: Path) -> dict[str, object]:
    if task == "tag":
        return {"--data": [EWT / "en_ewt-ud-train.conllu.gz"], "--valid": [EWT / "en_ewt-ud-dev.conllu.gz"]}
    if task == "classify":
        files = write_data(folder)
        return {"--data": [files["train"]], "--valid": [files["val"]]}
    text = (SHARED / "tinyshakespeare" / "input.txt").read_text()
    end = int(0.9 * len(text))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.txt").write_text(text[:end])
    (folder / "valid.txt").write_text(text[end:])
    files = {"--data": [folder / "train.txt"], "--valid": [folder / "valid.txt"]}
    return files | {"--tokenizer": "characters", "--context": 128, "--eval-examples": 200_000}


def main() -> None:
    args, extra = parse_args(str(__doc__), 2, "runs/family")
    print(f"{describe_machine()}, seed {args.seed}, {args.minutes:g} minutes each; parameters: blocks + embedding")
    for task, bodies in BODIES.items():
        for name, body in bodies.items():
            folder = args.output_dir / f"{task}-{name.lower()}"
            recipe = data_options(task, args.output_dir / "data") | body
            loaded = train_or_load(task, folder, recipe | {"--minutes": args.minutes, "--seed": args.seed}, extra)
            embedding = num_parameters(loaded.model.body.tokens)
            blocks = num_parameters(loaded.model.body) - embedding
            score = f"{SCORES[task]} {best_score(folder, SCORES[task]):6.2f}"
            print(f"{task:<10}{name:<13}{score}   {blocks / 1e6:.2f} M + {embedding / 1e6:.2f} M", flush=True)


def best_score(folder: Path, name: str) -> float:
    scores = [line["valid"][name] for line in RunFolder(folder).metrics() if "valid" in line]
    return min(scores) if name == "loss" else max(scores)


if __name__ == "__main__":
    main()
