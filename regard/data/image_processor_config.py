"""How a folder says that pictures are made ready: preprocessor_config.json, as transformers' ViT and CLIP have it.

    size 224                                  both edges become 224
    size {shortest_edge: 224}, crop_size 224  the shorter edge becomes 224, and the middle is cut out

Whatever else such a file may ask for is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from regard.atomic import replace_file, write_json
from regard.hub.files import MOST, plain, read_json, read_plain, there

CONFIG = "preprocessor_config.json"
NEWER = "processor_config.json"  # where transformers 5 puts it beside a tokenizer
BILINEAR, BICUBIC = 2, 3  # pillow's numbers
SAID = {  # what is done, or changes no pixel
    *("do_resize", "size", "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize"),
    *("image_mean", "image_std", "do_convert_rgb", "channels", "image_processor_type", "feature_extractor_type"),
    *("default_to_square", "processor_class", "transformers_version", "return_tensors", "data_format", "auto_map"),
    *("input_data_format", "device", "disable_grouping", "_valid_processor_keys", "backend", "use_fast"),
}
Made = TypeVar("Made")


def find_processor(folder: Path) -> Path | None:
    if there(folder / CONFIG):
        return plain(folder / CONFIG)
    newer = folder / NEWER
    return newer if there(newer) and b'"image_processor"' in read_plain(newer, MOST) else None


def read_processor(folder: Path, make: Callable[..., Made]) -> Made:
    """What `make` makes of the settings and of the file they came from."""
    file = find_processor(folder)
    if file is None:
        raise ValueError(f"{folder} has no {CONFIG}, so its model cannot read pictures")
    content = read_plain(file, MOST)
    try:
        facts = json.loads(content)
        config = folder / "config.json"
        said = read_json(config).get("num_channels") if there(config) else None
        facts = facts if file.name == CONFIG else facts["image_processor"]
        return make(**settings({**facts, "channels": facts.get("channels", said)}), origin=(file.name, content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{file} does not say how pictures are made ready: {error!r}") from error


def write_processor(
    folder: Path,
    image_size: int,
    channels: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    origin: tuple[str, bytes] | None,
) -> None:
    """What came out of a file goes back as it was, byte for byte."""
    if origin is not None:
        replace_file(folder / origin[0], origin[1])
        return
    facts = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"shortest_edge": image_size},
        "resample": BILINEAR,
        "do_center_crop": True,
        "crop_size": {"height": image_size, "width": image_size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": std,
        "channels": channels,
    }
    write_json(folder / CONFIG, facts)


def settings(facts: dict[str, Any]) -> dict[str, Any]:
    """In our words, with transformers' defaults."""
    for key, value in facts.items():
        if key not in SAID and value:
            raise ValueError(f"{key} {value!r} is not something regard does with pictures")
    clip = "CLIP" in str(facts.get("image_processor_type") or facts.get("feature_extractor_type"))
    crop, size = switch(facts, "do_center_crop", clip), facts["size"]
    if not isinstance(size, dict):
        size = {"height": size, "width": size} if facts.get("default_to_square", not clip) else {"shortest_edge": size}
    resize = "shorter" if "shortest_edge" in size else "both"
    edge = square(size.get("shortest_edge", size), "size")
    if not switch(facts, "do_resize", True):
        resize = "none"
    elif resize == "shorter" and (not crop or {*size} != {"shortest_edge"}):
        raise ValueError(f"size {size} without do_center_crop gives pictures of many shapes")
    image_size = square(facts["crop_size"], "crop_size") if crop else edge
    channels = 1 if facts.get("channels") == 1 else 3
    normal = switch(facts, "do_normalize", True)
    return {
        "image_size": image_size,
        "channels": channels,
        "mean": each(facts["image_mean"] if normal else 0, channels),
        "std": each(facts["image_std"] if normal else 1, channels),
        "resize": resize,
        "edge": edge if edge != image_size and resize != "none" else None,
        "crop": crop,
        "resample": facts.get("resample", BICUBIC if clip else BILINEAR),
        "scale": facts.get("rescale_factor", 1 / 255) if switch(facts, "do_rescale", True) else 1.0,
    }


def switch(facts: dict[str, Any], name: str, usual: bool) -> bool:
    value = facts.get(name)
    if not isinstance(value, bool | None):
        raise ValueError(f"{name} must be true or false, not {value!r}")
    return usual if value is None else value


def square(size: Any, name: str) -> int:
    edges = (size["height"], size["width"]) if isinstance(size, dict) else (size, size)
    if edges[0] != edges[1] or type(edges[0]) is not int:
        raise ValueError(f"{name} must be a square of whole pixels, not {size}")
    return edges[0]


def each(value: Any, channels: int) -> tuple[float, ...]:
    """One number may stand for all channels."""
    several = [value] if isinstance(value, int | float) else [*value]
    several = several * channels if len(several) == 1 else several
    if any(isinstance(one, bool) for one in several):
        raise ValueError(f"the mean and the std of pictures must be numbers, not {value!r}")
    return tuple(map(float, several))
