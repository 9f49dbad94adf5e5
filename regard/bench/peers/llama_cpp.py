"""llama.cpp, through the C API of llama-cpp-python: F32 and Q8_0.

Batches go in directly, and the logits are read without a copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from regard.bench.backend import Backend, BackendArgs, TokenRows, install_hint
from regard.bench.peers.gguf import unsupported_reason, write_gguf
from regard.check.causality import is_seq2seq

MAX_BATCH_TOKENS = 8192  # tokens of one llama_decode call


def llama_cpp_backends(args: BackendArgs) -> list[Backend] | str:
    if not args.loaded.task.generates or is_seq2seq(args.loaded.task):
        return "cannot read this folder: llama.cpp only generates text here"
    if reason := install_hint("llama_cpp", "gguf") or unsupported_reason(args.loaded.model.body.config):
        return reason
    return [build_backend(args, precision) for precision in ("fp32", "int8")]


def build_backend(args: BackendArgs, precision: str) -> Backend:
    file = args.workdir / f"{precision}.gguf"
    write_gguf(file, args.loaded, precision)
    model = LlamaCppModel(str(file), args.loaded.model.body.config.vocab, args.threads)

    def generate(rows: TokenRows, tokens: int, num_beams: int) -> list[list[int]]:
        if num_beams > 1:
            raise ValueError("llama.cpp has no beam search")
        return model.generate(rows, tokens)

    return Backend("llama.cpp", precision, generate=generate)


class LlamaCppModel:
    """A loaded file, and one context for each batch size."""

    def __init__(self, file: str, vocab: int, threads: int):
        import llama_cpp

        self.c: Any = llama_cpp
        self.vocab, self.threads = vocab, threads
        self.log_callback = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.log_callback, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise ValueError("llama.cpp cannot load the GGUF file")
        self.contexts: dict[int, tuple[int, object]] = {}  # batch size -> (tokens of a row, context)
        self.batch = llama_cpp.llama_batch_init(MAX_BATCH_TOKENS, 0, 1)

    def reset_context(self, rows: int, tokens: int) -> None:
        """An empty context for rows of up to `tokens` tokens."""
        capacity, self.context = self.contexts.get(rows, (0, None))
        if capacity >= tokens:
            self.c.llama_memory_clear(self.c.llama_get_memory(self.context), True)
            return
        if self.context is not None:
            self.c.llama_free(self.context)
        options = self.c.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_seq_max = rows * tokens, MAX_BATCH_TOKENS, rows
        options.n_threads = options.n_threads_batch = self.threads
        self.context = self.c.llama_init_from_model(self.model, options)
        if not self.context:
            raise ValueError(f"llama.cpp cannot create a context for {rows} rows of {tokens} tokens")
        self.contexts[rows] = tokens, self.context

    def generate(self, rows: TokenRows, tokens: int) -> list[list[int]]:
        """Greedy decoding; all rows have the length of the first."""
        start = len(rows[0])
        self.reset_context(len(rows), start + tokens)
        generated: list[list[int]] = [[] for _ in rows]
        new: TokenRows = rows
        for step in range(tokens):
            position = 0 if step == 0 else start + step - 1
            for row, logits in zip(generated, self.decode(new, position), strict=True):
                row.append(int(logits.argmax()))
            new = [row[-1:] for row in generated]
        return generated

    def decode(self, rows: TokenRows, position: int) -> list[npt.NDArray[np.float32]]:
        """The logits (V,) after the last token of each row; the rows start at `position`."""
        if (count := sum(map(len, rows))) > MAX_BATCH_TOKENS:
            raise ValueError(f"the llama.cpp backend takes at most {MAX_BATCH_TOKENS} tokens at once, not {count}")
        batch, n = self.batch, 0
        for number, row in enumerate(rows):
            for offset, token in enumerate(row):
                batch.token[n], batch.pos[n] = token, position + offset
                batch.n_seq_id[n], batch.seq_id[n][0] = 1, number
                batch.logits[n] = offset == len(row) - 1
                n += 1
        batch.n_tokens = n
        if self.c.llama_decode(self.context, batch):
            raise ValueError("llama_decode of llama.cpp failed")
        ends = np.cumsum([len(row) for row in rows]) - 1
        pointers = [self.c.llama_get_logits_ith(self.context, int(end)) for end in ends]
        return [np.ctypeslib.as_array(pointer, shape=(self.vocab,)) for pointer in pointers]
