"""The compiled candidates of beam search are those of the reference, in the same order."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)  # Numba, and a CPU that the engine supports

from regard.beams import find_candidates
from regard.engine.kernels.beam_candidates import BLOCK, compiled_candidates
from regard.sampling import CAN_END, CANNOT_END, MUST_END


def random_step(seed: int, inputs: int, width: int, vocab: int):
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(0, 3, (inputs * width, vocab)).astype(np.float32))
    logits[:, rng.integers(vocab)] = -math.inf  # forbidden, as <pad>
    logp = rng.normal(-5, 2, (inputs, width)).astype(np.float32)
    logp[rng.random((inputs, width)) < 0.2] = -math.inf  # beams that are not in use
    endings = rng.choice([CAN_END, CAN_END, CANNOT_END, MUST_END], inputs).astype(np.int8).repeat(width)
    return logits, logp, int(rng.integers(vocab)), endings


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5), st.sampled_from([2, 3, 9, BLOCK, BLOCK + 1, 700]))
def test_candidates_are_those_of_the_reference(seed, inputs, width, vocab):
    logits, logp, end, endings = random_step(seed, inputs, width, vocab)
    expected = find_candidates(logits.clone(), logp, end, endings)
    candidates = compiled_candidates(logits, logp, end, endings)
    real = np.isfinite(expected.logp)
    assert (np.isfinite(candidates.logp) == real).all()
    np.testing.assert_allclose(candidates.logp[real], expected.logp[real], rtol=1e-5, atol=1e-5)
    assert (candidates.tokens[real] == expected.tokens[real]).all()
    assert (candidates.beams[real] == expected.beams[real]).all()


def test_equal_logits_are_in_the_order_of_their_tokens():
    logits = torch.zeros(2, 200)
    candidates = compiled_candidates(logits, np.array([[0.0, -1.0]], np.float32), 7, np.zeros(2, np.int8))
    assert candidates.tokens.tolist() == [[0, 1, 2, 3]]
    assert candidates.beams.tolist() == [[0, 0, 0, 0]]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("vocab", [5, 300])
def test_a_logit_that_is_not_finite_makes_its_input_nan(value, vocab):
    logits, logp = torch.zeros(4, vocab), np.zeros((2, 2), np.float32)
    logits[3, vocab - 1] = value
    candidates = compiled_candidates(logits, logp, 0, np.zeros(4, np.int8))
    assert np.isnan(candidates.logp[1, 0])
    assert np.isfinite(candidates.logp[0]).all()


def test_a_row_has_the_same_bits_in_any_batch():
    logits, logp, end, endings = random_step(1, 6, 3, 901)
    together = compiled_candidates(logits, logp, end, endings)
    for i in range(6):
        rows = slice(3 * i, 3 * i + 3)
        alone = compiled_candidates(logits[rows], logp[i : i + 1], end, endings[rows])
        assert alone.logp.tobytes() == together.logp[i].tobytes()
        assert alone.tokens.tobytes() == together.tokens[i].tobytes()
