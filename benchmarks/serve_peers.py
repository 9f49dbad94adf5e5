"""The servers that benchmarks/serve.py compares: how each is started, asked and paused."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve_models import ctranslate2_folder, gguf_file

HERE = Path(__file__).parent
REGARD = [sys.executable, "-m", "regard", "serve"]
SLOTS, CONTEXT = 8, 1024  # of llama.cpp's server
GREEDY = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
START_SECONDS = 300


@dataclass
class Server:
    """A server process on a free port of the loopback interface."""

    name: str
    precision: str
    command: list[str]
    health: str = "/health"
    fields: dict[str, Any] = field(default_factory=dict)  # of every request, beside its own
    path: str = "/v1/completions"
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def title(self) -> str:
        return f"{self.name} {self.precision}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, logs: Path) -> None:
        self.port = free_port()
        log = (logs / f"{self.title.replace(' ', '-').replace('/', '-')}.log").open("wb")
        command = [part.replace("{port}", str(self.port)) for part in self.command]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(), start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.title} does not start: see {log.name}")
            time.sleep(0.2)

    def is_ready(self) -> bool:
        with (
            suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(self.url + self.health, timeout=5) as answer,
        ):
            return bool(answer.status == 200)
        return False

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    def requests(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"path": self.path, "body": self.fields | item} for item in items]

    def pause(self) -> None:
        """No server but the measured one may take processor time, as some poll when they are idle."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.resume()
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
                self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    return os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def regard_server(folder: Path, speed: str, threads: int, *options: str, name: str = "regard") -> Server:
    command = [*REGARD, f"model={folder}", "--port", "{port}", "--speed", speed]
    command += ["--threads", str(threads), *options]
    fields = {"model": "model"} | GREEDY
    return Server(name, "fp32" if speed == "exact" else "int8", command, "/health/ready", fields)


def llama_server(folder: Path, workdir: Path, precision: str, threads: int, binary: str) -> Server:
    command = [binary, "-m", str(gguf_file(folder, workdir, precision)), "--port", "{port}"]
    command += ["-t", str(threads), "-tb", str(threads), "-np", str(SLOTS), "-c", str(SLOTS * CONTEXT)]
    return Server("llama.cpp", precision, command, fields={"ignore_eos": True} | GREEDY)


def transformers_server(folder: Path, threads: int) -> Server:
    """Continuous batching with a cache of 16,384 tokens; by default it takes most of the machine's memory."""
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder), "--port", "{port}"]
    command += ["--continuous-batching", "--device", "cpu", "--dtype", "float32", "--attn-implementation", "sdpa"]
    command += ["--cb-block-size", "32", "--cb-num-blocks", "512", "--cb-max-batch-tokens", "512"]
    command = ["env", f"OMP_NUM_THREADS={threads}", *command]
    return Server("transformers", "fp32", command, fields={"model": str(folder), "temperature": 0, "stream": True})


def ctranslate2_server(
    folder: Path, workdir: Path, precision: str, batching: str, threads: int, workers: int
) -> Server:
    """`workers` batches at the same time, each on `threads` threads."""
    model = ctranslate2_folder(folder, workdir, precision)
    command = [sys.executable, str(HERE / "ctranslate2_server.py"), str(model), str(folder / "tokenizer.json")]
    command += ["--batching", batching, "--threads", str(threads), "--workers", str(workers), "--port", "{port}"]
    name = "CTranslate2" + " dynamic" * (batching == "dynamic") + f" {workers} workers" * (workers > 1)
    return Server(name, precision, command)


def ctranslate2_servers(folder: Path, workdir: Path, threads: int) -> Iterator[Server | str]:
    """One request or all waiting ones at a time; all threads for a batch, or a batch on every thread."""
    if missing := missing_packages("ctranslate2", "fastapi", "uvicorn"):
        yield f"CTranslate2: pip install ctranslate2 fastapi uvicorn (no {missing})"
        return
    for precision in ("fp32", "int8"):
        for batching in ("none", "dynamic"):
            yield ctranslate2_server(folder, workdir, precision, batching, threads, 1)
            yield ctranslate2_server(folder, workdir, precision, batching, 1, threads)


def gpt_peers(folder: Path, workdir: Path, threads: int, llama_binary: str | None) -> Iterator[Server | str]:
    """The peers, or why one is missing."""
    for precision in ("fp32", "int8"):
        if llama_binary is None:
            yield "llama.cpp: build llama-server from the sources in llama-cpp-python's sdist, and pass --llama-server"
        else:
            yield llama_server(folder, workdir, precision, threads, llama_binary)
    if missing := missing_packages("transformers", "fastapi", "uvicorn", "openai"):
        yield f'transformers: pip install "transformers[serving]" (no {missing})'
    else:
        yield transformers_server(folder, threads)
    yield from ctranslate2_servers(folder, workdir, threads)


def missing_packages(*names: str) -> str:
    return ", ".join(name for name in names if importlib.util.find_spec(name) is None)


class Library:
    """The scheduler without a server, in a process of its own: the same jobs, no HTTP."""

    def __init__(self, folder: Path, speed: str, threads: int):
        self.name, self.precision = "scheduler without a server", "fp32" if speed == "exact" else "int8"
        self.command = [sys.executable, str(HERE / "serve_library.py"), str(folder), speed, str(threads)]
        self.process: subprocess.Popen[str] | None = None

    @property
    def title(self) -> str:
        return f"{self.name} {self.precision}"

    def start(self, logs: Path) -> None:
        pipe = subprocess.PIPE
        log = (logs / f"{self.title.replace(' ', '-')}.log").open("wb")
        self.process = subprocess.Popen(
            self.command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment(), start_new_session=True
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit(f"{self.title} does not start: see {log.name}")

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(spec) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def requests(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return items

    def pause(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.resume()
            self.process.kill()
            self.process.wait()
