"""Episodes are read back as written, and errors name file and episode."""

import json

import numpy as np
import pytest

from regard.data.episodes import Episode, episode_row, observed
from regard.data.lines import BadRow
from regard.data.rows import Row
from regard.modalities.trajectory.episode_files import read_episodes, write_episodes


def make_episode(steps, seed=0, width=3):
    rng = np.random.default_rng(seed)
    observations = rng.normal(size=(steps + 1, width)).astype(np.float32)
    actions, rewards = rng.integers(0, 4, steps), rng.normal(size=steps).astype(np.float32)
    return Episode(observations, actions, rewards, bool(seed % 2))


def assert_equal(row, episode):
    row = row.input
    assert row.observations.dtype == episode.observations.dtype
    assert np.array_equal(row.observations, episode.observations)
    assert (row.actions is None) == (episode.actions is None)
    if row.actions is not None:
        assert np.array_equal(row.actions, episode.actions)
    assert np.array_equal(row.rewards, episode.rewards)
    assert row.terminated == episode.terminated


@pytest.mark.parametrize("ending", ["npz", "jsonl"])
def test_written_episodes_are_read_back(tmp_path, ending):
    episodes = [make_episode(steps, seed) for seed, steps in enumerate((1, 5, 2))]
    write_episodes(tmp_path / f"a.{ending}", episodes)
    rows = list(read_episodes([tmp_path / f"a.{ending}"]))
    assert [row.line for row in rows] == [1, 2, 3]
    for row, episode in zip(rows, episodes, strict=True):
        assert_equal(row, episode)
        assert row.row_key == episode_row(episode, "made", 1).row_key
    assert len({row.row_key for row in rows}) == 3


@pytest.mark.parametrize("ending", ["npz", "jsonl"])
def test_videos_of_unequal_length_are_read_back(tmp_path, ending):
    rng = np.random.default_rng(0)
    videos = [observed(rng.random((frames, 4, 6), np.float32)) for frames in (3, 2, 7)]
    write_episodes(tmp_path / f"a.{ending}", videos)
    for row, episode in zip(read_episodes([tmp_path / f"a.{ending}"]), videos, strict=True):
        assert_equal(row, episode)


def test_uint8_videos_stay_uint8_and_255_becomes_1(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", videos=frames)
    first, second = (row.input for row in read_episodes([tmp_path / "a.npz"]))
    assert first.observations.dtype == np.uint8
    assert (first.actions, first.terminated, first.steps) == (None, False, 4)
    assert np.allclose(second.as_float(1, 3), frames[1, 1:3] / 255)
    assert second.as_float().dtype == np.float32


def test_scalars_are_observations_with_one_entry(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"observations": [1, 2, 3.5]}\n')
    [row] = read_episodes([tmp_path / "a.jsonl"])
    assert row.input.observations.tolist() == [[1.0], [2.0], [3.5]]


GOOD = {"observations": [[1, 2], [3, 4], [5, 6]], "actions": [0, 1], "rewards": [1, 1], "terminated": True}


@pytest.mark.parametrize(
    ("change", "why", "says"),
    [
        ({"terminated": None}, "missing field", "'terminated'"),
        ({"rewards": None}, "missing field", "'rewards'"),
        ({"observations": None}, "missing field", "'observations'"),
        ({"terminated": 1}, "wrong type", "true or false"),
        ({"actions": [0]}, "unequal counts", "3 observations need 2 actions"),
        ({"rewards": [1, 1, 1]}, "unequal counts", "3 observations need 2 rewards"),
        ({"actions": [0, -1]}, "wrong type", "not -1"),
        ({"actions": [0, 0.5]}, "wrong type", "not 0.5"),
        ({"actions": [0, 100000]}, "wrong type", "not 100000"),
        ({"actions": ["left", "right"]}, "wrong type", "actions are not numbers"),
        ({"rewards": [1, True]}, None, ""),
        ({"observations": [[1, 2], [3, 4], [5, float("nan")]]}, "not a number", "observations contain NaN"),
        ({"rewards": [1, 1e300]}, "not a number", "rewards"),
        ({"observations": [[1, 2], [3, 4], [5]]}, "unequal counts", "not all of one shape"),
        ({"observations": [[1, 2]], "actions": [], "rewards": []}, "empty", "without a step"),
        ({"observations": [[1], [2], [3]]}, "unequal counts", "(1,)"),
        ({"observations": 7}, "wrong type", "observation is"),
        ({"actions": None, "rewards": None, "terminated": None}, "missing field", "no actions"),
    ],
)
def test_errors_name_file_and_line(tmp_path, change, why, says):
    row = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(GOOD)}\n{json.dumps(row)}\n")
    _, item = read_episodes([tmp_path / "a.jsonl"])
    if why is None:
        assert isinstance(item, Row)
    else:
        assert isinstance(item, BadRow)
        assert (item.file, item.line, item.reason) == (str(tmp_path / "a.jsonl"), 2, why)
        assert says in item.detail


def arrays():
    return {
        "observations": np.arange(14.0).reshape(7, 2),
        "actions": np.array([0, 1, 0, 1, 1]),
        "rewards": np.ones(5),
        "steps": np.array([2, 3]),
        "terminated": np.array([True, False]),
    }


def test_arrays_are_split_into_episodes(tmp_path):
    np.savez(tmp_path / "a.npz", **arrays())
    first, second = (row.input for row in read_episodes([tmp_path / "a.npz"]))
    assert first.observations.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert second.observations.tolist() == [[6, 7], [8, 9], [10, 11], [12, 13]]
    assert second.actions.tolist() == [0, 1, 1]
    assert (first.terminated, second.terminated) == (True, False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"terminated": None}, "no array 'terminated'"),
        ({"steps": None}, "no array 'steps'"),
        ({"steps": np.array([2, 2])}, "2 episodes with 4 steps need 6 observations"),
        ({"steps": np.array([2.0, 3.0])}, "whole numbers"),
        ({"rewards": np.ones(4)}, "need 5 rewards"),
        ({"terminated": np.array([True])}, "need 2 terminated"),
        ({"terminated": np.ones((2, 2), bool)}, "need 2 terminated"),
    ],
)
def test_arrays_of_wrong_shape_are_refused(tmp_path, change, says):
    np.savez(tmp_path / "a.npz", **{name: value for name, value in {**arrays(), **change}.items() if value is not None})
    with pytest.raises(ValueError, match=says) as error:
        list(read_episodes([tmp_path / "a.npz"]))
    assert "a.npz" in str(error.value)


def test_a_bad_episode_of_an_npz_file_is_named_by_its_number(tmp_path):
    given = arrays()
    given["observations"][5, 0] = np.nan
    np.savez(tmp_path / "a.npz", **given)
    _, item = read_episodes([tmp_path / "a.npz"])
    assert isinstance(item, BadRow)
    assert (item.line, item.reason) == (2, "not a number")


def test_other_file_formats_are_refused_by_name(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n")
    with pytest.raises(ValueError, match=r"a\.csv: episodes come from \.npz, \.jsonl or \.parquet"):
        list(read_episodes([tmp_path / "a.csv"]))
    with pytest.raises(ValueError, match=r"written as \.npz or \.jsonl"):
        write_episodes(tmp_path / "a.csv", [make_episode(2)])
