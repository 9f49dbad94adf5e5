"""Number series: files, seasons, the seasonal-naive baseline, and forecasts by the commands."""

import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from regard.cli import main
from regard.data.episodes import episode_row, observed
from regard.data.lines import UTF8, BadRow
from regard.load import load
from regard.modalities import MODALITIES
from regard.modalities.protocols import FitOptions, ReadOptions, Target
from regard.modalities.series.modality import split_in_time
from regard.modalities.series.preprocessor import SeriesPreprocessor, estimate_season
from regard.modalities.series.series_files import is_series_file, parse_values, read_series, series_row
from regard.modalities.synthetic import waves

SERIES = MODALITIES["series"]


def read(path, target=Target.LABELS, **options):
    return [*SERIES.read([str(path)], ReadOptions(target, **options))]


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "time,x,y\n2020-01-01,1,2\n2020-01-02,3,4.5\n", [[1, 2], [3, 4.5]]),
        ("a.csv", "x;y\n1;2\n3;4\n", [[1, 2], [3, 4]]),
        ("a.csv", "1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("a.csv", "x\n1\n-2e3\n", [[1], [-2000]]),
        ("a.tsv", "12:30:00\t7\n12:30:10\t8\n", [[7], [8]]),
        ("a.csv", "x\r\n1\r\n2\r\n", [[1], [2]]),
    ],
)
def test_a_table_is_one_series(name, text, expected, tmp_path):
    [row] = read_series([write(tmp_path / name, text)], None, UTF8)
    assert row.input.tolist() == expected
    assert row.input.dtype == np.float32


def test_fields_select_channels(tmp_path):
    file = write(tmp_path / "a.csv", "day,x,y,z\n1,2,3,4\n5,6,7,8\n")
    [row] = read_series([file], ("z", "x"), UTF8)
    assert row.input.tolist() == [[4, 2], [8, 6]]
    with pytest.raises(ValueError, match=r"a\.csv:1: no column is named 'w'"):
        [*read_series([file], ("w",), UTF8)]


def test_arrays_are_one_series_or_several(tmp_path):
    rng = np.random.default_rng(0)
    for shape, count in (((5,), 1), ((5, 2), 1), ((3, 5, 2), 3)):
        array = rng.normal(size=shape)
        np.save(tmp_path / "a.npy", array)
        rows = [*read_series([str(tmp_path / "a.npy")], None, UTF8)]
        assert len(rows) == count
        assert np.concatenate([row.input for row in rows]).ravel() == pytest.approx(array.ravel())


@pytest.mark.parametrize(
    ("text", "line", "detail"),
    [
        ("x\n1\n\n3\n", 3, "the line has 0 columns, but 1 are needed"),
        ("x,y\n1,2\n3\n", 3, "the line has 1 columns, but 2 are needed"),
        ("x\n1\nnan\n", 3, "'nan' is not a finite number: fill gaps first"),
        ("x\n1\n1_0\n", 3, "'1_0' is not a finite number"),
        ("x\n1\ninf\n", 3, "'inf' is not a finite number"),
        ("x\n", 1, "the file has no numbers"),
    ],
)
def test_a_bad_line_is_named(text, line, detail, tmp_path):
    [row] = read_series([write(tmp_path / "a.csv", text)], None, UTF8)
    assert isinstance(row, BadRow)
    assert row.line == line
    assert re.search(detail, row.detail)


def test_pickled_and_broken_arrays_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"x": 1}]), allow_pickle=True)
    (tmp_path / "b.npy").write_bytes(b"no array")
    np.save(tmp_path / "c.npy", np.array([1.0, np.nan]))
    for name in "abc":
        [row] = read_series([str(tmp_path / f"{name}.npy")], None, UTF8)
        assert isinstance(row, BadRow)
    with pytest.raises(ValueError, match=r"none\.csv: no such file"):
        [*read_series([str(tmp_path / "none.csv")], None, UTF8)]


def test_targets_come_from_folders_tables_and_ucr_files(tmp_path):
    for label in ("calm", "storm"):
        write(tmp_path / "data" / label / "1.csv", "x\n1\n2\n")
    assert [row.target.names for row in read(tmp_path / "data")] == [("calm",), ("storm",)]
    table = write(tmp_path / "t.tsv", "data/calm/1.csv\tquiet\n1 2 3\tloud\n[[1], [2]]\tloud\nnone.csv\tloud\n")
    *rows, bad = read(table)
    assert [row.target.names[0] for row in rows] == ["quiet", "loud", "loud"]
    assert [len(row.input) for row in rows] == [2, 3, 2]
    assert (bad.line, bad.reason) == (4, "not a number")
    ucr = write(tmp_path / "u.tsv", "1\t0.5\t0.6\t0.7\n2\t1\t2\t3\n")
    assert [row.target for row in read(ucr, Target.NUMBER)] == [1.0, 2.0]
    assert [row.input.ravel().tolist() for row in read(ucr)][1] == [1, 2, 3]
    with pytest.raises(ValueError, match="a folder has labels"):
        read(tmp_path / "data", Target.NUMBER)


def test_series_have_the_same_channels(tmp_path):
    write(tmp_path / "a" / "x" / "1.csv", "1,2\n3,4\n")
    write(tmp_path / "a" / "y" / "1.csv", "1\n3\n")
    first, bad = read(tmp_path / "a")
    assert first.input.shape == (2, 2)
    assert "1 channels, but" in bad.detail


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "time,x\n2020-01-01,1\n", True),
        ("a.csv", "1,2\n3,4\n", True),
        ("a.csv", "text,label\nIt rains,wet\n", False),
        ("a.csv", "text,value\nIt rains,3.5\n", False),
        ("a.tsv", "It rains\twet\n", False),
        ("a.txt", "You are here.\n", False),
        ("a.jsonl", "{}\n", False),
    ],
)
def test_files_of_numbers_are_recognised(name, text, expected, tmp_path):
    assert is_series_file(write(tmp_path / name, text)) is expected


@pytest.mark.parametrize("period", [5, 12, 24])
def test_the_season_is_the_period_of_the_data(period):
    rng, time = np.random.default_rng(period), np.arange(200)
    pattern = rng.normal(size=period)
    series = [pattern[(time + shift) % period] + rng.normal(0, 0.2, 200) for shift in range(4)]
    rows = [episode_row(observed(values[:, None].astype(np.float32)), "made", i) for i, values in enumerate(series)]
    assert estimate_season(rows) == period


def test_noise_has_no_season():
    noise = np.random.default_rng(0).normal(size=(3, 300, 1)).astype(np.float32)
    assert estimate_season([episode_row(observed(values), "made", i) for i, values in enumerate(noise)]) == 1


def test_the_baseline_repeats_the_last_season():
    rows = [episode_row(observed(np.arange(20, dtype=np.float32)[:, None]), "made", 1)]
    preprocessor = SERIES.fit(rows, FitOptions(Target.NEXT))
    preprocessor.season = 4
    assert preprocessor.baseline(rows[0].input, 10, 6)[:, 0].tolist() == [6, 7, 8, 9, 6, 7]
    assert preprocessor.baseline(rows[0].input, 3, 3)[:, 0].tolist() == [2, 2, 2], "less than a season before it"


def test_rollouts_start_every_horizon():
    """After a context and a season, so that model and baseline have what they need."""
    values = np.arange(70, dtype=np.float32)[:, None]
    rows = [episode_row(observed(values), "made", 1), episode_row(observed(values[:20]), "made", 2)]
    preprocessor = SERIES.fit(rows, FitOptions(Target.NEXT))
    preprocessor.season = 12
    start, windows = preprocessor.rollout_windows(rows, 8, 20)
    assert start == 12
    assert [(window.observations[start, 0], window.observations[-1, 0]) for window in windows] == [(12, 31), (32, 51)]


def test_validation_is_the_end_of_a_series():
    row = episode_row(observed(np.arange(50, dtype=np.float32)[:, None]), "made", 1)
    head, tail = split_in_time(row, 0.2)
    assert (head.input.observations[-1], tail.input.observations[0], tail.input.observations[-1]) == (39, 40, 49)
    with pytest.raises(ValueError, match="made:1: 3 steps are too few"):
        split_in_time(episode_row(observed(np.zeros((3, 1), np.float32)), "made", 1), 0.2)


def test_patches_fit_the_longest_series():
    rows = [series_row(np.zeros((steps, 2), np.float32), None, "made", 1) for steps in (5, 1000)]
    preprocessor = SeriesPreprocessor.fit(rows, None, 96)
    assert preprocessor.patch_length == 11
    assert preprocessor.encode(rows, 96).lengths.ravel().tolist() == [1, 91]
    with pytest.raises(ValueError, match="the series has 1000 steps, the model reads at most 110"):
        preprocessor.encode(rows, 10)
    with pytest.raises(ValueError, match="made:1: 1 channels, but the training data have 2"):
        preprocessor.encode([series_row(np.zeros((5, 1), np.float32), None, "made", 1)], 96)


def test_padding_is_invisible():
    rng = np.random.default_rng(0)
    rows = [series_row(rng.normal(size=(steps, 2)).astype(np.float32), None, "", 1) for steps in (7, 16, 11)]
    preprocessor = SeriesPreprocessor.fit(rows, 4, 96)
    inputs = preprocessor.encode(rows, 0)
    together = preprocessor.collate(inputs, np.arange(3), False)
    for i, row in enumerate(rows):
        alone = preprocessor.collate(inputs, np.array([i]), False)
        tokens = int(alone.mask.sum())
        assert tokens == -(-len(row.input) // 4) == int(together.mask[i].sum())
        assert (together.x[i, : tokens * 4] == alone.x[0]).all()
        assert (together.x[i, tokens * 4 :] == 0).all()


@pytest.mark.parametrize("raw", ["[1, 2, 3]", "1 2 3", "1,2,3", "[[1], [2], [3]]"])
def test_a_request_is_json_or_numbers(raw):
    assert parse_values(raw).tolist() == [[1], [2], [3]]


@pytest.mark.parametrize("raw", ["[]", "[[]]", "[1, [2]]", '["a"]', "[1, null]", "[1", "1 2 x", "", "[[[1]]]"])
def test_a_bad_request_is_refused(raw):
    with pytest.raises(ValueError, match=r"."):
        parse_values(raw)


def test_synthetic_series_are_seasonal():
    rows = SERIES.synthetic(Target.NEXT)["train"]
    assert estimate_season(rows) == waves.PERIOD


@pytest.fixture(scope="module")
def forecaster(tmp_path_factory):
    """A model of a noisy wave with a period of 8 steps, from one .csv file."""
    folder, rng = tmp_path_factory.mktemp("series"), np.random.default_rng(0)
    time = np.arange(2000)
    values = np.sin(2 * np.pi * time / 8) + 0.3 * rng.normal(size=2000)
    lines = [f"2020-{1 + t // 28 % 12:02d}-{1 + t % 28:02d},{value:.4f}" for t, value in enumerate(values)]
    file = write(folder / "wave.csv", "\n".join(["day,x", *lines]) + "\n")
    small = "--context 16 --dim 32 --layers 2 --heads 2 --hidden 64 --steps 300 --evals 3 --batch-tokens 1024"
    assert main(["train", "predict", "--data", file, "-o", str(folder / "run"), *small.split()]) == 0
    return folder / "run", file


def test_a_forecast_beats_the_seasonal_naive_baseline(forecaster, capsys):
    """The last season has the noise of two observations, the wave itself that of one."""
    run, file = forecaster
    stored = json.loads((run / "task.json").read_text())
    assert (stored["modality"], stored["season"]) == ("series", 8)
    assert main(["score", str(run), file, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["error"] < scores["copy"]
    assert main(["run", str(run), file, "--horizon", "16", "--json"]) == 0
    [prediction] = json.loads(capsys.readouterr().out)["predictions"]
    assert "seasonal naive" in prediction["text"]
    assert np.mean(prediction["errors"]) < np.mean(prediction["baseline_errors"])
    assert np.shape(prediction["observations"]) == (16, 1)


def test_a_forecast_continues_a_request(forecaster):
    run, _ = forecaster
    wave = np.sin(2 * np.pi * np.arange(32) / 8).round(3)
    [[best]] = load(run).generate([json.dumps(wave.tolist())], horizon=8, ahead=True)
    forecast = np.ravel(best.extra["observations"])
    assert np.corrcoef(forecast, wave[:8])[0, 1] > 0.8


def test_forecasts_are_saved_as_chart_and_numbers(forecaster, tmp_path, capsys):
    run, file = forecaster
    for name in ("a.png", "a.csv", "a.npy"):
        assert main(["run", str(run), file, "--horizon", "8", "--save", str(tmp_path / name)]) == 0
    assert Image.open(tmp_path / "a.png").size[0] == 960
    assert np.loadtxt(tmp_path / "a.csv") == pytest.approx(np.load(tmp_path / "a.npy")[:, 0], rel=1e-5)
    assert main(["run", str(run), file, "--save", str(tmp_path / "a.gif")]) == 2
    assert "unknown forecast format '.gif'" in capsys.readouterr().err


def test_a_series_of_other_channels_is_refused(forecaster, capsys, tmp_path):
    run, _ = forecaster
    assert main(["run", str(run), write(tmp_path / "b.csv", "1,2\n3,4\n5,6\n")]) == 2
    assert "observations of shape [2], but the training data have [1]" in capsys.readouterr().err


def test_a_damaged_task_file_is_refused(forecaster, tmp_path, capsys):
    run, file = forecaster
    shutil.copytree(run, tmp_path / "run")
    stored = json.loads((run / "task.json").read_text())
    (tmp_path / "run" / "task.json").write_text(json.dumps(stored | {"season": "long"}))
    assert main(["run", str(tmp_path / "run"), file]) == 2
    assert "season cannot be 'long'" in capsys.readouterr().err
