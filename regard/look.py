"""See every tensor of a running model, or change it; costs nothing when nobody looks.

    with look(model) as seen:
        model(ids)
    seen["body.blocks.3.mixer.inner.weights"]                      (B,H,T,S)

    with look(model, change={"body.blocks.3.mixer.inner.weights": without(2)}):
        model(ids)                                                 as if head 2 of block 3 had nothing to say

    with look(model, gradients=True) as seen:
        task.loss(model, batch).total.backward()
    seen["body.blocks.3"].grad

Outputs of modules come from forward hooks. What never leaves a module (attention weights, gates) is handed over by one
line there, `show(self, name, tensor)`, which runs only while `someone_looks()`. Outputs stay the same bits, unless
something is changed or gradients are wanted: then attention is spelled out, so that what is shown is what is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

Seen = dict[str, Tensor]
Change = Callable[[Tensor], Tensor]


@dataclass(eq=False)
class Looker:
    names: dict[nn.Module, str]
    change: Mapping[str, Change]
    gradients: bool
    seen: Seen = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    def handed(self, name: str, tensor: Tensor) -> Tensor:
        """Note the tensor and give it back, the same one unless it is to be another."""
        if name in self.change:
            self.changed.add(name)
            tensor = as_before(name, tensor, self.change[name](tensor))
        if self.gradients and tensor.requires_grad:
            tensor.retain_grad()
            self.seen[name] = tensor
        else:
            self.seen[name] = tensor.detach()
        return tensor


# Per thread and task: a server may look at one request while others run untouched.
_lookers: ContextVar[tuple[Looker, ...]] = ContextVar("lookers", default=())


@contextmanager
def look(model: nn.Module, change: Mapping[str, Change] | None = None, gradients: bool = False) -> Iterator[Seen]:
    """Collect, by name, the output of every module of `model` and what its parts show of their inside.

    `change` replaces what has a name by what its function makes of it. With `gradients`, what is seen keeps its way
    back to the loss, and has a `.grad` after `backward()`.
    """
    looker = Looker({module: name for name, module in model.named_modules()}, change or {}, gradients)

    def keep(module: nn.Module, _: Any, output: Any) -> Tensor | None:
        if isinstance(output, Tensor) and any(looker is one for one in _lookers.get()):
            return looker.handed(looker.names[module], output)
        return None

    hooks = [module.register_forward_hook(keep) for module in looker.names]
    before = _lookers.set((*_lookers.get(), looker))
    try:
        yield looker.seen
        for name in sorted(set(looker.change) - looker.changed):
            raise ValueError(f'nothing named "{name}" was there to change{alike(name, looker.seen)}')
    finally:
        _lookers.reset(before)
        for hook in hooks:
            hook.remove()


def someone_looks() -> bool:
    return bool(_lookers.get())


def someone_follows() -> bool:
    """Whether gradients are wanted of what is shown, so that the output must be made of it."""
    return any(looker.gradients for looker in _lookers.get())


def show(module: nn.Module, name: str, tensor: Tensor, *, fixed: bool = False) -> Tensor:
    """Hand `tensor`, made inside `module`, to whoever looks at a model that holds this module, and go on with what
    comes back; if `fixed`, it can be seen but not changed."""
    for looker in _lookers.get():
        if module in looker.names:
            whole = f"{looker.names[module]}.{name}".removeprefix(".")
            if fixed and whole in looker.change:
                raise ValueError(f'"{whole}" can be seen, not changed')
            tensor = looker.handed(whole, tensor)
    return tensor


def without(*heads: int) -> Change:
    """A change that lets some heads say nothing, of anything (B,H,...)."""

    def silenced(x: Tensor) -> Tensor:
        if wrong := [head for head in heads if not 0 <= head < x.size(1)]:
            raise ValueError(f"there is no head {wrong[0]}: they are numbered from 0 to {x.size(1) - 1}")
        kept = x.new_ones(x.size(1))
        kept[list(heads)] = 0
        return x * kept.view(-1, *[1] * (x.dim() - 2))

    return silenced


def as_before(name: str, old: Tensor, new: Tensor) -> Tensor:
    if new.shape != old.shape:
        raise ValueError(f'"{name}" is {tuple(old.shape)} and must stay so: the change makes it {tuple(new.shape)}')
    return new


def alike(name: str, names: Seen) -> str:
    near = get_close_matches(name, names, 1)
    return f'; did you mean "{near[0]}"?' if near else ": see the names that look() collects"
