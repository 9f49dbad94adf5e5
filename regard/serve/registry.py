"""The models of a server: loaded on demand, unloaded when idle, replaced when their folder gets better weights.

names ─▶ ModelInfo, from the files beside the weights
use() ─▶ ServedModel = LoadedModel + Scheduler, which stays until the last request that uses it has ended
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from regard.device import set_num_threads
from regard.fair_lock import FairLock
from regard.hub.task_config import read_task, task_name
from regard.load import load
from regard.loaded_model import LoadedModel
from regard.scheduler import Scheduler, SchedulerOptions
from regard.serve.errors import INVALID, ApiError, to_api_error
from regard.serve.serve_options import ServeOptions

WATCHED = ("*.safetensors", "*.json", "*.model", "*.spm", "vocab.txt", "merges.txt", "chat_template.jinja")
UNWATCHED = ("train.json",)  # rewritten without a change of the model
TICK = 0.5  # seconds between two looks at idle models

T = TypeVar("T")
logger = logging.getLogger("regard.serve")


class ModelInfo(NamedTuple):
    """What is known about a model without its weights."""

    name: str
    task: str  # e.g. "translate"
    modality: str  # of the input, e.g. "text"
    created: int  # when the weights were written, in Unix time
    is_loaded: bool
    folder: Path
    example: str  # an input to try


@dataclass(eq=False)
class ServedModel:
    """A model in memory, with the scheduler that runs its requests."""

    name: str
    loaded: LoadedModel
    scheduler: Scheduler
    created: int  # when the weights were written, in Unix time


Stamp = tuple[tuple[str, int, int, int], ...]  # name, inode, size and time of change of every watched file


def folder_stamp(folder: Path) -> Stamp:
    """Identifies the files of a model: another stamp means another model. Temporary files, which are hidden, and the
    checkpoints in step-N/ do not count."""
    files = {file for pattern in WATCHED for file in folder.glob(pattern) if not file.name.startswith(".")}
    stats = [(file, file.stat()) for file in sorted(files) if file.name not in UNWATCHED and file.exists()]
    return tuple((file.name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for file, stat in stats)


def read_info(name: str, folder: Path) -> ModelInfo:
    """Raises ValueError if the folder holds no model."""
    task = read_task(folder)
    times = [file.stat().st_mtime for file in folder.glob("*.safetensors")] or [folder.stat().st_mtime]
    preprocessor = task.preprocessor
    return ModelInfo(name, task_name(task), preprocessor.modality, int(max(times)), False, folder, preprocessor.example)


class ModelSlot:
    """One name of the registry: the model in memory, if any, and a load that is under way."""

    def __init__(self, info: ModelInfo):
        self.info = info
        self.stamp: Stamp = ()  # of the files that were loaded last, or failed to load
        self.model: ServedModel | None = None
        self.loading: asyncio.Task[ServedModel] | None = None
        self.last_use = time.monotonic()


class ModelRegistry:
    """All models of a server. Its methods run in one event loop; models are loaded in a thread.

    Args:
        folders: the folder of each model, by name; the first is the default.
        options: speed, threads and limits.
    """

    def __init__(self, folders: Mapping[str, Path], options: ServeOptions = ServeOptions()):  # noqa: B008  it is frozen
        self.options = options
        self._slots = {name: ModelSlot(read_info(name, folder)) for name, folder in folders.items()}
        self._users: dict[ServedModel, int] = {}  # requests that use a model
        self._retired: set[ServedModel] = set()  # to be closed when nobody uses them
        self._closing: set[asyncio.Future[None]] = set()
        self._step_lock = FairLock()
        self._load_lock = asyncio.Lock()  # one load at a time
        if options.threads:
            set_num_threads(options.threads)

    def infos(self) -> list[ModelInfo]:
        return [slot.info._replace(is_loaded=slot.model is not None) for slot in self._slots.values()]

    def served(self) -> list[ServedModel]:
        """The models in memory, those included that only finish their last requests."""
        return [*self._users]

    def use(self, name: str | None, tasks: Collection[str] = ()) -> AbstractAsyncContextManager[ServedModel]:
        """Loads the model if necessary, and keeps it in memory within `async with`.

        Args:
            name: of the model; None for the first with one of the tasks.
            tasks: those that fit the request; empty for any.

        Raises:
            ApiError: no model has this name (404), or its task does not fit.
        """
        return self._use(self._choose(name, tasks))

    def _choose(self, name: str | None, tasks: Collection[str]) -> ModelSlot:
        fits = [slot for slot in self._slots.values() if not tasks or slot.info.task in tasks]
        if name is None:
            if not fits:
                raise ApiError(404, f"this server has no model for {' or '.join(tasks)}: serve one", "model")
            return fits[0]
        slot = self._slots.get(name)
        if slot is None:
            near = get_close_matches(name, self._slots, 1, 0.0)
            hint = f"did you mean {near[0]}?" if near else "GET /v1/models lists all"
            raise ApiError(404, f"unknown model {name!r:.80}: {hint}", "model", "model_not_found")
        if slot not in fits:
            others = ", ".join(other.info.name for other in fits) or "none of this server"
            problem = f"{name} is a model for {slot.info.task}, and this request needs {' or '.join(tasks)}"
            raise ApiError(INVALID, f"{problem}: choose {others}", "model", "wrong_task")
        return slot

    @asynccontextmanager
    async def _use(self, slot: ModelSlot) -> AsyncIterator[ServedModel]:
        while (model := slot.model or await self._load(slot)) not in self._users:
            pass  # it was unloaded before this request could use it
        self._users[model] += 1
        try:
            yield model
        finally:
            self._users[model] -= 1
            slot.last_use = time.monotonic()
            self._close_if_unused(model)

    async def _load(self, slot: ModelSlot) -> ServedModel:
        """Concurrent calls share one load, and one that is cancelled does not end it for the others."""
        if slot.loading is None:
            slot.loading = asyncio.create_task(self._replace(slot))
        try:
            return await asyncio.shield(slot.loading)
        except FloatingPointError as error:
            logger.error("%s cannot be used: %s", slot.info.name, error)
            raise to_api_error(error) from None
        except (ValueError, OSError, RuntimeError, MemoryError, ImportError) as error:
            logger.error("%s cannot be loaded: %s", slot.info.name, error)
            message = f"the model {slot.info.name} cannot be loaded: the log of the server has the cause"
            raise ApiError(503, message, "model", "model_not_loaded") from None

    async def _replace(self, slot: ModelSlot) -> ServedModel:
        """Load the model, take it into use, and retire the one before it."""
        try:
            async with self._load_lock:
                start = time.monotonic()
                slot.stamp = await in_thread(partial(folder_stamp, slot.info.folder))  # first: a later change is seen
                slot.info, model = await in_thread(partial(self._load_files, slot.info))
            logger.info("%s loaded in %.1f s", model.name, time.monotonic() - start)
            self._users[model] = 0
            slot.last_use = time.monotonic()
            old, slot.model = slot.model, model
            if old is not None:
                self._retire(old)
            return model
        finally:
            slot.loading = None

    def _load_files(self, info: ModelInfo) -> tuple[ModelInfo, ServedModel]:
        options = self.options
        info = read_info(info.name, info.folder)
        loaded = load(info.folder, "cpu", False, speed=None if options.reproducible else options.speed)
        limits = SchedulerOptions(options.max_queue_tokens, options.max_batch_tokens)
        scheduler = Scheduler(loaded, limits, options.reproducible, self._step_lock)
        return info, ServedModel(info.name, loaded, scheduler, info.created)

    def _retire(self, model: ServedModel) -> None:
        self._retired.add(model)
        self._close_if_unused(model)

    def _close_if_unused(self, model: ServedModel) -> None:
        if model in self._retired and self._users[model] == 0:
            self._retired.discard(model)
            del self._users[model]
            task = asyncio.create_task(in_thread(partial(close_model, model)))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def watch(self) -> None:
        """Until cancelled: unload idle models, and reload folders that changed."""
        next_look = time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            if self.options.idle_unload is not None:
                self.unload_idle(self.options.idle_unload)
            if self.options.reload_every and time.monotonic() >= next_look:
                await self.reload_changed()
                next_look = time.monotonic() + self.options.reload_every

    def unload_idle(self, seconds: float) -> None:
        """Unload the models that no request uses or has used for so many seconds."""
        for slot in self._slots.values():
            model, idle = slot.model, time.monotonic() - slot.last_use
            if model is not None and self._users[model] == 0 and idle >= seconds and slot.loading is None:
                slot.model = None
                self._retire(model)

    async def reload_changed(self) -> None:
        """Replace the models in memory whose files changed. Requests that run end on the old one."""
        for slot in self._slots.values():
            if slot.model is None or slot.loading is not None:
                continue
            with suppress(OSError, ApiError):  # files that vanish while they are looked at; a folder that is incomplete
                stamp = await in_thread(partial(folder_stamp, slot.info.folder))
                if slot.model is not None and slot.loading is None and stamp != slot.stamp:
                    await self._load(slot)

    async def close(self) -> None:
        """Cancel all jobs, and end all schedulers."""
        models = [*self._users]
        await asyncio.gather(*(in_thread(partial(model.scheduler.close, False)) for model in models), *self._closing)


def close_model(model: ServedModel) -> None:
    model.scheduler.close()
    logger.info("%s left the memory", model.name)
    del model
    gc.collect()


async def in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread of its own, for which the process does not wait when it exits."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def set_result(set_value: Callable[[], None]) -> None:
        if not future.cancelled():
            set_value()

    def run() -> None:
        try:
            result = function()
            outcome = partial(future.set_result, result)
        except Exception as error:
            outcome = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(set_result, outcome)

    threading.Thread(target=run, daemon=True).start()
    return await future
