"""The checks of benchmarks/serve_soak.py: each returns whether it passed, and its numbers."""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from load_client import Answer, Connection, parse, request
from serve_models import text_requests
from serve_peers import Server, regard_server

GAUGES = ("regard_running_requests", "regard_queue_requests", "regard_queue_tokens", "regard_kv_slots")
PATH = "/v1/completions"
SETTLE_SECONDS = 10.0  # for gauges to return to zero
HEADER_TIMEOUT, BODY_TIMEOUT = 5, 5
CLIENTS = 32


@asynccontextmanager
async def started(args: argparse.Namespace, *options: str) -> AsyncIterator[Server]:
    """A server that has answered once."""
    server = regard_server(args.folder, args.speed, args.threads, *options)
    await asyncio.to_thread(server.start, args.workdir)
    try:
        await ask(server, {"prompt": "a", "max_tokens": 1})
        yield server
    finally:
        await asyncio.to_thread(server.stop)


async def ask(server: Server, item: dict[str, Any], number: int = 0, **fields: Any) -> dict[str, Any]:
    """One request on a connection of its own."""
    connection = Connection(server.url)
    answer = await request(connection, number, PATH, {"model": "model", "temperature": 0} | item | fields, {})
    connection.close()
    return parse(answer, 0.0)


def make_items(args: argparse.Namespace, count: int, seed: int) -> list[dict[str, Any]]:
    """Random lengths; every third request is sampled with a seed of its own."""
    items = [*islice(text_requests(args.folder, seed, (4, args.max_prompt), (4, args.max_output)), count)]
    for number, item in enumerate(items):
        if number % 3 == 2:
            item |= {"temperature": 0.8, "top_p": 0.95, "seed": number}
    return items


async def check_same(args: argparse.Namespace, *options: str) -> tuple[bool, str]:
    """Compares texts and log-probabilities. Under load the requests start within a quarter of the time that they take
    one by one, so that many run at once."""
    items = make_items(args, args.requests, seed=1)
    async with started(args, *options) as server:
        start = time.perf_counter()
        single = [choice(await ask(server, item, logprobs=0)) for item in items]
        seconds = time.perf_counter() - start
        busy = 0.0

        async def at_random_time(number: int) -> dict[str, Any]:
            nonlocal busy
            await asyncio.sleep(random.Random(number).random() * seconds / 4)
            answer = await ask(server, items[number], number, logprobs=0)
            busy += answer["end"] - answer["start"]
            return choice(answer)

        start = time.perf_counter()
        loaded = await asyncio.gather(*(at_random_time(number) for number in range(len(items))))
        loaded_seconds = time.perf_counter() - start
    texts = sum(a["text"] == b["text"] for a, b in zip(loaded, single, strict=True))
    bits = sum(a == b for a, b in zip(loaded, single, strict=True))
    shown = f"{texts} of {len(items)} texts equal, {bits} with equal bits of all log-probabilities"
    shown += f"; {seconds:.0f} s one by one, {loaded_seconds:.0f} s with {busy / loaded_seconds:.1f} at a time"
    return texts == len(items) and (bits == len(items) or "--reproducible" not in options), shown


async def check_bits(args: argparse.Namespace) -> tuple[bool, str]:
    return await check_same(args, "--reproducible")


def choice(answer: dict[str, Any]) -> dict[str, Any]:
    if "json" not in answer:
        raise SystemExit(f"a request failed: {answer}")
    first = answer["json"]["choices"][0]
    return {"text": first["text"], "logprobs": first["logprobs"]["token_logprobs"], "reason": first["finish_reason"]}


async def check_killed(args: argparse.Namespace) -> tuple[bool, str]:
    """Half of the clients stream, the others wait for a plain answer; all leave before it is complete."""
    items = make_items(args, args.killed, seed=2)
    async with started(args) as server:

        async def leave(number: int) -> bool:
            """Whether the server was still answering."""
            connection, rng = Connection(server.url), random.Random(number)
            body = {"model": "model", **items[number], "max_tokens": args.long_output, "stream": number % 2 == 0}
            task = asyncio.create_task(request(connection, number, PATH, body, {}))
            await asyncio.sleep(rng.random() * args.patience)
            was_running = not task.done()
            connection.close()
            answer = await task
            return was_running and answer.status in (0, 200)

        running = sum(await asyncio.gather(*(leave(number) for number in range(args.killed))))
        left = time.perf_counter()
        while any((gauges := read_gauges(server)).values()) and time.perf_counter() - left < SETTLE_SECONDS:
            await asyncio.sleep(0.05)
        seconds = time.perf_counter() - left
        after = await ask(server, items[0])
    shown = ", ".join(f"{name.removeprefix('regard_')} {value:g}" for name, value in gauges.items())
    shown = f"{running} of {args.killed} clients left in the middle; {seconds:.2f} s after the last: {shown}"
    passed = running > 0.9 * args.killed and not any(gauges.values()) and after["status"] == 200
    return passed, f"{shown}; status of the next request {after['status']}"


def read_gauges(server: Server) -> dict[str, float]:
    """Sums over all models."""
    text = server.metrics()
    return {name: sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))) for name in GAUGES}


async def check_slow(args: argparse.Namespace) -> tuple[bool, str]:
    """Latency of short requests without and with 50 + 50 slow senders."""
    items = make_items(args, args.probes, seed=3)
    limits = ("--header-timeout", str(HEADER_TIMEOUT), "--body-timeout", str(BODY_TIMEOUT))
    async with started(args, *limits) as server:
        before = await latencies(server, items)
        senders = [asyncio.create_task(send_slowly(server, half_body=number % 2 == 0)) for number in range(100)]
        await asyncio.sleep(0.5)
        during = await latencies(server, items)
        ends = await asyncio.gather(*senders)
    slowest = max(ends)
    shown = f"median {1e3 * median(before):.0f} ms alone, {1e3 * median(during):.0f} ms beside 100 slow senders"
    shown += f" (slowest {1e3 * max(before):.0f} and {1e3 * max(during):.0f} ms)"
    passed = median(during) < 1.5 * median(before) and slowest < 2 * max(HEADER_TIMEOUT, BODY_TIMEOUT)
    return passed, f"{shown}; the server ended all of them within {slowest:.1f} s"


async def latencies(server: Server, items: list[dict[str, Any]]) -> list[float]:
    seconds = []
    for item in items:
        answer = await ask(server, item, max_tokens=8)
        if answer["status"] != 200:
            raise SystemExit(f"a request failed: {answer}")
        seconds.append(answer["end"] - answer["start"])
    return seconds


async def send_slowly(server: Server, half_body: bool) -> float:
    """Seconds until the server ended the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    start = time.perf_counter()
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write((head + 'Content-Length: 1000\r\n\r\n{"model": ').encode() if half_body else head.encode())

    async def drip() -> None:
        while not half_body:
            await asyncio.sleep(0.5)
            writer.write(b"X")

    dripping = asyncio.create_task(drip())
    try:
        while await asyncio.wait_for(reader.read(1000), 60):
            pass
    except (OSError, TimeoutError):
        pass
    dripping.cancel()
    writer.transport.abort()
    return time.perf_counter() - start


async def load(server: Server, args: argparse.Namespace, stop: Callable[[], bool], answers: list[Answer]) -> None:
    """CLIENTS clients that ask again and again, until `stop` or the end of the server."""
    items = make_items(args, 2_000, seed=4)
    numbers = iter(range(10**9))

    async def client() -> None:
        connection = Connection(server.url)
        while not stop():
            number = next(numbers)
            body = {"model": "model", "temperature": 0, "stream": number % 2 == 0} | items[number % len(items)]
            answer = await request(connection, number, PATH, body, {})
            answers.append(answer)
            if answer.status == 429:
                await asyncio.sleep(0.2)
            elif answer.status != 200:
                await asyncio.sleep(0.01)
        connection.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def check_soak(args: argparse.Namespace) -> tuple[bool, str]:
    samples: list[tuple[float, float]] = []
    answers: list[Answer] = []
    async with started(args) as server:
        end = time.perf_counter() + 60 * args.minutes
        task = asyncio.create_task(load(server, args, lambda: time.perf_counter() > end, answers))
        begin = time.perf_counter()
        while not task.done():
            samples.append((time.perf_counter() - begin, resident_mb(server)))
            await asyncio.sleep(1)
        await task
    warm = 60.0 if args.minutes > 1.5 else 30 * args.minutes
    first = next(rss for at, rss in samples if at >= warm)
    last, peak = samples[-1][1], max(rss for _, rss in samples)
    statuses = {status: sum(a.status == status for a in answers) for status in {a.status for a in answers}}
    change = last / first - 1
    shown = f"resident {first:.0f} MB after {warm:.0f} s, {last:.0f} MB after {args.minutes:g} min ({change:+.1%})"
    passed = abs(change) <= 0.02 and set(statuses) <= {200, 429}
    return passed, f"{shown}, peak {peak:.0f} MB; requests by status {statuses}"


def resident_mb(server: Server) -> float:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) / 1024


async def check_sigterm(args: argparse.Namespace) -> tuple[bool, str]:
    """Requests that were sent before the signal; those sent later may be refused."""
    answers: list[Answer] = []
    is_over = False
    async with started(args, "--drain-timeout", "60") as server:
        task = asyncio.create_task(load(server, args, lambda: is_over, answers))
        await asyncio.sleep(args.seconds_before_sigterm)
        sent = time.perf_counter()
        server.signal(signal.SIGTERM)
        is_over = True
        await task
        assert server.process is not None
        code = await asyncio.to_thread(server.process.wait, 90)
    accepted = [a for a in answers if a.start < sent]
    lost = [a for a in accepted if a.status not in (200, 429) or a.error or not is_complete(a)]
    running = sum(a.end > sent for a in accepted)
    shown = f"{len(accepted)} requests before SIGTERM, {running} of them running: {len(lost)} lost; exit code {code}"
    return not lost and code == 0 and running > 0, shown + (f"; first lost: {lost[0]}"[:300] if lost else "")


def is_complete(answer: Answer) -> bool:
    is_stream = "event-stream" in answer.headers.get("content-type", "")
    return not is_stream or answer.body().rstrip().endswith(b"data: [DONE]")
