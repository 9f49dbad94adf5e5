"""A streamed text: its pieces never change, and joined they are the text before the first stop text."""

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.streaming import TextStream

LETTERS = "ab \n"


def before_stop(text: str, stops: list[str]) -> str:
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]


@given(
    parts=st.lists(st.text(LETTERS, max_size=4), min_size=1, max_size=4),
    stops=st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=3),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
@settings(max_examples=200)
def test_the_pieces_joined_are_the_text_before_the_first_stop_text(
    parts: list[str], stops: list[str], sizes: list[int]
) -> None:
    """A stop text may span several tokens, and contain spaces. The text has one, and its beginning once before."""
    whole = "".join(parts) + (stops[0][:-1] + parts[-1] + stops[0] if stops else "")
    stream, text, pieces = TextStream(stops), "", ""
    for size in cycle(sizes):
        text = whole[: len(text) + size]
        pieces += stream.update(text)
        if text == whole or any(stop in text for stop in stops):
            break
    assert pieces + stream.finish(before_stop(text, stops)) == before_stop(text, stops)


def test_a_word_comes_when_it_is_complete() -> None:
    stream = TextStream()
    assert [stream.update(text) for text in ("te", "tea", "tea a", "tea and", "tea and ")] == [
        "",
        "",
        "tea",
        "",
        " and",
    ]
    assert stream.finish("tea and milk") == " milk"


def test_a_text_that_changes_what_was_streamed_is_an_error() -> None:
    stream = TextStream()
    assert stream.update("tea and") == "tea"
    with pytest.raises(RuntimeError, match="changed a word that was streamed: 'tea'"):
        stream.finish("milk")
