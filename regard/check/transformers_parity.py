"""Parity with transformers, where it is installed: an independent implementation reads the same folder.

max |regard - transformers| / max(1, median |regard|)
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.check.check_result import CheckResult, within_bound
from regard.check.compare import model_outputs, relative_difference
from regard.check.probes import RANDOM_LENGTHS, ModelInputs, Probes
from regard.hub.family_map import FamilyMap
from regard.hub.folder import find_family_map
from regard.hub.tables import HF_FAMILIES
from regard.hub.tables.clip import CLIP_VISION
from regard.load import LoadedModel
from regard.tasks.answer import QuestionAnswering
from regard.tasks.embed import Embed
from regard.tasks.match import Match

NAME = "transformers parity"
TOLERANCE = 1e-4  # on a relative difference


def transformers_parity(loaded: LoadedModel, probes: Probes, folder: Path) -> list[CheckResult]:
    config = loaded.origin.config if loaded.origin else {}
    if config.get("model_type") not in HF_FAMILIES:
        advice = f"Nothing to do: {config.get('model_type')} is a family of our own."
        return [CheckResult(NAME, "note", "No counterpart in transformers", advice=advice)]
    if find_spec("transformers") is None:
        return [CheckResult(NAME, "note", "Not installed", advice="To compare with it: pip install transformers.")]
    hf_model = load_transformers(folder, str((config.get("architectures") or [""])[0]))
    if isinstance(hf_model, str):
        return [CheckResult(NAME, "note", "transformers cannot load this folder", advice=f"Its message: {hf_model}")]
    inputs = parity_inputs(loaded, probes)
    outputs = (regard_outputs(loaded, inputs, probes), transformers_outputs(hf_model, loaded, inputs, probes))
    difference = relative_difference(*(drop_padding(out, inputs) for out in outputs))
    message = f"{type(hf_model).__name__} differs by {difference:.1e}"
    advice = "The two read this folder differently: a tensor is misplaced, or a setting means two things; report it."
    return [within_bound(NAME, difference, TOLERANCE, message, advice)]


def load_transformers(folder: Path, architecture: str) -> Any:
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
    return model.eval()


def parity_inputs(loaded: LoadedModel, probes: Probes) -> ModelInputs:
    has_projection = isinstance(loaded.task, Embed) and has_hf_head(loaded)
    if probes.ids and (has_projection or isinstance(loaded.task, Match)):  # pools at the end token: random rows lack it
        return probes.inputs(range(len(probes.ids) - len(RANDOM_LENGTHS)))
    return probes.inputs(range(len(probes.ids))) if probes.features is None else probes.features


def drop_padding(out: Tensor, inputs: ModelInputs) -> Tensor:
    """(B,T,·) -> (N,·): the outputs of real tokens."""
    if out.dim() < 3 or inputs.mask is None or inputs.target is not None:
        return out
    return out[inputs.mask[:, 0, 0]]


def has_hf_head(loaded: LoadedModel) -> bool:
    names = find_family_map(loaded.model.body, loaded.origin).with_head(loaded.model.head)
    return isinstance(names, FamilyMap) and names.head is not None


def normalizes_first_token_only(loaded: LoadedModel) -> bool:
    """Whether this is an image tower of CLIP alone: transformers applies its last norm to the first token only."""
    return find_family_map(loaded.model.body, loaded.origin).family == CLIP_VISION.family


@torch.inference_mode()
def regard_outputs(loaded: LoadedModel, inputs: ModelInputs, probes: Probes) -> Tensor:
    model: Any = loaded.model
    if isinstance(loaded.task, Match):
        assert probes.features is not None
        device = next(model.parameters()).device
        mask = None if inputs.mask is None else inputs.mask.to(device)
        return model(probes.features.x.to(device), inputs.x.to(device), mask).cpu()
    if has_hf_head(loaded):
        return model_outputs(loaded, inputs)
    parts = (part.to(next(model.parameters()).device) for part in (inputs.x, inputs.mask) if part is not None)
    hidden = model.body(*parts).cpu()
    return hidden[:, 0] if normalizes_first_token_only(loaded) else hidden


@torch.inference_mode()
def transformers_outputs(hf_model: Any, loaded: LoadedModel, inputs: ModelInputs, probes: Probes) -> Tensor:
    if inputs.x.dim() == 4:
        out = hf_model(pixel_values=inputs.x)
    else:
        mask = torch.ones_like(inputs.x) if inputs.mask is None else inputs.mask[:, 0, 0].long()
        extra: dict[str, Any] = {} if inputs.target is None else {"decoder_input_ids": inputs.target}
        extra |= {"pixel_values": probes.features.x} if isinstance(loaded.task, Match) and probes.features else {}
        out = hf_model(input_ids=inputs.x, attention_mask=mask, **extra)
    if isinstance(loaded.task, Match):
        return out.logits_per_image
    if not has_hf_head(loaded):
        return out.pooler_output if normalizes_first_token_only(loaded) else out.last_hidden_state
    if isinstance(loaded.task, Embed):
        embeds = out.image_embeds if inputs.x.dim() == 4 else out.text_embeds
        return F.normalize(embeds, dim=-1) if loaded.task.unit else embeds
    return (
        torch.stack((out.start_logits, out.end_logits), -1)
        if isinstance(loaded.task, QuestionAnswering)
        else out.logits
    )
