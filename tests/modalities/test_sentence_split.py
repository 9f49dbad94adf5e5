"""A text is split between sentences, never inside one, and the parts concatenate to the text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.modalities.text.sentence_split import split_sentences

TRICKY = st.text(st.sampled_from(" \n\t.!?…。！？」aAzBé5\"'”»(«\u2028\xa0\x85"), max_size=60)

SPLIT = [
    ["One. ", "Two! ", "Three? ", "Four"],
    ["Oh?! ", "Really. ", "Yes."],
    ["(Yes.) ", "“Go.” ", "He left."],
    ["»Hallo!« ", "Er ging. ", "„Komm!“ ", "Sie kam."],
    ["¿Qué? ", "¡Sí! ", "Vale."],
    ["Er kam 1999. ", "Dann ging er."],
    ["It costs 3.5. ", "That is much."],
    ["Visit example.com. ", "Then wait."],
    ["No. ", "I won't."],
    ["Wait... ", "There it is."],
    ["  It begins.  ", "It ends.\t"],
    ["A heading\n\n", "and a paragraph"],
    ["私は学生です。", "あなたは？", "「はい。」", "そう！"],
    ["Ja, etc. ", "Then more."],
]

UNSPLIT = [
    "",
    "no full stop",
    "Dr. Smith and Mrs. Jones met Prof. Dr. Meier.",
    "J. R. R. Tolkien and J.S. Bach never met.",
    "Das ist z. B. Gold, d. h. teuer, bzw. Silber.",
    "The U.S. Army, e.g. Its band, at 3 p.m. Tuesday.",
    "See No. 5, Fig. 3 and S. 7 in der Hauptstr. 9.",
    "It costs 3.5 or 1.000,00 euros.",
    "Am 3. Oktober im 19. Jahrhundert.",
    "Well... maybe … or not.",
    '"Is it?" she asked.',
    "« Bonjour ! » dit-il.",
    "M. Dupont est là.",
    "   ",
]


@pytest.mark.parametrize("sentences", SPLIT, ids=lambda sentences: "|".join(sentences))
def test_splits_between_sentences(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences


@pytest.mark.parametrize("text", UNSPLIT)
def test_does_not_split_inside_a_sentence(text: str) -> None:
    assert split_sentences(text) == [text] * bool(text)


@given(st.text() | TRICKY)
def test_the_sentences_concatenate_to_the_text(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert all(sentences)


@given(TRICKY)
def test_a_sentence_begins_with_a_letter_not_with_space(text: str) -> None:
    assert not any(sentence[0].isspace() for sentence in split_sentences(text)[1:])


@pytest.mark.parametrize("part", [".", ". ", "。", " ", "\n", '"', "a.”", "A. b "])
def test_long_runs_take_linear_time(part: str) -> None:
    """In CPU time, with a margin of a hundred: quadratic time would take minutes."""
    text = part * 200_000
    start = time.process_time()
    assert "".join(split_sentences(text)) == text
    assert time.process_time() - start < 30
