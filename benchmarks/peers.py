"""A small GPT trained by two peers: the Hugging Face Trainer, and a plain loop that overwrites one torch.save file.

Each resumes in its documented way when it is called again. kill_peers.py kills them.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import Any

import torch
from kill import mark_phase
from safetensors.torch import save_file

SAVE_EVERY, SEED = 5, 1


def model_and_rows() -> tuple[Any, torch.Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(SEED)
    drop = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.2)
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2, **drop)
    return GPT2LMHeadModel(config), torch.randint(64, (120, 32))


def count_step(folder: Path) -> None:
    """Append a byte to a file that survives the process: its excess over the length of the run are repeated steps."""
    with suppress(OSError), (folder / "steps").open("ab", buffering=0) as file:  # a full disk must not stop the count
        file.write(b".")


def train_with_trainer(folder: Path, steps: int) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    class StepCounter(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            count_step(folder)

    model, rows = model_and_rows()
    out = folder / "run"
    arguments = TrainingArguments(
        str(out), max_steps=steps, save_steps=SAVE_EVERY, save_total_limit=2, per_device_train_batch_size=4, seed=SEED,
        gradient_accumulation_steps=2, learning_rate=1e-3, use_cpu=True, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    run = Trainer(
        model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows], callbacks=[StepCounter()]
    )
    run.train(resume_from_checkpoint=True if out.is_dir() and get_last_checkpoint(str(out)) else None)
    save_file({name: weight.contiguous() for name, weight in model.named_parameters()}, folder / "final")


def train_plain(folder: Path, steps: int) -> None:
    model, rows = model_and_rows()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    file, step = folder / "checkpoint.pt", 0
    if file.exists():
        checkpoint = torch.load(file, weights_only=True)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        torch.set_rng_state(checkpoint["random"])
        step = checkpoint["step"]
    plain_loop(folder, steps, model, optimizer, rows, step)
    save_file({name: weight.contiguous() for name, weight in model.named_parameters()}, folder / "final")


def plain_loop(folder: Path, steps: int, model: Any, optimizer: Any, rows: torch.Tensor, step: int) -> None:
    model.train()
    while step < steps:
        for _ in range(2):
            batch = rows[torch.randint(len(rows), (4,))]
            model(batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        count_step(folder)
        if step % SAVE_EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save({**state, "random": torch.get_rng_state()}, folder / "checkpoint.pt")


def report_trainer_phases(phase: mmap) -> None:
    from transformers import Trainer

    mark_phase(phase, "step", Trainer, Trainer._inner_training_loop)
    mark_phase(phase, "save", Trainer, Trainer._save_checkpoint)


def report_plain_phases(phase: mmap) -> None:
    mark_phase(phase, "step", sys.modules[__name__], plain_loop)
    mark_phase(phase, "save", torch, torch.save)
