"""Scores: what is measured on answers. Shares are in per cent, as BLEU is; the new ones take (wanted, said).

BLEU and chrF are counted by sacreBLEU, with the signature that says how.

    F1 = 2 precision recall / (precision + recall)      perplexity = exp(loss)      RMSE² = mean (wanted - said)²
    ROC-AUC = P(one that has the label scores higher than one that has it not)

Spans are found as conlleval (Tjong Kim Sang & Buchholz 2000) and seqeval find them, answers are compared as in SQuAD
(Rajpurkar et al. 2016, 2018).
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
ARTICLE = re.compile(r"\b(a|an|the)\b")
NO_MARKS = str.maketrans("", "", string.punctuation)


class Score(NamedTuple):
    value: float
    signature: str


class F1(NamedTuple):
    precision: float
    recall: float
    f1: float


def bleu(answers: Sequence[str], wanted: Sequence[str], lowercase: bool = False, tokenize: str = "13a") -> Score:
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    return Score(metric.corpus_score(list(answers), [list(wanted)]).score, str(metric.get_signature()))


def chrf(answers: Sequence[str], wanted: Sequence[str]) -> Score:
    metric = CHRF()
    return Score(metric.corpus_score(list(answers), [list(wanted)]).score, str(metric.get_signature()))


def word_error_rate(wanted: Sequence[str], said: Sequence[str]) -> float:
    """Words that are wrong, missing or too many, beside those that are wanted: fewest changes make one of the other."""
    same_count(wanted, said)
    changes = sum(changes_to(one.split(), other.split()) for one, other in zip(wanted, said, strict=True))
    return 100 * changes / max(1, sum(len(one.split()) for one in wanted))


def changes_to(wanted: Sequence[str], said: Sequence[str]) -> int:
    """Levenshtein 1966: row by row, what it costs to get from so many words of one to so many of the other."""
    row = list(range(len(said) + 1))
    for i, word in enumerate(wanted, 1):
        before, row = row, [i]
        for j, other in enumerate(said, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (word != other)))
    return row[-1]


def accuracy(wanted: Sequence[Any], said: Sequence[Any]) -> float:
    same_count(wanted, said)
    return 100 * sum(one == other for one, other in zip(wanted, said, strict=True)) / len(wanted)


def standard_error(percent: float, count: int) -> float:
    """Of a share of so many examples, in percent. All or none right is no certainty: as if two more were right and two
    wrong (Agresti & Coull 1998)."""
    share = (percent / 100 * count + 2) / (count + 4)
    return 100 * math.sqrt(share * (1 - share) / (count + 4))


def macro_f1(wanted: Sequence[Hashable], said: Sequence[Hashable]) -> float:
    """The mean over the classes, each counting the same; a class that is neither wanted nor said is none."""
    same_count(wanted, said)
    right = Counter(one for one, other in zip(wanted, said, strict=True) if one == other)
    asked, told = Counter(wanted), Counter(said)
    return sum(f1_of(right[name], asked[name], told[name]).f1 for name in asked | told) / len(asked | told)


def micro_f1(wanted: Sequence[Collection[Hashable]], said: Sequence[Collection[Hashable]]) -> float:
    """Several labels a text: all labels of all texts are counted together."""
    same_count(wanted, said)
    right = sum(len({*one} & {*other}) for one, other in zip(wanted, said, strict=True))
    return f1_of(right, sum(len({*one}) for one in wanted), sum(len({*one}) for one in said)).f1


def span_f1(wanted: Sequence[Sequence[str]], said: Sequence[Sequence[str]]) -> F1:
    """A span is right if its first word, its last word and its type are; spans of all sentences count together."""
    same_count(wanted, said)
    right = asked = told = 0
    for one, other in zip(wanted, said, strict=True):
        same_count(one, other)
        these, those = {*spans(one)}, {*spans(other)}
        right, asked, told = right + len(these & those), asked + len(these), told + len(those)
    return f1_of(right, asked, told)


def spans(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Type, first and last word, from tags like B-x, I-x, O, and E-x and S-x if they are used.

    A span goes on with I or E of its type; after O, or with another type, these begin one.
    """
    before, kind, first = "O", "", 0
    for place, tag in enumerate((*tags, "O")):
        mark, _, of = tag.partition("-")
        goes_on = before in ("B", "I") and mark in ("I", "E") and of == kind
        if not goes_on:
            if before != "O":
                yield kind, first, place - 1
            first = place
        before, kind = mark, of


def f1_of(right: int, wanted: int, said: int) -> F1:
    """0 where there is nothing to divide by, as the tools of the field have it."""
    share = 200 * right / (wanted + said) if wanted + said else 0.0
    return F1(100 * right / said if said else 0.0, 100 * right / wanted if wanted else 0.0, share)


def exact_match(wanted: Sequence[Sequence[str]], said: Sequence[str]) -> float:
    """Each answer is compared with all that are right for it; where none is, nothing is the right answer."""
    return 100 * mean_of_best(wanted, said, lambda one, other: float(one == other))


def token_f1(wanted: Sequence[Sequence[str]], said: Sequence[str]) -> float:
    """The words that an answer shares with the right one that it is nearest to."""
    return mean_of_best(wanted, said, shared_words)


def mean_of_best(
    wanted: Sequence[Sequence[str]], said: Sequence[str], alike: Callable[[list[str], list[str]], float]
) -> float:
    same_count(wanted, said)
    pairs = zip(wanted, said, strict=True)
    return sum(max(alike(bare(one), bare(answer)) for one in some or [""]) for some, answer in pairs) / len(said)


def bare(text: str) -> list[str]:
    """The words without case, punctuation and articles."""
    return ARTICLE.sub(" ", text.lower().translate(NO_MARKS)).split()


def shared_words(wanted: list[str], said: list[str]) -> float:
    if not wanted or not said:
        return 100.0 * (wanted == said)
    return f1_of((Counter(wanted) & Counter(said)).total(), len(wanted), len(said)).f1


def roc_auc(has: npt.ArrayLike, score: npt.ArrayLike) -> float:
    """How often one that has the label scores higher than one that has it not; a tie is half a win (Fawcett 2006)."""
    label, given = np.asarray(has, bool), np.asarray(score, np.float64)
    same_count(label, given)
    yes, no = int(label.sum()), int((~label).sum())
    if not yes or not no:
        raise ValueError(f"{yes} have the label and {no} have it not: there is nobody to compare with")
    _, place, times = np.unique(given, return_inverse=True, return_counts=True)
    rank = times.cumsum() - (times - 1) / 2  # from 1, the mean rank of those that tie
    return 100 * float((rank[place][label].sum() - yes * (yes + 1) / 2) / (yes * no))


def mean_roc_auc(wanted: Floats, said: Floats) -> float | None:
    """Over the labels, (N, labels); NaN where nobody knows. A label that all have, or none, says nothing."""
    found = []
    for has, score in zip(wanted.T, said.T, strict=True):
        known = ~np.isnan(has)
        if len({*has[known]}) == 2:
            found.append(roc_auc(has[known], score[known]))
    return float(np.mean(found)) if found else None


def perplexity(loss: float) -> float:
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(total_nats: float, size: int) -> float:
    """`total_nats` is the loss summed over a text, `size` its bytes."""
    if size < 1:
        raise ValueError(f"there must be bytes to spread the loss over, not {size}")
    return total_nats / math.log(2) / size


def ranks(similarity: npt.ArrayLike) -> tuple[Ints, Ints]:
    """The place, from 1, at which a row finds its own column (row i belongs to column i), and a column its own row.

    What is no less alike stands before it: a model that finds all alike gets no credit.
    """
    table = np.asarray(similarity)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"each row must have a column of its own: a table of {table.shape} is not square")
    own = np.diagonal(table)
    return (~(table < own[:, None])).sum(1), (~(table < own)).sum(0)  # so turned that NaN stands before all


def recall_at(ranks: npt.ArrayLike, k: int) -> float:
    """How many are found among the first `k`."""
    places = np.asarray(ranks)
    same_count(places, places)
    return 100 * float((places <= k).mean())


def rmse(wanted: Sequence[float], said: Sequence[float]) -> float:
    one, other = numbers(wanted, said)
    return float(np.sqrt(np.mean((one - other) ** 2)))


def mae(wanted: Sequence[float], said: Sequence[float]) -> float:
    one, other = numbers(wanted, said)
    return float(np.mean(np.abs(one - other)))


def pearson(wanted: Sequence[float], said: Sequence[float]) -> float:
    """From -1 to 1; 0 if either is always the same."""
    one, other = (each - each.mean() for each in numbers(wanted, said))
    both = np.linalg.norm(one) * np.linalg.norm(other)
    return float(np.clip(one @ other / both, -1, 1)) if both else 0.0


def r2(wanted: Sequence[float], said: Sequence[float]) -> float:
    """1 is perfect, 0 what the mean of the wanted values would get."""
    one, other = numbers(wanted, said)
    spread, left = np.sum((one - one.mean()) ** 2), np.sum((one - other) ** 2)
    return float(1 - left / spread) if spread else float(not left)


def numbers(wanted: Sequence[float], said: Sequence[float]) -> tuple[Floats, Floats]:
    same_count(wanted, said)
    return np.asarray(wanted, np.float64), np.asarray(said, np.float64)


def same_count(wanted: Sized, said: Sized) -> None:
    if len(wanted) != len(said) or not len(wanted):
        raise ValueError(f"{len(wanted)} wanted and {len(said)} said: there must be as many, and at least one")
