"""Parity with transformers, where it is installed: an independent implementation reads the same folder.

max |regard - transformers| / max(1, median |regard|)
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.check.check_result import CheckResult, within_bound
from regard.check.compare import model_outputs, on_device, relative_difference
from regard.check.probes import Probes
from regard.hub.family_map import FamilyMap
from regard.hub.folder import find_family_map
from regard.hub.tables import HF_FAMILIES, architecture_of
from regard.hub.tables.clip import CLIP_VISION
from regard.loaded_model import LoadedModel
from regard.modalities import MODALITIES
from regard.modalities.protocols import Inputs, Preprocessor
from regard.parts.document_mask import as_tensor
from regard.tasks.task import Batch, Task

NAME = "transformers parity"
TOLERANCE = 1e-4  # on a relative difference


def transformers_parity(loaded: LoadedModel, probes: Probes, folder: Path) -> list[CheckResult]:
    config = loaded.origin.config if loaded.origin else {}
    if config.get("model_type") not in HF_FAMILIES:
        advice = f"Nothing to do: {config.get('model_type')} is a family of our own."
        return [CheckResult(NAME, "note", "No counterpart in transformers", advice=advice)]
    if find_spec("transformers") is None:
        return [CheckResult(NAME, "note", "Not installed", advice="To compare with it: pip install transformers.")]
    hf_model = load_transformers(folder, architecture_of(config))
    if isinstance(hf_model, str):
        return [CheckResult(NAME, "note", "transformers cannot load this folder", advice=f"Its message: {hf_model}")]
    batch = probes.forward.batch()
    outputs = (regard_outputs(loaded, batch), transformers_outputs(hf_model, loaded, batch))
    difference = relative_difference(*(drop_padding(out, batch) for out in outputs))
    message = f"{type(hf_model).__name__} differs by {difference:.1e}"
    advice = "The two read this folder differently: a tensor is misplaced, or a setting means two things; report it."
    return [within_bound(NAME, difference, TOLERANCE, message, advice)]


def load_transformers(folder: Path, architecture: str) -> nn.Module | str:
    """The model, or the reason why there is none. Only classes of transformers itself, and only safetensors."""
    import transformers  # type: ignore[import-untyped,unused-ignore]

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    architecture_class = getattr(transformers, architecture, None)
    if not (isinstance(architecture_class, type) and issubclass(architecture_class, transformers.PreTrainedModel)):
        return f"transformers has no {architecture}"
    try:
        model = architecture_class.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, use_safetensors=True
        )
    except Exception as error:  # any error of transformers is a reason
        return f"{error}".splitlines()[0][:200]
    model.eval()
    return model  # type: ignore[no-any-return,unused-ignore]


def drop_padding(out: Tensor, batch: Batch) -> Tensor:
    """(B,T,·) -> (N,·): the outputs of real tokens, if there is one for each token of the input."""
    mask = as_tensor(batch.inputs.mask)
    return out if mask is None or out.dim() < 3 or out.size(1) != mask.size(-1) else out[mask[:, 0, 0]]


def has_hf_head(loaded: LoadedModel) -> bool:
    names = find_family_map(loaded.model.body, loaded.origin).with_head(loaded.model.head)
    return isinstance(names, FamilyMap) and names.head is not None


def normalizes_first_token_only(loaded: LoadedModel) -> bool:
    """Whether this is an image tower of CLIP alone: transformers applies its last norm to the first token only."""
    return find_family_map(loaded.model.body, loaded.origin).family == CLIP_VISION.family


def has_two_towers(task: Task) -> bool:
    return "two-tower" in task.structures


@torch.inference_mode()
def regard_outputs(loaded: LoadedModel, batch: Batch) -> Tensor:
    if has_hf_head(loaded) and not has_two_towers(loaded.task):
        return model_outputs(loaded, batch)
    batch = on_device(loaded.model, batch)
    if has_two_towers(loaded.task):
        (_, left), (_, right) = tower_inputs(loaded.task, batch)
        return loaded.model(*left.arguments, *right.arguments).cpu()
    hidden: Tensor = loaded.model.body(*batch.inputs.arguments).cpu()
    return hidden[:, 0] if normalizes_first_token_only(loaded) else hidden


@torch.inference_mode()
def transformers_outputs(hf_model: nn.Module, loaded: LoadedModel, batch: Batch) -> Tensor:
    out = hf_model(**hf_arguments(loaded.task, batch))
    if has_two_towers(loaded.task):
        return out.logits_per_image
    if has_hf_head(loaded):
        return head_outputs(out, loaded)
    return out.pooler_output if normalizes_first_token_only(loaded) else out.last_hidden_state


def tower_inputs(task: Task, batch: Batch) -> list[tuple[Preprocessor, Inputs]]:
    """The inputs of the encoder; of two towers, those of both."""
    texts: Inputs | None = getattr(batch, "texts", None)
    second = [] if texts is None or task.output is None else [(task.output, texts)]
    return [(task.preprocessor, batch.inputs), *second]


def hf_arguments(task: Task, batch: Batch) -> dict[str, Tensor]:
    """A batch as the arguments of a model of transformers."""
    arguments: dict[str, Tensor] = {}
    for preprocessor, inputs in tower_inputs(task, batch):
        arguments[MODALITIES[preprocessor.modality].input_name or "inputs"] = inputs.x
        if (mask := as_tensor(inputs.mask)) is not None:
            arguments["attention_mask"] = mask[:, 0, 0].long()
    decoder_ids: Tensor | None = getattr(batch, "decoder_ids", None)
    return arguments if decoder_ids is None else arguments | {"decoder_input_ids": decoder_ids}


def head_outputs(out: Mapping[str, Tensor], loaded: LoadedModel) -> Tensor:
    """The outputs of a head of transformers, as those of ours."""
    if "start_logits" in out:
        return torch.stack((out["start_logits"], out["end_logits"]), -1)
    if "logits" in out:
        return out["logits"]
    embeds = next(value for name, value in out.items() if name.endswith("_embeds"))
    return F.normalize(embeds, dim=-1) if loaded.model.head.unit else embeds
