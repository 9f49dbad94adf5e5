"""The folder in llama.cpp, through llama-cpp-python's bindings: F32 and Q8_0.

Its C functions are called as they are: a batch goes in, the logits are read where they lie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.bench.backend import Asked, Rows, Runner, installed
from regard.bench.peers.gguf import why_not, write_gguf
from regard.tasks.write import Write

MOST = 8192  # tokens given at once


def llama(asked: Asked) -> list[Runner] | str:
    if not isinstance(asked.loaded.task, Write):
        return "cannot read this folder: it only writes"
    if reason := installed("llama_cpp", "gguf") or why_not(asked.loaded.model.body.config):
        return reason
    return [runner(asked, numbers) for numbers in ("fp32", "int8")]


def runner(asked: Asked, numbers: str) -> Runner:
    file = asked.room / f"{numbers}.gguf"
    write_gguf(file, asked.loaded, numbers)
    model = Model(str(file), asked.loaded.model.body.config.vocab, asked.threads)

    def write(rows: Rows, tokens: int, beam: int) -> list[list[int]]:
        if beam > 1:
            raise ValueError("llama.cpp has no beam search")
        return model.write(rows, tokens)

    return Runner("llama.cpp", numbers, write=write)


class Model:
    """A file, and a context for each number of rows."""

    def __init__(self, file: str, vocab: int, threads: int):
        import llama_cpp

        self.c: Any = llama_cpp
        self.vocab, self.threads = vocab, threads
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise ValueError("llama.cpp cannot load what was made for it")
        self.contexts: dict[int, tuple[int, Any]] = {}  # by the number of rows
        self.batch = llama_cpp.llama_batch_init(MOST, 0, 1)

    def open(self, rows: int, tokens: int) -> None:
        """An empty context for rows of so many tokens."""
        room, self.context = self.contexts.get(rows, (0, None))
        if room >= tokens:
            self.c.llama_memory_clear(self.c.llama_get_memory(self.context), True)
            return
        if self.context is not None:
            self.c.llama_free(self.context)
        how = self.c.llama_context_default_params()
        how.n_ctx, how.n_batch, how.n_seq_max = rows * tokens, MOST, rows
        how.n_threads = how.n_threads_batch = self.threads
        self.context = self.c.llama_init_from_model(self.model, how)
        if not self.context:
            raise ValueError(f"llama.cpp cannot make a context of {rows} rows of {tokens} tokens")
        self.contexts[rows] = tokens, self.context

    def write(self, rows: Rows, tokens: int) -> list[list[int]]:
        """Greedily; all rows are as long as the first."""
        start = len(rows[0])
        self.open(len(rows), start + tokens)
        found: list[list[int]] = [[] for _ in rows]
        new: Rows = rows
        for time in range(tokens):
            at = 0 if time == 0 else start + time - 1
            logits = self.step(new, at)
            for row, each in zip(found, logits, strict=True):
                row.append(int(each.argmax()))
            new = [row[-1:] for row in found]
        return found

    def step(self, rows: Rows, at: int) -> list[np.ndarray[Any, Any]]:
        """The logits (V,) after the last token of each row."""
        if (count := sum(map(len, rows))) > MOST:
            raise ValueError(f"llama.cpp is given at most {MOST} tokens at once here, not {count}")
        batch, n = self.batch, 0
        for number, row in enumerate(rows):
            for place, token in enumerate(row):
                batch.token[n], batch.pos[n] = token, at + place
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, number
                batch.logits[n] = place == len(row) - 1
                n += 1
        batch.n_tokens = n
        if self.c.llama_decode(self.context, batch):
            raise ValueError("llama.cpp cannot decode")
        ends = np.cumsum([len(row) for row in rows]) - 1
        pointers = [self.c.llama_get_logits_ith(self.context, int(end)) for end in ends]
        return [np.ctypeslib.as_array(pointer, shape=(self.vocab,)) for pointer in pointers]
