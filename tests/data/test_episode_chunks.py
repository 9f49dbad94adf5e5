"""Every epoch has each step in exactly one chunk of one episode, with other boundaries than the last."""

import numpy as np
import pytest

from regard.data.episode_chunks import EpisodeChunks

STEPS = np.array([1, 7, 3, 20, 4])
LONGEST = 4


@pytest.fixture
def rows():
    every = np.arange(STEPS.sum())
    return EpisodeChunks(STEPS, (every, np.repeat(np.arange(len(STEPS)), STEPS)), LONGEST, tokens=2)


def steps_of(rows, numbers):
    steps, episodes = rows.padded(numbers, (-1, -1))
    assert steps.shape[1] <= LONGEST
    for row, of in zip(steps, episodes, strict=True):
        assert len({*of[row >= 0]}) == 1, "of one episode alone"
        assert (np.diff(row[row >= 0]) == 1).all()
        assert (of[row < 0] == -1).all()
    return sorted(steps[steps >= 0].tolist())


@pytest.mark.parametrize("epoch", range(5))
def test_every_step_is_in_one_chunk_of_an_epoch(rows, epoch):
    batches = rows.epoch(16, 1, epoch)
    assert max(map(len, batches)) == 2
    assert steps_of(rows, np.concatenate(batches)) == list(range(STEPS.sum()))
    assert [b.tolist() for b in batches] == [b.tolist() for b in rows.epoch(16, 1, epoch)]


def test_chunk_boundaries_change_between_epochs(rows):
    cuts = [frozenset(np.concatenate(rows.epoch(16, 1, epoch)).tolist()) for epoch in range(5)]
    assert len({*cuts}) > 1


def test_sequential_chunks_start_at_the_first_steps(rows):
    numbers = rows.sequential()
    assert steps_of(rows, numbers) == list(range(STEPS.sum()))
    places = [rows.locate(int(number)) for number in numbers]
    assert places[:4] == [(0, 0, 1), (1, 0, 4), (1, 4, 3), (2, 0, 3)]
    assert sum(steps for _, _, steps in places) == rows.units == STEPS.sum()
