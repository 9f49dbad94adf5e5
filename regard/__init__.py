"""regard: the whole Transformer family in one small library.

    translate = regard.load("runs/demo")
    translate("Tea and water please")                       'Tee und Wasser bitte'

    regard.page(translate, "Tea and water please")          what it looks at, as a page

    for step in regard.train("translate", data=("train.en", "train.de"), minutes=10):
        print(step.number, step.loss)

Names are resolved when they are first used, so that `regard --help` does not wait for torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["load", "look", "page", "reproducible", "train"]

if TYPE_CHECKING:
    from regard.batch_invariant import reproducible
    from regard.load import load
    from regard.look import look
    from regard.rl.dyna import train
    from regard.view.report import page


def _lazy(home: str, name: str) -> property:
    # The import system sets regard.look to the module of that name; the function is what users mean.
    return property(lambda _: getattr(import_module(home), name), lambda _, module: None)


class _Face(ModuleType):
    load = _lazy("regard.load", "load")
    look = _lazy("regard.look", "look")
    page = _lazy("regard.view.report", "page")
    reproducible = _lazy("regard.batch_invariant", "reproducible")
    train = _lazy("regard.rl.dyna", "train")

    def __dir__(self) -> list[str]:
        return [*__all__, "__version__"]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"regard has no {name!r}; it has {', '.join(__all__)}")


sys.modules[__name__].__class__ = _Face
