"""Receipts: what an answer depended on, so that anyone with the model can replay it.

    {"regard": "0.1.0", "model": "demo", "model_hash": "sha256:...", "processor": ..., "threads": 2, "speed": "exact",
     "request": {"input": ..., "options": {"seed": 0, ...}}, "answer": {"predictions": [{"text", "logprob", "score"}]}}

JSON keeps every bit of a float. On the same kind of processor a replay gives the same bits, elsewhere the same text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard import __version__
from regard.device import cpu_name
from regard.engine.quantize import is_quantized
from regard.json_files import read_json
from regard.loaded_model import LoadedModel
from regard.scheduler import Done, Scheduler

Receipt = dict[str, Any]
FILE = "<file>"  # stands for the name of the upload
KEYS = ("regard", "model", "model_hash", "processor", "threads", "speed", "request", "answer")


class Verdict(NamedTuple):
    """The result of a replay."""

    same_text: bool
    same_bits: bool
    same_processor: bool
    answer: dict[str, Any]

    @property
    def holds(self) -> bool:
        return self.same_bits if self.same_processor else self.same_text


def model_hash(loaded: LoadedModel) -> str:
    """SHA-256 of all that determines an answer: weights, config, tokenizer."""
    digest = sha256(json.dumps(asdict(loaded.model.body.config), default=str, sort_keys=True).encode())
    for name, tensor in sorted(loaded.reference.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy())
    if loaded.tokenizer is not None:
        digest.update(loaded.tokenizer.backend_tokenizer.to_str().encode())
    return f"sha256:{digest.hexdigest()}"


def processor() -> str:
    """The kind of processor: the bits of an answer depend on its vector instructions."""
    return f"{cpu_name()}, {torch.backends.cpu.get_cpu_capability()}"


def make_receipt(
    loaded: LoadedModel,
    name: str,
    digest: str,
    raw: str,
    options: object,
    done: Done,
    embed: bool = False,
    file: Path | None = None,
) -> Receipt:
    """The receipt of an answer. `digest` is the `model_hash`, which takes a second for a large model; `file` is the
    upload that the input names, if it names one."""
    used = loaded.make_options() if options is None else options
    request = {"input": raw, "embed": embed, "options": {} if embed else asdict(used)}  # type: ignore[call-overload]
    if file is not None:
        request |= {"input": raw.replace(str(file), FILE), "file": file_hash(file)}
    return {
        "regard": __version__,
        "model": name,
        "model_hash": digest,
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "speed": "int8" if is_quantized(loaded.reference) else "exact",
        "request": request,
        "answer": answer_of(done),
    }


def file_hash(file: Path) -> str:
    with file.open("rb") as stream:
        return f"sha256:{file_digest(stream, 'sha256').hexdigest()}"


def answer_of(done: Done) -> dict[str, Any]:
    predictions = [{"text": p.text, "logprob": p.logprob, "score": p.score} for p in done.predictions]
    return {"predictions": predictions} if done.vector is None else {"vector": done.vector}


def read_receipt(file: Path) -> Receipt:
    """A receipt, or the answer of a server that contains one."""
    if not file.is_file():
        raise ValueError(f"{file}: no such file; `regard serve --reproducible` writes receipts")
    content = read_json(file)
    receipt = content.get("receipt", content) if isinstance(content, Mapping) else {}
    missing = [key for key in KEYS if key not in receipt]
    if missing:
        raise ValueError(
            f"{file} is no receipt: it has no {', '.join(missing)}; `regard serve --reproducible` writes one"
        )
    return dict(receipt)


def replay(receipt: Receipt, loaded: LoadedModel, file: Path | None = None) -> Verdict:
    """Run the request again, alone; `file` is the upload, if the input was one.

    Raises:
        ValueError: the model or the file is not that of the receipt.
    """
    if (digest := model_hash(loaded)) != receipt["model_hash"]:
        raise ValueError(
            f"the model has the hash {digest[:23]}..., and the receipt {str(receipt['model_hash'])[:23]}...: it is "
            "another model, or was trained further"
        )
    request = receipt["request"]
    raw, options = request["input"], None if request["embed"] else loaded.make_options(**request["options"])
    if "file" in request:
        if file is None or file_hash(file) != request["file"]:
            raise ValueError(f"the input was a file with the hash {request['file'][:23]}...: name it with --file")
        raw = raw.replace(FILE, str(file))
    scheduler = Scheduler(loaded, is_reproducible=True)
    try:
        answer = answer_of(scheduler.submit(raw, options, embed=request["embed"]).result())
    finally:
        scheduler.close()
    before = receipt["answer"]
    same_text = [p["text"] for p in answer.get("predictions", ())] == [p["text"] for p in before.get("predictions", ())]
    return Verdict(same_text, answer == before, receipt["processor"] == processor(), answer)
