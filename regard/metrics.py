"""Metrics of answers, shares in per cent; most take (references, predictions), BLEU and chrF as sacreBLEU the reverse.

    F1 = 2 precision recall / (precision + recall)      perplexity = exp(loss)
    ROC-AUC = P(a positive example scores higher than a negative one)      RMSE² = mean (reference - prediction)²

sacreBLEU computes BLEU and chrF and gives the signature of the computation (Post 2018). Spans are those of conlleval
(Tjong Kim Sang & Buchholz 2000) and seqeval, answers are normalised as in SQuAD (Rajpurkar et al. 2016, 2018).
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence, Sized
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
ARTICLE = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Score(NamedTuple):
    value: float
    signature: str  # of sacreBLEU: how the value was computed


class F1(NamedTuple):
    precision: float
    recall: float
    f1: float


def bleu(
    predictions: Sequence[str], references: Sequence[str], lowercase: bool = False, tokenize: str = "13a"
) -> Score:
    """BLEU of a corpus with one reference for each prediction (Papineni et al. 2002)."""
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    return Score(metric.corpus_score(list(predictions), [list(references)]).score, str(metric.get_signature()))


def chrf(predictions: Sequence[str], references: Sequence[str]) -> Score:
    """chrF, the F-score of character n-grams (Popović 2015)."""
    metric = CHRF()
    return Score(metric.corpus_score(list(predictions), [list(references)]).score, str(metric.get_signature()))


def word_error_rate(references: Sequence[str], predictions: Sequence[str]) -> float:
    """WER: word edits (substitutions, deletions, insertions) divided by the words of the references."""
    check_same_length(references, predictions)
    edits = sum(edit_distance(a.split(), b.split()) for a, b in zip(references, predictions, strict=True))
    return 100 * edits / max(1, sum(len(reference.split()) for reference in references))


def edit_distance(reference: Sequence[str], prediction: Sequence[str]) -> int:
    """Levenshtein distance (1966), by dynamic programming row by row."""
    row = list(range(len(prediction) + 1))
    for i, expected in enumerate(reference, 1):
        previous, row = row, [i]
        for j, word in enumerate(prediction, 1):
            row.append(min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (expected != word)))
    return row[-1]


def accuracy(references: Sequence[object], predictions: Sequence[object]) -> float:
    """Percentage of predictions that equal their references."""
    check_same_length(references, predictions)
    return 100 * sum(a == b for a, b in zip(references, predictions, strict=True)) / len(references)


def standard_error(percent: float, count: int) -> float:
    """Standard error, in per cent, of a percentage of `count` examples. Two successes and two failures are added, so
    that 0 and 100 per cent have an error too (Agresti & Coull 1998)."""
    share = (percent / 100 * count + 2) / (count + 4)
    return 100 * math.sqrt(share * (1 - share) / (count + 4))


def macro_f1(references: Sequence[Hashable], predictions: Sequence[Hashable]) -> float:
    """The unweighted mean of the F1 of every class that occurs in the references or the predictions."""
    check_same_length(references, predictions)
    correct = Counter(a for a, b in zip(references, predictions, strict=True) if a == b)
    true, predicted = Counter(references), Counter(predictions)
    classes = true | predicted
    return sum(f1_score(correct[name], true[name], predicted[name]).f1 for name in classes) / len(classes)


def micro_f1(references: Sequence[Collection[Hashable]], predictions: Sequence[Collection[Hashable]]) -> float:
    """F1 of multi-label classification: the labels of all texts are counted together."""
    check_same_length(references, predictions)
    correct = sum(len({*a} & {*b}) for a, b in zip(references, predictions, strict=True))
    return f1_score(correct, sum(len({*a}) for a in references), sum(len({*b}) for b in predictions)).f1


def span_f1(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> F1:
    """F1 of spans: a span is correct if its first word, last word and type are. All sentences are counted together."""
    check_same_length(references, predictions)
    correct = true = predicted = 0
    for reference_tags, predicted_tags in zip(references, predictions, strict=True):
        check_same_length(reference_tags, predicted_tags)
        a, b = {*spans(reference_tags)}, {*spans(predicted_tags)}
        correct, true, predicted = correct + len(a & b), true + len(a), predicted + len(b)
    return f1_score(correct, true, predicted)


def spans(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """(type, first word, last word) of each span of IOB2 or IOBES tags: B-x, I-x, O, and E-x and S-x.

    A span continues with I or E of its type; after O, or with another type, I and E begin a span.
    """
    previous, span_type, first = "O", "", 0
    for position, tag in enumerate((*tags, "O")):
        prefix, _, tag_type = tag.partition("-")
        continues = previous in ("B", "I") and prefix in ("I", "E") and tag_type == span_type
        if not continues:
            if previous != "O":
                yield span_type, first, position - 1
            first = position
        previous, span_type = prefix, tag_type


def f1_score(correct: int, true: int, predicted: int) -> F1:
    """From counts; 0 where the denominator is 0, as scikit-learn and conlleval have it."""
    f1 = 200 * correct / (true + predicted) if true + predicted else 0.0
    return F1(100 * correct / predicted if predicted else 0.0, 100 * correct / true if true else 0.0, f1)


def exact_match(references: Sequence[Sequence[str]], predictions: Sequence[str]) -> float:
    """SQuAD's exact match: each prediction is compared with all its references; without any, "" is correct."""
    return 100 * mean_best(references, predictions, lambda a, b: float(a == b))


def token_f1(references: Sequence[Sequence[str]], predictions: Sequence[str]) -> float:
    """SQuAD's F1: the word overlap of each prediction with the most similar of its references."""
    return mean_best(references, predictions, word_overlap)


def mean_best(
    references: Sequence[Sequence[str]],
    predictions: Sequence[str],
    similarity: Callable[[list[str], list[str]], float],
) -> float:
    check_same_length(references, predictions)
    best = [
        max(similarity(normalize_answer(answer), normalize_answer(prediction)) for answer in answers or [""])
        for answers, prediction in zip(references, predictions, strict=True)
    ]
    return sum(best) / len(predictions)


def normalize_answer(text: str) -> list[str]:
    """The words without case, punctuation and articles."""
    return ARTICLE.sub(" ", text.lower().translate(NO_PUNCTUATION)).split()


def word_overlap(reference: list[str], prediction: list[str]) -> float:
    if not reference or not prediction:
        return 100.0 * (reference == prediction)
    return f1_score((Counter(reference) & Counter(prediction)).total(), len(reference), len(prediction)).f1


def roc_auc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """The probability that a positive example scores higher than a negative one; a tie counts half (Fawcett 2006)."""
    label, score = np.asarray(labels, bool), np.asarray(scores, np.float64)
    check_same_length(label, score)
    positives, negatives = int(label.sum()), int((~label).sum())
    if not positives or not negatives:
        raise ValueError(f"ROC-AUC needs positive and negative examples, not {positives} and {negatives}")
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = counts.cumsum() - (counts - 1) / 2  # from 1, ties share their mean rank
    return 100 * float((rank[place][label].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def mean_roc_auc(references: npt.NDArray[np.float32], predictions: npt.NDArray[np.float32]) -> float | None:
    """The mean over the columns of (N, labels); NaN is an unknown label. Columns with one class only are left out."""
    values = []
    for label, score in zip(references.T, predictions.T, strict=True):
        is_known = ~np.isnan(label)
        if len({*label[is_known]}) == 2:
            values.append(roc_auc(label[is_known], score[is_known]))
    return float(np.mean(values)) if values else None


def perplexity(loss: float) -> float:
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(total_nats: float, size: int) -> float:
    """`total_nats` is the loss summed over a text, `size` its length in bytes."""
    if size < 1:
        raise ValueError(f"the text must have at least 1 byte, not {size}")
    return total_nats / math.log(2) / size


def ranks(similarity: npt.ArrayLike) -> tuple[Ints, Ints]:
    """The ranks, from 1, of the correct column in each row and of the correct row in each column; row i belongs to
    column i. Ties rank before the correct one, so that constant similarities score worst."""
    table = np.asarray(similarity)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise ValueError(f"similarity must be a square table, row i belonging to column i: {table.shape} is not square")
    own = np.diagonal(table)
    return (~(table < own[:, None])).sum(1), (~(table < own)).sum(0)  # negated: NaN ranks before the correct one


def recall_at(ranks: npt.ArrayLike, k: int) -> float:
    """Recall@k: percentage of ranks that are at most k."""
    places = np.asarray(ranks)
    check_same_length(places, places)
    return 100 * float((places <= k).mean())


def rmse(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Root-mean-square error."""
    a, b = as_arrays(references, predictions)
    return float(np.sqrt(np.mean((a - b) ** 2)))


def mae(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Mean absolute error."""
    a, b = as_arrays(references, predictions)
    return float(np.mean(np.abs(a - b)))


def r2(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Coefficient of determination: 1 is perfect, 0 the score of the mean of the references."""
    a, b = as_arrays(references, predictions)
    variation, residual = np.sum((a - a.mean()) ** 2), np.sum((a - b) ** 2)
    return float(1 - residual / variation) if variation else float(not residual)


def as_arrays(references: Sequence[float], predictions: Sequence[float]) -> tuple[Floats, Floats]:
    check_same_length(references, predictions)
    return np.asarray(references, np.float64), np.asarray(predictions, np.float64)


def check_same_length(references: Sized, predictions: Sized) -> None:
    if len(references) != len(predictions) or not len(references):
        raise ValueError(
            f"{len(references)} references and {len(predictions)} predictions: both must be equally many, at least one"
        )
