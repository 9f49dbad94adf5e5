"""Tags that make spans: the best sequence that is one, and which tags are of that kind."""

from itertools import product

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics import span_f1
from regard.tasks.spans import best, grammar

TAGS = ["B-a", "B-b", "I-a", "I-b", "O"]


def well_formed(tags: list[str]) -> bool:
    pairs = zip(["O", *tags], tags, strict=False)
    return all(not tag.startswith("I-") or before[1:] == tag[1:] for before, tag in pairs)


@given(st.integers(1, 4), st.integers(0, 10_000))
def test_the_best_sequence_is_that_of_brute_force(words: int, seed: int) -> None:
    log_probs = torch.randn(words, len(TAGS), generator=torch.Generator().manual_seed(seed)).double().log_softmax(-1)
    every = [some for some in product(range(len(TAGS)), repeat=words) if well_formed([TAGS[i] for i in some])]
    wanted = max(every, key=lambda some: sum(log_probs[i, tag].item() for i, tag in enumerate(some)))
    assert best(log_probs, grammar(TAGS)) == list(wanted)


def test_a_span_is_never_cut_by_one_word_that_is_unsure() -> None:
    sure, unsure = [0.9, 0.02, 0.05, 0.02, 0.01], [0.01, 0.02, 0.45, 0.5, 0.02]
    log_probs = torch.tensor([sure, unsure]).log()
    assert [TAGS[i] for i in best(log_probs, None)] == ["B-a", "I-b"]
    said = [TAGS[i] for i in best(log_probs, grammar(TAGS))]
    assert said == ["B-a", "I-a"]
    assert span_f1([["B-a", "I-a"]], [said])[2] == 100


def test_other_tags_are_free() -> None:
    assert grammar(["NOUN", "VERB"]) is None
    assert grammar(["B-a", "I-a", "I-b", "O"]) is None, "IOB1: a span may begin with I-b"
    assert grammar(["B-a", "E-a", "I-a", "O"]) is None, "BIOES"
    assert grammar(["B-a", "O"]) is not None
    assert best(torch.zeros(0, 2), None) == []
    assert best(torch.zeros(0, 5), grammar(TAGS)) == []
