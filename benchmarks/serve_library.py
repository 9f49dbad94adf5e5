"""The scheduler as a library: the jobs of benchmarks/serve.py without HTTP. Reads specs, prints results, as JSON lines.

python benchmarks/serve_library.py FOLDER exact|int8 THREADS
"""

from __future__ import annotations

import json
import sys
import time
from itertools import count
from queue import SimpleQueue
from typing import Any

from regard.load import load
from regard.scheduler import Done, Event, Failed, Scheduler, Token


def run_jobs(scheduler: Scheduler, spec: dict[str, Any]) -> dict[str, Any]:
    """`clients` jobs at a time; window and result are those of load_client.py."""
    start = time.perf_counter()
    begin = start + spec["max_ramp"]
    ends: SimpleQueue[dict[str, Any]] = SimpleQueue()
    numbers = count()

    def submit() -> None:
        number = next(numbers)
        item = spec["requests"][number % len(spec["requests"])]
        answer = {"number": number, "start": time.perf_counter() - start, "chunks": [], "status": 200, "error": ""}

        def listener(event: Event) -> None:
            now = time.perf_counter() - start
            if isinstance(event, Token):
                answer["chunks"].append(now)
            elif isinstance(event, Done):
                ends.put(answer | {"end": now, "tokens": event.completion_tokens})
            elif isinstance(event, Failed):
                ends.put(answer | {"end": now, "tokens": 0, "status": 500, "error": str(event.error)})

        if "prompt" in item:
            options = scheduler.loaded.make_options(temperature=0, max_new_tokens=item["max_tokens"])
            scheduler.submit(item["prompt"], options, listener=listener)
        else:
            scheduler.submit(item["q"], scheduler.loaded.make_options(), listener=listener)

    for _ in range(spec["clients"]):
        submit()
    answers, running, waiting = [], spec["clients"], set(range(spec["clients"]))
    while running:
        answers.append(ends.get())
        waiting.discard(answers[-1]["number"])
        if not waiting and begin == start + spec["max_ramp"]:
            begin = min(begin, max(start + spec["ramp"], time.perf_counter()))
        running -= 1
        if time.perf_counter() < begin + spec["seconds"]:
            submit()
            running += 1
    return {"ramp": begin - start, "seconds": spec["seconds"], "answers": answers}


def main() -> None:
    folder, speed, threads = sys.argv[1:]
    scheduler = Scheduler(load(folder, speed=speed, threads=int(threads)))
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run_jobs(scheduler, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
