"""A small GPT trained by others: the Hugging Face Trainer, and a plain loop that does torch.save over one file.

Each goes on where it was, in its documented way, if it is called again. kill_peers.py pulls the plug on them.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import Any

import torch
from kill import during
from safetensors.torch import save_file

EVERY, SEED = 5, 1  # steps from save to save; of everything random


def model_and_rows() -> tuple[Any, torch.Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(SEED)
    drop = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.2)
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2, **drop)
    return GPT2LMHeadModel(config), torch.randint(64, (120, 32))


def step_done(folder: Path) -> None:
    """One more in a file that outlives the process: what is beyond the length of the run was done twice."""
    with suppress(OSError), (folder / "steps").open("ab", buffering=0) as file:  # a full disk must not be ours
        file.write(b".")


def trainer(folder: Path, steps: int) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_utils import get_last_checkpoint

    class Count(TrainerCallback):
        def on_step_end(self, *args: Any, **more: Any) -> None:
            step_done(folder)

    model, rows = model_and_rows()
    out = folder / "run"
    how = TrainingArguments(
        str(out), max_steps=steps, save_steps=EVERY, save_total_limit=2, per_device_train_batch_size=4, seed=SEED,
        gradient_accumulation_steps=2, learning_rate=1e-3, use_cpu=True, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    run = Trainer(model, how, train_dataset=[{"input_ids": row, "labels": row} for row in rows], callbacks=[Count()])
    run.train(resume_from_checkpoint=True if out.is_dir() and get_last_checkpoint(str(out)) else None)
    save_file({name: weight.contiguous() for name, weight in model.named_parameters()}, folder / "final")


def plain(folder: Path, steps: int) -> None:
    model, rows = model_and_rows()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    file, step = folder / "checkpoint.pt", 0
    if file.exists():
        kept = torch.load(file, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        torch.set_rng_state(kept["random"])
        step = kept["step"]
    learn_plainly(folder, steps, model, optimizer, rows, step)
    save_file({name: weight.contiguous() for name, weight in model.named_parameters()}, folder / "final")


def learn_plainly(folder: Path, steps: int, model: Any, optimizer: Any, rows: torch.Tensor, step: int) -> None:
    model.train()
    while step < steps:
        for _ in range(2):
            batch = rows[torch.randint(len(rows), (4,))]
            model(batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        step_done(folder)
        if step % EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save({**state, "random": torch.get_rng_state()}, folder / "checkpoint.pt")


def watched_trainer(phase: mmap) -> None:
    from transformers import Trainer

    during(phase, "step", Trainer, "_inner_training_loop")
    during(phase, "save", Trainer, "_save_checkpoint")


def watched_plain(phase: mmap) -> None:
    during(phase, "step", sys.modules[__name__], "learn_plainly")
    during(phase, "save", torch, "save")
