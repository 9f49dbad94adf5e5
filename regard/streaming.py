"""Streaming: the text of a model, piece by piece, while a thread generates it.

predict() in a thread ─tokens─▶ queue ─decode─▶ complete words are yielded; the rest follows with the last token
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from contextvars import copy_context
from queue import SimpleQueue
from threading import Event, Thread

from torch.overrides import _get_current_function_mode_stack

from regard.generate import token_listener


def stream_text(predict: Callable[[], str], decode: Callable[[list[int]], str], stop: str = "") -> Iterator[str]:
    """Yield pieces of the text that `predict` returns; joined, they equal it.

    `predict` runs in a thread with the trace and the batch-invariant mode of the caller. `decode` gives the text of the
    tokens so far. The text ends before `stop`. If the caller closes the iterator, the thread ends at its next token.
    """
    events: SimpleQueue[list[int] | str | BaseException] = SimpleQueue()
    closed, modes = Event(), _get_current_function_mode_stack()  # PyTorch has them once for each thread

    def listen(tokens: list[int]) -> None:
        if closed.is_set():
            raise InterruptedError("the stream was closed")
        events.put(tokens)

    def work() -> None:
        try:
            with ExitStack() as stack, token_listener(listen):
                for mode in modes:
                    stack.enter_context(mode)
                events.put(predict())
        except BaseException as error:
            events.put(error)

    Thread(target=copy_context().run, args=(work,), daemon=True).start()
    text, tokens = "", list[int]()
    try:
        while isinstance(event := events.get(), list):
            tokens += event
            ready = complete_words(decode(tokens), stop)
            if len(ready) > len(text) and ready.startswith(text):
                yield ready[len(text) :]
                text = ready
        if isinstance(event, BaseException):
            raise event
        if not event.startswith(text):
            raise RuntimeError(f"the tokenizer changed a word that was streamed: {text[-40:]!r}")
        yield event[len(text) :]
    finally:
        closed.set()


def complete_words(text: str, stop: str) -> str:
    """The beginning of a text that more tokens do not change: whole words, and no beginning of `stop`."""
    if stop and stop in text:
        return text[: text.index(stop)]
    return text[: max(0, min(max(text.rfind(" "), text.rfind("\n")), len(text) - len(stop)))]
