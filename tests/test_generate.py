"""Search finds the best, samples are fair, and no answer depends on what else is asked.

Two kinds of model: `Lookup`, whose next token depends on the whole beginning through a random table, so that everything
about it can be counted; and a small random Transformer, through the task that uses it.
"""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard.sampling
from regard.data.batches import Ragged, padding_mask
from regard.data.pieces import Pieces, learn
from regard.generate import GenerationOptions, Hypothesis, beam_search, generate
from regard.models.transformer import Transformer, TransformerConfig
from regard.parts.cache import Cache
from regard.parts.heads import Model
from regard.sampling import largest, sampler
from regard.tasks import translating
from regard.tasks.translate import Translate
from regard.tasks.translating import Translating

END = 0
GREEDY, BEAM = Translating(num_beams=1), Translating(num_beams=3, num_return=3)
SAMPLE = Translating(temperature=1.3, num_return=2, seed=5)
EVERY_WAY = pytest.mark.parametrize("how", [GREEDY, BEAM, SAMPLE], ids=["greedy", "beam", "sampling"])


class Beginnings(Cache):
    """Remembers which model each row is of, and its text so far as one number."""

    def __init__(self, models: Tensor):
        super().__init__()
        self.models, self.codes = models, torch.zeros_like(models)

    def select(self, rows: Tensor) -> None:
        self.models, self.codes = self.models[rows], self.codes[rows]


class Lookup:
    """Many random models at once: `table[model, code of the beginning]` are the logits of what follows."""

    def __init__(self, models: int, vocab: int, longest: int, seed: int, sharpness: float = 2.0):
        self.vocab = vocab
        random = torch.Generator().manual_seed(seed)
        self.table = torch.randn(models, vocab ** (longest + 2), vocab, generator=random) * sharpness
        self.logprobs = self.table.log_softmax(-1)

    def code(self, before: int | Tensor, token: int | Tensor) -> int | Tensor:
        return before * self.vocab + token

    def step(self, ids: Tensor, caches: list[Cache]) -> Tensor:
        (cache,) = caches
        cache.codes = self.code(cache.codes, ids[:, 0])
        return self.table[cache.models, cache.codes]

    def answer(
        self, how: GenerationOptions, limits: list[int], models: list[int] | None = None
    ) -> list[list[Hypothesis]]:
        chosen = torch.tensor([*range(len(self.table))] if models is None else models)
        start = torch.ones_like(chosen)
        return generate(self.step, [Beginnings(chosen)], start, END, torch.tensor(limits), how, chosen)

    def logp(self, text: tuple[int, ...] | list[int]) -> Tensor:
        """log P of a text and its </s>, under each of the models."""
        code, total = self.code(0, 1), torch.zeros(len(self.table))
        for token in (*text, END):
            total = total + self.logprobs[:, code, token]
            code = self.code(code, token)
        return total


LIMITS = st.lists(st.integers(1, 4), min_size=1, max_size=6)


@pytest.mark.parametrize("vocab", [3, 4])
@pytest.mark.parametrize("longest", [3, 4])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_a_beam_that_holds_everything_finds_the_best_of_all_texts(vocab: int, longest: int, penalty: float) -> None:
    lookup = Lookup(models=84, vocab=vocab, longest=longest, seed=vocab + longest)  # 12 x 84 > 1,000 models
    texts = [text for length in range(longest + 1) for text in product(range(1, vocab), repeat=length)]
    how = GenerationOptions(num_beams=len(texts), num_return=len(texts), length_penalty=penalty)
    logp = torch.stack([lookup.logp(text) for text in texts], 1)  # (models, texts)
    score = logp / torch.tensor([(len(text) + 1) ** penalty for text in texts])
    for model, found in enumerate(lookup.answer(how, [longest] * len(logp))):
        best = int(score[model].argmax())
        assert tuple(found[0].ids) == texts[best]
        assert found[0].logp == pytest.approx(logp[model, best].item(), abs=1e-4)
        assert found[0].score == pytest.approx(score[model, best].item(), abs=1e-4)
        assert {tuple(h.ids) for h in found} == {*texts}


@given(seed=st.integers(0, 999), limits=LIMITS)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_beam_of_one_is_greedy(seed: int, limits: list[int]) -> None:
    lookup = Lookup(len(limits), vocab=5, longest=4, seed=seed)
    rows = torch.arange(len(limits))
    start = torch.ones_like(rows)
    beam = beam_search(lookup.step, [Beginnings(rows)], start, END, torch.tensor(limits), GREEDY)
    assert beam == lookup.answer(GREEDY, limits)


def by_the_book(lookup: Lookup, model: int, limit: int, how: GenerationOptions) -> list[Hypothesis]:
    """Beam search in lists: of the best `beam` continuations those that end are found, and the best others go on."""
    going, found = [(0.0, ())], []
    while going and len(found) < how.num_beams:
        ranked = []
        for logp, text in going:
            code = lookup.code(0, 1)
            for token in text:
                code = lookup.code(code, token)
            tokens = range(lookup.vocab) if len(text) < limit else [END]
            ranked += [(logp + lookup.logprobs[model, code, token].item(), (*text, token)) for token in tokens]
        ranked.sort(reverse=True)
        found += [
            (logp / len(text) ** how.length_penalty, logp, text)
            for logp, text in ranked[: how.num_beams]
            if text[-1] == END
        ]
        going = [(logp, text) for logp, text in ranked if text[-1] != END][: how.num_beams]
    return [
        Hypothesis([*text[:-1]], logp, score) for score, logp, text in sorted(found, reverse=True)[: how.num_return]
    ]


@given(seed=st.integers(0, 999), limits=LIMITS, beam=st.integers(2, 5), penalty=st.sampled_from([0.0, 0.6, 1.0]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_narrow_beam_keeps_what_the_book_says(seed: int, limits: list[int], beam: int, penalty: float) -> None:
    lookup = Lookup(len(limits), vocab=5, longest=4, seed=seed)
    how = GenerationOptions(num_beams=beam, num_return=beam, length_penalty=penalty)
    for model, (found, limit) in enumerate(zip(lookup.answer(how, limits), limits, strict=True)):
        wanted = by_the_book(lookup, model, limit, how)
        assert [h.ids for h in found] == [h.ids for h in wanted]
        assert [h.score for h in found] == pytest.approx([h.score for h in wanted], abs=1e-5)


def test_greedy_takes_the_most_probable_token_each_time() -> None:
    lookup = Lookup(models=20, vocab=5, longest=4, seed=1)
    for model, (answer,) in enumerate(lookup.answer(GREEDY, [4] * 20)):
        code = lookup.code(0, 1)
        for token in [*answer.ids, END][:4]:
            assert token == int(lookup.table[model, code].argmax())
            code = lookup.code(code, token)


@EVERY_WAY
@given(seed=st.integers(0, 999), limits=LIMITS, min_new_tokens=st.integers(0, 5))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_answers_are_right_sorted_different_and_of_the_length_asked_for(how, seed, limits, min_new_tokens) -> None:
    lookup = Lookup(len(limits), vocab=5, longest=4, seed=seed)
    how = replace(how, min_new_tokens=min_new_tokens, length_penalty=seed % 3 / 2)
    for model, (answers, limit) in enumerate(zip(lookup.answer(how, limits), limits, strict=True)):
        assert 1 <= len(answers) <= how.num_return
        assert all(a.score >= b.score for a, b in pairwise(answers))
        if how.temperature == 0:
            assert len({tuple(a.ids) for a in answers}) == len(answers)
        for answer in answers:
            assert min(min_new_tokens, limit) <= len(answer.ids) <= limit
            assert END not in answer.ids
            assert answer.logp == pytest.approx(lookup.logp(answer.ids)[model].item(), abs=1e-5)
            length = len(answer.ids) + 1
            assert answer.score == pytest.approx(answer.logp / length**how.length_penalty)


@EVERY_WAY
@given(seed=st.integers(0, 999), limits=LIMITS)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_rows_do_not_disturb_each_other_whenever_they_end(how: GenerationOptions, seed: int, limits: list[int]) -> None:
    lookup = Lookup(len(limits), vocab=5, longest=4, seed=seed)
    together = lookup.answer(how, limits)
    for model, limit in enumerate(limits):
        assert lookup.answer(how, [limit], [model]) == [together[model]]


def one_step(logits: list[float], how: GenerationOptions, n: int) -> list[int]:
    """The first token of n answers of one model that always says the same."""
    table = torch.tensor(logits)
    limits, rows = torch.ones(n, dtype=torch.int64), torch.arange(n)
    answers = generate(lambda ids, _: table.expand(len(ids), -1).clone(), [], rows, END, limits, how, rows)
    return [(*answer.ids, END)[0] for (answer,) in answers]


class TestSampling:
    def test_the_same_seed_gives_the_same_text_and_another_seed_another(self) -> None:
        lookup = Lookup(models=20, vocab=5, longest=4, seed=1, sharpness=0.1)
        once, again, other = (lookup.answer(replace(SAMPLE, seed=seed), [4] * 20) for seed in (5, 5, 6))
        assert once == again
        assert once != other

    def test_the_answers_to_one_input_are_drawn_apart(self) -> None:
        lookup = Lookup(models=20, vocab=5, longest=4, seed=1, sharpness=0.1)
        assert any(a.ids != b.ids for a, b in lookup.answer(SAMPLE, [4] * 20))

    @pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
    def test_tokens_come_as_often_as_their_probability_says(self, temperature: float) -> None:
        logits, n = [0.0, 1.0, -1.0, 2.0, 0.5], 4000
        counts = Counter(one_step(logits, GenerationOptions(temperature=temperature), n))
        wanted = (torch.tensor(logits) / temperature).softmax(-1) * n
        chi_square = sum((counts[token] - w) ** 2 / w for token, w in enumerate(wanted.tolist()))
        assert chi_square < 23.5  # 4 degrees of freedom: one seed of 10,000 is worse

    @pytest.mark.parametrize(
        ("how", "drawn"),
        [
            ({"top_k": 1}, {3}),
            ({"top_k": 2}, {3, 1}),
            ({"top_k": 9}, {0, 1, 2, 3, 4}),
            ({"top_p": 1e-6}, {3}),
            ({"top_p": 0.6}, {3, 1}),  # the probabilities are 0.53, 0.20, 0.12, 0.07, 0.07
            ({"top_p": 0.75}, {3, 1, 4}),
            ({"top_p": 0.75, "top_k": 2}, {3, 1}),
        ],
    )
    def test_only_the_most_probable_are_drawn(self, how: dict[str, float], drawn: set[int]) -> None:
        assert {*one_step([0.0, 1.0, 0.01, 2.0, 0.5], GenerationOptions(temperature=1.0, **how), 1500)} == drawn

    @pytest.mark.parametrize("how", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-6}])
    def test_what_leaves_no_choice_is_greedy(self, how: dict[str, float]) -> None:
        lookup = Lookup(models=20, vocab=5, longest=4, seed=1)
        sampled = lookup.answer(GenerationOptions(**{"temperature": 2.0} | how), [4] * 20)
        assert [a.ids for (a,) in sampled] == [a.ids for (a,) in lookup.answer(GREEDY, [4] * 20)]

    @given(seed=st.integers(0, 999), top_k=st.integers(0, 20), top_p=st.sampled_from([0.3, 0.8, 0.99, 1.0]))
    @settings(deadline=None, derandomize=True, max_examples=60)
    def test_the_same_tokens_are_drawn_if_all_of_them_are_sorted(self, seed: int, top_k: int, top_p: float) -> None:
        logits = torch.randn(30, 90, generator=torch.Generator().manual_seed(seed)) * 2
        logprobs = logits.round(decimals=seed % 3).log_softmax(-1)  # so that some are equal
        rows = [*range(len(logits))]
        with pytest.MonkeyPatch.context() as patch:
            drawn = []
            for few in (), (4,), (4, 16, 99):
                patch.setattr(regard.sampling, "FEW", few)
                draw = sampler([np.random.default_rng([seed, row]) for row in rows], 0.7, top_k, top_p)
                drawn.append([draw(logprobs[[row]], [row]) for row in rows])
        assert drawn[0] == drawn[1] == drawn[2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam": 0}, r"beam .*not 0"),
        ({"num_return": 0}, r"n.best .*not 0"),
        ({"num_return": 5, "beam": 4}, r"n.best \(5\) .*not 4"),
        ({"length_penalty": math.nan}, r"length.penalty .*not nan"),
        ({"length_penalty": math.inf}, r"length.penalty .*not inf"),
        ({"temperature": -0.5}, r"temperature .*not -0.5"),
        ({"temperature": math.nan}, r"temperature .*not nan"),
        ({"temperature": math.inf}, r"temperature .*not inf"),
        ({"top_k": -1}, r"top.k .*not -1"),
        ({"top_p": 0.0}, r"top.p .*not 0.0"),
        ({"top_p": 1.1}, r"top.p .*not 1.1"),
        ({"shortest": -2}, r"shortest .*not -2"),
        ({"longest": 0}, r"longest .*not 0"),
        ({"shortest": 4, "longest": 3}, r"longest .*not 3"),
        ({"seed": -1}, r"seed .*not -1"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name_and_number(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GenerationOptions(**wrong)


TEXTS = ["a bad cab", "b", "abba had a dad", "cab cab cab cab", "h", "hab da bad"]
ALL = np.arange(len(TEXTS))


@pytest.fixture(scope="module")
def translator() -> tuple[Translate, Model, Ragged]:
    """A Transformer whose weights are random but large, so that what it says depends on what it read. In float64: such
    weights magnify what kernels round differently, and they are other ones for other batches and processors."""
    task = Translate(tokenizer=learn(TEXTS, Pieces("characters")))
    torch.manual_seed(2)
    sizes = {"dim": 16, "encoder_layers": 1, "decoder_layers": 2, "heads": 2, "hidden": 24}
    model = task.head(Transformer(TransformerConfig(len(task.tokenizer), context=40, **sizes))).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data *= 10
    return task, model.double(), Ragged(task.tokenizer.encode(TEXTS))


class TestTransformer:
    @EVERY_WAY
    def test_the_log_probability_is_that_of_teacher_forcing(self, translator, how: GenerationOptions) -> None:
        task, model, rows = translator
        found = task.search(model, rows, ALL, replace(how, longest=9))
        assert len({tuple(answers[0].ids) for answers in found}) > 2, "a model that says one thing proves nothing"
        assert {len(answer.ids) for answers in found for answer in answers} - {9}, "some should end before the limit"
        for row, answers in enumerate(found):
            assert len(answers) == how.num_return
            for answer in answers:
                source, target = torch.from_numpy(rows[row]).long(), torch.tensor([task.tokenizer.pad, *answer.ids])
                wanted = torch.tensor([*answer.ids, task.tokenizer.end])
                with torch.inference_mode():
                    logprobs = model(source[None], target[None])[0].log_softmax(-1)
                again = logprobs.gather(1, wanted[:, None]).double().sum().item()
                assert answer.logp == pytest.approx(again, abs=1e-5, rel=1e-5)

    @EVERY_WAY
    def test_a_batch_equals_its_sentences_one_by_one(self, translator, how: GenerationOptions) -> None:
        task, model, rows = translator
        for row, answers in enumerate(task.search(model, rows, ALL, how)):
            (alone,) = task.search(model, rows, np.array([row]), how)
            assert [a.ids for a in alone] == [a.ids for a in answers]
            assert [a.logp for a in alone] == pytest.approx([a.logp for a in answers], abs=1e-5, rel=1e-5)
            assert [a.score for a in alone] == pytest.approx([a.score for a in answers], abs=1e-5, rel=1e-5)

    @EVERY_WAY
    def test_answers_come_in_the_order_of_the_questions_however_many_are_held(
        self, translator, how: GenerationOptions, monkeypatch
    ) -> None:
        task, model, rows = translator
        wanted = [task.tokenizer.decode([a.ids for a in best]) for best in task.search(model, rows, ALL, how)]
        for window, budget in (1, 1), (4, 30), (100, 2000):
            monkeypatch.setattr(translating, "BUDGET", budget)
            found = task.predict(model, iter(TEXTS), how, window=window)
            assert [[a.text for a in best] for best in found] == wanted

    def test_a_wide_beam_is_at_least_as_good_as_greedy(self, translator) -> None:
        task, model, _ = translator
        how = Translating(num_beams=12, length_penalty=0.0, longest=5)
        for narrow, wide in zip(
            task.predict(model, TEXTS, replace(how, beam=1)), task.predict(model, TEXTS, how), strict=True
        ):
            assert wide[0].score >= narrow[0].score - 1e-5

    @EVERY_WAY
    def test_lengths_are_kept_even_against_the_context(self, translator, how: GenerationOptions) -> None:
        task, model, rows = translator
        for min_new_tokens, longest in (3, 3), (0, 1), (99, 200), (50, None):
            found = task.search(model, rows, ALL, replace(how, min_new_tokens=min_new_tokens, longest=longest))
            for answers in found:
                assert answers
                for answer in answers:
                    assert min(min_new_tokens, 39) <= len(answer.ids) <= min(longest or 99, 39)
                    assert math.isfinite(answer.logp)

    def test_padding_is_never_said(self, translator) -> None:
        task, model, rows = translator
        for how in GREEDY, BEAM, Translating(temperature=5.0, num_return=20):
            for answers in task.search(model, rows, ALL, replace(how, longest=20)):
                assert not any(task.tokenizer.pad in answer.ids for answer in answers)

    def test_a_sentence_longer_than_the_context_is_refused_with_its_beginning_and_numbers(self, translator) -> None:
        task, model, _ = translator
        with pytest.raises(ValueError, match=r"has 61 tokens, .*context is 40.*begins \"ab ab"):
            [*task.predict(model, ["a", "b", "ab " * 20, "c"])]


def test_a_padding_mask_comes_from_lengths() -> None:
    assert padding_mask(np.array([2, 3]), 3).tolist() == [[[[True, True, False]]], [[[True, True, True]]]]


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("V", [50, 40_000, 40_000 // 64 * 64])
def test_the_largest_of_a_long_row_are_found_without_sorting_it(count: int, V: int) -> None:
    x = torch.randn(3, V, generator=torch.Generator().manual_seed(1))
    x[0, -1], x[1, 0], x[2, V // 2 :] = 9.0, 9.0, -math.inf
    best, where = largest(x, count)
    assert best.tolist() == x.topk(count).values.tolist()
    assert torch.equal(x.gather(1, torch.from_numpy(where)), torch.from_numpy(best))
