"""Embed: the loss equals its formula, padding changes no vector, and scores follow from the vectors."""

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

from regard.data.rows import Row
from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, TokenizerOptions, train_tokenizer
from regard.modalities.protocols import Inputs, ReadOptions, Target
from regard.modalities.text.modality import TextModality
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models.bert import Bert, BertConfig
from regard.parts.heads import Model
from regard.tasks.contrastive import EVAL_BATCH
from regard.tasks.embed import Embed, PairBatch
from regard.tasks.task import DecodeOptions

B, T, D = 5, 7, 6
WORDS = ["tea", "water", "bread", "house", "river", "garden"]
PAIRS = [(f"{a} {b}", f"{b} and {a}") for a, b in product(WORDS, WORDS) if a < b]


class Rows(nn.Module):
    """A body with constant outputs."""

    def __init__(self, x: Tensor):
        super().__init__()
        self.x = x

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.x


@pytest.fixture(scope="module")
def task() -> Embed:
    texts = [side for pair in PAIRS for side in pair]
    tokenizer = train_tokenizer(texts, TokenizerOptions(tokenizer="characters"), BERT_LAYOUT)
    return Embed(preprocessor=TextPreprocessor(tokenizer))


def pair_rows(pairs: list[tuple[str, str]]) -> list[Row[tuple[str], str]]:
    return [Row((source,), target, "pairs", i, source) for i, (source, target) in enumerate(pairs, 1)]


def embed_texts(task: Embed, model: Model, texts: list[str]) -> Tensor:
    return torch.tensor([*task.embed(model, texts)])


def tokenize(task: Embed, texts: list[str], context: int) -> list[list[int]]:
    rows = [task.preprocessor.parse(text, Target.PAIR) for text in texts]
    ids = task.preprocessor.encode(rows, task.max_tokens(context)).ids
    return [ids[i].tolist() for i in range(len(ids))]


@pytest.fixture(scope="module")
def model(task: Embed) -> Model:
    torch.manual_seed(2)
    config = BertConfig(context=32, dim=24, layers=2, heads=3, hidden=40, dropout=0.0, **task.sizes())
    variant = task.head(Bert(config)).eval()
    with torch.no_grad():
        for weight in variant.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return variant


def make_batch(ignore: Tensor) -> tuple[PairBatch, Tensor, Tensor]:
    torch.manual_seed(1)
    lengths = torch.randint(1, T + 1, (2 * B,))
    mask = (torch.arange(T) < lengths[:, None])[:, None, None]
    inputs = Inputs(torch.zeros(2 * B, T, dtype=torch.long), mask)
    return PairBatch(inputs, ignore), torch.randn(2 * B, T, D), lengths


@pytest.mark.parametrize("temperature", [0.05, 0.7])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("positives", [[], [(0, 3), (3, 0)], [(1, 2), (1, 4), (0, 4)]])
def test_loss_equals_its_formula(positives: list[tuple[int, int]], unit: bool, temperature: float, task: Embed) -> None:
    ignore = torch.zeros(B, B, dtype=torch.bool)
    for i, j in positives:
        ignore[i, j] = True
    batch, x, lengths = make_batch(ignore)
    variant = Embed(temperature=temperature, unit=unit, preprocessor=task.preprocessor)
    model = Model(Rows(x), variant.head(Sized()).head)
    means = [x[i, : lengths[i]].mean(0) for i in range(2 * B)]
    v = [mean / mean.norm() for mean in means]
    total = 0.0
    for i in range(B):
        row = {j: (v[i] @ v[B + j]).item() / temperature for j in range(B) if (i, j) not in positives}
        column = {j: (v[j] @ v[B + i]).item() / temperature for j in range(B) if (j, i) not in positives}
        for scores in (row, column):
            total -= (scores[i] - math.log(sum(math.exp(score) for score in scores.values()))) / 2
    loss = variant.loss(model, batch)
    assert loss.count == B
    assert loss.total.item() == pytest.approx(total, rel=1e-4)


class Sized(nn.Module):
    """A body with a config only."""

    config = BertConfig(vocab=9, dim=D, heads=2)


def test_a_text_of_two_pairs_is_a_false_negative(task: Embed) -> None:
    rows = [("tea", "water"), ("tea", "bread"), ("house", "water"), ("river", "garden"), ("tea", "water")]
    examples = task.encode(pair_rows(rows), 32)
    assert examples.inputs.units == 6
    batch = task.collate(examples, np.arange(5))
    targets = {(i, j) for i, j in product(range(5), range(5)) if i != j and (rows[i][0], rows[j][1]) in rows}
    assert {(i, j) for i, j in batch.false_negatives.nonzero().tolist()} == targets
    assert task.tokenizer.decode(batch.inputs.x.tolist()) == [row[side] for side in (0, 1) for row in rows]


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_padding_changes_no_vector(pooling: Any, task: Embed, model: Model) -> None:
    variant = Embed(pooling=pooling, preprocessor=task.preprocessor)
    whole = Model(model.body, variant.head(model.body).head)
    texts = ["tea", "water and bread", "", "the house is in the garden by the river"]
    together = embed_texts(variant, whole, texts)
    assert together.shape == (4, 24)
    assert_close(together.norm(dim=-1), torch.ones(4))
    for text, vector in zip(texts, together, strict=True):
        assert_close(embed_texts(variant, whole, [text])[0], vector, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_pooling_ignores_padding(pooling: Any, task: Embed) -> None:
    _, x, lengths = make_batch(torch.zeros(B, B, dtype=torch.bool))
    head = Embed(pooling=pooling, unit=False, preprocessor=task.preprocessor).head(Sized()).head
    mask = (torch.arange(T) < lengths[:, None])[:, None, None]
    rows = [x[i, : lengths[i]] for i in range(2 * B)]
    targets = {"mean": [row.mean(0) for row in rows], "first": [r[0] for r in rows], "last": [r[-1] for r in rows]}
    assert_close(head(x, mask), torch.stack(targets[pooling]))
    assert_close(head(x.where(mask[:, 0, 0, :, None], 99.0), mask), torch.stack(targets[pooling]))


def test_scores_follow_from_the_vectors(task: Embed, model: Model) -> None:
    rows = [*PAIRS, ("tea water", "something else"), ("tea bread", "something else")]
    scores = task.score(model, pair_rows(rows))
    left, right_vectors = (embed_texts(task, model, [row[side] for row in rows]) for side in (0, 1))
    cosines = left @ right_vectors.T
    right = torch.tensor([[(a, b) in rows for _, b in rows] for a, _ in rows])
    for k in (1, 5, 10):
        both = []
        for near, good in ((cosines, right), (cosines.T, right.T)):
            best = near.masked_fill(~good, -2).amax(1, keepdim=True)
            place = ((near >= best) & ~good).sum(1) + 1
            both.append(100 * (place <= k).float().mean().item())
        assert scores[f"recall_at_{k}"] == pytest.approx(sum(both) / 2)
    assert len(rows) < EVAL_BATCH
    near = (cosines / task.temperature).masked_fill(right & ~torch.eye(len(rows), dtype=torch.bool), -torch.inf)
    own = torch.arange(len(rows))
    assert scores["loss"] == pytest.approx((F.cross_entropy(near, own) + F.cross_entropy(near.T, own)).item() / 2)
    assert scores["predictions"] == [rows[i][1] for i in cosines.argmax(1).tolist()]
    assert task.rank({"recall_at_1": 2.0, "loss": 9.0}) > task.rank({"recall_at_1": 1.0, "loss": 0.1})


def test_a_text_alone_gives_its_vector_and_candidates_are_ranked(task: Embed, model: Model) -> None:
    others = ["tea", "water and bread", "the river", ""]
    alone, among = task.predict(model, ["a house", "\t".join(["a house", *others])], DecodeOptions(num_return=9))
    vector = embed_texts(task, model, ["a house"])[0]
    assert_close(torch.tensor(json.loads(alone[0].text)), vector, atol=1e-6, rtol=1e-5)
    cosines = dict(zip(others, (embed_texts(task, model, others) @ vector).tolist(), strict=True))
    assert [answer.text for answer in among] == sorted(others, key=lambda text: -cosines[text])
    for answer in among:
        assert answer.extra["cosine"] == answer.score == pytest.approx(cosines[answer.text], abs=1e-5)
    [best] = task.predict(model, ["\t".join(["a house", *others])], DecodeOptions())
    assert best == among[:1]


def test_a_text_is_truncated_to_the_limit(task: Embed, model: Model) -> None:
    short = Embed(limit=9, preprocessor=task.preprocessor)
    [ids] = tokenize(short, ["the garden by the river"], 32)
    assert len(ids) == 9
    assert len(tokenize(task, ["the garden by the river " * 9], 32)[0]) == 32
    assert_close(embed_texts(short, model, ["tea with milk"]), embed_texts(short, model, ["tea with water"]))


def test_a_text_without_tokens_has_a_vector(model: Model) -> None:
    """Some tokenizers add no special tokens."""
    tokenizer = train_tokenizer(["tea and water"], TokenizerOptions(tokenizer="characters"), GPT_LAYOUT)
    plain = Embed(preprocessor=TextPreprocessor(tokenizer))
    assert plain.tokenizer.encode([""]) == [[]]
    assert tokenize(plain, ["", "tea"], 32)[0] == [plain.tokenizer.eos_token_id]
    assert embed_texts(plain, model, ["", "tea"]).isfinite().all()


def test_unknown_columns_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("one\tother\ntea\tTee\n")

    def read(*fields: str) -> list[Any]:
        return [*TextModality().read([str(file)], ReadOptions(Embed.target, fields))]

    with pytest.raises(ValueError, match="othr"):
        read("one", "othr")
    with pytest.raises(ValueError, match="--fields must name two columns or keys, .*not 3"):
        read("one", "other", "more")


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_nonpositive_temperatures_are_refused(temperature: float, task: Embed) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        Embed(temperature=temperature, preprocessor=task.preprocessor)
