"""Decide: what to do next, learnt from episodes in which somebody did something.

    cloning          loss = - Σ log p(action t | what was seen up to t, what was done before t)
    the best only    the same, of the episodes with the highest returns (--best 0.1)
    by returns       p(action | ..., return to go, step),  return to go at t = Σ of the rewards from t on (--returns)

Cloning does what the players did, the bad ones too. Who learns from returns is told how well each episode went on, and
when it plays it is told what is wished instead: the Decision Transformer (Chen et al. 2021). Here the return to go, and
how many steps were done, are two more numbers of the observation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.batches import Ints, to_device
from regard.data.bundled import cart
from regard.data.episodes import Episode, Floats, read_episodes
from regard.data.files import Rows
from regard.data.lines import UTF8, Dialect
from regard.data.senses import Senses, or_1
from regard.data.stretches import Stretches
from regard.metrics import accuracy
from regard.parts.heads import Model, PerToken, must_be_finite
from regard.tasks.steps import episodes_in, must_act, the_best, to_go
from regard.tasks.task import Answer, Choices, Loss, Task, learnt, samples
from regard.validate import check_fields

NOTHING = -100  # stands where there is no step, so that it counts nothing
TOLD = 20  # actions of an episode that a sample shows


class Seen(NamedTuple):
    seen: Tensor  # (B,T,K,O)
    before: Tensor  # (B,T) what was done a step earlier
    wanted: Tensor  # (B,T)


@dataclass(frozen=True)
class Wishes(Choices):
    """How it decides."""

    wish: float | None = None  # the return to ask for, if it learnt from returns; the best it has seen unless given
    temperature: float = 0.0  # 0 takes the most probable action; 1 draws one as probable as the model believes it is
    env: str | None = None  # with --play: where to act, an environment of gymnasium; the cart that ships unless given

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(
            self,
            wish=(self.wish is None or math.isfinite(self.wish), "finite"),
            temperature=(0 <= self.temperature < math.inf, "0 or more, and finite"),
        )


@dataclass
class Decide(Task):
    best: float = 1.0  # share of the episodes that is learnt from, those with the highest returns
    returns: bool = False  # tell the model what return each episode came to, so that one can be wished for
    patch: int | None = None  # height and width of a patch of a frame in pixels; what fits, near 10, unless given
    kinds: int = learnt()  # of actions
    sensed: dict[str, Any] = learnt()  # shape and scales of observations
    mean: list[float] = learnt()  # of returns to go, and of steps done
    spread: list[float] = learnt()
    highest: float = learnt()  # return of the episodes it learnt from

    def __post_init__(self) -> None:
        check_fields(
            self,
            best=(0 < self.best <= 1, "above 0 and at most 1"),
            patch=(self.patch is None or self.patch >= 1, "at least 1"),
            kinds=(self.kinds >= 2, "at least 2"),
            mean=(len(self.mean) == 2 and all(map(math.isfinite, self.mean)), "two numbers"),
            spread=(len(self.spread) == 2 and all(0 < one < math.inf for one in self.spread), "two above 0"),
            highest=(math.isfinite(self.highest), "finite"),
        )
        self.senses = Senses(**self.sensed)

    about = "what was seen and done so far in, what to do next out"
    takes = ".npz or .jsonl of episodes: observations, actions, rewards"
    ships = "a pole on a cart, balanced by players of different skill"
    asks = ("foresees",)
    default = "world"
    of_the_head = ("kinds", "sensed", "mean", "spread")
    counts = "steps"
    looks = 500
    unused = frozenset({"fields", "longest"})
    ways = Wishes
    acts = True

    @classmethod
    def usual(cls, ability: str) -> dict[str, Any]:
        """What somebody is up to shows over many steps, and not in the last few, by which a world is foreseen."""
        return {"context": 20}

    @classmethod
    def rows(
        cls, paths: tuple[str, ...], fields: tuple[str, ...] | None, ability: str, dialect: Dialect = UTF8, **aim: Any
    ) -> Rows:
        return the_best(read_episodes(paths, dialect), aim["best"])

    @classmethod
    def bundled(cls, ability: str, **aim: Any) -> dict[str, Rows]:
        """A pole on a cart, balanced by players of different skill."""
        parts: dict[str, list[Any]] = {"train": [], "valid": [], "test": []}
        for episode in cart.carts():
            parts[cart.split(episode)].append(episode)
        return {name: the_best(some, aim["best"]) for name, some in parts.items()}

    @classmethod
    def fit(cls, rows: Any, ability: str, reading: dict[str, Any], readers: dict[str, Any], **aim: Any) -> Decide:
        for row in rows:
            must_act(row)
        kinds = 1 + max(int(row.actions.max()) for row in rows)
        if len({int(action) for row in rows for action in row.actions}) < 2:
            raise ValueError(f"{rows[0].file}: there is nothing to decide: every action is {rows[0].actions[0]}")
        told = np.concatenate([to_go(row.rewards, row.rewards.sum())[:-1] for row in rows])
        scales = {"mean": told.mean(0).tolist(), "spread": or_1(told.std(0)).tolist()}
        highest = max(float(row.rewards.sum()) for row in rows)
        return cls(**aim, kinds=kinds, sensed=asdict(Senses.fit(rows, aim["patch"])), **scales, highest=highest)

    def sizes(self) -> dict[str, int]:
        sizes = self.senses.sizes
        return sizes | {"observation": sizes["observation"] + 2 * self.returns, "actions": self.kinds}

    def head(self, body: Any) -> Model:
        return Model(body, PerToken(body.config.dim, self.kinds, body.config.dropout))

    def scaled(self, seen: Floats, besides: Any) -> Floats:
        """Observations (L,...) as numbers of mean 0 and spread 1, (L,K,O); `besides` is what `to_go` tells."""
        numbers = self.senses.given(torch.from_numpy(seen)[None])[0]
        if self.returns:
            more = torch.from_numpy((besides - np.array(self.mean)) / np.array(self.spread)).to(numbers)
            numbers = torch.cat((numbers, more[:, None].expand(-1, numbers.size(1), -1)), -1)
        return numbers.numpy()

    def history(self, row: Episode, total: float) -> tuple[Floats, Ints]:
        """All L+1 steps of an episode that comes to `total`: their numbers, and what was done before each; before the
        first, nothing."""
        assert row.actions is not None
        return self.scaled(row.seen(), to_go(row.rewards, total)), np.append(self.kinds, row.actions)

    def prepare(self, rows: Sequence[Episode], context: int) -> Stretches:
        for row in rows:
            self.must_fit(row)
        pasts = [self.history(row, float(row.rewards.sum())) for row in rows]
        seen, before = (np.concatenate([past[i][:-1] for past in pasts]) for i in (0, 1))
        done = np.concatenate([row.actions for row in rows if row.actions is not None])
        return Stretches(np.array([row.steps for row in rows]), (seen, before, done), context, seen.shape[1] + 1)

    def must_fit(self, row: Episode) -> None:
        must_act(row)
        assert row.actions is not None
        found, known = list(row.observations.shape[1:]), self.senses.shape
        if found != known:
            raise ValueError(f"{row.file}:{row.line}: its observations are {found}, those learnt from were {known}")
        if row.actions.max(initial=0) >= self.kinds:
            strange = f"the action {row.actions.max()} is none of the {self.kinds} that were learnt from"
            raise ValueError(f"{row.file}:{row.line}: {strange}")

    def batch(self, examples: Stretches, rows: Ints) -> Seen:
        seen, before, wanted = examples.padded(rows, (0.0, self.kinds, NOTHING))
        return Seen(torch.from_numpy(seen), torch.from_numpy(before), torch.from_numpy(wanted))

    def logits(self, model: Model, seen: Tensor, before: Tensor) -> Tensor:
        """Told by the last vector of a step, which has seen all of it. What is done then is shown a step later."""
        return model.head(model.body(seen, before)[:, :, -1])  # (B,T,actions)

    def loss(self, model: Model, batch: Seen) -> Loss:
        logits = self.logits(model, batch.seen, batch.before).flatten(0, 1)
        total = F.cross_entropy(logits, batch.wanted.flatten(), ignore_index=NOTHING, reduction="sum")
        return Loss(total, int((batch.wanted != NOTHING).sum()))

    def told(self, rows: Any, examples: Stretches, numbers: Ints) -> list[dict[str, Any]]:
        places = [examples.place(int(number)) for number in numbers]
        return [{"file": rows[e].file, "line": rows[e].line, "text": f"{n} steps from {at}"} for e, at, n in places]

    def amount(self, rows: Any) -> str:
        return f"{len(rows):,} episodes of {sum(row.steps for row in rows):,} steps"

    @torch.inference_mode()
    def score(self, model: Model, rows: Sequence[Episode], how: Wishes | None = None) -> dict[str, Any]:
        """How well it tells what the players did."""
        examples, device = self.prepare(rows, model.body.config.context), next(model.parameters()).device
        total, said = 0.0, list[Ints]()
        windows = examples.in_order()
        for some in (windows[i : i + 256] for i in range(0, len(windows), 256)):
            batch = to_device(self.batch(examples, some), device)
            logits = self.logits(model, batch.seen, batch.before).float()
            real = batch.wanted != NOTHING
            total += F.cross_entropy(logits[real], batch.wanted[real], reduction="sum").item()
            said.append(logits[real].argmax(-1).cpu().numpy())
        steps = np.cumsum([row.steps for row in rows])[:-1]
        each = np.split(np.concatenate(said), steps)
        wanted: list[Any] = [row.actions for row in rows]
        right = accuracy(*(list(map(str, np.concatenate(some).tolist())) for some in (wanted, each)))
        truth, answers = ([" ".join(map(str, one[:TOLD].tolist())) for one in some] for some in (wanted, each))
        asked = [f"{row.file}:{row.line}, return {row.rewards.sum():g}" for row in rows]
        scores = {"loss": total / examples.units, "accuracy": right}
        return {**scores, "answers": answers, "samples": samples(asked, truth, answers)}

    def rank(self, scores: dict[str, Any]) -> tuple[float, ...]:
        return (-round(scores["loss"], 4),)

    def example(self) -> str:
        return "episodes.npz"

    def wished(self, how: Wishes) -> float:
        """The return to ask for."""
        if how.wish is not None and not self.returns:
            raise ValueError(
                "this model did not learn from returns, so none can be wished for: train it with --returns"
            )
        return self.highest if how.wish is None else how.wish

    def chances(self, model: Model, seen: Floats, before: Ints) -> Tensor:
        """Log-probabilities of what comes next, (B,actions), after so many steps (B,T,K,O) as the context holds."""
        device, context = next(model.parameters()).device, model.body.config.context
        shown = (torch.from_numpy(array[:, -context:]).to(device) for array in (seen, before))
        return must_be_finite(self.logits(model, *shown)[:, -1].float()).log_softmax(-1).cpu()

    @torch.inference_mode()
    def predict(self, model: Model, raw: Iterable[str], how: Wishes, first: int = 0) -> Iterator[list[Answer]]:
        """The name of a file of episodes, or one episode so far as JSON. Of a file, what comes next in each."""
        wish = self.wished(how)
        for number, text in enumerate(raw, first + 1):
            found = []
            for row in episodes_in(text, number):
                self.must_fit(row)
                seen, before = self.history(row, wish)
                found.append(self.chances(model, seen[None], before[None])[0])
            best = torch.stack(found).topk(min(how.num_return, self.kinds))  # (episodes, n_best)
            ranked = zip(best.values.T.tolist(), best.indices.T.tolist(), strict=True)
            yield [Answer(" ".join(map(str, actions)), sum(logp), math.exp(min(logp))) for logp, actions in ranked]
