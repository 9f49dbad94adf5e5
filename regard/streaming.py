"""Streaming: the text of an answer in pieces that more tokens do not change."""

from __future__ import annotations

from collections.abc import Sequence


class TextStream:
    """Pieces of a growing text. Joined, they equal the final text, which ends before the first of `stops`."""

    def __init__(self, stops: Sequence[str] = ()):
        self.stops, self.text = stops, ""

    def update(self, text: str) -> str:
        """The next piece, given the text of all tokens so far: whole words."""
        ready = complete_words(text, self.stops)
        if len(ready) <= len(self.text) or not ready.startswith(self.text):
            return ""
        piece, self.text = ready[len(self.text) :], ready
        return piece

    def finish(self, text: str) -> str:
        """The last piece of the final text."""
        if not text.startswith(self.text):
            raise RuntimeError(f"the tokenizer changed a word that was streamed: {self.text[-40:]!r}")
        return text[len(self.text) :]


def complete_words(text: str, stops: Sequence[str]) -> str:
    """The beginning of a text that more tokens do not change: whole words, and no beginning of a stop text."""
    ends = [text.index(stop) for stop in stops if stop in text]
    if ends:
        return text[: min(ends)]
    longest = max(map(len, stops), default=0)
    return text[: max(0, min(max(text.rfind(" "), text.rfind("\n")), len(text) - longest))]
