"""Real model folders that ship inside of PyPI packages: rxnfp and IgLM load with transformers' logits, or are refused
with the line to add; AntiBERTy is refused with the names of its own three heads.

    python benchmarks/real_folders.py [FOLDER]

Downloads the packages (225 MB) into FOLDER, a temporary one unless given, and converts their pickled weights to
safetensors. Nothing else of them is edited, but for the lines that a refusal asks for, which are printed. Needs the dev
extra (transformers) and access to PyPI. It exits with 1 if a number differs by more than 1e-4, or a name is not told.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from regard import load

PACKAGES = ("rxnfp", "iglm", "antiberty==0.1.3")
SMILES = ["CC(=O)O.OCC>>CC(=O)OCC", "c1ccccc1Br.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1", "CCO"]
CHAINS = ["E V Q L V E S G G G L V Q P G G S L R L", "D I Q M T Q S P S S L S A S V G D R V T I T C"]
CLOSE = 1e-4


def fetched(package: str, place: Path) -> Path:
    """The files of a package, unpacked; nothing of it is run."""
    name = package.split("==")[0]
    if not (place / name).exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(place / "wheels"), package],
            check=True,
        )
        [wheel] = (place / "wheels").glob(f"{name}-*.whl")
        zipfile.ZipFile(wheel).extractall(place / name)
    return place / name


def converted(folder: Path) -> Path:
    """The same folder with its weights as safetensors; weights that are shared become two."""
    pickled = folder / "pytorch_model.bin"
    if pickled.exists():
        tensors = torch.load(pickled, weights_only=True, map_location="cpu")
        save_file(
            {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()},
            folder / "model.safetensors",
        )
        pickled.unlink()
    return folder


def refusal(folder: Path) -> str:
    try:
        load(folder, device="cpu")
    except ValueError as error:
        return str(error).replace(str(folder), folder.name)
    return ""


def with_lines_added(folder: Path) -> Path:
    """A copy, with what the refusal asks for in its config.json."""
    while lines := re.search(r": add (\".*)", why := refusal(folder)):
        print(f"  refused: {why}")
        copy = folder.with_name(f"{folder.name}-with-lines")
        shutil.copytree(folder, copy)
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps(config | json.loads(f"{{{lines[1]}}}"), indent=2))
        folder = copy
    return folder


def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        said = model.eval()(ids)
    return said.logits if "logits" in said else said.last_hidden_state


def compared(folder: Path, kind: str, texts: list[str], **config: Any) -> bool:
    """Whether our logits are transformers', of the ids that its own tokenizer makes."""
    mine = load(folder, device="cpu")
    theirs = getattr(transformers, kind).from_pretrained(
        folder, config=transformers.AutoConfig.from_pretrained(folder, **config)
    )
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    worst = 0.0
    for text in texts:
        ids = tokenizer(text, return_tensors="pt").input_ids
        if mine.tokenizer.encode([text])[0] != ids[0].tolist():
            print(f"  {folder.name}: the ids of {text!r} are others")
            return False
        with torch.inference_mode():
            found = mine.model.body(ids) if kind == "AutoModel" else mine.model.head(mine.model.body(ids))
        worst = max(worst, (found - logits(theirs, ids)).abs().max().item())
    print(
        f"  {folder.name}: {type(theirs).__name__}, {mine.task.__class__.__name__.lower()}, off by {worst:.1e} at most"
    )
    return worst <= CLOSE


def rxnfp(package: Path) -> bool:
    models = package / "rxnfp" / "models" / "transformers"
    body, filler = (with_lines_added(converted(models / name)) for name in ("bert_ft", "bert_pretrained"))
    labels = converted(models / "bert_ft_10k_25s")  # names two of its fifty labels, which transformers does not read
    fifty = {"id2label": {i: f"LABEL_{i}" for i in range(50)}, "label2id": {f"LABEL_{i}": i for i in range(50)}}
    return all(
        [
            compared(body, "AutoModel", SMILES),
            compared(filler, "AutoModelForMaskedLM", SMILES),
            compared(labels, "AutoModelForSequenceClassification", SMILES, **fifty),
        ]
    )


def iglm(package: Path) -> bool:
    """Its list of tokens lies beside its two models."""
    models, right = package / "iglm" / "trained_models", []
    for name in ("IgLM", "IgLM-S"):
        folder = converted(models / name)
        if not (folder / "vocab.txt").exists():
            print(f"  refused: {refusal(folder)}")
            shutil.copy(models / "vocab.txt", folder / "vocab.txt")
        right.append(compared(folder, "AutoModelForCausalLM", CHAINS))
    return all(right)


def antiberty(package: Path) -> bool:
    why = refusal(converted(package / "antiberty" / "trained_models" / "AntiBERTy_md_smooth"))
    print(f"  refused: {why}")
    return all(head in why for head in ("cls.species", "cls.chain", "cls.graft"))


def main() -> int:
    with tempfile.TemporaryDirectory() as spare:
        place = Path(sys.argv[1] if len(sys.argv) > 1 else spare)
        right = []
        for package, prove in zip(PACKAGES, (rxnfp, iglm, antiberty), strict=True):
            print(package)
            right.append(prove(fetched(package, place)))
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
