"""Number series: one or more channels over time, to classify, to regress, and to forecast."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.episodes import EpisodeRow
from regard.data.lines import BadRow, Note
from regard.data.media_files import is_folder_of
from regard.data.rows import Labels, Row
from regard.data.splits import DataOptions, Rows
from regard.modalities.protocols import FitOptions, Modality, Preprocessor, ReadOptions, Target, stored_value
from regard.modalities.series import preprocessor, series_files
from regard.modalities.series.preprocessor import ForecastPreprocessor, SeriesPreprocessor, forecast_row
from regard.modalities.series.series_files import Values, Y, series_row
from regard.modalities.synthetic import waves
from regard.validate import check_fields

MAX_PATCH = 65_536
CONTEXT = 96  # tokens or time steps that a model sees by default
VALID_SHARE = 0.2  # of the time steps, at the end of a series
TABLES = ".tsv, .csv or .jsonl of series and"


@dataclass(frozen=True)
class PatchOptions:
    """The tokens of a series."""

    patch_length: int | None = None  # time steps per token; default: so that the longest series has at most 96 tokens

    def __post_init__(self) -> None:
        is_valid = self.patch_length is None or 1 <= self.patch_length <= MAX_PATCH
        check_fields(self, patch_length=(is_valid, f"1 to {MAX_PATCH:,}"))


@dataclass(frozen=True)
class SeasonOptions:
    """The baseline of a forecast."""

    season: int | None = None  # period of the seasonal-naive baseline in steps; default: estimated from the data

    def __post_init__(self) -> None:
        check_fields(self, season=(self.season is None or self.season >= 1, "at least 1"))


class SeriesModality(Modality):
    name = "series"
    unit = "series"
    like = ("audio", "trajectory")  # frames of channels, and observations over time
    file = "series or observation_norm in task.json"
    size_names = ("mels", "stride", "observation_dim", "observation_tokens", "num_actions")
    formats = {
        Target.LABELS: f"a folder of .csv or .npy with one folder per label, {TABLES} labels, or UCR tables",
        Target.NUMBER: f"{TABLES} numbers, or UCR tables",
        Target.NEXT: ".csv of channels, a line a time step, or .npy",
    }
    synthetic_data = {
        Target.LABELS: "wave forms",
        Target.NUMBER: "sine waves and their frequency",
        Target.NEXT: "daily demand of two products",
    }
    default_models = {"encoder": "audio_encoder", "dynamics": "world_model"}
    default_overrides = {"context": CONTEXT}
    file_formats = series_files.SERIES_FORMATS

    def option_groups(self, target: Target) -> tuple[type, ...]:
        return (SeasonOptions,) if target is Target.NEXT else (PatchOptions,)

    def recognizes(self, path: str) -> bool:
        return series_files.is_series_file(path) or is_folder_of(path, lambda name: name.endswith((".csv", ".npy")))

    def is_inline(self, raw: str) -> bool:
        """JSON; numbers with spaces between them might also be the name of a file."""
        return raw.lstrip().startswith("[")

    def read(self, paths: Sequence[str], how: ReadOptions) -> Rows:
        if how.target is Target.NEXT:
            return read_forecasts(paths, how)
        return same_channels(series_files.read_targets(paths, how))

    def synthetic(self, target: Target) -> Mapping[str, Rows]:
        if target is Target.NEXT:
            return {name: [forecast_row(row) for row in named_rows(name, waves.demand(name))] for name in waves.SETS}
        if target is Target.NUMBER:
            return {name: named_rows(name, *waves.frequencies(name)) for name in waves.SETS}
        return {name: named_rows(name, *waves.wave_forms(name)) for name in waves.SETS}

    def training_sets(self, files: DataOptions, how: ReadOptions) -> Mapping[str, Rows]:
        """Forecasts are validated on the end of every series."""
        if how.target is not Target.NEXT or files.valid or not files.data:
            return super().training_sets(files, how)
        rows = [*read_forecasts(files.data, how)]
        pieces = [split_in_time(row, files.valid_share or VALID_SHARE) for row in rows if isinstance(row, Row)]
        bad = [row for row in rows if not isinstance(row, Row)]
        return {"train": [*bad, *(head for head, _ in pieces)], "valid": [tail for _, tail in pieces]}

    def fit(self, rows: Any, how: FitOptions) -> Preprocessor:
        if isinstance(how.start, SeriesPreprocessor) and how.target is not Target.NEXT:
            return how.start
        if how.target is not Target.NEXT:
            return SeriesPreprocessor.fit(rows, how.groups[PatchOptions].patch_length, CONTEXT)
        season = how.groups[SeasonOptions].season or preprocessor.estimate_season(rows)
        return ForecastPreprocessor(**ForecastPreprocessor.scales(rows), season=season)

    def load(self, folder: Path, stored: Mapping[str, object]) -> Preprocessor | None:
        if stored.get("modality") != self.name:
            return None
        if "series" not in stored:
            season = stored_value(folder, stored, "season", int, 1)
            return ForecastPreprocessor.from_stored(folder, stored, season=season)
        try:
            return SeriesPreprocessor(**stored_value(folder, stored, "series", dict, {}))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{folder / 'task.json'}: series: {error}: restore it, or train again") from None


def named_rows(
    name: str, series: Sequence[Values], targets: Sequence[str] | Sequence[float] | None = None
) -> list[Row[Values, object]]:
    """Synthetic rows."""
    kinds = [None] * len(series) if targets is None else [Labels((t,)) if isinstance(t, str) else t for t in targets]
    pairs = zip(series, kinds, strict=True)
    return [series_row(values, kind, f"waves {name}", i) for i, (values, kind) in enumerate(pairs, 1)]


def read_forecasts(paths: Sequence[str], how: ReadOptions) -> Iterator[EpisodeRow | BadRow | Note]:
    series = same_channels(series_files.read_series(paths, how.fields, how.dialect))
    return (forecast_or_bad(row) if isinstance(row, Row) else row for row in series)


def same_channels(rows: Iterable[Row[Values, Y] | BadRow | Note]) -> Iterator[Row[Values, Y] | BadRow | Note]:
    """A series with another number of channels than the first is a bad row."""
    first: Row[Values, Y] | None = None
    for row in rows:
        if isinstance(row, Row):
            first = first or row
            has, expected = row.input.shape[1], first.input.shape[1]
            if has != expected:
                detail = f"{has} channels, but {first.location}{expected}"
                yield BadRow(row.file, row.line, "unequal counts", detail)
                continue
        yield row


def forecast_or_bad(row: Row[Values, object]) -> EpisodeRow | BadRow:
    try:
        return forecast_row(row)
    except ValueError as error:
        return BadRow(row.file, row.line, "empty", str(error).removeprefix(row.location))


def split_in_time(row: EpisodeRow, share: float) -> tuple[EpisodeRow, EpisodeRow]:
    """The first steps, and the last `share` of them."""
    values, cut = row.input.observations, round((1 - share) * (row.input.steps + 1))
    if not 2 <= cut <= len(values) - 2:
        raise ValueError(f"{row.location}{len(values)} steps are too few to hold out {share:g} of them: add --valid")
    head, tail = (forecast_row(series_row(part, None, row.file, row.line)) for part in (values[:cut], values[cut:]))
    return head, tail
