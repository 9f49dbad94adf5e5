"""Generation: search finds the best text, samples follow the distribution, and no answer depends on its batch.

Two kinds of model: `Lookup`, whose next token depends on the whole prefix through a random table, so that every
probability can be enumerated; and a small random Transformer, through the task that uses it.
"""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import regard.sampling
from regard import decode_batch
from regard.data.batches import padding_mask
from regard.data.tokenizer_train import TokenizerOptions, train_tokenizer
from regard.decode_request import Hypothesis
from regard.generate import generate
from regard.generation_config import GenerationOptions
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.modalities.token_preprocessor import TokenIds
from regard.models.transformer import Transformer, TransformerConfig
from regard.parts.cache import Cache
from regard.parts.heads import Model
from regard.sampling import largest, make_sampler
from regard.sequence_search import BeamSearch
from regard.tasks import translate
from regard.tasks.translate import Translate, TranslateOptions

END = 0
GREEDY, BEAM = TranslateOptions(num_beams=1), TranslateOptions(num_beams=3, num_return=3)
SAMPLE = TranslateOptions(temperature=1.3, num_return=2, seed=5)
EVERY_METHOD = pytest.mark.parametrize("options", [GREEDY, BEAM, SAMPLE], ids=["greedy", "beam", "sampling"])


class LookupCache(Cache):
    """The model of each row, and its text so far as one number."""

    def __init__(self, models: Tensor):
        super().__init__()
        self.models, self.codes = models, torch.zeros_like(models)

    def select(self, rows: Tensor) -> None:
        self.models, self.codes = self.models[rows], self.codes[rows]


class Lookup:
    """Many random models at once: `table[model, code of the prefix]` are the logits of the next token."""

    def __init__(self, models: int, vocab: int, max_length: int, seed: int, sharpness: float = 2.0):
        self.vocab = vocab
        random = torch.Generator().manual_seed(seed)
        self.table = torch.randn(models, vocab ** (max_length + 2), vocab, generator=random) * sharpness
        self.logprobs = self.table.log_softmax(-1)

    def code(self, before: int | Tensor, token: int | Tensor) -> int | Tensor:
        return before * self.vocab + token

    def step(self, ids: Tensor, caches: list[Cache]) -> Tensor:
        (cache,) = caches
        cache.codes = self.code(cache.codes, ids[:, 0])
        return self.table[cache.models, cache.codes]

    def answer(
        self, options: GenerationOptions, limits: list[int], models: list[int] | None = None
    ) -> list[list[Hypothesis]]:
        chosen = torch.tensor([*range(len(self.table))] if models is None else models)
        start = torch.ones_like(chosen)
        return generate(self.step, [LookupCache(chosen)], start, END, torch.tensor(limits), options, chosen)

    def logp(self, text: tuple[int, ...] | list[int]) -> Tensor:
        """log P of a text and its </s>, under each of the models."""
        code, total = self.code(0, 1), torch.zeros(len(self.table))
        for token in (*text, END):
            total = total + self.logprobs[:, code, token]
            code = self.code(code, token)
        return total


LIMITS = st.lists(st.integers(1, 4), min_size=1, max_size=6)


@pytest.mark.parametrize("vocab", [3, 4])
@pytest.mark.parametrize("max_length", [3, 4])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_a_beam_as_wide_as_there_are_texts_finds_the_best_of_them(vocab: int, max_length: int, penalty: float) -> None:
    lookup = Lookup(models=84, vocab=vocab, max_length=max_length, seed=vocab + max_length)  # 12 x 84 > 1,000 models
    texts = [text for length in range(max_length + 1) for text in product(range(1, vocab), repeat=length)]
    options = GenerationOptions(num_beams=len(texts), num_return=len(texts), length_penalty=penalty)
    logp = torch.stack([lookup.logp(text) for text in texts], 1)  # (models, texts)
    score = logp / torch.tensor([(len(text) + 1) ** penalty for text in texts])
    for model, hypotheses in enumerate(lookup.answer(options, [max_length] * len(logp))):
        best = int(score[model].argmax())
        assert tuple(hypotheses[0].ids) == texts[best]
        assert hypotheses[0].logp == pytest.approx(logp[model, best].item(), abs=1e-4)
        assert hypotheses[0].score == pytest.approx(score[model, best].item(), abs=1e-4)
        assert {tuple(h.ids) for h in hypotheses} == {*texts}


@given(seed=st.integers(0, 999), limits=LIMITS)
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_beam_of_one_is_greedy(seed: int, limits: list[int]) -> None:
    lookup = Lookup(len(limits), vocab=5, max_length=4, seed=seed)
    greedy = lookup.answer(GREEDY, limits)
    with patch.object(decode_batch, "Sampling", lambda end: BeamSearch(end, 1)):
        assert lookup.answer(GREEDY, limits) == greedy


def reference_beam_search(lookup: Lookup, model: int, limit: int, options: GenerationOptions) -> list[Hypothesis]:
    """Beam search on lists: of the K best continuations, those that end are finished; the K best others continue."""
    alive, finished = [(0.0, ())], []
    while alive and len(finished) < options.num_beams:
        ranked = []
        for logp, text in alive:
            code = lookup.code(0, 1)
            for token in text:
                code = lookup.code(code, token)
            tokens = range(lookup.vocab) if len(text) < limit else [END]
            ranked += [(logp + lookup.logprobs[model, code, token].item(), (*text, token)) for token in tokens]
        ranked.sort(reverse=True)
        finished += [
            (logp / len(text) ** options.length_penalty, logp, text)
            for logp, text in ranked[: options.num_beams]
            if text[-1] == END
        ]
        alive = [(logp, text) for logp, text in ranked if text[-1] != END][: options.num_beams]
    return [
        Hypothesis([*text[:-1]], logp, score)
        for score, logp, text in sorted(finished, reverse=True)[: options.num_return]
    ]


@given(seed=st.integers(0, 999), limits=LIMITS, num_beams=st.integers(2, 5), penalty=st.sampled_from([0.0, 0.6, 1.0]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_narrow_beam_equals_the_reference(seed: int, limits: list[int], num_beams: int, penalty: float) -> None:
    lookup = Lookup(len(limits), vocab=5, max_length=4, seed=seed)
    options = GenerationOptions(num_beams=num_beams, num_return=num_beams, length_penalty=penalty)
    for model, (hypotheses, limit) in enumerate(zip(lookup.answer(options, limits), limits, strict=True)):
        expected = reference_beam_search(lookup, model, limit, options)
        assert [h.ids for h in hypotheses] == [h.ids for h in expected]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in expected], abs=1e-5)


def test_greedy_takes_the_most_probable_token_each_time() -> None:
    lookup = Lookup(models=20, vocab=5, max_length=4, seed=1)
    for model, (answer,) in enumerate(lookup.answer(GREEDY, [4] * 20)):
        code = lookup.code(0, 1)
        for token in [*answer.ids, END][:4]:
            assert token == int(lookup.table[model, code].argmax())
            code = lookup.code(code, token)


@EVERY_METHOD
@given(seed=st.integers(0, 999), limits=LIMITS, min_new_tokens=st.integers(0, 5))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_hypotheses_are_correct_sorted_different_and_within_the_length_limits(
    options, seed, limits, min_new_tokens
) -> None:
    lookup = Lookup(len(limits), vocab=5, max_length=4, seed=seed)
    options = replace(options, min_new_tokens=min_new_tokens, length_penalty=seed % 3 / 2)
    for model, (answers, limit) in enumerate(zip(lookup.answer(options, limits), limits, strict=True)):
        assert 1 <= len(answers) <= options.num_return
        assert all(a.score >= b.score for a, b in pairwise(answers))
        if options.temperature == 0:
            assert len({tuple(a.ids) for a in answers}) == len(answers)
        for answer in answers:
            assert min(min_new_tokens, limit) <= len(answer.ids) <= limit
            assert END not in answer.ids
            assert answer.logp == pytest.approx(lookup.logp(answer.ids)[model].item(), abs=1e-5)
            length = len(answer.ids) + 1
            assert answer.score == pytest.approx(answer.logp / length**options.length_penalty)


@EVERY_METHOD
def test_a_row_ends_at_its_limit_even_if_the_end_is_forbidden(options: GenerationOptions) -> None:
    """A prompt with </s> in it, and no token may occur twice: the processor forbids </s> in every step."""
    calls = []

    def step(ids: Tensor, caches: list[Cache]) -> Tensor:
        calls.append(1)
        assert len(calls) < 20, "generation does not end"
        return torch.arange(5.0).expand(len(ids), 5).clone()

    once, start, limits = replace(options, no_repeat_ngram_size=1), torch.tensor([1]), torch.tensor([2])
    [best] = generate(step, [LookupCache(start)], start, END, limits, once, start, prefixes=[[END]])
    assert all(len(h.ids) == 2 and END not in h.ids and math.isfinite(h.logp) for h in best)


@EVERY_METHOD
@given(seed=st.integers(0, 999), limits=LIMITS)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_rows_are_independent_whenever_they_end(options: GenerationOptions, seed: int, limits: list[int]) -> None:
    lookup = Lookup(len(limits), vocab=5, max_length=4, seed=seed)
    together = lookup.answer(options, limits)
    for model, limit in enumerate(limits):
        assert lookup.answer(options, [limit], [model]) == [together[model]]


def one_step(logits: list[float], options: GenerationOptions, n: int) -> list[int]:
    """The first token of n answers of a model with constant logits."""
    table = torch.tensor(logits)
    limits, rows = torch.ones(n, dtype=torch.int64), torch.arange(n)
    answers = generate(lambda ids, _: table.expand(len(ids), -1).clone(), [], rows, END, limits, options, rows)
    return [(*answer.ids, END)[0] for (answer,) in answers]


class TestSampling:
    def test_the_same_seed_gives_the_same_text_and_another_seed_another(self) -> None:
        lookup = Lookup(models=20, vocab=5, max_length=4, seed=1, sharpness=0.1)
        first, second, third = (lookup.answer(replace(SAMPLE, seed=seed), [4] * 20) for seed in (5, 5, 6))
        assert first == second
        assert first != third

    def test_the_answers_to_one_input_are_independent(self) -> None:
        lookup = Lookup(models=20, vocab=5, max_length=4, seed=1, sharpness=0.1)
        assert any(a.ids != b.ids for a, b in lookup.answer(SAMPLE, [4] * 20))

    @pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
    def test_token_frequencies_follow_their_probabilities(self, temperature: float) -> None:
        logits, n = [0.0, 1.0, -1.0, 2.0, 0.5], 4000
        counts = Counter(one_step(logits, GenerationOptions(temperature=temperature), n))
        expected = (torch.tensor(logits) / temperature).softmax(-1) * n
        chi_square = sum((counts[token] - e) ** 2 / e for token, e in enumerate(expected.tolist()))
        assert chi_square < 23.5  # 4 degrees of freedom: one seed of 10,000 is worse

    @pytest.mark.parametrize(
        ("options", "tokens"),
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
    def test_only_the_most_probable_tokens_are_sampled(self, options: dict[str, float], tokens: set[int]) -> None:
        assert {*one_step([0.0, 1.0, 0.01, 2.0, 0.5], GenerationOptions(temperature=1.0, **options), 1500)} == tokens

    @pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-6}])
    def test_sampling_from_one_token_is_greedy(self, options: dict[str, float]) -> None:
        lookup = Lookup(models=20, vocab=5, max_length=4, seed=1)
        sampled = lookup.answer(GenerationOptions(**{"temperature": 2.0} | options), [4] * 20)
        assert [a.ids for (a,) in sampled] == [a.ids for (a,) in lookup.answer(GREEDY, [4] * 20)]

    @given(seed=st.integers(0, 999), top_k=st.integers(0, 20), top_p=st.sampled_from([0.3, 0.8, 0.99, 1.0]))
    @settings(deadline=None, derandomize=True, max_examples=60)
    def test_partial_sorts_sample_the_same_tokens(self, seed: int, top_k: int, top_p: float) -> None:
        logits = torch.randn(30, 90, generator=torch.Generator().manual_seed(seed)) * 2
        logprobs = logits.round(decimals=seed % 3).log_softmax(-1)  # with ties
        rows = [*range(len(logits))]
        with pytest.MonkeyPatch.context() as patch:
            tokens = []
            for counts in (), (4,), (4, 16, 99):
                patch.setattr(regard.sampling, "PARTIAL_SORTS", counts)
                sample = make_sampler([np.random.default_rng([seed, row]) for row in rows], 0.7, top_k, top_p)
                tokens.append([sample(logprobs[[row]], [row]) for row in rows])
        assert tokens[0] == tokens[1] == tokens[2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_beams": 0}, r"num.beams .*not 0"),
        ({"num_return": 0}, r"num.return .*not 0"),
        ({"num_return": 5, "num_beams": 4}, r"num.return \(5\) .*num.beams \(4\)"),
        ({"length_penalty": math.nan}, r"length.penalty .*not nan"),
        ({"length_penalty": math.inf}, r"length.penalty .*not inf"),
        ({"temperature": -0.5}, r"temperature .*not -0.5"),
        ({"temperature": math.nan}, r"temperature .*not nan"),
        ({"temperature": math.inf}, r"temperature .*not inf"),
        ({"top_k": -1}, r"top.k .*not -1"),
        ({"top_p": 0.0}, r"top.p .*not 0.0"),
        ({"top_p": 1.1}, r"top.p .*not 1.1"),
        ({"min_new_tokens": -2}, r"min.new.tokens .*not -2"),
        ({"max_new_tokens": 0}, r"max.new.tokens .*not 0"),
        ({"min_new_tokens": 4, "max_new_tokens": 3}, r"max.new.tokens .*not 3"),
        ({"seed": -1}, r"seed .*not -1"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name_and_value(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GenerationOptions(**wrong)


TEXTS = ["a bad cab", "b", "abba had a dad", "cab cab cab cab", "h", "hab da bad"]
ALL = np.arange(len(TEXTS))


@pytest.fixture(scope="module")
def translator() -> tuple[Translate, Model, TokenIds]:
    """A Transformer with large random weights, so that its output depends on its input. In float64: such weights
    amplify the rounding differences between the kernels of other batch shapes and CPUs."""
    task = Translate(preprocessor=TextPreprocessor(train_tokenizer(TEXTS, TokenizerOptions("characters"))))
    torch.manual_seed(2)
    sizes = {"dim": 16, "encoder_layers": 1, "decoder_layers": 2, "heads": 2, "hidden": 24}
    model = task.head(Transformer(TransformerConfig(len(task.tokenizer), context=40, **sizes))).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data *= 10
    return task, model.double(), TokenIds(task.tokenizer.encode(TEXTS))


class TestTransformer:
    @EVERY_METHOD
    def test_log_probabilities_equal_those_of_teacher_forcing(self, translator, options: GenerationOptions) -> None:
        task, model, rows = translator
        results = task.search(model, rows, ALL, replace(options, max_new_tokens=9))
        assert len({tuple(answers[0].ids) for answers in results}) > 2, "a model with one answer proves nothing"
        assert {len(answer.ids) for answers in results for answer in answers} - {9}, "some should end before the limit"
        for row, answers in enumerate(results):
            assert len(answers) == options.num_return
            for answer in answers:
                source, target = (
                    torch.from_numpy(rows.ids[row]).long(),
                    torch.tensor([task.tokenizer.pad_token_id, *answer.ids]),
                )
                labels = torch.tensor([*answer.ids, task.tokenizer.eos_token_id])
                with torch.inference_mode():
                    logprobs = model(source[None], target[None])[0].log_softmax(-1)
                logp = logprobs.gather(1, labels[:, None]).double().sum().item()
                assert answer.logp == pytest.approx(logp, abs=1e-5, rel=1e-5)

    @EVERY_METHOD
    def test_a_batch_equals_its_sentences_one_by_one(self, translator, options: GenerationOptions) -> None:
        task, model, rows = translator
        for row, answers in enumerate(task.search(model, rows, ALL, options)):
            (alone,) = task.search(model, rows, np.array([row]), options)
            assert [a.ids for a in alone] == [a.ids for a in answers]
            assert [a.logp for a in alone] == pytest.approx([a.logp for a in answers], abs=1e-5, rel=1e-5)
            assert [a.score for a in alone] == pytest.approx([a.score for a in answers], abs=1e-5, rel=1e-5)

    @EVERY_METHOD
    def test_answers_keep_the_order_of_the_inputs_for_every_window(
        self, translator, options: GenerationOptions, monkeypatch
    ) -> None:
        task, model, rows = translator
        expected = [task.tokenizer.decode([a.ids for a in best]) for best in task.search(model, rows, ALL, options)]
        for window, budget in (1, 1), (4, 30), (100, 2000):
            monkeypatch.setattr(translate, "DECODE_BUDGET", budget)
            monkeypatch.setattr(Translate, "window", window)
            results = task.predict(model, iter(TEXTS), options)
            assert [[a.text for a in best] for best in results] == expected

    def test_a_wide_beam_is_at_least_as_good_as_greedy(self, translator) -> None:
        task, model, _ = translator
        options = TranslateOptions(num_beams=12, length_penalty=0.0, max_new_tokens=5)
        for narrow, wide in zip(
            task.predict(model, TEXTS, replace(options, num_beams=1)), task.predict(model, TEXTS, options), strict=True
        ):
            assert wide[0].score >= narrow[0].score - 1e-5

    @EVERY_METHOD
    def test_length_limits_hold_up_to_the_context(self, translator, options: GenerationOptions) -> None:
        task, model, rows = translator
        for min_new_tokens, max_new_tokens in (3, 3), (0, 1), (99, 200), (50, None):
            results = task.search(
                model, rows, ALL, replace(options, min_new_tokens=min_new_tokens, max_new_tokens=max_new_tokens)
            )
            for answers in results:
                assert answers
                for answer in answers:
                    assert min(min_new_tokens, 39) <= len(answer.ids) <= min(max_new_tokens or 99, 39)
                    assert math.isfinite(answer.logp)

    def test_padding_is_never_generated(self, translator) -> None:
        task, model, rows = translator
        for options in GREEDY, BEAM, TranslateOptions(temperature=5.0, num_return=20):
            for answers in task.search(model, rows, ALL, replace(options, max_new_tokens=20)):
                assert not any(task.tokenizer.pad_token_id in answer.ids for answer in answers)

    def test_a_sentence_longer_than_the_context_is_refused_with_its_length_and_beginning(self, translator) -> None:
        task, model, _ = translator
        with pytest.raises(ValueError, match=r"61 tokens exceed .*context of 40: .*begins \"ab ab"):
            [*task.predict(model, ["a", "b", "ab " * 20, "c"])]


def test_a_padding_mask_comes_from_lengths() -> None:
    assert padding_mask(np.array([2, 3]), 3).tolist() == [[[[True, True, False]]], [[[True, True, True]]]]


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("V", [50, 40_000, 40_000 // 64 * 64])
def test_largest_equals_topk_for_long_rows(count: int, V: int) -> None:
    x = torch.randn(3, V, generator=torch.Generator().manual_seed(1))
    x[0, -1], x[1, 0], x[2, V // 2 :] = 9.0, 9.0, -math.inf
    best, where = largest(x, count)
    assert best.tolist() == x.topk(count).values.tolist()
    assert torch.equal(x.gather(1, torch.from_numpy(where)), torch.from_numpy(best))
