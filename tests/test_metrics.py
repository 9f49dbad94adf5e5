"""Every score equals its definition, spelled out slowly, and keeps the promises that its name makes."""

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


def apart(pairs: list) -> tuple[list, list]:
    return [one for one, _ in pairs], [other for _, other in pairs]


def f1(right: int, wanted: int, said: int) -> float:
    precision, recall = right / said if said else 0, right / wanted if wanted else 0
    return 100 * 2 * precision * recall / (precision + recall) if right else 0


@pytest.mark.parametrize(("share", "count"), [(0.5, 40), (0.9, 100), (0.99, 300)])
def test_the_standard_error_is_how_much_a_score_varies_from_set_to_set(share, count) -> None:
    drawn = np.random.default_rng(0).binomial(count, share, 20_000) / count * 100
    errors = [metrics.standard_error(score, count) for score in drawn[:500]]
    assert np.mean(errors) == pytest.approx(drawn.std(), rel=0.3)
    assert metrics.standard_error(100.0, 12) > 5, "twelve of twelve are no certainty"


@given(PAIRS)
@FEW
def test_accuracy_is_the_share_that_is_equal(pairs) -> None:
    wanted, said = apart(pairs)
    assert metrics.accuracy(wanted, said) == pytest.approx(100 * np.mean(np.array(wanted) == np.array(said)))


@given(PAIRS)
@FEW
def test_macro_f1_is_the_mean_over_the_classes_in_use(pairs) -> None:
    wanted, said = apart(pairs)
    each = [f1(pairs.count((c, c)), wanted.count(c), said.count(c)) for c in {*wanted, *said}]
    assert metrics.macro_f1(wanted, said) == pytest.approx(np.mean(each))


@given(SETS)
@FEW
def test_micro_f1_counts_all_labels_together(pairs) -> None:
    flat = [((i, c) in {(i, c) for c in one}, c in other) for i, (one, other) in enumerate(pairs) for c in "abc"]
    right = sum(a and b for a, b in flat)
    wanted, said = (sum(side) for side in apart(flat))
    assert metrics.micro_f1(*apart(pairs)) == pytest.approx(f1(right, wanted, said))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=20))
@FEW
def test_roc_auc_is_how_often_the_one_that_has_it_wins(rows) -> None:
    has, score = apart(rows)
    pairs = [(a, b) for one, a in rows for other, b in rows if one and not other]
    if not pairs:
        with pytest.raises(ValueError, match="there is nobody to compare with"):
            metrics.roc_auc(has, score)
        return
    wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs)
    assert metrics.roc_auc(has, score) == pytest.approx(100 * wins / len(pairs))


def test_the_mean_roc_auc_leaves_gaps_and_labels_without_both_sides_out() -> None:
    wanted = np.array([[1, 0, np.nan], [0, 0, 1], [1, 0, 0], [np.nan, 0, 1]])
    said = np.array([[0.9, 0.1, 9.0], [0.2, 0.7, 0.8], [0.1, 0.5, 0.3], [-9.0, 0.2, 0.1]])
    both = [metrics.roc_auc([1, 0, 1], [0.9, 0.2, 0.1]), metrics.roc_auc([1, 0, 1], [0.8, 0.3, 0.1])]
    assert metrics.mean_roc_auc(wanted, said) == pytest.approx(np.mean(both))
    assert metrics.mean_roc_auc(wanted[:, 1:2], said[:, 1:2]) is None


def spans_by_trying(tags: list[str]) -> set[tuple[str, int, int]]:
    """Every stretch of words is tried: it is a span if it begins as one, goes on as one, and cannot go on further."""

    def begins(at: int) -> bool:
        before, tag = tags[at - 1] if at else "O", tags[at]
        return tag[0] in "BS" or (tag[0] in "IE" and (before[0] in "OES" or before[2:] != tag[2:]))

    def goes_on(at: int) -> bool:
        return at < len(tags) and tags[at][0] in "IE" and not begins(at)

    return {
        (tags[first][2:], first, last)
        for first in range(len(tags))
        for last in range(first, len(tags))
        if begins(first) and all(goes_on(at) for at in range(first + 1, last + 1)) and not goes_on(last + 1)
    }


@given(st.lists(TAGS, max_size=9))
def test_spans_are_those_found_by_trying_every_stretch(tags) -> None:
    found = [*metrics.spans(tags)]
    assert {*found} == spans_by_trying(tags)
    assert found == sorted(found, key=lambda span: span[1])
    inside = [place for _, first, last in found for place in range(first, last + 1)]
    assert inside == [place for place, tag in enumerate(tags) if tag != "O"], "every word but O is in one span"


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
def test_spans_are_what_conlleval_would_say(tags: str, spans: list) -> None:
    assert [*metrics.spans(tags.split())] == spans


@given(st.lists(st.lists(st.tuples(BIO, BIO), min_size=1, max_size=7), min_size=1, max_size=4))
@FEW
def test_span_f1_counts_spans_of_all_sentences_together(sentences) -> None:
    wanted, said = [apart(s)[0] for s in sentences], [apart(s)[1] for s in sentences]
    these = {(i, *span) for i, tags in enumerate(wanted) for span in spans_by_trying(tags)}
    those = {(i, *span) for i, tags in enumerate(said) for span in spans_by_trying(tags)}
    right = len(these & those)
    found = metrics.span_f1(wanted, said)
    assert found.precision == pytest.approx(100 * right / len(those) if those else 0)
    assert found.recall == pytest.approx(100 * right / len(these) if these else 0)
    assert found.f1 == pytest.approx(f1(right, len(these), len(those)))
    turned = metrics.span_f1(said, wanted)
    assert (turned.precision, turned.recall, turned.f1) == (found.recall, found.precision, found.f1)


def squad_f1(wanted: str, said: str) -> float:
    def words(text: str) -> list[str]:
        letters = "".join(c for c in text.lower() if c not in r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~""")
        return re.sub(r"\b(a|an|the)\b", " ", letters).split()

    one, other = words(wanted), words(said)
    if not one or not other:
        return 100 * (one == other)
    return f1(sum((Counter(one) & Counter(other)).values()), len(one), len(other))


WORDS = st.lists(st.sampled_from(["the", "The", "an", "cat", "cat's", "Cat,", "sat", "-", "."]), max_size=4).map(
    " ".join
)


@given(st.lists(st.tuples(st.lists(WORDS, max_size=3), WORDS), min_size=1, max_size=5))
@FEW
def test_answers_are_compared_as_squad_does(pairs) -> None:
    wanted, said = apart(pairs)
    best = [max(squad_f1(one, answer) for one in some or [""]) for some, answer in pairs]
    assert metrics.token_f1(wanted, said) == pytest.approx(np.mean(best))
    assert metrics.exact_match(wanted, said) <= metrics.token_f1(wanted, said) + 1e-9


@pytest.mark.parametrize(
    ("wanted", "said", "exact", "f1"),
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
def test_what_counts_as_the_same_answer(wanted: list[str], said: str, exact: float, f1: float) -> None:
    assert metrics.exact_match([wanted], [said]) == exact
    assert metrics.token_f1([wanted], [said]) == pytest.approx(f1)


@pytest.mark.parametrize(("loss", "wanted"), [(0.0, 1.0), (math.log(7), 7.0), (1e9, math.inf), (math.inf, math.inf)])
def test_perplexity_never_overflows(loss: float, wanted: float) -> None:
    assert metrics.perplexity(loss) == pytest.approx(wanted)
    assert math.isnan(metrics.perplexity(math.nan))


def test_bits_per_byte_of_a_fair_guess_among_bytes_are_eight() -> None:
    assert metrics.bits_per_byte(1000 * math.log(256), 1000) == pytest.approx(8)
    with pytest.raises(ValueError, match="not 0"):
        metrics.bits_per_byte(1.0, 0)


TABLES = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=n, max_size=n)
)


@given(TABLES, st.integers(1, 7))
@FEW
def test_ranks_count_all_that_are_no_less_alike(table: list[list[int]], k: int) -> None:
    n = len(table)
    rows, columns = metrics.ranks(table)
    assert rows.tolist() == [sum(table[i][j] >= table[i][i] for j in range(n)) for i in range(n)]
    assert columns.tolist() == [sum(table[j][i] >= table[i][i] for j in range(n)) for i in range(n)]
    worst_first = [sorted(range(n), key=lambda j: (-table[i][j], j == i)).index(i) + 1 for i in range(n)]
    assert rows.tolist() == worst_first
    assert metrics.recall_at(rows, k) == pytest.approx(100 * sum(rank <= k for rank in worst_first) / n)


def test_a_model_that_finds_all_alike_recalls_nothing_and_one_that_says_nan_neither() -> None:
    for table in np.ones((5, 5)), np.full((5, 5), np.nan), np.where(np.eye(5) == 1, np.nan, 1.0):
        for ranks in metrics.ranks(table):
            assert metrics.recall_at(ranks, 4) == 0
            assert metrics.recall_at(ranks, 5) == 100
    with pytest.raises(ValueError, match=r"\(2, 3\) is not square"):
        metrics.ranks(np.ones((2, 3)))


@given(NUMBERS)
@FEW
def test_errors_and_fits_equal_their_definitions(pairs) -> None:
    wanted, said = apart(pairs)
    off = [a - b for a, b in pairs]
    assert metrics.rmse(wanted, said) == pytest.approx(math.sqrt(sum(d * d for d in off) / len(off)))
    assert metrics.mae(wanted, said) == pytest.approx(sum(map(abs, off)) / len(off))
    assert metrics.mae(wanted, said) <= metrics.rmse(wanted, said) + 1e-9
    if len({*wanted}) > 1 and len({*said}) > 1:
        assert metrics.pearson(wanted, said) == pytest.approx(np.corrcoef(wanted, said)[0, 1], abs=1e-9)
        mean = sum(wanted) / len(wanted)
        rest = sum(d * d for d in off) / sum((a - mean) ** 2 for a in wanted)
        assert metrics.r2(wanted, said) == pytest.approx(1 - rest)


def test_fits_are_numbers_even_where_nothing_varies() -> None:
    assert metrics.pearson([1, 2, 3], [5, 5, 5]) == metrics.pearson([5, 5, 5], [1, 2, 3]) == 0
    assert metrics.r2([5, 5], [5, 5]) == 1
    assert metrics.r2([5, 5], [5, 6]) == 0
    assert metrics.r2([1, 2, 3], [2, 2, 2]) == pytest.approx(0)


SCORES = ["accuracy", "macro_f1", "micro_f1", "span_f1", "exact_match", "token_f1", "rmse", "mae", "pearson", "r2"]


@pytest.mark.parametrize("score", [getattr(metrics, name) for name in SCORES], ids=SCORES)
def test_all_that_is_wanted_must_be_said(score) -> None:
    with pytest.raises(ValueError, match="2 wanted and 1 said"):
        score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="0 wanted and 0 said"):
        score([], [])


def test_a_perfect_answer_is_a_hundred() -> None:
    texts, tags = ["the cat sat on the mat", "a dog"], [["B-x", "I-x"], ["O", "B-y"]]
    assert metrics.bleu(texts, texts).value == pytest.approx(100)
    assert metrics.chrf(texts, texts).value == pytest.approx(100)
    assert metrics.accuracy(texts, texts) == metrics.macro_f1(texts, texts) == metrics.micro_f1(tags, tags) == 100
    assert metrics.span_f1(tags, tags) == (100, 100, 100)
    assert metrics.exact_match([[text] for text in texts], texts) == 100
    assert metrics.recall_at(metrics.ranks(np.eye(3))[0], 1) == 100
