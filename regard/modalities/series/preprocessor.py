"""Number series as model inputs: patches of time steps to classify, and steps to forecast."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from regard.data.batches import Ints, padding_mask
from regard.data.episodes import Episode, EpisodeRow, Rollout, episode_row, observed
from regard.data.lines import UTF8, BadRow
from regard.data.observation_norm import Reals, nonzero_std
from regard.data.rows import Row
from regard.modalities.protocols import EncodedInputs, Inputs, Preprocessor, Target
from regard.modalities.series.forecast_plot import save_forecasts
from regard.modalities.series.series_files import Values, parse_values, read_series, series_row
from regard.modalities.step_preprocessor import StepPreprocessor
from regard.modalities.synthetic import waves
from regard.validate import check_fields, matches_type

MAX_SEASON = 400  # steps; longer periods are not estimated
MIN_CORRELATION = 0.2  # of a series with itself one season later


class SeriesArrays(EncodedInputs):
    """Normalised series. Lengths are in tokens of `patch_length` steps."""

    def __init__(self, series: list[Values], patch_length: int):
        super().__init__(np.array([-(-len(values) // patch_length) for values in series], np.int64))
        self.series = series


@dataclass
class SeriesPreprocessor(Preprocessor):
    mean: list[float]  # of each channel
    std: list[float]
    patch_length: int  # time steps of a token

    modality = "series"
    example = "[1, 2, 3, 4]"

    def __post_init__(self) -> None:
        are_numbers = matches_type([*self.mean, *self.std], list[float])
        same = are_numbers and len(self.mean) == len(self.std) >= 1 and min(self.std) > 0
        scale = "above 0, and like mean a number for each channel"
        check_fields(self, patch_length=(self.patch_length >= 1, "at least 1"), std=(same, scale))

    @classmethod
    def fit(cls, rows: Sequence[Row[Values, object]], patch_length: int | None, max_tokens: int) -> SeriesPreprocessor:
        """A patch is so long that the longest series has at most `max_tokens` of them."""
        values = np.concatenate([row.input for row in rows]).astype(np.float64)
        longest = max(len(row.input) for row in rows)
        std = nonzero_std(values.std(0))
        return cls(values.mean(0).tolist(), std.tolist(), patch_length or max(1, -(-longest // max_tokens)))

    def encode(self, rows: Sequence[Row[Values, object]], context: int, whole: bool = False) -> SeriesArrays:
        for row in rows:
            if row.input.shape[1] != len(self.mean):
                has = f"{row.input.shape[1]} channels, but the training data have {len(self.mean)}"
                raise ValueError(f"{row.location}{has}")
            if context and len(row.input) > context * self.patch_length:
                limit = f"the model reads at most {context * self.patch_length}: shorten it"
                raise ValueError(f"{row.location}the series has {len(row.input)} steps, {limit}")
        series = [((row.input - self.mean) / self.std).astype(np.float32) for row in rows]
        return SeriesArrays(series, self.patch_length)

    def collate(self, inputs: SeriesArrays, rows: Ints, training: bool) -> Inputs:
        """The last token of a series is padded with zeros, so batch composition changes nothing."""
        tokens = inputs.lengths[rows, 0]
        x = torch.zeros(len(rows), int(tokens.max()) * self.patch_length, len(self.mean))
        for i, row in enumerate(rows.tolist()):
            x[i, : len(inputs.series[row])] = torch.from_numpy(inputs.series[row])
        return Inputs(x, padding_mask(tokens, int(tokens.max())))

    def sizes(self) -> dict[str, int]:
        return {"mels": len(self.mean), "stride": self.patch_length}

    def parse(self, raw: str, target: Target) -> Row[Values, None]:
        """JSON, numbers, or the name of a file."""
        return series_row(parse_values(raw), None, "", 1)

    def probes(self, count: int, target: Target) -> Sequence[Row[Values, object]]:
        """Noise of different lengths."""
        rng = np.random.default_rng(0)
        steps = [self.patch_length * 6 - i % 3 for i in range(count)]
        noise = (rng.normal(self.mean, self.std, (max(n, 2), len(self.mean))) for n in steps)
        return [series_row(values.astype(np.float32), None, "", i) for i, values in enumerate(noise, 1)]

    def as_request(self, row: Row[Values, object]) -> str:
        return json.dumps(row.input.tolist())

    def show(self, row: Row[Values, object]) -> str:
        return f"{row.location}{len(row.input)} steps"

    def save(self, folder: Path) -> dict[str, object]:
        return {"series": asdict(self)}


@dataclass
class ForecastPreprocessor(StepPreprocessor):
    season: int = 1  # period of the seasonal-naive baseline, in steps

    modality = "series"
    example = "series.csv"
    baseline_description = "seasonal naive"
    baseline_name = "seasonal_naive"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, season=(self.season >= 1, "at least 1"))

    def parse_all(self, raw: str) -> list[EpisodeRow]:
        """The series of a file, or one as JSON."""
        if raw.lstrip().startswith("["):
            return [forecast_row(series_row(parse_values(raw), None, "", 1))]
        rows = []
        for row in read_series([raw], None, UTF8):
            if isinstance(row, BadRow):
                raise ValueError(f"{row.file}:{row.line}: {row.detail}")
            rows.append(forecast_row(row))
        return rows

    def probes(self, count: int, target: Target) -> Sequence[Row[Episode, object]]:
        rng, shape = np.random.default_rng(0), tuple(self.norm.shape)
        walks = [rng.normal(size=(12 - i % 3, *shape)).cumsum(0) * self.norm.std for i in range(count)]
        return [episode_row(observed(walk.astype(np.float32)), "", i) for i, walk in enumerate(walks, 1)]

    def rollout_windows(self, rows: Sequence[EpisodeRow], context: int, horizon: int) -> tuple[int, list[Episode]]:
        """A series may be the only one, so rollouts start every `horizon` steps, after a context and a season."""
        start, windows = max(context, self.season), []
        for values in (row.input.observations for row in rows):
            ends = range(start + horizon, len(values) + 1, horizon)
            windows += [observed(values[end - horizon - start : end]) for end in ends]
        return start, windows

    def baseline(self, episode: Episode, start: int, horizon: int) -> Reals:
        """The value one season before; within the first season the last one."""
        period = self.season if start >= self.season else 1
        steps = start - period + np.arange(horizon) % period
        return episode.observations[steps].astype(np.float64)

    def save_rollouts(self, file: str, rollouts: Sequence[Rollout]) -> None:
        save_forecasts(file, rollouts, [self.baseline(r.episode, r.num_observed, len(r.prediction)) for r in rollouts])

    def save(self, folder: Path) -> dict[str, object]:
        return {**super().save(folder), "season": self.season}


def forecast_row(row: Row[Values, object]) -> EpisodeRow:
    """The series as observations without actions."""
    if len(row.input) < 2:
        raise ValueError(f"{row.location}a series of one step has nothing to predict")
    return episode_row(observed(row.input), row.file, row.line)


def estimate_season(rows: Sequence[EpisodeRow]) -> int:
    """The first lag at which the autocorrelation, averaged over series and channels, peaks near its maximum; 1 if there
    is none."""
    longest = max(row.input.steps + 1 for row in rows)
    lags = min(MAX_SEASON, longest // 3)
    total, count = np.zeros(lags + 1), np.zeros(lags + 1)
    for row in rows[: waves.MAX_SAMPLE]:
        values = row.input.observations.astype(np.float64)
        centred = values - values.mean(0)
        power = (centred**2).mean() or 1.0
        for lag in range(min(lags, len(values) - 2) + 1):
            total[lag] += (centred[lag:] * centred[: len(values) - lag]).mean() / power
            count[lag] += 1
    correlation = total / np.maximum(count, 1)
    peaks = [k for k in range(2, lags) if correlation[k - 1] < correlation[k] >= correlation[k + 1]]
    highest = max((correlation[k] for k in peaks), default=0.0)
    return next((k for k in peaks if correlation[k] > max(0.9 * highest, MIN_CORRELATION)), 1)
