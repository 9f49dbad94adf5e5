"""Search in a tabular language model, checked by hand and by enumeration."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.lab.synthetic_data import empty_caches, next_token_step, random_languages, search
from regard.parts.cache import Cache

LANGUAGES = st.builds(
    random_languages,
    count=st.integers(1, 4),
    words=st.integers(2, 4),
    length=st.integers(2, 4),
    sharpness=st.sampled_from([0.3, 1.0, 3.0]),
    seed=st.integers(0, 999),
)


@given(joint=LANGUAGES)
@settings(max_examples=30)
def test_next_words_multiply_to_the_probability_of_the_text(joint: Tensor) -> None:
    assert joint.flatten(1).sum(1) == pytest.approx(1.0, abs=1e-5)
    B, V, longest = len(joint), joint.size(-1), joint.dim() - 1
    step, caches = next_token_step(joint), empty_caches(joint)
    ids, product = torch.zeros(B, 1).long(), torch.ones(B)
    for t in range(longest):
        chances = step(ids, caches).softmax(-1)  # (B,V+1)
        assert not chances[:, V].any()
        ids = torch.arange(B)[:, None].add(t) % V  # any word will do
        product = product * chances.gather(1, ids)[:, 0]
    texts = [tuple((b + t) % V for t in range(longest)) for b in range(B)]
    assert_close(product, torch.stack([language[text] for language, text in zip(joint, texts, strict=True)]))
    assert step(ids, caches).softmax(-1)[:, V].tolist() == [1.0] * B  # then comes the end


def step_by_step(joint: Tensor) -> list[int]:
    """Greedy by hand, in one language: the word after which most of the probability is left."""
    text = []
    while joint.dim():
        best = max(range(len(joint)), key=lambda word: joint[word].sum().item())
        text, joint = [*text, best], joint[best]
    return text


@given(joint=LANGUAGES)
@settings(max_examples=30)
def test_greedy_is_locally_optimal_and_a_full_beam_globally(joint: Tensor) -> None:
    assert search(joint, 1)[0] == [step_by_step(language) for language in joint]
    _, chances = search(joint, joint.size(-1) ** (joint.dim() - 2))
    assert_close(chances, joint.flatten(1).amax(1))


@given(joint=LANGUAGES, width=st.integers(1, 5))
@settings(max_examples=30)
def test_search_returns_the_probability_of_its_text(joint: Tensor, width: int) -> None:
    texts, chances = search(joint, width)
    for language, text, chance in zip(joint, texts, chances, strict=True):
        assert len(text) == language.dim()
        assert language[tuple(text)] == chance


def test_impossible_words_are_never_chosen() -> None:
    joint = torch.zeros(1, 3, 3)
    joint[0, 0, 1] = 1.0
    caches: list[Cache] = empty_caches(joint)
    chances = next_token_step(joint)(torch.zeros(1, 1).long(), caches).softmax(-1)
    assert chances[0].tolist() == pytest.approx([1, 0, 0, 0], abs=1e-20)
    assert search(joint, 5)[0] == [[0, 1]]
