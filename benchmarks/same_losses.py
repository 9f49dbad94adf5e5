"""A refactoring changes no number: losses and weights of 30 training steps of every task, at two revisions.

    python benchmarks/same_losses.py --before f18bbde [--after .] [--steps 30] [--only classify]

Each revision is checked out into a folder of its own and trained there by its own command on one thread, the two in
turn. A folder is used as it is: `--after .` is the working tree. Losses must be equal to the last digit of
metrics.jsonl, and the final weights bit for bit. The time per step is printed as a ratio of medians.
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
# Task and model, by the names of the newer revision; OLDER maps these, and options, to the names of an older one.
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


def check_out(revision: str, folder: Path) -> Path:
    if Path(revision).is_dir():
        return Path(revision).resolve()
    folder.mkdir()
    command = f"git -C '{ROOT}' archive {revision} | tar -x -C '{folder}'"
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True)
    return folder


def run_command(source: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "regard", *words]
    process = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}: {process.stderr.strip()}")
    return process.stdout


def train(source: Path, task: str, model: str, steps: int, output_dir: Path) -> Path:
    model = model if f"\n{model} " in "\n" + run_command(source, "models") else OLDER.get(model, model)
    is_newer = any("output_dir" in file.read_text() for file in (source / "regard" / "training").rglob("*.py"))
    names = {word: word if is_newer else OLDER[word] for word in ("--output-dir", "--evals", "--eval-examples")}
    options = [names["--evals"], "1", names["--eval-examples"], "2", names["--output-dir"], str(output_dir)]
    fixed = ["--steps", str(steps), "--threads", "1", "--device", "cpu"]
    run_command(source, "train", task, "--model", model, *options, *fixed)
    return output_dir


def losses_and_seconds(run: Path) -> tuple[list[float], list[float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    return [line["loss"] for line in steps], [line["seconds"] for line in steps]


def weight_digests(run: Path) -> list[str]:
    """A digest of every tensor, without its name."""
    tensors = load_file(run / "model.safetensors").values()
    return sorted(hashlib.sha256(tensor.contiguous().view(-1).numpy().tobytes()).hexdigest() for tensor in tensors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="the revision, or the folder, to compare with")
    parser.add_argument("--after", default="HEAD")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", help="runs whose task or model is this")
    args = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as scratch:
        sources = {}
        for name, revision in (("before", args.before), ("after", args.after)):
            sources[name] = check_out(revision, Path(scratch) / name)
        print("| task | model | losses | weights | seconds per step, after / before |\n|---|---|---|---|---|")
        for task, model in RUNS:
            if args.only and args.only not in (task, model):
                continue
            runs = {}
            for name, source in sources.items():
                runs[name] = train(source, task, model, args.steps, Path(scratch) / f"{name}-{task}-{model}")
            (before, seconds_before), (after, seconds_after) = (losses_and_seconds(run) for run in runs.values())
            same = before == after, weight_digests(runs["before"]) == weight_digests(runs["after"])
            different += not all(same)
            words = ["equal" if equal else "DIFFERENT" for equal in same]
            ratio = statistics.median(seconds_after) / statistics.median(seconds_before)
            print(f"| {task} | {model} | {words[0]} | {words[1]} | {ratio:.2f} |", flush=True)
    print(f"{different} runs differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
