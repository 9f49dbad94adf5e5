"""Run all checks of one model, in an order in which an early failure explains a later one.

If a folder does not load, only its files are checked; a model with NaN or infinite weights is not run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from regard.check.attention_heads import attention_heads
from regard.check.batch_independence import batch_independence, gradient_accumulation, padding
from regard.check.causality import cache, causality
from regard.check.check_result import CheckResult
from regard.check.generation_settings import GenerationSettings, generation_settings, read_settings
from regard.check.golden_answers import golden_answers
from regard.check.loss_checks import gradient_flow, loss_baseline
from regard.check.probes import Probes, build_probes
from regard.check.tokenizer_checks import tokenizer_checks
from regard.check.transformers_parity import transformers_parity
from regard.check.weight_stats import find_pickles, finite_weights, tied_weights, weight_norms, zero_weights
from regard.hub.family_map import FamilyMap
from regard.hub.folder import read_config
from regard.hub.task_config import read_task_name
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.tasks import TASKS

MAX_ERROR_CHARS = 200
FP64_TOLERANCE = 1e-9  # on a relative difference: fp64 rounding
ModelCheck = Callable[[LoadedModel, Probes], list[CheckResult]]
PRECISION_SENSITIVE: tuple[ModelCheck, ...] = (causality, padding, cache, batch_independence)


def check_folder(
    folder: Path, lines: Sequence[str] | None = None, device: str = "auto", no_peers: bool = False
) -> Iterator[CheckResult]:
    """Yield the results one by one. Raises ValueError if it is no model folder; `no_peers` skips transformers."""
    names, config = read_config(folder)
    task_name = read_task_name(folder)
    loaded = None
    try:
        loaded = load(folder, device)
    except ValueError as error:
        advice = "Repair this first, as the model cannot run: the message names the file and the tensor or setting."
        yield CheckResult("loading", "FAILS", str(error), 1, 0, advice)
    else:
        yield CheckResult("loading", "ok", "Every tensor is used, and none is missing", 0, 0)
    yield from find_pickles(folder)
    kind = TASKS.get(task_name or "")
    if kind and kind.generates and isinstance(names, FamilyMap):  # transformers reads no family of our own
        start_token = getattr(loaded.task, "start_token", None) if loaded else None
        seq2seq = "encoder-decoder" in kind.structures
        files = read_settings(folder)
        yield from generation_settings(GenerationSettings(*files, config.vocab, config.context, seq2seq, start_token))
    if loaded is not None:
        yield from check_model(loaded, lines, folder, no_peers)


def check_model(
    loaded: LoadedModel, lines: Sequence[str] | None = None, folder: Path | None = None, no_peers: bool = False
) -> Iterator[CheckResult]:
    """Check a model in memory; with its `folder` also its recorded answers, and parity with transformers."""
    finite = finite_weights(loaded.model)
    yield finite
    if finite.status == "FAILS":
        return
    probes = build_probes(loaded, lines)
    yield from run_guarded(tokenizer_checks, loaded, probes)
    yield from tied_weights(loaded)
    yield from zero_weights(loaded.model)
    yield from weight_norms(loaded.model)
    for check in (*PRECISION_SENSITIVE, gradient_accumulation, gradient_flow, attention_heads, loss_baseline):
        yield from run_guarded(check, loaded, probes)
    if folder is not None:
        yield from golden_answers(loaded, folder)
    if folder is not None and not no_peers:
        yield from transformers_parity(loaded, probes, folder)


def run_guarded(check: ModelCheck, loaded: LoadedModel, probes: Probes) -> list[CheckResult]:
    """An exception of the model is a failed check, not the end of all checks."""
    try:
        results = check(loaded, probes)
        fails = check in PRECISION_SENSITIVE and results and results[0].status == "FAILS"
        if fails and is_rounding_error(check, loaded, probes):
            advice = "Nothing to do: in float64 the difference vanishes, so it is rounding of large numbers."
            return [results[0]._replace(status="note", advice=advice)]
        return results
    except Exception as error:
        message = f"{type(error).__name__}: {error}".splitlines()[0][:MAX_ERROR_CHARS]
        advice = "The model raised this error during the check: its modules do not fit together."
        return [CheckResult(check.__name__.replace("_", " "), "FAILS", message, 1, 0, advice)]


def is_rounding_error(check: ModelCheck, loaded: LoadedModel, probes: Probes) -> bool:
    """Whether the difference vanishes in float64. Converting back to float32 restores the weights exactly."""
    model = loaded.model.double()
    try:
        return all(result.value is not None and result.value <= FP64_TOLERANCE for result in check(loaded, probes))
    finally:
        model.float()


def to_json(result: CheckResult) -> dict[str, object]:
    """As JSON, where null stands for infinity."""
    numbers = {"value": result.value, "bound": result.bound}
    finite = {name: value if value is not None and math.isfinite(value) else None for name, value in numbers.items()}
    return result._asdict() | finite
