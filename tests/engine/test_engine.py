"""The engine says what the plain modules say: token by token, in prompts, batches and beams, on one core or two."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)  # Numba, and a processor that the engine knows

from regard.engine.compiler import Unknown
from regard.engine.engine_model import FastBody, FastOutput, in_engine, must_run
from regard.engine.quantize import rounded
from regard.generate import Decoding, generate
from regard.models.bert import Bert, BertConfig
from regard.parts.cache import select
from regard.parts.heads import Model

B, T, S, V = 3, 37, 7, 53
PIECES = {"one by one": [1] * T, "a prompt, then one by one": [20] + [1] * (T - 20), "two prompts": [30, 7]}
CLOSE = {"atol": 2e-5, "rtol": 1e-4}
LENGTHS = torch.tensor([S, 2, 5])
MASK = (torch.arange(S) < LENGTHS[:, None])[:, None, None]


def ids(rows: int, tokens: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, V - 1, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def written(model, text, pieces):
    """Logits of all tokens, from a cache that is fed piece by piece."""
    caches, ends = model.body.caches(), [sum(pieces[:i]) for i in range(len(pieces) + 1)]
    return torch.cat([model.head(model.body(text[:, a:b], cache=caches)) for a, b in pairwise(ends)], 1)


INT8_SHARE = 0.3


def must_agree(found, wanted, share):
    """To the last digits: every token, or of int8 those before a number on the edge between two bytes falls on the
    other side. All that follow in its row see it there, so it takes two of three rows on some processors. What rounds
    otherwise on purpose agrees in no token."""
    far = (found - wanted).abs().amax(-1)
    assert (far < 1e-4).float().mean() >= share
    assert far.max() < 0.2


def variants(model):
    """A plain model, the engine that must say the same, and for how many tokens; then both with int8 weights."""
    yield model, in_engine(model), 1.0
    spelled = rounded(model)
    yield spelled, in_engine(spelled, half=False), INT8_SHARE


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
@torch.inference_mode()
def test_what_is_written_is_what_the_plain_modules_write(writer, pieces):
    text = ids(B, T)
    for plain, fast, share in variants(writer):
        must_agree(written(fast, text, pieces), plain(text), share)


@torch.inference_mode()
def test_whole_texts_are_read_at_once_too(writer):
    spelled = rounded(writer)
    fast = in_engine(spelled, half=False)
    text = ids(B, T)
    documents = (torch.arange(T) // 10)[:, None] == torch.arange(T) // 10
    for mask in (None, documents.expand(B, 1, T, T)):
        must_agree(fast.body(text, mask=mask), spelled.body(text, mask=mask), INT8_SHARE)
    x = spelled.body(text).flatten(0, 1)
    wanted = torch.nn.functional.cross_entropy(spelled.head(x), text.flatten(), reduction="sum")
    assert_close(fast.head.loss(x, text.flatten()), wanted, atol=0.01, rtol=1e-4)


@torch.inference_mode()
def test_what_is_translated_is_what_the_plain_modules_translate(translator):
    source, target = ids(B, S), ids(B, T, seed=2)
    for plain, fast, share in variants(translator):
        wanted = plain(source, target, source_mask=MASK)
        caches = fast.body.read(source, MASK)
        steps = [fast.head(fast.body.decode(target[:, i : i + 1], cache=caches)) for i in range(T)]
        must_agree(torch.cat(steps, 1), wanted, share)
        caches = fast.body.read(source, MASK)
        must_agree(torch.stack([fast.next(target[:, i : i + 1], caches) for i in range(T)], 1), wanted, share)
        must_agree(fast(source, target, source_mask=MASK), wanted, share)


@pytest.mark.parametrize("prompt", [0, 20])
@torch.inference_mode()
def test_a_step_is_one_program_from_ids_to_logits(writer, prompt):
    """Of two texts in turn, each with a memory of its own that has to grow."""
    texts = [ids(B, T), ids(B - 1, T, seed=5)]
    for plain, fast, share in variants(writer):
        caches, logits = [fast.body.caches() for _ in texts], [[], []]
        for i in range(prompt, T):
            for text, memory, said in zip(texts, caches, logits, strict=True):
                if i == prompt > 0:
                    fast.body(text[:, :prompt], cache=memory)
                said.append(fast.next(text[:, i : i + 1], memory))
        found = torch.cat([torch.stack(said, 1) for said in logits])
        must_agree(found, torch.cat([plain(text)[:, prompt:] for text in texts]), share)


@torch.inference_mode()
def test_rows_may_fork_end_and_change_places(translator):
    """As in a beam: rows are chosen again and again, sources only when a sentence has ended."""
    source, target = ids(B, S), ids(B, 3, seed=2)
    chosen = [(torch.tensor([0, 0, 1, 1, 2, 2]), None), (torch.tensor([1, 0, 2, 2, 5, 4]), None)]
    chosen += [(torch.tensor([1, 0, 5, 5]), torch.tensor([0, 2])), (torch.tensor([3, 2, 0, 1]), torch.tensor([1, 0]))]

    def told(model):
        caches, logits = model.body.read(source, MASK), []
        step = target[:, :1]
        for rows, sources in chosen:
            logits.append(model.next(step, caches))
            select(caches, rows, sources)
            step = (step[rows] * 7 + 3) % (V - 1)
        return logits

    plain, fast = told(translator), told(in_engine(translator))
    for one, other in zip(plain, fast, strict=True):
        assert_close(one, other, **CLOSE)


WAYS = pytest.mark.parametrize(
    "how",
    [Decoding(beam=1), Decoding(beam=3, n_best=3), Decoding(temperature=1.3, n_best=2, seed=5)],
    ids=["greedy", "beam", "sampling"],
)


def found(model, caches, how):
    limits, start = torch.tensor([9, 4, 12]), torch.tensor([5, 6, 7])
    return generate(model.next, caches, start, 0, limits, how, torch.arange(B))


def must_be_the_same(one, other):
    for these, those in zip(one, other, strict=True):
        assert [h.ids for h in these] == [h.ids for h in those]
        assert [h.logp for h in these] == pytest.approx([h.logp for h in those], abs=1e-4)


@WAYS
@torch.inference_mode()
def test_the_same_tokens_are_written(writer, how):
    must_be_the_same(*(found(model, model.body.caches(), how) for model in (writer, in_engine(writer))))


@WAYS
@torch.inference_mode()
def test_the_same_tokens_are_translated(translator, how):
    both = (translator, in_engine(translator))
    must_be_the_same(*(found(model, model.body.read(ids(B, S), MASK), how) for model in both))


@torch.inference_mode()
def test_padding_and_company_change_nothing(translator):
    fast = in_engine(rounded(translator))
    source, other = ids(B, S), ids(B, S, seed=9)
    filled = torch.where(MASK[:, 0, 0], source, other)
    together = fast.body.encode(filled, MASK)
    for b, length in enumerate(LENGTHS.tolist()):
        alone = fast.body.encode(source[b : b + 1, :length])
        assert torch.equal(together[b, :length], alone[0])


@torch.inference_mode()
def test_what_reads_is_read_without_its_padding():
    torch.manual_seed(2)
    plain = Model(Bert(BertConfig(vocab=V, dim=48, heads=3, hidden=80, sep=4)), torch.nn.Identity()).eval()
    source, real = ids(B, S), MASK[:, 0, 0]
    for model, fast, share in variants(plain):
        must_agree(fast.body(source, MASK)[real], model.body(source, MASK)[real], share)


@torch.inference_mode()
def test_more_rows_than_fit_at_once_are_cut(gpt, monkeypatch):
    from regard.engine import runtime

    text, fast = ids(B, T), in_engine(rounded(gpt))
    whole, steps = fast(text), written(fast, text, [T])
    monkeypatch.setattr(runtime, "TOGETHER", 10)
    assert torch.equal(whole, fast(text))
    must_agree(steps, written(fast, text, [T]), INT8_SHARE)  # in crowds, or row by row


@torch.inference_mode()
def test_another_core_changes_no_bit(gpt):
    text, fast = ids(B, T), in_engine(rounded(gpt))

    def steps():
        caches = fast.body.caches()
        return torch.stack([fast.next(text[:, i : i + 1], caches) for i in range(T)])

    alone, stepped = fast(text), steps()
    torch.set_num_threads(3)
    try:
        for _ in range(20):
            assert torch.equal(alone, fast(text))
        for _ in range(5):
            assert torch.equal(stepped, steps())
    finally:
        torch.set_num_threads(1)


@torch.inference_mode()
def test_nan_stays_nan(writer):
    """Wherever it comes from: an activation, a softmax or a rounding could make a number of it."""
    text = ids(2, 12)
    for name, weight in writer.named_parameters():
        before = weight.clone()
        weight.view(-1)[0] = torch.nan
        if "positions" in name:
            weight.fill_(torch.nan)
        if "tokens" in name:
            weight[text[0, 0]] = torch.nan
        for _, fast, _ in variants(writer):
            caches = fast.body.caches()
            prompt = fast.head(fast.body(text[:, :-1], cache=caches))
            step = fast.next(text[:, -1:], caches)
            assert not prompt[0, -1].isfinite().all(), f"{name}, a prompt"
            assert not step[0].isfinite().all(), f"{name}, a step"
        weight.copy_(before)


@torch.inference_mode()
def test_a_row_that_sees_nothing_is_finite():
    config = BertConfig(vocab=V, context=T, dim=64, layers=2, heads=2, hidden=44, dropout=0.0)
    body = FastBody(Bert(config).eval(), half=False)
    mask = torch.ones(B, 1, T, T, dtype=torch.bool)
    mask[1, :, 3] = False
    assert body(ids(B, T), mask).isfinite().all()
    assert body(ids(B, T), torch.tensor([True, False, True])[:, None, None, None].expand(B, 1, 1, T)).isfinite().all()


@torch.inference_mode()
def test_what_does_not_fit_is_refused(writer):
    fast = in_engine(rounded(writer))
    caches = fast.body.caches()
    fast.body(ids(1, 40), cache=caches)
    for ask in (lambda new, memory: fast.body(new, cache=memory), fast.next):
        with pytest.raises(ValueError, match="41 tokens do not fit .* context of 40"):
            ask(ids(1, 1), caches)
        with pytest.raises(IndexError):
            ask(torch.tensor([[V]]), fast.body.caches())


def test_other_numbers_than_fp32_are_not_known(gpt):
    with pytest.raises(Unknown, match="float32"):
        in_engine(gpt.to(torch.bfloat16))


def test_a_body_that_is_not_known_is_refused(gpt):
    with pytest.raises(Unknown, match="no Linear"):
        must_run(type(gpt)(torch.nn.Linear(2, 2), torch.nn.Identity()))
    gpt.body.blocks[1].feedforward.inner.activation = torch.tanh
    with pytest.raises(Unknown, match="tanh"):
        FastBody(gpt.body, half=False)


@torch.inference_mode()
def test_a_crowd_sees_what_each_of_its_rows_sees_alone(writer, monkeypatch):
    from regard.engine.kernels import prefill_attention

    text, exact, half = ids(B, T), in_engine(writer), in_engine(rounded(writer), half=True)
    together = [written(fast, text, [30, 7]) for fast in (exact, half)]
    monkeypatch.setattr(prefill_attention, "LEAST", 10**9)
    assert_close(together[0], written(exact, text, [30, 7]), **CLOSE)
    must_agree(together[1], written(half, text, [30, 7]), INT8_SHARE)


def test_crowds_are_rows_that_look_at_the_same_line():
    from regard.engine.kernels.prefill_attention import crowds_of

    lines = torch.tensor([4] * 9 + [2] * 12 + [4] * 10, dtype=torch.int32)
    assert crowds_of(lines).tolist() == [[0, 9], [9, 12], [21, 10]]
    assert crowds_of(torch.arange(20, dtype=torch.int32)).tolist() == []


@pytest.mark.parametrize(("inputs", "outputs"), [(37, 70), (64, 64), (16, 5)])
@pytest.mark.parametrize("rows", [1, 5, 31, 33, 70])
@torch.inference_mode()
def test_a_layer_of_any_size_is_that_of_pytorch(inputs, outputs, rows):
    torch.manual_seed(3)
    layer, x = torch.nn.Linear(inputs, outputs), torch.randn(rows, inputs)
    assert_close(FastOutput(layer)(x), layer(x), **CLOSE)
