"""Embed: its loss is that of the formula, padding is invisible, and near texts are found among others."""

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from regard.data.pieces import READING, WRITING, Pieces, learn
from regard.models.bert import Bert, BertConfig
from regard.parts.heads import Model
from regard.tasks.embed import TOGETHER, Couples, Embed
from regard.tasks.task import Choices

B, T, D = 5, 7, 6
WORDS = ["tea", "water", "bread", "house", "river", "garden"]
PAIRS = [(f"{a} {b}", f"{b} and {a}") for a, b in product(WORDS, WORDS) if a < b]


class Rows(nn.Module):
    """A body that gives what it is told."""

    def __init__(self, x: Tensor):
        super().__init__()
        self.x = x

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.x


@pytest.fixture(scope="module")
def task() -> Embed:
    texts = [side for pair in PAIRS for side in pair]
    return Embed(tokenizer=learn(texts, Pieces(pieces="characters"), READING))


@pytest.fixture(scope="module")
def model(task: Embed) -> Model:
    torch.manual_seed(2)
    config = BertConfig(context=32, dim=24, layers=2, heads=3, hidden=40, dropout=0.0, **task.sizes())
    made = task.head(Bert(config)).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return made


def couples(alike: Tensor) -> tuple[Couples, Tensor, Tensor]:
    torch.manual_seed(1)
    lengths = torch.randint(1, T + 1, (2 * B,))
    mask = (torch.arange(T) < lengths[:, None])[:, None, None]
    return Couples(torch.zeros(2 * B, T, dtype=torch.long), mask, alike), torch.randn(2 * B, T, D), lengths


@pytest.mark.parametrize("temperature", [0.05, 0.7])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("twice", [[], [(0, 3), (3, 0)], [(1, 2), (1, 4), (0, 4)]])
def test_the_loss_is_that_of_the_formula(
    twice: list[tuple[int, int]], unit: bool, temperature: float, task: Embed
) -> None:
    alike = torch.zeros(B, B, dtype=torch.bool)
    for i, j in twice:
        alike[i, j] = True
    batch, x, lengths = couples(alike)
    made = Embed(temperature=temperature, unit=unit, tokenizer=task.tokenizer)
    model = Model(Rows(x), made.head(Sized()).head)
    means = [x[i, : lengths[i]].mean(0) for i in range(2 * B)]
    v = [mean / mean.norm() for mean in means]
    total = 0.0
    for i in range(B):
        row = {j: (v[i] @ v[B + j]).item() / temperature for j in range(B) if (i, j) not in twice}
        column = {j: (v[j] @ v[B + i]).item() / temperature for j in range(B) if (j, i) not in twice}
        for scores in (row, column):
            total -= (scores[i] - math.log(sum(math.exp(score) for score in scores.values()))) / 2
    loss = made.loss(model, batch)
    assert loss.count == B
    assert loss.total.item() == pytest.approx(total, rel=1e-4)


class Sized(nn.Module):
    """What a head asks of a body."""

    config = BertConfig(vocab=9, dim=D, heads=2)


def test_a_text_of_two_pairs_is_no_wrong_answer(task: Embed) -> None:
    rows = [("tea", "water"), ("tea", "bread"), ("house", "water"), ("river", "garden"), ("tea", "water")]
    examples = task.prepare(rows, 32)
    assert len(examples.texts.rows) == 6
    batch = task.batch(examples, np.arange(5))
    wanted = {(i, j) for i, j in product(range(5), range(5)) if i != j and (rows[i][0], rows[j][1]) in rows}
    assert {(i, j) for i, j in batch.alike.nonzero().tolist()} == wanted
    assert task.tokenizer.decode(batch.ids.tolist()) == [row[side] for side in (0, 1) for row in rows]


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_padding_is_invisible(pooling: Any, task: Embed, model: Model) -> None:
    made = Embed(pooling=pooling, tokenizer=task.tokenizer)
    whole = Model(model.body, made.head(model.body).head)
    texts = ["tea", "water and bread", "", "the house is in the garden by the river"]
    together = made.embed_texts(whole, texts)
    assert together.shape == (4, 24)
    assert_close(together.norm(dim=-1), torch.ones(4))
    for text, vector in zip(texts, together, strict=True):
        assert_close(made.embed_texts(whole, [text])[0], vector, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_a_vector_is_pooled_from_real_tokens_only(pooling: Any, task: Embed) -> None:
    _, x, lengths = couples(torch.zeros(B, B, dtype=torch.bool))
    head = Embed(pooling=pooling, unit=False, tokenizer=task.tokenizer).head(Sized()).head
    mask = (torch.arange(T) < lengths[:, None])[:, None, None]
    rows = [x[i, : lengths[i]] for i in range(2 * B)]
    wanted = {"mean": [row.mean(0) for row in rows], "first": [r[0] for r in rows], "last": [r[-1] for r in rows]}
    assert_close(head(x, mask), torch.stack(wanted[pooling]))
    assert_close(head(x.where(mask[:, 0, 0, :, None], 99.0), mask), torch.stack(wanted[pooling]))


def test_scores_are_those_of_the_vectors(task: Embed, model: Model) -> None:
    rows = [*PAIRS, ("tea water", "something else"), ("tea bread", "something else")]
    scores = task.score(model, rows)
    one, other = (task.embed_texts(model, [row[side] for row in rows]) for side in (0, 1))
    cosines = one @ other.T
    right = torch.tensor([[(a, b) in rows for _, b in rows] for a, _ in rows])
    for k in (1, 5, 10):
        both = []
        for near, good in ((cosines, right), (cosines.T, right.T)):
            best = near.masked_fill(~good, -2).amax(1, keepdim=True)
            place = ((near >= best) & ~good).sum(1) + 1
            both.append(100 * (place <= k).float().mean().item())
        assert scores[f"recall_at_{k}"] == pytest.approx(sum(both) / 2)
    assert len(rows) < TOGETHER
    near = (cosines / task.temperature).masked_fill(right & ~torch.eye(len(rows), dtype=torch.bool), -torch.inf)
    own = torch.arange(len(rows))
    assert scores["loss"] == pytest.approx((F.cross_entropy(near, own) + F.cross_entropy(near.T, own)).item() / 2)
    assert scores["answers"] == [rows[i][1] for i in cosines.argmax(1).tolist()]
    assert task.rank({"recall_at_1": 2.0, "loss": 9.0}) > task.rank({"recall_at_1": 1.0, "loss": 0.1})


def test_a_text_alone_gives_its_vector_and_one_among_others_those_near_it(task: Embed, model: Model) -> None:
    others = ["tea", "water and bread", "the river", ""]
    alone, among = task.predict(model, ["a house", "\t".join(["a house", *others])], Choices(num_return=9))
    vector = task.embed_texts(model, ["a house"])[0]
    assert_close(torch.tensor(json.loads(alone[0].text)), vector, atol=1e-6, rtol=1e-5)
    cosines = dict(zip(others, (task.embed_texts(model, others) @ vector).tolist(), strict=True))
    assert [answer.text for answer in among] == sorted(others, key=lambda text: -cosines[text])
    for answer in among:
        assert answer.more["cosine"] == answer.score == pytest.approx(cosines[answer.text], abs=1e-5)
    [best] = task.predict(model, ["\t".join(["a house", *others])], Choices())
    assert best == among[:1]


def test_a_text_is_cut_where_it_was_meant_to_be(task: Embed, model: Model) -> None:
    short = Embed(limit=9, tokenizer=task.tokenizer)
    [ids] = short.tokens(["the garden by the river"], 32)
    assert len(ids) == 9
    assert len(task.tokens(["the garden by the river " * 9], 32)[0]) == 32
    assert_close(short.embed_texts(model, ["tea with milk"]), short.embed_texts(model, ["tea with water"]))


def test_a_text_without_a_token_has_a_vector_too(model: Model) -> None:
    """Some tokenizers put nothing around a text."""
    plain = Embed(tokenizer=learn(["tea and water"], Pieces(pieces="characters"), WRITING))
    assert plain.tokenizer.encode([""]) == [[]]
    assert plain.tokens(["", "tea"], 32)[0] == [plain.tokenizer.end]
    assert plain.embed_texts(model, ["", "tea"]).isfinite().all()


def test_an_unknown_column_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("one\tother\ntea\tTee\n")
    with pytest.raises(ValueError, match="othr"):
        list(Embed.rows((str(file),), ("one", "othr"), "reads"))
    with pytest.raises(ValueError, match="--fields names the two texts of a pair, .*not 3"):
        Embed.rows((str(file),), ("one", "other", "more"), "reads")


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_temperature_that_is_none_is_refused(temperature: float, task: Embed) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        Embed(temperature=temperature, tokenizer=task.tokenizer)
