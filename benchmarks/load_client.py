"""A load generator in a process of its own: N clients, each with one connection and one request at a time.

    python benchmarks/load_client.py < spec.json > result.json

    spec      {"url", "clients", "seconds", "ramp", "max_ramp", "requests": [{"path", "body"}, ...], "headers"?}
    result    {"ramp", "seconds", "answers": [{"number", "start", "end", "status", "chunks": [times], "tokens", ...}]}

Plain asyncio streams and no parsing before the end, so that it takes little of the processors it shares with the
server. The clients take requests from one list, start over at its end, and stop when the time is over; running
requests are finished, but only what happens in the window counts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Answer:
    """One request and its answer; the times are those of time.perf_counter()."""

    number: int
    start: float
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    end: float = 0.0
    error: str = ""

    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


class Connection:
    """One keep-alive connection of HTTP/1.1."""

    def __init__(self, url: str):
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def send(self, path: str, body: bytes, headers: dict[str, str] | None = None, method: str = "POST") -> bool:
        """Returns whether the connection was open already."""
        was_open = self.writer is not None
        if self.writer is None or self.writer.is_closing() or (self.reader and self.reader.at_eof()):
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in {"Content-Type": "application/json", **(headers or {})}.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await self.writer.drain()
        return was_open

    async def receive(self, answer: Answer) -> None:
        assert self.reader is not None
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        answer.status = int(head[0].split(" ")[1])
        answer.headers = {
            k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)
        }
        if "chunked" in answer.headers.get("transfer-encoding", ""):
            while size := int((await self.reader.readline()).split(b";")[0], 16):
                piece = await self.reader.readexactly(size + 2)
                answer.pieces.append((time.perf_counter(), piece[:-2]))
            await self.reader.readline()
        else:
            length = answer.headers.get("content-length")
            piece = await (self.reader.readexactly(int(length)) if length else self.reader.read())
            answer.pieces.append((time.perf_counter(), piece))
        if answer.headers.get("connection", "") == "close":
            self.close()

    def close(self) -> None:
        """Abort: the server sees a client that left."""
        if self.writer is not None:
            self.writer.transport.abort()
        self.reader = self.writer = None


async def request(connection: Connection, number: int, path: str, body: Any, headers: dict[str, str]) -> Answer:
    answer = Answer(number, time.perf_counter())
    data = json.dumps(body).encode()
    try:
        was_open = await connection.send(path, data, headers)
        try:
            await connection.receive(answer)
        except (ConnectionError, asyncio.IncompleteReadError):
            if not was_open or answer.status:
                raise
            connection.close()  # the server closed an idle connection while the request was on its way
            await connection.send(path, data, headers)
            await connection.receive(answer)
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        answer.error = f"{type(error).__name__}: {error}"
        connection.close()
    answer.end = time.perf_counter()
    return answer


def parse(answer: Answer, start: float) -> dict[str, Any]:
    """Times relative to `start`, the texts of a stream with their times, and the number of tokens."""
    result: dict[str, Any] = {"number": answer.number, "status": answer.status, "error": answer.error}
    result |= {"start": answer.start - start, "end": answer.end - start, "chunks": [], "text": "", "tokens": 0}
    if answer.status != 200:
        return result | {"body": answer.body().decode(errors="replace")[:300], "headers": answer.headers}
    if "event-stream" not in answer.headers.get("content-type", ""):
        return result | {"chunks": [answer.end - start], "json": json.loads(answer.body())}
    rest, usage = b"", None
    for at, piece in answer.pieces:
        *events, rest = (rest + piece).split(b"\n\n")
        for event in events:
            data = b"".join(line[5:] for line in event.split(b"\n") if line.startswith(b"data:")).strip()
            if not data or data == b"[DONE]":
                continue
            chunk = json.loads(data)
            usage = chunk.get("usage") or usage
            if chunk.get("error"):
                result["error"] = str(chunk["error"])
            texts = [choice.get("text") or "" for choice in chunk.get("choices", [])]
            if any(texts):
                result["chunks"].append(at - start)
                result["text"] += "".join(texts)
    result["tokens"] = usage["completion_tokens"] if usage else len(result["chunks"])
    result["prompt_tokens"] = usage["prompt_tokens"] if usage else None
    return result


async def run_clients(spec: dict[str, Any]) -> dict[str, Any]:
    """All answers. The window of the measurement begins when every client has had an answer, at the earliest after
    `ramp` seconds and at the latest after `max_ramp`: before, all requests are at the same stage."""
    numbers, requests = count(), spec["requests"]
    answers: list[Answer] = []
    warming = spec["clients"]
    start = time.perf_counter()
    begin = start + spec["max_ramp"]

    def end_of_window() -> float:
        return begin + spec["seconds"]

    async def client() -> None:
        nonlocal warming, begin
        connection, is_first = Connection(spec["url"]), True
        while time.perf_counter() < end_of_window():
            number = next(numbers)
            item = requests[number % len(requests)]
            answer = await request(connection, number, item["path"], item["body"], spec.get("headers", {}))
            answers.append(answer)
            if is_first:
                is_first, warming = False, warming - 1
                if not warming:
                    begin = min(begin, max(start + spec["ramp"], time.perf_counter()))
            if answer.status in (429, 503):
                wait = float(answer.headers.get("retry-after", "1"))
                await asyncio.sleep(max(0.0, min(wait, end_of_window() - time.perf_counter())))
            elif answer.status != 200 or answer.error:
                await asyncio.sleep(0.05)
        connection.close()

    await asyncio.gather(*(client() for _ in range(spec["clients"])))
    parsed = [parse(answer, start) for answer in answers]
    return {"ramp": begin - start, "seconds": spec["seconds"], "answers": parsed}


if __name__ == "__main__":
    json.dump(asyncio.run(run_clients(json.load(sys.stdin))), sys.stdout)
