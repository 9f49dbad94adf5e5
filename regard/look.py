"""Read or replace every named tensor of a running model through forward hooks; no cost when no trace is active.

    with look(model) as activations:
        model(ids)
    activations["body.blocks.3.mixer.inner.weights"]               (B,H,T,S)

    with look(model, change={"body.blocks.3.mixer.inner.weights": ablate_heads(2)}):
        model(ids)                                                 head 2 of block 3 contributes nothing

    with look(model, gradients=True) as activations:
        task.loss(model, batch).total.backward()
    activations["body.blocks.3"].grad

Forward hooks capture the outputs of modules. A module hands over internal tensors (attention weights, gates) with one
line, `record(self, name, tensor)`, which runs only while `is_traced()`. Outputs stay bit-identical unless a tensor is
changed or gradients are requested: then attention runs unfused, so that the recorded weights are those in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches

from torch import Tensor, nn
from torch.compiler import is_compiling

Activations = dict[str, Tensor]
Change = Callable[[Tensor], Tensor]


@dataclass(eq=False)
class Tracer:
    names: dict[nn.Module, str]
    change: Mapping[str, Change]
    gradients: bool
    activations: Activations = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    def capture(self, name: str, tensor: Tensor) -> Tensor:
        """Store the tensor and return it, changed if `change` names it."""
        if name in self.change:
            self.changed.add(name)
            tensor = check_shape(name, tensor, self.change[name](tensor))
        if self.gradients and tensor.requires_grad:
            tensor.retain_grad()
            self.activations[name] = tensor
        else:
            self.activations[name] = tensor.detach()
        return tensor


# Local to a thread and an async task: a server may trace one request while others run untraced.
_tracers: ContextVar[tuple[Tracer, ...]] = ContextVar("tracers", default=())


@contextmanager
def look(
    model: nn.Module, change: Mapping[str, Change] | None = None, gradients: bool = False
) -> Iterator[Activations]:
    """Collect, by name, the output of every module of `model` and the internal tensors that modules record.

    `change` maps a name to a function that replaces that tensor. With `gradients`, the tensors stay in the autograd
    graph and have a `.grad` after `backward()`.
    """
    tracer = Tracer({module: name for name, module in model.named_modules()}, change or {}, gradients)

    def capture_output(module: nn.Module, _: object, output: object) -> Tensor | None:
        if isinstance(output, Tensor) and any(tracer is active for active in _tracers.get()):
            return tracer.capture(tracer.names[module], output)
        return None

    hooks = [module.register_forward_hook(capture_output) for module in tracer.names]
    token = _tracers.set((*_tracers.get(), tracer))
    try:
        yield tracer.activations
        for name in sorted(set(tracer.change) - tracer.changed):
            raise ValueError(f'the model computed no tensor named "{name}"{suggest(name, tracer.activations)}')
    finally:
        _tracers.reset(token)
        for hook in hooks:
            hook.remove()


def is_traced() -> bool:
    return not is_compiling() and bool(_tracers.get())  # a compiler cannot read a context variable


def needs_grad_trace() -> bool:
    """Whether a trace wants gradients, so that the output must depend on the recorded tensors."""
    return any(tracer.gradients for tracer in _tracers.get())


def record(module: nn.Module, name: str, tensor: Tensor, *, fixed: bool = False) -> Tensor:
    """Hand an internal tensor of `module` to every active trace of a model that contains it; continue with the result.
    A `fixed` tensor can be read but not changed."""
    for tracer in _tracers.get():
        if module in tracer.names:
            path = f"{tracer.names[module]}.{name}".removeprefix(".")
            if fixed and path in tracer.change:
                raise ValueError(f'"{path}" is read-only: change another tensor')
            tensor = tracer.capture(path, tensor)
    return tensor


def ablate_heads(*heads: int) -> Change:
    """A change that sets these heads of a tensor (B,H,...) to 0."""

    def ablate(x: Tensor) -> Tensor:
        if invalid := [head for head in heads if not 0 <= head < x.size(1)]:
            raise ValueError(f"there is no head {invalid[0]}: heads are numbered from 0 to {x.size(1) - 1}")
        scale = x.new_ones(x.size(1))
        scale[list(heads)] = 0
        return x * scale.view(-1, *[1] * (x.dim() - 2))

    return ablate


def check_shape(name: str, old: Tensor, new: Tensor) -> Tensor:
    if new.shape != old.shape:
        raise ValueError(f'"{name}" has shape {tuple(old.shape)}, the change has {tuple(new.shape)}: keep the shape')
    return new


def suggest(name: str, names: Activations) -> str:
    matches = get_close_matches(name, names, 1)
    return f'; did you mean "{matches[0]}"?' if matches else ": see the names that look() collects"
