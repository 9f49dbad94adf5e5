"""What a training step costs: parameters, FLOPs and memory, from a step on fake tensors (training/step_trace.py).

    memory = weights + gradients + optimizer state + EMA + max(activations, temporary tensors of the update)

The memory is that of the largest batch of an epoch, the FLOPs are those of an average one. The blocks of a tower cost
the same, so a deep model is traced with a few of them, and extended linearly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batches import BucketedExamples, Examples, Ints
from regard.parts.heads import Model
from regard.tasks.task import Loss, Task
from regard.training.build import use_window
from regard.training.loop import Progress, num_parameters, train_steps
from regard.training.optimizer import freeze
from regard.training.passes import Dtype, apply_passes
from regard.training.settings import Settings
from regard.training.step_trace import StepTrace

TRACED_LAYERS = 3  # of a tower
MAX_BATCHES = 10_000  # of an epoch whose sizes are compared
PERIOD = 3  # blocks after which models with alternating blocks repeat
Floats = npt.NDArray[np.float64]


class StepMemory(NamedTuple):
    """Bytes at the peak of a step."""

    weights: float  # and buffers
    gradients: float
    optimizer: float  # momentum of Muon and SGD, both moments of AdamW
    ema: float
    activations: float  # what the backward pass needs, and temporary tensors of both passes
    update: float  # temporary tensors of the optimizers, when there are no activations

    @property
    def states(self) -> float:
        """What exists in every step, and does not depend on the batch."""
        return self.weights + self.gradients + self.optimizer + self.ema

    @property
    def total(self) -> float:
        return self.states + max(self.activations, self.update)


@dataclass(frozen=True)
class StepCost:
    parameters: int
    batch_flops: float  # of the forward and backward pass of an average batch
    update_flops: float  # of the optimizers
    memory: StepMemory

    def flops(self, grad_accum: int) -> float:
        """Of a step."""
        return grad_accum * self.batch_flops + self.update_flops


class RepeatedBatch:
    """A task whose every batch is the same."""

    def __init__(self, task: Task, batch: Any):
        self.task, self.batch = task, batch

    def collate(self, examples: Examples, rows: Ints) -> Any:
        return self.batch

    def loss(self, model: Model, batch: Any) -> Loss:
        return self.task.loss(model, batch)


class StepEstimator:
    """Estimates the steps of models on the same examples. None of the models needs to fit into memory."""

    def __init__(self, settings: Settings, task: Task, examples: Examples):
        self.settings, self.task, self.examples = settings, task, examples
        options = settings.train_options
        self.options = replace(
            options, steps=2, lr=1e-3, warmup_steps=1, revisions=(), grad_accum=min(2, options.grad_accum)
        )
        self.average, self.largest = typical_batches(examples, options.batch_tokens, options.seed)

    def cost(self, config: Any, dtype: Dtype | None = None, recompute: bool = False) -> StepCost:
        """The cost of a step of the model with this config. `dtype` replaces that of the run; the memory is then
        without the copies of weights that mixed precision makes."""

        def trace(layers: Mapping[str, int]) -> Floats:
            sizes = replace(config, **layers)
            numbers = self.trace(sizes, self.largest, dtype, recompute)
            if self.average is not self.largest:
                numbers[1:3] = self.trace(sizes, self.average, dtype, recompute)[1:3]
            return numbers

        parameters, batch_flops, update_flops, *memory = extend_layers(trace, tower_layers(config)).tolist()
        return StepCost(round(parameters), batch_flops, update_flops, StepMemory(*memory))

    def trace(self, config: Any, rows: Ints, dtype: Dtype | None, recompute: bool) -> Floats:
        """The fields of a StepCost, and of its memory. The optimizer state exists from the second step on."""
        with torch.random.fork_rng(devices=[]):
            batch = self.task.collate(self.examples, rows)
        task = cast(Task, RepeatedBatch(self.task, batch))
        options = self.options if dtype is None else replace(self.options, dtype=dtype)
        with StepTrace() as trace:
            model = random_model(self.settings, self.task, config, recompute)
            trace.uncast = {w.untyped_storage()._cdata for w in model.parameters()} if dtype else set()
            progress = Progress.new(model, options)
            passes, update = StepPhase(trace), StepPhase(trace)
            for optimizer in progress.optimizers:
                optimizer.register_step_pre_hook(lambda *_: passes.end())
                optimizer.register_step_post_hook(lambda *_: update.end())
            trace.flops = 0
            steps = len(list(train_steps(progress, task, self.examples, options)))
        flops = (passes.flops / steps / self.options.grad_accum, update.flops / steps)
        states = state_bytes(progress)
        temporary = (passes.peak - sum(states), update.peak - sum(states))
        return np.array([num_parameters(model), *flops, *states, *temporary])


class StepPhase:
    """FLOPs and peak memory of one phase of every step. The phases of a trace end one after the other."""

    def __init__(self, trace: StepTrace):
        self.trace, self.flops, self.peak = trace, 0, 0

    def end(self) -> None:
        self.flops, self.peak = self.flops + self.trace.flops, max(self.peak, self.trace.peak)
        self.trace.flops, self.trace.peak = 0, self.trace.allocated


def random_model(settings: Settings, task: Task, config: Any, recompute: bool = False) -> Model:
    """A model as the run trains it, with random weights."""
    model = task.head(settings.fit.body(config))
    freeze(model, settings.run_options.freeze)
    use_window(model, settings.context or 0)
    apply_passes(model, recompute or settings.run_options.recompute)
    return model


def state_bytes(progress: Progress) -> tuple[int, int, int, int]:
    """Of weights, gradients, optimizers and EMA."""
    model, trained = progress.model, [w for w in progress.model.parameters() if w.requires_grad]
    states = [
        value for optimizer in progress.optimizers for state in optimizer.state.values() for value in state.values()
    ]
    moments = (value for value in states if isinstance(value, Tensor))
    means = progress.ema.means if progress.ema else ()
    return (
        num_bytes((*model.parameters(), *model.buffers())),
        num_bytes(trained),
        num_bytes(moments),
        num_bytes(means),
    )


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Tensors that share a storage count once."""
    storages = {storage._cdata: storage.nbytes() for storage in (tensor.untyped_storage() for tensor in tensors)}
    return sum(storages.values())


def typical_batches(examples: Examples, budget: int, seed: int) -> tuple[Ints, Ints]:
    """The rows of an average batch of the first epoch, and of the largest; of very many batches, those of a part."""
    epoch = examples.epoch(budget, seed, 0)
    batches = [epoch[i] for i in range(0, len(epoch), -(-len(epoch) // MAX_BATCHES) or 1)]
    if not batches:
        raise ValueError("there are no examples to train on")
    sizes = np.array([padded_size(examples, rows) for rows in batches])
    average, largest = int(np.abs(sizes - sizes.mean()).argmin()), int(sizes.argmax())
    return batches[largest if sizes[average] == sizes[largest] else average], batches[largest]


def padded_size(examples: Examples, rows: Ints) -> int:
    """Tokens of a batch with padding, or its rows if all examples have one size."""
    return len(rows) * (int(examples.lengths[rows].max(0).sum()) if isinstance(examples, BucketedExamples) else 1)


def tower_layers(config: Any) -> dict[str, int]:
    """The number of blocks of each tower of a model."""
    names = (field.name for field in fields(config))
    return {name: getattr(config, name) for name in names if name == "layers" or name.endswith("_layers")}


def extend_layers(measure: Callable[[Mapping[str, int]], Floats], layers: Mapping[str, int]) -> Floats:
    """`measure(layers)`, of deep towers extended linearly from shallow ones."""
    if max(layers.values(), default=0) <= TRACED_LAYERS + PERIOD:
        return measure(layers)
    shallow = {name: min(count, TRACED_LAYERS) for name, count in layers.items()}
    start = total = measure(shallow)
    for name, count in layers.items():
        if count > TRACED_LAYERS:
            per_period = measure({**shallow, name: TRACED_LAYERS + PERIOD}) - start
            total = total + (count - TRACED_LAYERS) / PERIOD * per_period
    return total
