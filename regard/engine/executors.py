"""The executor of a model: continuous batching in the engine, dynamic batches for all other models."""

from __future__ import annotations

from regard.answer_stream import DecodeExecutor
from regard.decode_request import BatchLimits
from regard.parts.heads import Model
from regard.tasks.decoding import GeneratingTask
from regard.tasks.dynamic_batch import DynamicBatch


def make_executor(model: Model, task: GeneratingTask, limits: BatchLimits) -> DecodeExecutor:
    try:
        from regard.engine.continuous_batch import ContinuousBatch
        from regard.engine.engine_model import EngineModel
    except ImportError:  # of Numba: then no model runs in the engine
        return DynamicBatch(model, task, limits.max_batch_size)
    if isinstance(model, EngineModel):
        return ContinuousBatch(model, task, limits)
    return DynamicBatch(model, task, limits.max_batch_size)


def batch_invariant_engine(model: Model) -> Model | None:
    """The model in the engine, with the same bits for an input alone and in any batch; None if the engine does not
    support it."""
    try:
        from regard.engine.engine_model import check_supported, to_engine

        if not next(model.parameters()).is_cpu:
            return None
        check_supported(model)
        return to_engine(model, batch_invariant=True)
    except (ImportError, NotImplementedError):
        return None
