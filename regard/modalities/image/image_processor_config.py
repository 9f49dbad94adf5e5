"""Reads and writes preprocessor_config.json, transformers' settings of image preprocessing for ViT and CLIP.

    size 224                                  resize both edges to 224
    size {shortest_edge: 224}, crop_size 224  resize the shorter edge to 224, then crop the centre

Every setting that is not supported is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from regard.atomic import replace_file, write_json
from regard.json_files import MAX_JSON, check_regular_file, lexists, read_bounded, read_flag, read_json

CONFIG = "preprocessor_config.json"
PROCESSOR_CONFIG = "processor_config.json"  # used by transformers 5 if the folder also has a tokenizer
BILINEAR, BICUBIC = 2, 3  # pillow's numbers
SUPPORTED_KEYS = {  # implemented, or without effect on the pixels
    *("do_resize", "size", "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize"),
    *("image_mean", "image_std", "do_convert_rgb", "channels", "image_processor_type", "feature_extractor_type"),
    *("default_to_square", "processor_class", "transformers_version", "return_tensors", "data_format", "auto_map"),
    *("input_data_format", "device", "disable_grouping", "_valid_processor_keys", "backend", "use_fast"),
}
T = TypeVar("T")


def find_image_processor(folder: Path) -> Path | None:
    if lexists(folder / CONFIG):
        return check_regular_file(folder / CONFIG)
    file = folder / PROCESSOR_CONFIG
    return file if lexists(file) and b'"image_processor"' in read_bounded(file, MAX_JSON) else None


def read_image_processor(folder: Path, factory: Callable[..., T]) -> T:
    """`factory` called with the settings, and with `origin`: the name and the content of their file."""
    file = find_image_processor(folder)
    if file is None:
        raise ValueError(f"{folder} has no {CONFIG}, so its model cannot read images")
    content = read_bounded(file, MAX_JSON)
    try:
        config = json.loads(content)
        model_config = folder / "config.json"
        channels = read_json(model_config).get("num_channels") if lexists(model_config) else None
        config = config if file.name == CONFIG else config["image_processor"]
        return factory(**parse_settings({"channels": channels, **config}), origin=(file.name, content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{file} has no valid settings of image preprocessing: {error!r}") from error


def write_image_processor(
    folder: Path,
    image_size: int,
    channels: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    origin: tuple[str, bytes] | None,
) -> None:
    """A config that was read from a file is written back byte for byte."""
    if origin is not None:
        replace_file(folder / origin[0], origin[1])
        return
    config = {
        **{"image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"shortest_edge": image_size}},
        **{"resample": BILINEAR, "do_center_crop": True, "crop_size": {"height": image_size, "width": image_size}},
        **{"do_rescale": True, "rescale_factor": 1 / 255},
        **{"do_normalize": True, "image_mean": mean, "image_std": std, "channels": channels},
    }
    write_json(folder / CONFIG, config)


def parse_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of `ImageTransform`, with transformers' defaults."""
    for key, value in config.items():
        if key not in SUPPORTED_KEYS and value:
            raise ValueError(f"{key} {value!r} is not supported for images")
    is_clip = "CLIP" in str(config.get("image_processor_type") or config.get("feature_extractor_type"))
    crop, size = read_flag(config, "do_center_crop", is_clip), config["size"]
    if not isinstance(size, dict):
        is_square = config.get("default_to_square", not is_clip)
        size = dict.fromkeys(("height", "width") if is_square else ("shortest_edge",), size)
    resize = "shorter" if "shortest_edge" in size else "both"
    edge = square_edge(size.get("shortest_edge", size), "size")
    if not read_flag(config, "do_resize", True):
        resize = "none"
    elif resize == "shorter" and (not crop or {*size} != {"shortest_edge"}):
        raise ValueError(f"size {size} without do_center_crop gives images of different shapes")
    image_size = square_edge(config["crop_size"], "crop_size") if crop else edge
    channels = 1 if config.get("channels") == 1 else 3
    normalize = read_flag(config, "do_normalize", True)
    return {
        "image_size": image_size,
        "channels": channels,
        "mean": per_channel(config["image_mean"] if normalize else 0, channels),
        "std": per_channel(config["image_std"] if normalize else 1, channels),
        "resize": resize,
        "edge": edge if edge != image_size and resize != "none" else None,
        "crop": crop,
        "resample": config.get("resample", BICUBIC if is_clip else BILINEAR),
        "scale": config.get("rescale_factor", 1 / 255) if read_flag(config, "do_rescale", True) else 1.0,
    }


def square_edge(size: Any, name: str) -> int:
    edges = (size["height"], size["width"]) if isinstance(size, dict) else (size, size)
    if edges[0] != edges[1] or type(edges[0]) is not int:
        raise ValueError(f"{name} must be a square of whole pixels, not {size}")
    return edges[0]


def per_channel(value: Any, channels: int) -> tuple[float, ...]:
    """A single number applies to all channels."""
    values = [value] if isinstance(value, int | float) else [*value]
    values = values * channels if len(values) == 1 else values
    if any(isinstance(number, bool) for number in values):
        raise ValueError(f"image_mean and image_std must be numbers, not {value!r}")
    return tuple(map(float, values))
