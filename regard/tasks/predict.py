"""Predict: what comes next, of what was observed and done so far? A world model, of a video or of somebody who acts.

    loss = Σ_t |x_t+1 - x_t - change_t|² + (r_t - reward_t)² - log P(end_t)

In a video that is the squared error of each frame, in the units of its pixels. Other numbers are scaled first: each
counts by how much it usually changes. Episodes end but once, so each is learnt from once more at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Ints, padding_mask, real_places, to_device
from regard.data.bundled import ball
from regard.data.episodes import Episode, read_episodes, video
from regard.data.experience import Experience
from regard.data.files import Rows
from regard.data.films import Rollout, save_told
from regard.data.lines import UTF8, Dialect
from regard.data.moments import Moments
from regard.data.senses import Senses, or_1
from regard.parts.future import Foreseen, Future
from regard.parts.heads import NOT_FINITE, Model
from regard.tasks.rollout import at, missed, rolled
from regard.tasks.steps import episodes_of
from regard.tasks.task import Answer, Choices, Loss, Task, learnt, samples
from regard.validate import check_fields

VIDEOS = {"train": 1500, "valid": 100, "test": 200}  # of the ball
HORIZONS = (1, 5, 10, 20)  # steps ahead that a score tells of
BUDGET = 16384  # tokens at once where nothing is learnt


@dataclass(frozen=True)
class Foreseeing(Choices):
    """How far to look ahead, and where to keep what is seen there."""

    horizon: int = 20  # steps to look ahead
    ahead: bool = False  # start after the last observation, not so many steps before it, where the truth is known
    save: str | None = None  # keep it: .gif moves, .png is a strip, .npz and .jsonl hold the numbers

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, horizon=(self.horizon >= 1, "at least 1"))


class Seen(NamedTuple):
    x: Tensor  # (B,T,K,O) scaled observations
    actions: Tensor | None  # (B,T)
    change: Tensor  # (B,T,K,O) scaled
    reward: Tensor  # (B,T) scaled
    end: Tensor  # (B,T)
    real: Tensor  # (B,T), True where there is a step
    mask: Tensor | None  # (B,1,1,T), None if all are real


@dataclass
class Predict(Task):
    patch: int | None = None  # height and width of a patch of a frame in pixels; what fits, near 10, unless given
    kinds: int = learnt()  # of actions; 0 if nobody acts
    sensed: dict[str, Any] = learnt()  # shape and scales of observations
    reward: list[float] = learnt()  # mean and spread

    def __post_init__(self) -> None:
        check_fields(
            self,
            patch=(self.patch is None or self.patch >= 1, "at least 1"),
            kinds=(self.kinds >= 0, "0 or more"),
            reward=(len(self.reward) == 2 and self.reward[1] > 0, "mean and spread"),
        )
        self.senses = Senses(**self.sensed)

    about = "what was observed and done in, what comes next out"
    takes = ".npz or .jsonl of videos or episodes"
    ships = "the ball: videos of three balls that bounce"
    asks = ("foresees",)
    default = "world"
    of_the_head = ("patch", "kinds", "sensed", "reward")
    counts = "moments"
    looks = 20
    unused = frozenset({"fields", "longest"})
    ways = Foreseeing
    acts = True

    @classmethod
    def groups(cls, ability: str) -> tuple[type, ...]:
        return (Experience,)

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **aim: Any
    ) -> Rows:
        return read_episodes(paths, dialect)

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        """Videos of the ball, other ones in each set."""
        sets: dict[str, Rows] = {}
        for seed, (name, count) in enumerate(VIDEOS.items()):
            films = ball.balls(count, seed=seed).frames
            sets[name] = [video(frames, f"ball {name}", line) for line, frames in enumerate(films, 1)]
        return sets

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Predict:
        kinds = 0 if rows[0].actions is None else 1 + max(int(row.actions.max()) for row in rows)
        rewards = np.concatenate([row.rewards for row in rows]).astype(np.float64)
        told = [float(rewards.mean()), float(or_1(rewards.std()))]
        return cls(**aim, kinds=kinds, sensed=asdict(Senses.fit(rows, aim["patch"])), reward=told)

    def sizes(self) -> dict[str, int]:
        return {**self.senses.sizes, "actions": self.kinds}

    def head(self, body: Any) -> Model:
        return Model(body, Future(body.config.dim, body.config.observation, body.config.actions))

    def prepare(self, rows: Sequence[Episode], context: int) -> Moments:
        for row in rows:
            self.must_know(row)
        return Moments(rows, context, self.senses.places + (self.kinds > 0))

    def must_know(self, row: Episode) -> None:
        shape, where = list(row.observations.shape[1:]), f"{row.file}:{row.line}"
        if shape != (usual := self.senses.shape):
            raise ValueError(f"{where}: observations of shape {shape}, but the model learnt from those of {usual}")
        if (row.actions is None) != (self.kinds == 0):
            has, known = ("no actions", "some") if row.actions is None else ("actions", "none")
            raise ValueError(f"{where}: it has {has}, but what the model learnt from has {known}")
        if row.actions is not None and row.actions.max() >= self.kinds:
            most = self.kinds - 1
            raise ValueError(f"{where}: action {row.actions.max()}, but the model learnt from those up to {most}")

    def batch(self, examples: Moments, rows: Ints) -> Seen:
        window = examples.take(rows)
        seen, T = torch.from_numpy(window.observations), window.rewards.shape[1]
        mean, spread = self.reward
        return Seen(
            self.senses.given(seen[:, :-1]),
            None if window.actions is None else torch.from_numpy(window.actions),
            self.senses.changes(seen),
            (torch.from_numpy(window.rewards) - mean) / spread,
            torch.from_numpy(window.ends),
            real_places(window.lengths, T),
            None if window.lengths.min() == T else padding_mask(window.lengths, T),
        )

    def foreseen(self, model: Model, batch: Seen) -> Foreseen:
        found: Foreseen = model.head(model.body(batch.x, batch.actions, batch.mask))
        return found

    def loss(self, model: Model, batch: Seen) -> Loss:
        told = self.foreseen(model, batch)
        return Loss(self.cost(told, batch, batch.real), int(batch.real.sum()))

    def cost(self, told: Foreseen, batch: Seen, counted: Tensor) -> Tensor:
        """Of the steps that count. Each number of an observation weighs as much as a reward does."""
        weight = 1 if self.senses.frames else self.senses.shape[0]
        total = weight * self.senses.off(told.change - batch.change)[counted].sum()
        if told.reward is None or told.end is None:
            return total
        total = total + (told.reward - batch.reward)[counted].square().sum()
        return total + F.binary_cross_entropy_with_logits(told.end[counted], batch.end[counted], reduction="sum")

    def told(self, rows: Any, examples: Moments, numbers: Ints) -> list[dict[str, Any]]:
        found = zip(*examples.at(numbers), strict=True)
        return [{"file": rows[i].file, "line": rows[i].line, "text": f"from step {step + 1}"} for i, step in found]

    def amount(self, rows: Sequence[Any]) -> str:
        return f"{len(rows):,} {'episode' if self.kinds else 'video'}{'s' * (len(rows) != 1)}"

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[Episode], how: Any = None) -> dict[str, Any]:
        """Every step from those before it, beside saying that nothing changes; then many steps ahead."""
        examples = self.prepare(rows, model.body.config.context)
        every, size, device = examples.every(), examples.rows(BUDGET), next(model.parameters()).device
        sums: dict[str, float] = dict.fromkeys(("loss", "error", "copy", "reward_error", "end_accuracy"), 0.0)
        each = np.zeros((len(rows), 2))
        for some in (every[i : i + size] for i in range(0, len(every), size)):
            number, start = examples.at(some)
            batch = to_device(self.batch(examples, some), device)
            told, first = self.foreseen(model, batch), torch.from_numpy(start == 0).to(device)[:, None]
            last = torch.arange(batch.real.size(1), device=device) == examples.context - 1
            new = batch.real & (first | last)  # all else was told by a window before
            wrong = self.senses.within(batch.x, told.change) - batch.change
            both = [(self.senses.off(one) * new).sum(1).cpu().numpy() for one in (wrong, batch.change)]
            np.add.at(each, number, np.stack(both, 1))
            sums["loss"] += self.cost(told, batch, new).item()
            if told.reward is not None and told.end is not None:
                sums["reward_error"] += (told.reward - batch.reward)[new].square().sum().item() * self.reward[1] ** 2
                sums["end_accuracy"] += 100 * ((told.end > 0) == (batch.end > 0))[new].sum().item()
        sums["error"], sums["copy"] = each.sum(0).tolist()
        steps = int(examples.steps.sum())
        scores = {name: total / steps for name, total in sums.items() if self.kinds or "_" not in name}
        answers = [f"error {one:.3f}, without change {other:.3f}" for one, other in each / examples.steps[:, None]]
        shown = samples([f"{row.file}:{row.line}" for row in rows], ["error 0"] * len(rows), answers)
        return {**scores, **self.far(model, rows), "answers": answers, "samples": shown}

    def far(self, model: Model, rows: Sequence[Episode]) -> dict[str, float]:
        """The error so many steps ahead, from the first steps that fill the context."""
        known = model.body.config.context
        found = rolled(model, self.senses, [row for row in rows if row.steps >= known], known, HORIZONS[-1])
        errors = [missed(self.senses, one)[0] for one in found]
        return {f"error_at_{step}": error for step in HORIZONS if (error := at(errors, step)) is not None}

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-round(scores["error"], 4),)

    def example(self) -> str:
        return "episodes.jsonl" if self.kinds else "videos.npz"

    def predict(self, model: Model, raw: Iterable[str], how: Foreseeing, first: int = 0) -> Iterator[list[Answer]]:
        """Names of files of episodes, or of one of them: videos.npz:3."""
        for number, name in enumerate(raw, first):
            if how.save and number:
                raise ValueError(f"--save {how.save} would hold the last file only: give one at a time")
            if how.ahead and self.kinds:
                raise ValueError("nobody knows what will be done after the last step: leave out --ahead")
            rows = episodes_of(name)
            for row in rows:
                self.must_know(row)
            after = max(row.steps + 1 for row in rows) if how.ahead else None
            found = rolled(model, self.senses, rows, after, how.horizon)
            if not all(np.isfinite(one.told).all() for one in found):
                raise FloatingPointError(NOT_FINITE)
            if how.save:
                save_told(how.save, found, self.senses.low, self.senses.high)
            yield [self.answer(found, how.horizon)]

    def answer(self, found: list[Rollout], horizon: int) -> Answer:
        both = zip(*(missed(self.senses, one) for one in found), strict=True)
        errors, still = ([at(some, step) for step in range(1, horizon + 1)] for some in both)
        more: dict[str, Any] = {"horizon": horizon, "errors": errors, "without_change": still}
        if len(found) == 1:
            more["foreseen"] = found[0].told.tolist()
        text = f"{horizon} steps ahead of {self.amount(found)}"
        if errors[0] is not None:
            one, other = (np.mean([error for error in some if error is not None]) for some in (errors, still))
            text += f": error {one:.3f} a step, without change {other:.3f}"
        return Answer(text, more=more)
