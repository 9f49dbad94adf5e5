"""A plain FastAPI server around CTranslate2, the peer of `regard serve`: OpenAI completions and LibreTranslate's route.

    python benchmarks/ctranslate2_server.py FOLDER TOKENIZER --batching none|dynamic [--port 8000]

    none       each request is a call of generate_batch or translate_batch in a thread; CTranslate2 queues the calls
    dynamic    a worker takes all requests that wait, at most --max-batch, and runs them as one batch

Greedy GPT-2 answers stream, by the callback that CTranslate2 calls with every token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ctranslate2
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from tokenizers import Tokenizer

END = None  # after the last token of an answer


@dataclass
class Job:
    tokens: list[str]
    max_tokens: int
    beam_size: int = 1
    ids: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)
    answer: list[str] = field(default_factory=list)


class Worker:
    """Runs jobs on one model: one call for each, or one call for all that wait."""

    def __init__(self, folder: str, threads: int, workers: int, batching: str, max_batch: int):
        options = {"device": "cpu", "compute_type": "default", "intra_threads": threads, "inter_threads": workers}
        spec = json.loads((Path(folder) / "config.json").read_text())
        self.is_translator = "decoder_start_token" in spec
        self.model: Any = (ctranslate2.Translator if self.is_translator else ctranslate2.Generator)(folder, **options)
        self.batching, self.workers, self.max_batch = batching, workers, max_batch
        self.waiting: asyncio.Queue[Job] = asyncio.Queue()

    async def submit(self, job: Job) -> asyncio.Task[None] | None:
        if self.batching == "dynamic":
            await self.waiting.put(job)
            return None
        return asyncio.create_task(self.run([job]))

    async def loop(self) -> None:
        while True:
            jobs = [await self.waiting.get()]
            while not self.waiting.empty() and len(jobs) < self.max_batch:
                jobs.append(self.waiting.get_nowait())
            await self.run(jobs)

    async def run(self, jobs: list[Job]) -> None:
        loop = asyncio.get_running_loop()
        call = self.translate if self.is_translator else self.generate
        await asyncio.to_thread(call, jobs, loop)

    def generate(self, jobs: list[Job], loop: asyncio.AbstractEventLoop) -> None:
        counts = [0] * len(jobs)

        def on_token(step: Any) -> bool:
            """Returns whether this row has all its tokens."""
            i = step.batch_id
            counts[i] += 1
            if counts[i] <= jobs[i].max_tokens:
                loop.call_soon_threadsafe(jobs[i].ids.put_nowait, step.token_id)
            if counts[i] == jobs[i].max_tokens:
                loop.call_soon_threadsafe(jobs[i].ids.put_nowait, END)
            return counts[i] >= jobs[i].max_tokens

        longest = max(job.max_tokens for job in jobs)
        options = {"beam_size": 1, "min_length": longest, "max_length": longest, "include_prompt_in_result": False}
        self.model.generate_batch([job.tokens for job in jobs], callback=on_token, **options)

    def translate(self, jobs: list[Job], loop: asyncio.AbstractEventLoop) -> None:
        results = self.model.translate_batch([job.tokens for job in jobs], beam_size=max(j.beam_size for j in jobs))
        for job, result in zip(jobs, results, strict=True):
            job.answer = result.hypotheses[0]
            loop.call_soon_threadsafe(job.ids.put_nowait, END)


def create_app(worker: Worker, tokenizer: Tokenizer) -> FastAPI:
    app = FastAPI()
    background: set[asyncio.Task[None] | None] = set()

    @app.on_event("startup")
    async def start() -> None:
        for _ in range(worker.workers if worker.batching == "dynamic" else 0):
            background.add(asyncio.create_task(worker.loop()))

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/completions")
    async def completions(body: dict[str, Any]) -> StreamingResponse:
        tokens = tokenizer.encode(body["prompt"]).tokens
        job = Job(tokens, body["max_tokens"])
        task = await worker.submit(job)
        background.add(task)

        async def events() -> AsyncIterator[str]:
            count = 0
            while (token := await job.ids.get()) is not END:
                count += 1
                yield sse({"choices": [{"index": 0, "text": tokenizer.decode([token])}]})
            usage = {"prompt_tokens": len(tokens), "completion_tokens": count}
            yield sse({"choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": usage})
            yield "data: [DONE]\n\n"
            background.discard(task)

        return StreamingResponse(events(), media_type="text/event-stream")

    @app.post("/translate")
    async def translate(body: dict[str, Any]) -> dict[str, Any]:
        job = Job(tokenizer.encode(body["q"]).tokens, 0, body.get("num_beams", 1))
        task = await worker.submit(job)
        background.add(task)
        await job.ids.get()
        background.discard(task)
        text = tokenizer.decode([tokenizer.token_to_id(token) for token in job.answer])
        return {"translatedText": text}

    return app


def sse(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="folder of CTranslate2's converter")
    parser.add_argument("tokenizer", help="tokenizer.json")
    parser.add_argument("--batching", choices=("none", "dynamic"), default="none")
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2, help="of one batch")
    parser.add_argument("--workers", type=int, default=1, help="batches that run at the same time")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    worker = Worker(args.folder, args.threads, args.workers, args.batching, args.max_batch)
    app = create_app(worker, Tokenizer.from_file(args.tokenizer))
    uvicorn.run(app, host="127.0.0.1", port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
