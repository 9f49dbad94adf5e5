"""CartPole as text and as an animation."""

import numpy as np
from PIL import Image

from regard.view.render_cartpole import COLUMNS, MAX_FRAMES, animate, as_text


def state(x, angle):
    return np.array([x, 0.0, angle, 0.0], np.float32)


def test_the_text_shows_position_and_angle():
    for x, column in ((-2.4, 0), (0.0, COLUMNS // 2), (2.4, COLUMNS - 1)):
        *pole, cart, track = as_text(state(x, 0.0))
        assert column in [i for i, character in enumerate(cart) if character == "#"]
        assert all(row[column] == "|" for row in pole)
        assert track == "=" * COLUMNS
    right = [row.index("/") for row in as_text(state(0.0, 0.4))[:-2]]
    left = [row.index("\\") for row in as_text(state(0.0, -0.4))[:-2]]
    assert right == sorted(right, reverse=True)
    assert left == sorted(left)
    assert right[0] > COLUMNS // 2 + 3
    assert {len(row) for row in as_text(state(9.0, 3.0))} == {COLUMNS}  # the track's ends clip the drawing


def test_a_long_episode_is_subsampled(tmp_path):
    animate([state(t / 500, 0.1 * np.sin(t)) for t in range(600)], tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as gif:
        assert 150 <= gif.n_frames <= MAX_FRAMES
        assert gif.info["duration"] == 60
