"""Shared fixtures of the server: tiny models of several tasks, and a live server on a free port of the loopback.

model_folder("translate")                           the folder of a tiny model, trained once for all tests
start_server("translate", "write", api_key="k")     a running server: .url, .port, .app, .registry, .get, .post, .raw
server                                              one with all the models of text, for tests that change nothing
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
import wave
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from regard.training.train import train

if any(find_spec(package) is None for package in ("msgspec", "starlette", "uvicorn", "jinja2", "python_multipart")):
    collect_ignore_glob = ["test_*.py"]  # the extra `serve` is not installed

WORDS = {"tea": "Tee", "water": "Wasser", "milk": "Milch", "bread": "Brot", "and": "und", "please": "bitte"}
COLOURS = {"red": (220, 20, 20), "green": (20, 200, 30), "blue": (10, 30, 230)}
SIZES: dict[str, Any] = {"dim": 16, "heads": 2, "hidden": 24, "context": 64, "batch_tokens": 300, "device": "cpu"}
SEQ2SEQ = SIZES | {"encoder_layers": 1, "decoder_layers": 1}
TEXT_TASKS = ("translate", "write", "fill", "classify", "regress", "tag", "answer", "embed")


def sentences(count: int) -> list[list[str]]:
    words = [*WORDS]
    return [[words[(i * 7 + k * (i // 7 + 1)) % len(words)] for k in range(2 + i % 5)] for i in range(count)]


def write_lines(file: Path, lines: list[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def translation_data(folder: Path) -> Path:
    rows = [f"{' '.join(row)} {i}\t{' '.join(WORDS[word] for word in row)} {i}" for i, row in enumerate(sentences(120))]
    return write_lines(folder / "pairs.tsv", rows)


def story_data(folder: Path) -> Path:
    return write_lines(folder / "story.txt", ["tea and water please, milk and bread. " * 40])


def documents_data(folder: Path) -> Path:
    return write_lines(folder / "lines.txt", [f"{' '.join(row)} {i}." for i, row in enumerate(sentences(120))])


def labelled_data(folder: Path) -> Path:
    return write_lines(folder / "labels.tsv", [f"{' '.join(row)} {i}\t{row[0]}" for i, row in enumerate(sentences(60))])


def number_data(folder: Path) -> Path:
    return write_lines(
        folder / "numbers.tsv", [f"{' '.join(row)} {i}\t{len(row)}" for i, row in enumerate(sentences(60))]
    )


def tagged_data(folder: Path) -> Path:
    rows = [[f"{word} {'B-drink' if word in ('tea', 'water') else 'O'}" for word in row] for row in sentences(60)]
    return write_lines(folder / "tags.conll", [line for row in rows for line in (*row, "")])


def question_data(folder: Path) -> Path:
    rows = [
        {"question": f"what {i}?", "context": " ".join(row), "answers": {"text": [row[0]], "answer_start": [0]}}
        for i, row in enumerate(sentences(60))
    ]
    return write_lines(folder / "questions.jsonl", [json.dumps(row) for row in rows])


def pair_data(folder: Path) -> Path:
    return write_lines(
        folder / "similar.tsv", [f"{' '.join(r)} {i}\t{' '.join(r[::-1])} {i}" for i, r in enumerate(sentences(60))]
    )


def picture(file: Path, colour: str, number: int = 0) -> Path:
    noise = np.random.default_rng(number).integers(-10, 11, (8, 8, 3))
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)).save(file)
    return file


def picture_data(folder: Path) -> Path:
    for i in range(30):
        colour = [*COLOURS][i % 3]
        picture(folder / "pictures" / colour / f"{i}.png", colour, i)
    return folder / "pictures"


def caption_data(folder: Path) -> Path:
    colours = [[*COLOURS][i % 3] for i in range(30)]
    files = [picture(folder / "captions" / f"{i}.png", colour, i).name for i, colour in enumerate(colours)]
    rows = [f"{file}\ta {colour} box {i}" for i, (file, colour) in enumerate(zip(files, colours, strict=True))]
    write_lines(folder / "captions" / "captions.tsv", rows)
    return folder / "captions"


def sound(file: Path, hertz: float, number: int = 0) -> Path:
    noise = np.random.default_rng(number).normal(0, 300, 800)
    samples = (8000 * np.sin(np.arange(800) * 2 * np.pi * hertz / 8000) + noise).astype(np.int16)
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, 8000, len(samples), "NONE", ""))
        out.writeframes(samples.tobytes())
    return file


def speech_data(folder: Path) -> Path:
    words = [*WORDS]
    files = [sound(folder / f"{i}.wav", 300 + 200 * (i % 6), i).name for i in range(36)]
    return write_lines(
        folder / "speech.tsv", [f"{file}\t{words[i % 6]} {words[(i + 1) % 6]}" for i, file in enumerate(files)]
    )


class Recipe(NamedTuple):
    """How a tiny model is trained."""

    task: str
    data: Callable[[Path], Path]
    options: dict[str, Any]
    steps: int = 2


RECIPES = {
    "translate": Recipe("translate", translation_data, SEQ2SEQ | {"lr": 0.02}, 40),
    "write": Recipe("write", story_data, SIZES | {"model": "gpt", "layers": 1}, 30),
    "fill": Recipe("fill", documents_data, SIZES | {"model": "bert", "layers": 1}),
    "classify": Recipe("classify", labelled_data, SIZES | {"model": "bert", "layers": 1, "tokenizer": "characters"}),
    "regress": Recipe("regress", number_data, SIZES | {"model": "bert", "layers": 1, "tokenizer": "characters"}),
    "tag": Recipe("tag", tagged_data, SIZES | {"model": "bert", "layers": 1, "tokenizer": "characters"}),
    "answer": Recipe("answer", question_data, SIZES | {"model": "bert", "layers": 1, "tokenizer": "characters"}),
    "embed": Recipe("embed", pair_data, SIZES | {"model": "bert", "layers": 1, "tokenizer": "characters"}),
    "image": Recipe(
        "classify",
        picture_data,
        {"model": "vit", "dim": 16, "heads": 2, "hidden": 24, "layers": 1, "patch_size": 4, "batch_tokens": 300},
    ),
    "match": Recipe(
        "match",
        caption_data,
        {"model": "clip", "dim": 16, "heads": 2, "layers": 1, "patch_size": 4, "image_dim": 16, "image_layers": 1}
        | {"image_heads": 2, "projection_dim": 8, "context": 64, "batch_tokens": 300, "tokenizer": "characters"},
    ),
    "speech": Recipe(
        "translate", speech_data, SEQ2SEQ | {"model": "speech2text", "mels": 8, "tokenizer": "characters"}
    ),
    "recurrent": Recipe(
        "translate",
        translation_data,
        {"model": "recurrent", "dim": 16, "layers": 1, "context": 64, "batch_tokens": 300, "device": "cpu"},
    ),
}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model: translate, write, fill, classify, regress, tag, answer, embed, image, match ..."""
    folders: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in folders:
            recipe, folder = RECIPES[name], tmp_path_factory.mktemp(name)
            output = folder / name
            settings = {"steps": recipe.steps, "evals": 1, "seed": 1, "output_dir": output, **recipe.options}
            for _ in train(recipe.task, data=recipe.data(folder), **settings):
                pass
            folders[name] = output
        return folders[name]

    return folder_of


class Response(NamedTuple):
    status: int
    headers: dict[str, str]  # in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class LiveServer:
    """The application under uvicorn, in a thread of this process. The limits are those of `ServeOptions`."""

    def __init__(self, folders: dict[str, Path], **options: Any):
        from regard.serve.app import create_app
        from regard.serve.registry import ModelRegistry
        from regard.serve.serve_options import ServeOptions
        from regard.serve.server import DrainingServer, bind, url_of

        self.options = ServeOptions(port=0, **options)
        self.registry = ModelRegistry(folders, self.options)
        self.app = create_app(self.registry, self.options)
        self.listener = bind("127.0.0.1", 0)
        self.url, self.port = url_of(self.listener), int(self.listener.getsockname()[1])
        loops: SimpleQueue[asyncio.AbstractEventLoop] = SimpleQueue()
        self.server = DrainingServer(self.app, self.options, lambda: loops.put(asyncio.get_running_loop()))
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],), daemon=True)
        self.thread.start()
        self.loop = loops.get(timeout=60)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
        """Header names with _ for -."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, body, names, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return self._read(response.status, response)
        except urllib.error.HTTPError as error:
            return self._read(error.code, error)

    @staticmethod
    def _read(status: int, response: Any) -> Response:
        return Response(status, {name.lower(): value for name, value in response.headers.items()}, response.read())

    def get(self, path: str, **headers: str) -> Response:
        return self.request("GET", path, **headers)

    def post(self, path: str, content: object, **headers: str) -> Response:
        """`content` as JSON."""
        headers = {"Content_Type": "application/json"} | headers
        return self.request("POST", path, json.dumps(content).encode(), **headers)

    def raw(self, *pieces: bytes, timeout: float = 60.0) -> bytes:
        """All bytes that the server answers to these, until it closes the connection."""
        with self.connect(timeout) as connection:
            for piece in pieces:
                connection.sendall(piece)
            return read_all(connection)

    @staticmethod
    def read_response(connection: socket.socket) -> bytes:
        """One response with a Content-Length, from a connection that stays open."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(1)
        length = int(received.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while length:
            piece = connection.recv(length)
            received, length = received + piece, length - len(piece)
        return received

    def connect(self, timeout: float = 60.0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def wait_until_idle(self) -> None:
        """Until no job of any model waits or runs, and no request holds a model."""
        self.wait_for(lambda: all(not any(count) for count in map(self.job_counts, self.registry.served())))

    @staticmethod
    def job_counts(served: Any) -> tuple[int, int, int]:
        stats = served.scheduler.stats()
        return stats.waiting, stats.running, stats.kv_slots

    @staticmethod
    def wait_for(condition: Callable[[], bool], timeout: float = 60.0) -> None:
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, "the condition did not come true"
            time.sleep(0.01)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


@pytest.fixture(scope="module")
def start_server(model_folder: Callable[[str], Path]) -> Iterator[Callable[..., LiveServer]]:
    """Starts servers, which end with the module: start_server("translate", api_key="k", detect="classify")."""
    servers: list[LiveServer] = []

    def start(*names: str, folders: dict[str, Path] | None = None, **options: Any) -> LiveServer:
        servers.append(LiveServer({name: model_folder(name) for name in names} | (folders or {}), **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def server(model_folder: Callable[[str], Path]) -> Iterator[LiveServer]:
    """One server with the models of all tasks of text."""
    live = LiveServer({name: model_folder(name) for name in TEXT_TASKS}, detect="classify")
    yield live
    live.stop()
