"""Every field of every file of a model folder, and every tensor, broken in every way."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from run_command import CommandResult, find_fault, folder_content, run_command
from safetensors.torch import load, save
from valid_files import Objects, cache_options, default_modality, episode, form_for, png, tiny_options, wav, write_form
from wrong_json import MAX_ITEMS, changed_documents
from wrong_places import REPLACEMENTS, replace_file, restore_file

WEIGHTS = "model.safetensors"
JSON_FILES = (
    *("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "task.json"),
    *("preprocessor_config.json", "processor_config.json", "modules.json", "sentence_bert_config.json"),
    *("1_Pooling/config.json", "logmel.json", "molecules.json"),
)  # JSON files that are read to answer
FAMILIES = [
    ("translate", "transformer"), ("translate", "recurrent"), ("write", "gpt"), ("write", "llama"),
    ("write", "nanochat"), ("fill", "bert"), ("classify", "modernbert"), ("classify", "vit"), ("classify", "resnet"),
    ("classify", "pooled"), ("match", "clip"), ("tag", "bert"), ("answer", "bert"), ("regress", "bert"),
    ("embed", "bert"), ("classify", "audio_encoder"), ("translate", "speech2text"), ("regress", "graphormer"),
    ("fill", "protein_encoder"), ("regress", "audio_encoder"), ("predict", "world_model"),
]  # fmt: skip
# Models that Hugging Face does not have, or not with such a head.
REGARD_ONLY = (
    "recurrent",
    "resnet",
    "pooled",
    "vit",
    "audio_encoder",
    "speech2text",
    "graphormer",
    "protein_encoder",
    "world_model",
)
HF_FAMILIES = [(task, model) for task, model in FAMILIES if model not in REGARD_ONLY and task != "regress"]
REQUESTS = {"fill": "the [MASK] cat", "answer": "Which cat?\tthe red cat", "embed": "the cat\ta dog\tthe red cat"}
RUN_OPTIONS = {"translate": ["--max-new-tokens", "6"], "write": ["--max-new-tokens", "6", "--temperature", "0"]}


class BrokenCase(NamedTuple):
    file: str
    defect: str
    content: bytes | Callable[[], bytes] | None  # None if the file is replaced by something else
    field: str = ""  # or the tensor


def broken_cases(folder: Path) -> Iterator[BrokenCase]:
    for file in (*JSON_FILES, WEIGHTS):
        if (folder / file).exists():
            intact = (folder / file).read_bytes()
            yield from broken_wholly(file, intact)
            yield from broken_tensors(intact) if file == WEIGHTS else broken_fields(file, intact)


def broken_wholly(file: str, intact: bytes) -> Iterator[BrokenCase]:
    for defect in REPLACEMENTS:
        yield BrokenCase(file, defect, None)
    for defect, content in {
        "nothing": b"", "zeros": bytes(len(intact)), "pickle": b"\x80\x04\x95" + intact, "no UTF-8": b"{\xff" + intact,
        "gzip": gzip.compress(intact), "UTF-16": intact.decode("latin-1").encode("utf-16"),
        "a list": b"[" + intact + b"]", "a word": b'"x"', "null": b"null", "deep": b"[" * 100_000 + b"]" * 100_000,
        "twice": intact * 2,
    }.items():  # fmt: skip
        yield BrokenCase(file, defect, content)
    for eighths in range(1, 8):
        yield BrokenCase(file, "truncated", intact[: len(intact) * eighths // 8])


def broken_fields(file: str, intact: bytes) -> Iterator[BrokenCase]:
    for case in changed_documents(json.loads(intact)):
        yield BrokenCase(file, case.defect, lambda case=case: case.text().encode(), case.field)


def broken_tensors(intact: bytes) -> Iterator[BrokenCase]:
    weights = load(intact)
    for name, tensor in weights.items():
        remaining = {content: case for content, case in weights.items() if content != name}
        replacements = {"one more dimension": tensor[None], "flat": tensor.flatten(), "shorter": tensor.flatten()[1:]}
        replacements |= {f"as {kind}": tensor.to(kind) for kind in (torch.int8, torch.bool, torch.float64)}
        yield BrokenCase(WEIGHTS, "deleted", partial(save, remaining), name)
        yield BrokenCase(WEIGHTS, "renamed", partial(save, remaining | {f"{name}_": tensor}), name)
        yield BrokenCase(WEIGHTS, "doubled", partial(save, weights | {f"{name}_": tensor.clone()}), name)
        for defect, content in replacements.items():
            if content.shape != tensor.shape or content.dtype != tensor.dtype:
                yield BrokenCase(WEIGHTS, defect, partial(save, remaining | {name: content.contiguous()}), name)
    for field in range(0, 8 + int.from_bytes(intact[:8], "little"), 7):
        for defect, byte in (
            ("a bracket in the header", b"}"),
            ("a zero in the header", b"\0"),
            ("a 9 in the header", b"9"),
        ):
            yield BrokenCase(WEIGHTS, defect, intact[:field] + byte + intact[field + 1 :], f"byte {field}")


def train_run(task: str, model: str, folder: Path) -> Path:
    """A run of one step."""
    modality = default_modality(task, model)
    data = write_form(form_for(task, modality), folder / "data")
    files = ["--data", *data, "--valid", *data, "--output-dir", folder / "run", *cache_options(task, folder)]
    result = run_command(["train", task, *tiny_options(task, model, modality), *files])
    assert result.code == 0, result.err
    return folder / "run"


def request_for(task: str, model: str, folder: Path) -> str:
    """A request for the model: a text, or a file that is written to the folder."""
    image, audio, trajectory = folder / "asked.png", folder / "asked.wav", folder / "asked.jsonl"
    image.write_bytes(png(1))
    audio.write_bytes(wav(1))
    trajectory.write_bytes(Objects([episode(1)]).content())
    requests = {"image": str(image), "audio": str(audio), "molecule": "CCO", "series": "1 2 3 4"}
    requests["trajectory"] = str(trajectory)
    requests["protein"] = "MKT[MASK]YI" if task == "fill" else "MKTAYI"
    if task == "match":
        return f"{image}\tred\tgreen"
    return requests.get(default_modality(task, model), REQUESTS.get(task, "the red cat"))


class FolderTrial:
    """Ask a model folder of which one file is broken, once per case. `as_hf` removes its task.json."""

    def __init__(self, task: str, model: str, run: Path, folder: Path, as_hf: bool = False):
        self.task, self.folder = task, shutil.copytree(run, folder)
        if as_hf:
            (folder / "task.json").unlink()
        self.text = request_for(task, model, folder)
        self.intact = self.answer()
        assert self.intact.code == 0, self.intact.err

    def answer(self) -> CommandResult:
        return run_command(
            ["run", self.folder, self.text, "--json", "--device", "cpu", *RUN_OPTIONS.get(self.task, [])]
        )

    def try_case(self, case: BrokenCase) -> tuple[str, str]:
        """The outcome (refused, harmless or meant), and its fault, if any."""
        file = self.folder / case.file
        intact = file.read_bytes()
        replace_file(file, case.defect, case.content)
        before = folder_content(self.folder)
        result = self.answer()
        was_changed = folder_content(self.folder) != before
        restore_file(file, intact)
        if was_changed:
            return "changed", "a file was changed"
        if result.code == 0 and result.out == self.intact.out:
            return "harmless", ""
        if result.code is not None and may_change_answer(case):
            return "meant" if result.code == 0 else "refused", ""
        if result.code == 0:
            return "other", "the answers differ"
        file_names = ["tokenizer"] if case.file.startswith("tokenizer") else []
        file_names += [WEIGHTS] if case.field.startswith("tie_") else []  # the weights contradict it
        fault = find_fault(result, [case.file, *file_names, *([case.field] if case.field else [])])
        return "refused", f"{fault}: {result.err[-500:]}" if fault else ""


FREE_FIELDS = {
    "config.json": ("_theta", "_eps", "_epsilon", "_softcapping"),
    "tokenizer.json": ("",),
    "tokenizer_config.json": ("_token", "_token.content", "model_input_names", "model_input_names.1"),
    "generation_config.json": ("bad_words_ids.0.0", "num_beams", "length_penalty", "max_length"),
    "task.json": (
        "decoder_start_token",
        "eos_tokens",
        "eos_tokens.0",
        "add_bos_token",
        "mean",
        "std",
        "unit",
        "limit",
        "always_answerable",
        "max_answer_length",
        "temperature",
        "tags.0",
        *(f"{name}.{i}" for name in ("labels", "mean", "std") for i in range(MAX_ITEMS)),
    ),
    "preprocessor_config.json": (
        "image_mean",
        "image_std",
        "rescale_factor",
        *(f"{n}.{i}" for n in ("mean", "std") for i in range(3)),
    ),
}  # fields, by the end of their names, most values of which are valid


def may_change_answer(case: BrokenCase) -> bool:
    """Whether the changed field is valid: then the folder is another model, not a broken one."""
    if case.file == "config.json" and (
        case.defect == "missing" or (case.field == "architectures" and case.defect == "null")
    ):
        return True  # transformers has a default for every key
    return case.field.endswith(FREE_FIELDS.get(case.file, ()))
