"""The cart as it is drawn."""

import numpy as np
from PIL import Image

from regard.view.render_cartpole import COLUMNS, FRAMES, animate, as_text


def state(x, angle):
    return np.array([x, 0.0, angle, 0.0], np.float32)


def test_the_cart_stands_where_it_is_and_the_pole_leans_where_it_falls():
    for x, at in ((-2.4, 0), (0.0, COLUMNS // 2), (2.4, COLUMNS - 1)):
        *pole, cart, track = as_text(state(x, 0.0))
        assert at in [i for i, sign in enumerate(cart) if sign == "#"]
        assert all(row[at] == "|" for row in pole)
        assert track == "=" * COLUMNS
    right = [row.index("/") for row in as_text(state(0.0, 0.4))[:-2]]
    left = [row.index("\\") for row in as_text(state(0.0, -0.4))[:-2]]
    assert right == sorted(right, reverse=True)
    assert left == sorted(left)
    assert right[0] > COLUMNS // 2 + 3
    assert {len(row) for row in as_text(state(9.0, 3.0))} == {COLUMNS}  # beyond the edge nothing is drawn, and all fits


def test_a_long_episode_becomes_a_short_film(tmp_path):
    animate([state(t / 500, 0.1 * np.sin(t)) for t in range(600)], tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as film:
        assert 150 <= film.n_frames <= FRAMES
        assert film.info["duration"] == 60
