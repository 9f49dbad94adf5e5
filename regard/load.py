"""Loading: a model folder, or a name on the hub, becomes a model that answers.

translate = regard.load("runs/demo")
translate("Tea and water please")                       'Tee und Wasser bitte'
translate(["Good morning", "Thank you"])                a list for a list
translate("Tea and water please", num_return=3)         the three best, as a list

Several threads may call one model at the same time. Start processes with `spawn`, or load after `fork`.
"""

from __future__ import annotations

from os import PathLike, fspath

from regard.device import resolve_device, set_num_threads
from regard.engine.accelerate import SPEEDS, accelerate
from regard.engine.arena import no_init_weights
from regard.engine.int8_folder import is_int8_folder, read_int8
from regard.hub.folder import read_config, read_weights
from regard.hub.remote import find_model
from regard.hub.task_config import read_task, reconcile_config
from regard.loaded_model import LoadedModel
from regard.tasks.compatibility import body_class
from regard.validate import check_choice, check_type

__all__ = ["LoadedModel", "load"]


def load(
    name: str | PathLike[str],
    device: str = "auto",
    download: bool | None = None,
    speed: str | None = None,
    threads: int | None = None,
) -> LoadedModel:
    """Load a model folder, or a model of the hub.

    Args:
        name: a folder (of `regard train`, or of Hugging Face), or a name on the hub: "owner/repo".
        device: "cpu", "cuda", "mps", or "auto" for the best available one.
        download: True fetches a model of the hub that is not in the cache, False never does, None asks in a terminal.
        speed: None for plain PyTorch modules, which can be traced and trained; "exact" for the engine in fp32, which
            gives the same tokens sooner; "int8" for quantised weights, on the CPU only.
        threads: number of CPU threads of this process from now on, for all of PyTorch; default: all cores.

    Returns:
        A `LoadedModel`: call it with an input or a list of inputs.

    Raises:
        TypeError: `name` is neither a text nor a path.
        ValueError: an invalid argument, or a folder that cannot be read; the message has the file and the remedy.

    >>> translate = regard.load("runs/demo", speed="exact")
    >>> translate("Tea and water please")
    'Tee und Wasser bitte'
    """
    if not isinstance(name, str | PathLike):
        raise TypeError(f"the name of a model must be a str or a path, not {name!r:.60}")
    check_type("device", device, str)
    check_type("download", download, bool | None)
    if speed is not None:
        check_choice("speed", speed, SPEEDS)
    if threads is not None:
        check_type("threads", threads, int)
        set_num_threads(threads)
    reload = (load, (name, device, download, speed, threads))
    folder = find_model(fspath(name), download)
    is_int8 = is_int8_folder(folder)
    with no_init_weights():
        names, config = read_config(folder, weights=not is_int8)
        task = read_task(folder)
        config = reconcile_config(config, task, folder)
        model = task.head(body_class(task, names.model)(config))
    if is_int8:
        origin, reference = read_int8(folder, model)
        return LoadedModel(accelerate(reference, "int8")[0], task, origin, reference, reload)
    with no_init_weights():
        origin = read_weights(folder, names, model)
    reference = model.to(resolve_device(device)).eval()
    model, reference = accelerate(reference, speed) if speed else (reference, reference)
    return LoadedModel(model, task, origin, reference, reload)
