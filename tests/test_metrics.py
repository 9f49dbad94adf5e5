"""Every metric equals its definition, computed naively, and has the properties that its name promises."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import metrics

FEW = settings(max_examples=60, deadline=None)
CLASS = st.sampled_from("abc")
PAIRS = st.lists(st.tuples(CLASS, CLASS), min_size=1)
SETS = st.lists(st.tuples(st.sets(CLASS), st.sets(CLASS)), min_size=1)
TAGS = st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y", "E-x", "S-x", "E-y", "S-y"])
BIO = st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"])
NUMBERS = st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99)), min_size=2)


def unzip(pairs: list) -> tuple[list, list]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def f1(correct: int, true: int, predicted: int) -> float:
    precision, recall = correct / predicted if predicted else 0, correct / true if true else 0
    return 100 * 2 * precision * recall / (precision + recall) if correct else 0


@pytest.mark.parametrize(("share", "count"), [(0.5, 40), (0.9, 100), (0.99, 300)])
def test_the_standard_error_is_the_deviation_of_a_score_over_samples(share, count) -> None:
    samples = np.random.default_rng(0).binomial(count, share, 20_000) / count * 100
    errors = [metrics.standard_error(score, count) for score in samples[:500]]
    assert np.mean(errors) == pytest.approx(samples.std(), rel=0.3)
    assert metrics.standard_error(100.0, 12) > 5, "12 of 12 correct does not mean no error"


@given(PAIRS)
@FEW
def test_accuracy_is_the_percentage_of_equal_pairs(pairs) -> None:
    references, predictions = unzip(pairs)
    assert metrics.accuracy(references, predictions) == pytest.approx(
        100 * np.mean(np.array(references) == np.array(predictions))
    )


@given(PAIRS)
@FEW
def test_macro_f1_is_the_mean_over_the_classes_in_use(pairs) -> None:
    references, predictions = unzip(pairs)
    each = [f1(pairs.count((c, c)), references.count(c), predictions.count(c)) for c in {*references, *predictions}]
    assert metrics.macro_f1(references, predictions) == pytest.approx(np.mean(each))


@given(SETS)
@FEW
def test_micro_f1_counts_all_labels_together(pairs) -> None:
    flat = [(c in a, c in b) for a, b in pairs for c in "abc"]
    correct = sum(a and b for a, b in flat)
    true, predicted = (sum(side) for side in unzip(flat))
    assert metrics.micro_f1(*unzip(pairs)) == pytest.approx(f1(correct, true, predicted))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=20))
@FEW
def test_roc_auc_is_how_often_a_positive_example_wins(rows) -> None:
    labels, scores = unzip(rows)
    pairs = [(a, b) for positive, a in rows for label, b in rows if positive and not label]
    if not pairs:
        with pytest.raises(ValueError, match="needs positive and negative examples, not"):
            metrics.roc_auc(labels, scores)
        return
    wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs)
    assert metrics.roc_auc(labels, scores) == pytest.approx(100 * wins / len(pairs))


def test_mean_roc_auc_ignores_unknown_labels_and_columns_of_one_class() -> None:
    references = np.array([[1, 0, np.nan], [0, 0, 1], [1, 0, 0], [np.nan, 0, 1]])
    predictions = np.array([[0.9, 0.1, 9.0], [0.2, 0.7, 0.8], [0.1, 0.5, 0.3], [-9.0, 0.2, 0.1]])
    both = [metrics.roc_auc([1, 0, 1], [0.9, 0.2, 0.1]), metrics.roc_auc([1, 0, 1], [0.8, 0.3, 0.1])]
    assert metrics.mean_roc_auc(references, predictions) == pytest.approx(np.mean(both))
    assert metrics.mean_roc_auc(references[:, 1:2], predictions[:, 1:2]) is None


def naive_spans(tags: list[str]) -> set[tuple[str, int, int]]:
    """Every range of words is tested: a span begins, continues to its last word, and cannot continue further."""

    def begins(at: int) -> bool:
        before, tag = tags[at - 1] if at else "O", tags[at]
        return tag[0] in "BS" or (tag[0] in "IE" and (before[0] in "OES" or before[2:] != tag[2:]))

    def continues(at: int) -> bool:
        return at < len(tags) and tags[at][0] in "IE" and not begins(at)

    return {
        (tags[first][2:], first, last)
        for first in range(len(tags))
        for last in range(first, len(tags))
        if begins(first) and all(continues(at) for at in range(first + 1, last + 1)) and not continues(last + 1)
    }


@given(st.lists(TAGS, max_size=9))
def test_spans_equal_those_of_testing_every_range(tags) -> None:
    spans = [*metrics.spans(tags)]
    assert {*spans} == naive_spans(tags)
    assert spans == sorted(spans, key=lambda span: span[1])
    covered = [place for _, first, last in spans for place in range(first, last + 1)]
    assert covered == [place for place, tag in enumerate(tags) if tag != "O"], "every word but O is in one span"


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O I-x I-x", [("x", 1, 2)]),
        ("B-x I-y", [("x", 0, 0), ("y", 1, 1)]),
        ("B-x B-x I-x", [("x", 0, 0), ("x", 1, 2)]),
        ("I-x B-x", [("x", 0, 0), ("x", 1, 1)]),
        ("B-x I-x O I-x", [("x", 0, 1), ("x", 3, 3)]),
        ("B-a-b I-a-b I-a", [("a-b", 0, 1), ("a", 2, 2)]),
        ("S-x B-x I-x E-x I-x", [("x", 0, 0), ("x", 1, 3), ("x", 4, 4)]),
        ("O O", []),
    ],
)
def test_spans_are_those_of_conlleval(tags: str, spans: list) -> None:
    assert [*metrics.spans(tags.split())] == spans


@given(st.lists(st.lists(st.tuples(BIO, BIO), min_size=1, max_size=7), min_size=1, max_size=4))
@FEW
def test_span_f1_counts_spans_of_all_sentences_together(sentences) -> None:
    references, predictions = [unzip(s)[0] for s in sentences], [unzip(s)[1] for s in sentences]
    true = {(i, *span) for i, tags in enumerate(references) for span in naive_spans(tags)}
    predicted = {(i, *span) for i, tags in enumerate(predictions) for span in naive_spans(tags)}
    correct = len(true & predicted)
    score = metrics.span_f1(references, predictions)
    assert score.precision == pytest.approx(100 * correct / len(predicted) if predicted else 0)
    assert score.recall == pytest.approx(100 * correct / len(true) if true else 0)
    assert score.f1 == pytest.approx(f1(correct, len(true), len(predicted)))
    swapped = metrics.span_f1(predictions, references)
    assert (swapped.precision, swapped.recall, swapped.f1) == (score.recall, score.precision, score.f1)


def squad_f1(reference: str, prediction: str) -> float:
    def words(text: str) -> list[str]:
        letters = "".join(c for c in text.lower() if c not in r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~""")
        return re.sub(r"\b(a|an|the)\b", " ", letters).split()

    a, b = words(reference), words(prediction)
    if not a or not b:
        return 100 * (a == b)
    return f1(sum((Counter(a) & Counter(b)).values()), len(a), len(b))


WORDS = st.lists(st.sampled_from(["the", "The", "an", "cat", "cat's", "Cat,", "sat", "-", "."]), max_size=4).map(
    " ".join
)


@given(st.lists(st.tuples(st.lists(WORDS, max_size=3), WORDS), min_size=1, max_size=5))
@FEW
def test_answers_are_compared_as_in_squad(pairs) -> None:
    references, predictions = unzip(pairs)
    best = [max(squad_f1(answer, prediction) for answer in answers or [""]) for answers, prediction in pairs]
    assert metrics.token_f1(references, predictions) == pytest.approx(np.mean(best))
    assert metrics.exact_match(references, predictions) <= metrics.token_f1(references, predictions) + 1e-9


@pytest.mark.parametrize(
    ("references", "prediction", "exact", "f1"),
    [
        (["The Cat."], "cat", 100, 100),
        (["a black cat", "the dog"], "dog!", 100, 100),
        (["black cat"], "the black dog", 0, 50),
        (["cat sat"], "sat cat", 0, 100),
        ([], "", 100, 100),
        ([], "the", 100, 100),
        ([], "cat", 0, 0),
        (["cat"], "", 0, 0),
        (["theatre"], "atre", 0, 0),
    ],
)
def test_normalised_answers(references: list[str], prediction: str, exact: float, f1: float) -> None:
    assert metrics.exact_match([references], [prediction]) == exact
    assert metrics.token_f1([references], [prediction]) == pytest.approx(f1)


@pytest.mark.parametrize(("loss", "expected"), [(0.0, 1.0), (math.log(7), 7.0), (1e9, math.inf), (math.inf, math.inf)])
def test_perplexity_never_overflows(loss: float, expected: float) -> None:
    assert metrics.perplexity(loss) == pytest.approx(expected)
    assert math.isnan(metrics.perplexity(math.nan))


def test_uniform_bytes_have_eight_bits_per_byte() -> None:
    assert metrics.bits_per_byte(1000 * math.log(256), 1000) == pytest.approx(8)
    with pytest.raises(ValueError, match="not 0"):
        metrics.bits_per_byte(1.0, 0)


TABLES = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=n, max_size=n)
)


@given(TABLES, st.integers(1, 7))
@FEW
def test_ranks_count_all_that_are_at_least_as_similar(table: list[list[int]], k: int) -> None:
    n = len(table)
    rows, columns = metrics.ranks(table)
    assert rows.tolist() == [sum(table[i][j] >= table[i][i] for j in range(n)) for i in range(n)]
    assert columns.tolist() == [sum(table[j][i] >= table[i][i] for j in range(n)) for i in range(n)]
    worst_first = [sorted(range(n), key=lambda j: (-table[i][j], j == i)).index(i) + 1 for i in range(n)]
    assert rows.tolist() == worst_first
    assert metrics.recall_at(rows, k) == pytest.approx(100 * sum(rank <= k for rank in worst_first) / n)


def test_constant_and_nan_similarities_recall_nothing() -> None:
    for table in np.ones((5, 5)), np.full((5, 5), np.nan), np.where(np.eye(5) == 1, np.nan, 1.0):
        for ranks in metrics.ranks(table):
            assert metrics.recall_at(ranks, 4) == 0
            assert metrics.recall_at(ranks, 5) == 100
    with pytest.raises(ValueError, match=r"\(2, 3\) is not square"):
        metrics.ranks(np.ones((2, 3)))


@given(NUMBERS)
@FEW
def test_regression_metrics_equal_their_definitions(pairs) -> None:
    references, predictions = unzip(pairs)
    errors = [a - b for a, b in pairs]
    assert metrics.rmse(references, predictions) == pytest.approx(math.sqrt(sum(d * d for d in errors) / len(errors)))
    assert metrics.mae(references, predictions) == pytest.approx(sum(map(abs, errors)) / len(errors))
    assert metrics.mae(references, predictions) <= metrics.rmse(references, predictions) + 1e-9
    if len({*references}) > 1:
        mean = sum(references) / len(references)
        rest = sum(d * d for d in errors) / sum((a - mean) ** 2 for a in references)
        assert metrics.r2(references, predictions) == pytest.approx(1 - rest)


def test_r2_is_a_number_even_where_nothing_varies() -> None:
    assert metrics.r2([5, 5], [5, 5]) == 1
    assert metrics.r2([5, 5], [5, 6]) == 0
    assert metrics.r2([1, 2, 3], [2, 2, 2]) == pytest.approx(0)


NAMES = ["accuracy", "macro_f1", "micro_f1", "span_f1", "exact_match", "token_f1", "rmse", "mae", "r2"]


@pytest.mark.parametrize("metric", [getattr(metrics, name) for name in NAMES], ids=NAMES)
def test_references_and_predictions_must_be_equally_many(metric) -> None:
    with pytest.raises(ValueError, match="2 references and 1 predictions"):
        metric(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="0 references and 0 predictions"):
        metric([], [])


def test_perfect_predictions_score_100() -> None:
    texts, tags = ["the cat sat on the mat", "a dog"], [["B-x", "I-x"], ["O", "B-y"]]
    assert metrics.bleu(texts, texts).value == pytest.approx(100)
    assert metrics.chrf(texts, texts).value == pytest.approx(100)
    assert metrics.accuracy(texts, texts) == metrics.macro_f1(texts, texts) == metrics.micro_f1(tags, tags) == 100
    assert metrics.span_f1(tags, tags) == (100, 100, 100)
    assert metrics.exact_match([[text] for text in texts], texts) == 100
    assert metrics.recall_at(metrics.ranks(np.eye(3))[0], 1) == 100
