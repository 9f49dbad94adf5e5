"""The same folder in transformers, where it is installed: two programs that share no line give the same numbers.

max |ours - theirs| / max(1, median |ours|)
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.check.check_result import Verdict, within
from regard.check.compare import apart, outputs
from regard.check.probes import RANDOM, Given, Sample
from regard.hub.folder import names_of
from regard.hub.names import Names
from regard.hub.tables import KNOWN
from regard.load import Loaded
from regard.tasks.answer import Answering
from regard.tasks.match import Match

NAME = "transformers"
FAR = 1e-4


def peer(loaded: Loaded, sample: Sample, folder: Path) -> list[Verdict]:
    said = loaded.origin.config if loaded.origin else {}
    if said.get("model_type") not in KNOWN:
        advice = f"Nothing to do: {said.get('model_type')} is a family of our own, which nobody else reads."
        return [Verdict(NAME, "note", "no counterpart", advice=advice)]
    if find_spec("transformers") is None:
        return [
            Verdict(
                NAME, "note", "not installed", advice="pip install transformers, and the same folder is read by both."
            )
        ]
    theirs = opened(folder, str((said.get("architectures") or [""])[0]))
    if isinstance(theirs, str):
        return [Verdict(NAME, "note", "cannot open this folder", advice=f"It says: {theirs}")]
    given = asked(loaded, sample)
    difference = apart(
        *(real(out, given) for out in (ours(loaded, given, sample), said_by(theirs, loaded, given, sample)))
    )
    says = f"{type(theirs).__name__} differs by {difference:.1e}"
    advice = "Two programs read this folder differently: a tensor is in another's place, or a setting means two things."
    return [within(NAME, difference, FAR, says, advice)]


def opened(folder: Path, architecture: str) -> Any:
    """Their model, or why there is none. Only their own classes are used, and only safetensors."""
    import transformers  # type: ignore[import-untyped,unused-ignore]

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = getattr(transformers, architecture, None)
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        return f"there is no {architecture}"
    try:
        model = kind.from_pretrained(folder, dtype=torch.float32, local_files_only=True, use_safetensors=True)
    except Exception as error:  # whatever goes wrong in there is theirs to say
        return f"{error}".splitlines()[0][:200]
    return model.eval()


def asked(loaded: Loaded, sample: Sample) -> Given:
    if isinstance(loaded.task, Match):  # theirs finds nothing to pool in a text without an end
        return sample.given(range(len(sample.ids) - len(RANDOM)))
    return sample.given(range(len(sample.ids))) if sample.pixels is None else Given(sample.pixels)


def real(out: Tensor, given: Given) -> Tensor:
    """Without what stands in the padding."""
    if out.dim() < 3 or given.mask is None or given.target is not None:
        return out
    return out[given.mask[:, 0, 0]]


def has_their_head(loaded: Loaded) -> bool:
    names = names_of(loaded.model.body, loaded.origin).under(loaded.model.head)
    return isinstance(names, Names) and names.head is not None


@torch.inference_mode()
def ours(loaded: Loaded, given: Given, sample: Sample) -> Tensor:
    model: Any = loaded.model
    if isinstance(loaded.task, Match):
        assert sample.pixels is not None
        device = next(model.parameters()).device
        mask = None if given.mask is None else given.mask.to(device)
        return model(sample.pixels.to(device), given.x.to(device), mask).cpu()
    if has_their_head(loaded):
        return outputs(loaded, given)
    parts = (part.to(next(model.parameters()).device) for part in (given.x, given.mask) if part is not None)
    return model.body(*parts).cpu()


@torch.inference_mode()
def said_by(theirs: Any, loaded: Loaded, given: Given, sample: Sample) -> Tensor:
    if given.x.dim() == 4:
        out = theirs(pixel_values=given.x)
    else:
        mask = torch.ones_like(given.x) if given.mask is None else given.mask[:, 0, 0].long()
        more: dict[str, Any] = {} if given.target is None else {"decoder_input_ids": given.target}
        more |= {"pixel_values": sample.pixels} if isinstance(loaded.task, Match) else {}
        out = theirs(input_ids=given.x, attention_mask=mask, **more)
    if isinstance(loaded.task, Match):
        return out.logits_per_image
    if not has_their_head(loaded):
        return out.last_hidden_state
    return torch.stack((out.start_logits, out.end_logits), -1) if isinstance(loaded.task, Answering) else out.logits
