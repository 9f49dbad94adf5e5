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
from safetensors.torch import load, save
from telling import Told, content, fault, told
from valid import ability, cached, form_for, png, small, wav, written
from wrong_json import changed
from wrong_places import PLACES, put, put_back

WEIGHTS = "model.safetensors"
DOCUMENTS = (
    *("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "task.json"),
    *("preprocessor_config.json", "processor_config.json", "modules.json", "sentence_bert_config.json"),
    *("1_Pooling/config.json", "sounds.json", "molecules.json"),
)  # what is read to answer
FAMILIES = [
    ("translate", "transformer"), ("translate", "recurrent"), ("write", "gpt"), ("write", "llama"), ("write", "nano"),
    ("fill", "bert"), ("classify", "modernbert"), ("classify", "vit"), ("classify", "convolution"),
    ("classify", "pooled"), ("match", "clip"), ("tag", "bert"), ("answer", "bert"), ("regress", "bert"),
    ("embed", "bert"), ("classify", "listener"), ("translate", "transcriber"), ("regress", "graph"),
]  # fmt: skip
# Which others do not have, or not under such a head.
ALONE = ("recurrent", "convolution", "pooled", "vit", "listener", "transcriber", "graph")
OTHERS = [(task, model) for task, model in FAMILIES if model not in ALONE and task != "regress"]
ASKED = {"fill": "the [MASK] cat", "answer": "Which cat?\tthe red cat", "embed": "the cat\ta dog\tthe red cat"}
HOW = {"translate": ["--max-new-tokens", "6"], "write": ["--max-new-tokens", "6", "--temperature", "0"]}


class Broken(NamedTuple):
    file: str
    how: str
    content: bytes | Callable[[], bytes] | None  # None if something else stands in its place
    place: str = ""  # the field or the tensor


def broken(folder: Path) -> Iterator[Broken]:
    for file in (*DOCUMENTS, WEIGHTS):
        if (folder / file).exists():
            whole = (folder / file).read_bytes()
            yield from wholly(file, whole)
            yield from tensors(whole) if file == WEIGHTS else fields(file, whole)


def wholly(file: str, whole: bytes) -> Iterator[Broken]:
    for how in PLACES:
        yield Broken(file, how, None)
    for how, other in {
        "nothing": b"", "zeros": bytes(len(whole)), "a program": b"\x80\x04\x95" + whole, "no UTF-8": b"{\xff" + whole,
        "packed": gzip.compress(whole), "another encoding": whole.decode("latin-1").encode("utf-16"),
        "a list": b"[" + whole + b"]", "a word": b'"x"', "null": b"null", "deep": b"[" * 100_000 + b"]" * 100_000,
        "two of them": whole * 2,
    }.items():  # fmt: skip
        yield Broken(file, how, other)
    for share in range(1, 8):
        yield Broken(file, "cut off", whole[: len(whole) * share // 8])


def fields(file: str, whole: bytes) -> Iterator[Broken]:
    for one in changed(json.loads(whole)):
        yield Broken(file, one.how, lambda one=one: one.text().encode(), one.place)


def tensors(whole: bytes) -> Iterator[Broken]:
    found = load(whole)
    for name, tensor in found.items():
        rest = {other: one for other, one in found.items() if other != name}
        others = {"one more dimension": tensor[None], "flat": tensor.flatten(), "shorter": tensor.flatten()[1:]}
        others |= {f"as {kind}": tensor.to(kind) for kind in (torch.int8, torch.bool, torch.float64)}
        yield Broken(WEIGHTS, "deleted", partial(save, rest), name)
        yield Broken(WEIGHTS, "renamed", partial(save, rest | {f"{name}_": tensor}), name)
        yield Broken(WEIGHTS, "doubled", partial(save, found | {f"{name}_": tensor.clone()}), name)
        for how, other in others.items():
            if other.shape != tensor.shape or other.dtype != tensor.dtype:
                yield Broken(WEIGHTS, how, partial(save, rest | {name: other.contiguous()}), name)
    for place in range(0, 8 + int.from_bytes(whole[:8], "little"), 7):
        for how, byte in (
            ("a bracket in the header", b"}"),
            ("a zero in the header", b"\0"),
            ("a 9 in the header", b"9"),
        ):
            yield Broken(WEIGHTS, how, whole[:place] + byte + whole[place + 1 :], f"byte {place}")


def trained(task: str, model: str, folder: Path) -> Path:
    """A run of one step."""
    data = written(form_for(task, model), folder / "data")
    files = ["--data", *data, "--valid", *data, "--out", folder / "run", *cached(task, folder)]
    said = told(["train", task, *small(task, model), *files])
    assert said.code == 0, said.err
    return folder / "run"


def asked(task: str, model: str, folder: Path) -> str:
    """What a model can answer: a text, or a picture or a sound that is put into the folder."""
    picture = folder / "asked.png"
    picture.write_bytes(png(1))
    sound = folder / "asked.wav"
    sound.write_bytes(wav(1))
    seen = {"sees": str(picture), "matches": f"{picture}\tred\tgreen", "hears": str(sound), "transcribes": str(sound)}
    seen |= {"bonds": "CCO", "spells": "MKT[MASK]YI" if task == "fill" else "MKTAYI"}
    return seen.get(ability(task, model), ASKED.get(task, "the red cat"))


class Answering:
    """A folder that answers, again and again, with one file broken. Without its task.json it is as of others."""

    def __init__(self, task: str, model: str, run: Path, folder: Path, theirs: bool = False):
        self.task, self.folder = task, shutil.copytree(run, folder)
        if theirs:
            (folder / "task.json").unlink()
        self.text = asked(task, model, folder)
        self.whole = self.ask()
        assert self.whole.code == 0, self.whole.err

    def ask(self) -> Told:
        return told(["run", self.folder, self.text, "--json", "--device", "cpu", *HOW.get(self.task, [])])

    def tried(self, one: Broken) -> tuple[str, str]:
        """What became of it: refused, harmless or meant; and what is wrong with that, if anything is."""
        file = self.folder / one.file
        whole = file.read_bytes()
        put(file, one.how, one.content)
        before = content(self.folder)
        said = self.ask()
        changed = content(self.folder) != before
        put_back(file, whole)
        if changed:
            return "changed", "a file was changed"
        if said.code == 0 and said.out == self.whole.out:
            return "harmless", ""
        if said.code is not None and means(one):
            return "meant" if said.code == 0 else "refused", ""
        if said.code == 0:
            return "other", "the answers are others"
        reader = ["tokenizer"] if one.file.startswith("tokenizer") else []
        wrong = fault(said, [one.file, *reader, *([one.place] if one.place else [])])
        return "refused", f"{wrong}: {said.err[-500:]}" if wrong else ""


MEANT = {
    "config.json": ("_theta", "_eps", "_epsilon", "_softcapping"),
    "tokenizer.json": ("",),
    "tokenizer_config.json": ("_token", "_token.content", "model_input_names", "model_input_names.1"),
    "generation_config.json": ("bad_words_ids.0.0", "num_beams", "length_penalty", "max_length"),
    "task.json": (
        "start",
        "ends",
        "ends.0",
        "opens",
        "mean",
        "spread",
        "unit",
        "limit",
        "always",
        "longest_answer",
        "temperature",
        "tags.0",
    ),
    "preprocessor_config.json": (
        "image_mean",
        "image_std",
        "rescale_factor",
        *(f"{n}.{i}" for n in ("mean", "std") for i in range(3)),
    ),
}  # places of which most values are as good as others: the ends of their names


def means(one: Broken) -> bool:
    """Whether this place may say what it says: then it is another model, and no broken one."""
    if one.file == "config.json" and (one.how == "missing" or (one.place == "architectures" and one.how == "null")):
        return True  # transformers has a value for every key
    return one.place.endswith(MEANT.get(one.file, ()))
