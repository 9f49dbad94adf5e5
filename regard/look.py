"""See every tensor of a running model; costs nothing when nobody looks.

    with look(model) as seen:
        model(ids)
    seen["body.blocks.3.mixer.inner.weights"]        (B,H,T,S)

Outputs of modules come from forward hooks. What never leaves a module (attention weights, gates) is handed over by one
line there, `show(self, name, tensor)`, which runs only while `someone_looks()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, nn

Seen = dict[str, Tensor]

# Per thread and task: a server may look at one request while others run untouched.
_lookers: ContextVar[tuple[tuple[dict[nn.Module, str], Seen], ...]] = ContextVar("lookers", default=())


@contextmanager
def look(model: nn.Module) -> Iterator[Seen]:
    """Collect, by name, the output of every module of `model` and what its parts show of their inside."""
    names = {module: name for name, module in model.named_modules()}
    seen: Seen = {}
    looker = (names, seen)

    def keep(module: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor) and any(looker is one for one in _lookers.get()):
            seen[names[module]] = output.detach()

    hooks = [module.register_forward_hook(keep) for module in names]
    before = _lookers.set((*_lookers.get(), looker))
    try:
        yield seen
    finally:
        _lookers.reset(before)
        for hook in hooks:
            hook.remove()


def someone_looks() -> bool:
    return bool(_lookers.get())


def show(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Hand `tensor`, made inside `module`, to whoever looks at a model that holds this module."""
    for names, seen in _lookers.get():
        if module in names:
            seen[f"{names[module]}.{name}".removeprefix(".")] = tensor.detach()
