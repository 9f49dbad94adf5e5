"""regard: train, load, run and inspect models of the whole Transformer family.

    model = regard.load("runs/demo")                        a LoadedModel: a folder, or a name on the hub
    model("Tea and water please")                           'Tee und Wasser bitte'
    model.generate("Tea and water please", num_return=3)    answers with log-probabilities
    model.stream("Once upon a time")                        the answer, word by word
    model.embed("Tea and water please")                     one vector
    model.save_pretrained("copy")                           a Hugging Face folder

    for step in regard.train("translate", data=("train.en", "train.de"), minutes=10):
        print(step.number, step.loss)

    with regard.look(model.model) as activations:           every tensor of a forward, by name
        model("Tea and water please")

    regard.page(model, "Tea and water please")              attention, logit lens and heads on one HTML page

    with regard.reproducible():                             the same bits alone and in any batch
        model(["Tea", "Water"])

A name is imported when it is first used, so that `regard --help` does not wait for torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["LoadedModel", "load", "look", "page", "reproducible", "train"]

if TYPE_CHECKING:
    from regard.batch_invariant import reproducible
    from regard.load import load
    from regard.loaded_model import LoadedModel
    from regard.look import look
    from regard.training.train import train
    from regard.view.report import page


def _lazy(module: str, name: str) -> property:
    # The import system would set regard.look to the module of that name; the setter keeps the function.
    return property(lambda _: getattr(import_module(module), name), lambda _, submodule: None)


class _LazyModule(ModuleType):
    LoadedModel = _lazy("regard.loaded_model", "LoadedModel")
    load = _lazy("regard.load", "load")
    look = _lazy("regard.look", "look")
    page = _lazy("regard.view.report", "page")
    reproducible = _lazy("regard.batch_invariant", "reproducible")
    train = _lazy("regard.training.train", "train")

    def __dir__(self) -> list[str]:
        return [*__all__, "__version__"]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"regard has no {name!r}; it has {', '.join(__all__)}")


sys.modules[__name__].__class__ = _LazyModule
