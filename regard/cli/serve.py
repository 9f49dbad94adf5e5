"""regard serve MODEL ...: models behind the APIs of OpenAI, LibreTranslate and TEI, and a page to try them."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import sys
from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli import escape_control
from regard.cli.model_argument import FetchOptions, fetch_model
from regard.cli.options import parse
from regard.options import make, options_of
from regard.serve.serve_options import ServeOptions

if TYPE_CHECKING:
    from regard.serve.registry import ModelInfo

PACKAGES = ("starlette", "uvicorn", "msgspec", "jinja2", "python_multipart")
NAME = re.compile(r"[\w][\w.+-]*")


def main(args: list[str]) -> int:
    values = parse("regard serve", args, options_of(ServeOptions) | options_of(FetchOptions))
    options, fetch_options = make(ServeOptions, values), make(FetchOptions, values)
    options = replace(options, api_key=options.api_key or os.environ.get("REGARD_API_KEY") or None)
    check_installed()
    folders = find_folders(options.models, fetch_options)
    if options.detect:
        detector = find_folders([options.detect], fetch_options)
        [name] = detector
        folders, options = folders | detector, replace(options, detect=name)
    return serve(folders, options)


def check_installed() -> None:
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise ValueError(f'regard serve needs {", ".join(missing)}: pip install "regard[serve]"')


def find_folders(models: Iterable[str], fetch_options: FetchOptions) -> dict[str, Path]:
    """The folder of each model by its name: the last part of its path, or what stands before an equals sign."""
    folders: dict[str, Path] = {}
    for model in models:
        name, equals, path = model.partition("=")
        if not equals or Path(model).exists():
            name, path = "", model
        folder = fetch_model(path, fetch_options)
        name = name or Path(path.partition("@")[0]).expanduser().resolve().name
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a model: choose one of letters, digits and . + -, as NAME={path}")
        if name in folders:
            raise ValueError(f"two models are named {name}: choose another name for one of them, as NAME={path}")
        folders[name] = folder
    if not folders:
        raise ValueError("name at least one model: regard serve runs/demo")
    return folders


def serve(folders: dict[str, Path], options: ServeOptions) -> int:
    from regard.serve.app import create_app
    from regard.serve.registry import ModelRegistry
    from regard.serve.server import bind, run_server

    with bind(options.host, options.port) as listener:
        registry = ModelRegistry(folders, options)
        infos = registry.infos()
        for info in infos:
            if info.name == options.detect and info.task != "classify":
                raise ValueError(f"--detect needs a classify model, and {info.folder} is one for {info.task}")
        run_server(create_app(registry, options), options, listener, lambda: print_start(infos, options, listener))
    return 0


def print_start(infos: list[ModelInfo], options: ServeOptions, listener: socket.socket) -> None:
    from regard.serve.server import url_of

    url, width = url_of(listener), max(len(info.name) for info in infos)
    for info in infos:
        print(escape_control(f"{info.name:<{width}}  {info.task} ({info.modality})  {info.folder}"))
    print(f"{url}  (Ctrl-C ends the server)\ntry: {curl_line(url, infos[0], options)}", flush=True)
    if options.api_key is None and not url.startswith(("http://127.", "http://[::1]")):
        print(f"everybody who reaches {url} may use these models: set REGARD_API_KEY", file=sys.stderr, flush=True)


def curl_line(url: str, info: ModelInfo, options: ServeOptions) -> str:
    """A command that asks the model."""
    from regard.serve.model_description import read_description

    description = read_description(info)
    key = ' -H "Authorization: Bearer $REGARD_API_KEY"' if options.api_key else ""
    if any(field.kind == "file" for field in description.fields):
        parts = [f"{name}={text}" for name, texts in description.example.items() for text in as_list(texts)]
        suffix = next(field.formats[0] for field in description.fields if field.kind == "file")
        data = " ".join(f"-F {shlex.quote(part)}" for part in [f"file=@FILE{suffix}", *parts])
    else:
        example = description.example
        text = json.dumps({"input": example["text"] if [*example] == ["text"] else example}, ensure_ascii=False)
        data = f"-H 'Content-Type: application/json' -d {shlex.quote(text)}"
    return f"curl {url}/v1/run/{info.name}{key} {data}"


def as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
