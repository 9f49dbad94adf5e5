"""Ray: the answers to a data set by many workers, and the HTTP server in many replicas.

    answers = regard.ray.answer(ray.data.read_text("inputs/"), "runs/demo", workers=8)
    answers.write_json("answers/")

    server = regard.ray.deployment({"demo": "runs/demo"})
    ray.serve.run(server.options(num_replicas=8).bind())

A worker is a process that loads the model once; by default it has one thread, and Ray reserves one CPU for it. All
machines need this package, and the model folder under the same path.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.load import load

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from regard.serve.serve_options import ServeOptions

Batch = dict[str, Any]  # of Ray: an array for each column


class AnswerWorker:
    """Adds a column of answers to a batch; Ray calls the constructor once for each worker."""

    def __init__(self, folder: str, column: str, speed: str | None, threads: int, options: Mapping[str, Any]):
        self.model = load(folder, speed=speed, threads=threads)
        self.column, self.options = column, options

    def __call__(self, batch: Batch) -> Batch:
        if self.column not in batch:
            raise ValueError(f"the data set has no column {self.column!r}: choose one of {', '.join(batch)}")
        return batch | {"answer": self.model(map(str, batch[self.column]), **self.options)}


def answer(
    dataset: Any,
    folder: str | PathLike[str],
    *,
    workers: int = 2,
    column: str = "text",
    batch_size: int = 256,
    speed: str | None = "exact",
    threads: int = 1,
    **options: object,
) -> Any:
    """The data set with a column `answer`: what `regard.load(folder)` answers to each input.

    Args:
        dataset: a `ray.data.Dataset`.
        folder: model folder, or a name on the hub.
        workers: number of processes that load the model.
        column: of the inputs: texts, or the paths of files.
        batch_size: inputs of a call. The model sorts them by length, so a large batch has little padding.
        speed: as of `regard.load`.
        threads: CPU threads of a worker, which Ray reserves for it.
        options: generation options of the task. Sampled answers are those of a call with this batch.

    Returns:
        A lazy `ray.data.Dataset`. Its rows may come in another order; each has its input beside the answer.
    """
    data = import_ray("data")
    return dataset.map_batches(
        AnswerWorker,
        fn_constructor_args=(fspath(folder), column, speed, threads, options),
        compute=data.ActorPoolStrategy(size=workers),
        batch_size=batch_size,
        num_cpus=threads,
    )


def deployment(models: Mapping[str, str | PathLike[str]], options: ServeOptions | None = None) -> Any:
    """The application of `regard serve` as a deployment of Ray Serve, whose replicas each load the models.

    Args:
        models: the folder of each model, by name; the first is the default.
        options: of the server, by default with one thread. Host, port and connections are those of Ray Serve.
    """
    serve = import_ray("serve")
    folders = {name: Path(folder) for name, folder in models.items()}

    def build() -> Starlette:  # Ray Serve takes a function, and nothing else that can be called
        return make_app(folders, options)

    @serve.deployment(name="regard")
    @serve.ingress(build)
    class RegardServer:
        """The routes of the application."""

    return RegardServer


def make_app(folders: Mapping[str, Path], options: ServeOptions | None) -> Starlette:
    """Called in every replica: an application cannot be sent to another process."""
    from regard.serve.app import create_app
    from regard.serve.registry import ModelRegistry
    from regard.serve.serve_options import ServeOptions

    options = options or ServeOptions(threads=1)
    return create_app(ModelRegistry(folders, options), options)


def import_ray(module: str) -> Any:
    if find_spec("ray") is None:
        raise ValueError('ray is not installed: pip install "regard[ray]"')
    return import_module(f"ray.{module}")
