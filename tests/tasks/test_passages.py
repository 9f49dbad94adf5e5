"""Texts longer than a sentence: nothing is lost, order and line breaks are kept, and an endless input flows through."""

from itertools import count, islice

from hypothesis import given
from hypothesis import strategies as st

from regard.data.sentences import split_sentences
from regard.load import load
from regard.tasks.passages import Answer, answer_passages
from regard.tasks.translating import Translating

texts = st.lists(st.text(alphabet="ab. \n\t?!A", max_size=30), max_size=6)


def shout(pieces, best=1):
    return [[Answer(piece.upper() + "'" * i, -1.0 - i, -1.0 - i) for i in range(best)] for piece in pieces]


@given(texts)
def test_pieces_are_answered_and_put_together_in_order(some):
    answers = [best[0].text for best in answer_passages(some, split_sentences, shout)]
    assert [" ".join(a.split()) for a in answers] == [" ".join(text.upper().split()) for text in some]
    assert [a.count("\n") for a in answers] == [text.count("\n") for text in some]


@given(texts)
def test_a_piece_is_never_empty(some):
    asked = []

    def answer(pieces):
        asked.extend(pieces)
        return shout(pieces)

    list(answer_passages(some, split_sentences, answer))
    assert all(piece.strip() == piece != "" for piece in asked)


def test_the_n_best_of_a_text_add_up_over_its_sentences():
    (best,) = answer_passages(["\nOne. Two.\n"], split_sentences, lambda pieces: shout(pieces, best=2))
    assert [a.text for a in best] == ["\nONE. TWO.\n", "\nONE.' TWO.'\n"]
    assert [a.logp for a in best] == [-2.0, -4.0]


def test_an_endless_input_is_read_only_as_far_as_needed(small_run):
    translator, read = load(small_run, device="cpu"), []

    def endless():
        for i in count():
            read.append(i)
            yield f"tea and water {i % 90}"

    answers = translator.task.predict(translator.model, endless(), Translating(num_beams=1), window=8)
    assert len(list(islice(answers, 20))) == 20
    assert len(read) == 24, "three windows of eight, and not one text more"


def test_the_window_changes_nothing_but_the_memory(small_run):
    translator = load(small_run, device="cpu")
    asked = [f"tea {'and water ' * (i % 4)}{i}" for i in range(11)]
    wide = [best[0].text for best in translator.generate(asked)]
    assert [best[0].text for best in translator.task.predict(translator.model, asked, window=2)] == wide
    assert [translator(text) for text in asked] == wide == translator(asked)


def test_a_line_longer_than_any_seen_is_translated_sentence_by_sentence(small_run):
    translator = load(small_run, device="cpu")
    one, two = "Tea and milk please no bread and water.", "Tea please and milk and bread and water no."
    assert translator.task.seen < len(translator.tokenizer.encode([f"{one} {two}"])[0])
    assert translator(f"{one} {two}\n\n{two}") == f"{translator(one)} {translator(two)}\n\n{translator(two)}"
