"""Viterbi decoding of BIO tags equals brute force; other tag schemes are unconstrained."""

from itertools import product

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.metrics import span_f1
from regard.tasks.tag import bio_transitions, viterbi

TAGS = ["B-a", "B-b", "I-a", "I-b", "O"]


def well_formed(tags: list[str]) -> bool:
    pairs = zip(["O", *tags], tags, strict=False)
    return all(not tag.startswith("I-") or before[1:] == tag[1:] for before, tag in pairs)


@given(st.integers(1, 4), st.integers(0, 10_000))
def test_viterbi_equals_brute_force(words: int, seed: int) -> None:
    log_probs = torch.randn(words, len(TAGS), generator=torch.Generator().manual_seed(seed)).double().log_softmax(-1)
    allowed = [path for path in product(range(len(TAGS)), repeat=words) if well_formed([TAGS[i] for i in path])]
    expected = max(allowed, key=lambda path: sum(log_probs[i, tag].item() for i, tag in enumerate(path)))
    assert viterbi(log_probs, bio_transitions(TAGS)) == list(expected)


def test_an_uncertain_word_does_not_split_a_span() -> None:
    certain, uncertain = [0.9, 0.02, 0.05, 0.02, 0.01], [0.01, 0.02, 0.45, 0.5, 0.02]
    log_probs = torch.tensor([certain, uncertain]).log()
    assert [TAGS[i] for i in viterbi(log_probs, None)] == ["B-a", "I-b"]
    decoded = [TAGS[i] for i in viterbi(log_probs, bio_transitions(TAGS))]
    assert decoded == ["B-a", "I-a"]
    assert span_f1([["B-a", "I-a"]], [decoded])[2] == 100


def test_other_tag_schemes_have_no_transitions() -> None:
    assert bio_transitions(["NOUN", "VERB"]) is None
    assert bio_transitions(["B-a", "I-a", "I-b", "O"]) is None, "IOB1: a span may begin with I-b"
    assert bio_transitions(["B-a", "E-a", "I-a", "O"]) is None, "BIOES"
    assert bio_transitions(["B-a", "O"]) is not None
    assert viterbi(torch.zeros(0, 2), None) == []
    assert viterbi(torch.zeros(0, 5), bio_transitions(TAGS)) == []
