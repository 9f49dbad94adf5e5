"""A rename changes no number: 30 steps of every task at two revisions, loss by loss and weight by weight.

    python benchmarks/same_losses.py --before before-names [--steps 30] [--only classify]

Each revision is checked out into a folder of its own and trained there by its own command, one thread each, the two in
turn. Losses must be equal to the last digit that metrics.jsonl has, and the final weights bit for bit. The times of a
step are printed as a ratio of medians.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors.torch import load_file

ROOT = Path(__file__).parents[1]
# Task and model, by the names of the newer revision; what an older one calls a model or an option stands behind it.
RUNS = [
    ("translate", "transformer"), ("translate", "recurrent"), ("translate", "speech2text"), ("write", "nanochat"),
    ("write", "gpt"), ("write", "llama"), ("fill", "modernbert"), ("fill", "protein_encoder"), ("classify", "bert"),
    ("classify", "pooled"), ("classify", "vit"), ("classify", "resnet"), ("classify", "audio_encoder"),
    ("regress", "modernbert"), ("regress", "graphormer"), ("tag", "recurrent"), ("tag", "protein_encoder"),
    ("answer", "modernbert"), ("embed", "bert"), ("match", "clip"), ("predict", "world_model"),
    ("decide", "world_model"),
]  # fmt: skip
OLDER = {
    "speech2text": "transcriber", "nanochat": "nano", "protein_encoder": "chain", "resnet": "convolution",
    "audio_encoder": "listener", "graphormer": "graph", "world_model": "world",
    "--output-dir": "--out", "--evals": "--checks", "--eval-examples": "--check-examples",
}  # fmt: skip


def checked_out(revision: str, folder: Path) -> Path:
    command = f"git -C '{ROOT}' archive {revision} | tar -x -C '{folder}'"
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True)
    return folder


def call(source: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "regard", *words]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def trained(source: Path, task: str, model: str, steps: int, out: Path) -> Path:
    model = model if f"\n{model} " in "\n" + call(source, "models") else OLDER.get(model, model)
    options = (source / "regard" / "training").rglob("*.py")
    written = "".join(file.read_text() for file in options)
    newer = "output_dir" in written
    names = {word: word if newer else OLDER[word] for word in ("--output-dir", "--evals", "--eval-examples")}
    sizes = [names["--evals"], "1", names["--eval-examples"], "2", "--steps", str(steps), "--threads", "1"]
    call(source, "train", task, "--model", model, names["--output-dir"], str(out), "--device", "cpu", *sizes)
    return out


def losses_of(run: Path) -> tuple[list[float], list[float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    return [line["loss"] for line in steps], [line["seconds"] for line in steps]


def weights_of(run: Path) -> list[str]:
    """A digest of every tensor, without its name."""
    tensors = load_file(run / "model.safetensors").values()
    return sorted(hashlib.sha256(tensor.contiguous().view(-1).numpy().tobytes()).hexdigest() for tensor in tensors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="the revision to compare with")
    parser.add_argument("--after", default="HEAD")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", help="runs whose task or model is this")
    args = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as scratch:
        sources = {}
        for name, revision in (("before", args.before), ("after", args.after)):
            (Path(scratch) / name).mkdir()
            sources[name] = checked_out(revision, Path(scratch) / name)
        print("| task | model | losses | weights | seconds a step, after / before |\n|---|---|---|---|---|")
        for task, model in RUNS:
            if args.only and args.only not in (task, model):
                continue
            runs = {}
            for name, source in sources.items():
                runs[name] = trained(source, task, model, args.steps, Path(scratch) / f"{name}-{task}-{model}")
            (before, slow), (after, fast) = losses_of(runs["before"]), losses_of(runs["after"])
            same = before == after, weights_of(runs["before"]) == weights_of(runs["after"])
            different += not all(same)
            words = ["equal" if equal else "DIFFERENT" for equal in same]
            ratio = statistics.median(fast) / statistics.median(slow)
            print(f"| {task} | {model} | {words[0]} | {words[1]} | {ratio:.2f} |", flush=True)
    print(f"{different} of the runs differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
