"""regard: the whole Transformer family in one small library.

    translate = regard.load("runs/demo")
    translate("Tea and water please")                       'Tee und Wasser bitte'

    for step in regard.train("translate", data=("train.en", "train.de"), minutes=10):
        print(step.number, step.loss)

Names are resolved when they are first used, so that `regard --help` does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["load", "look", "train"]

if TYPE_CHECKING:
    from regard.load import load
    from regard.look import look
    from regard.training.train import train

_HOMES = {"load": "regard.load", "look": "regard.look", "train": "regard.training.train"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"regard has no {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
