"""The engine equals the plain modules: prefill, decode steps, batches and beams, on one thread or more."""

from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)  # Numba, and a CPU that the engine supports

from regard.engine.compiler import UnsupportedPart
from regard.engine.engine_body import EngineBody
from regard.engine.engine_model import EngineLMHead, check_supported, to_engine
from regard.engine.quantize import quantize_model
from regard.generate import generate
from regard.generation_config import GenerationOptions
from regard.models.bert import Bert, BertConfig
from regard.parts.cache import select
from regard.parts.document_mask import DocumentMask
from regard.parts.heads import Model

B, T, S, V = 3, 37, 7, 53
CHUNKS = {"steps": [1] * T, "prefill, then steps": [20] + [1] * (T - 20), "two prefills": [30, 7]}
CLOSE = {"atol": 2e-5, "rtol": 1e-4}
LENGTHS = torch.tensor([S, 2, 5])
MASK = (torch.arange(S) < LENGTHS[:, None])[:, None, None]


def ids(rows: int, tokens: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(0, V - 1, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def logits_in_chunks(model, text, chunks):
    """Logits of all tokens, from a cache that is fed in chunks."""
    caches, ends = model.body.caches(), [sum(chunks[:i]) for i in range(len(chunks) + 1)]
    return torch.cat([model.head(model.body(text[:, a:b], cache=caches)) for a, b in pairwise(ends)], 1)


INT8_SHARE = 0.3


def assert_logits_agree(actual, expected, min_share):
    """To the last digits: all tokens in fp32. In int8, those before an input that lies between two int8 values is
    rounded the other way; all later tokens of its row depend on it, which on some CPUs affects two of three rows. A
    wrong quantization would agree in no token."""
    distance = (actual - expected).abs().amax(-1)
    assert (distance < 1e-4).float().mean() >= min_share
    assert distance.max() < 0.2


def variants(model):
    """A plain model, its engine, and the share of tokens that must agree; then both with int8 weights."""
    yield model, to_engine(model), 1.0
    quantized = quantize_model(model)
    yield quantized, to_engine(quantized, kv_fp16=False), INT8_SHARE


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
@torch.inference_mode()
def test_decoder_logits_equal_the_plain_model(decoder, chunks):
    text = ids(B, T)
    for plain, engine, min_share in variants(decoder):
        assert_logits_agree(logits_in_chunks(engine, text, chunks), plain(text), min_share)


@torch.inference_mode()
def test_forward_without_a_cache_equals_the_plain_model(decoder):
    quantized = quantize_model(decoder)
    engine = to_engine(quantized, kv_fp16=False)
    text = ids(B, T)
    documents = DocumentMask((torch.arange(T) // 10).expand(B, T))
    for mask in (None, documents, documents.dense()):
        assert_logits_agree(engine.body(text, mask=mask), quantized.body(text, mask=mask), INT8_SHARE)
    x = quantized.body(text).flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(quantized.head(x), text.flatten(), reduction="sum")
    assert_close(engine.head.loss(x, text.flatten()), expected, atol=0.01, rtol=1e-4)


@torch.inference_mode()
def test_seq2seq_logits_equal_the_plain_model(seq2seq):
    source, target = ids(B, S), ids(B, T, seed=2)
    for plain, engine, min_share in variants(seq2seq):
        expected = plain(source, target, source_mask=MASK)
        caches = engine.body.decoder_caches(source, MASK)
        steps = [engine.head(engine.body.decode(target[:, i : i + 1], cache=caches)) for i in range(T)]
        assert_logits_agree(torch.cat(steps, 1), expected, min_share)
        caches = engine.body.decoder_caches(source, MASK)
        steps = [engine.next_logits(target[:, i : i + 1], caches) for i in range(T)]
        assert_logits_agree(torch.stack(steps, 1), expected, min_share)
        assert_logits_agree(engine(source, target, source_mask=MASK), expected, min_share)


@pytest.mark.parametrize("prompt", [0, 20])
@torch.inference_mode()
def test_decode_steps_equal_the_plain_model(decoder, prompt):
    """Two texts in turn, each with a cache of its own that has to grow."""
    texts = [ids(B, T), ids(B - 1, T, seed=5)]
    for plain, engine, min_share in variants(decoder):
        caches, logits = [engine.body.caches() for _ in texts], [[], []]
        for i in range(prompt, T):
            for text, cache, outputs in zip(texts, caches, logits, strict=True):
                if i == prompt > 0:
                    engine.body(text[:, :prompt], cache=cache)
                outputs.append(engine.next_logits(text[:, i : i + 1], cache))
        actual = torch.cat([torch.stack(outputs, 1) for outputs in logits])
        assert_logits_agree(actual, torch.cat([plain(text)[:, prompt:] for text in texts]), min_share)


@torch.inference_mode()
def test_beam_rows_may_fork_end_and_reorder(seq2seq):
    """As in beam search: rows are selected at every step, sources only when a sentence has ended."""
    source, target = ids(B, S), ids(B, 3, seed=2)
    chosen = [(torch.tensor([0, 0, 1, 1, 2, 2]), None), (torch.tensor([1, 0, 2, 2, 5, 4]), None)]
    chosen += [(torch.tensor([1, 0, 5, 5]), torch.tensor([0, 2])), (torch.tensor([3, 2, 0, 1]), torch.tensor([1, 0]))]

    def step_logits(model):
        caches, logits = model.body.decoder_caches(source, MASK), []
        step = target[:, :1]
        for rows, sources in chosen:
            logits.append(model.next_logits(step, caches))
            select(caches, rows, sources)
            step = (step[rows] * 7 + 3) % (V - 1)
        return logits

    plain, engine = step_logits(seq2seq), step_logits(to_engine(seq2seq))
    for expected, actual in zip(plain, engine, strict=True):
        assert_close(expected, actual, **CLOSE)


DECODINGS = pytest.mark.parametrize(
    "how",
    [
        GenerationOptions(num_beams=1),
        GenerationOptions(num_beams=3, num_return=3),
        GenerationOptions(temperature=1.3, num_return=2, seed=5),
    ],
    ids=["greedy", "beam", "sampling"],
)


def hypotheses_of(model, caches, how):
    limits, start = torch.tensor([9, 4, 12]), torch.tensor([5, 6, 7])
    return generate(model.next_logits, caches, start, 0, limits, how, torch.arange(B))


def assert_same_hypotheses(first, second):
    for hypotheses, others in zip(first, second, strict=True):
        assert [h.ids for h in hypotheses] == [h.ids for h in others]
        assert [h.logp for h in hypotheses] == pytest.approx([h.logp for h in others], abs=1e-4)


@DECODINGS
@torch.inference_mode()
def test_generation_gives_the_same_tokens(decoder, how):
    assert_same_hypotheses(*(hypotheses_of(model, model.body.caches(), how) for model in (decoder, to_engine(decoder))))


@DECODINGS
@torch.inference_mode()
def test_translation_gives_the_same_tokens(seq2seq, how):
    both = (seq2seq, to_engine(seq2seq))
    assert_same_hypotheses(*(hypotheses_of(model, model.body.decoder_caches(ids(B, S), MASK), how) for model in both))


@torch.inference_mode()
def test_padding_and_batch_composition_change_nothing(seq2seq):
    engine = to_engine(quantize_model(seq2seq))
    source, noise = ids(B, S), ids(B, S, seed=9)
    filled = torch.where(MASK[:, 0, 0], source, noise)
    together = engine.body.encode(filled, MASK)
    for b, length in enumerate(LENGTHS.tolist()):
        unpadded = engine.body.encode(source[b : b + 1, :length])
        assert torch.equal(together[b, :length], unpadded[0])


@torch.inference_mode()
def test_an_encoder_runs_without_its_padding():
    torch.manual_seed(2)
    plain = Model(Bert(BertConfig(vocab=V, dim=48, heads=3, hidden=80, sep=4)), torch.nn.Identity()).eval()
    source, real = ids(B, S), MASK[:, 0, 0]
    for model, engine, min_share in variants(plain):
        assert_logits_agree(engine.body(source, MASK)[real], model.body(source, MASK)[real], min_share)


@torch.inference_mode()
def test_more_than_max_rows_are_split(gpt, monkeypatch):
    from regard.engine import runtime

    text, engine = ids(B, T), to_engine(quantize_model(gpt))
    full, steps = engine(text), logits_in_chunks(engine, text, [T])
    monkeypatch.setattr(runtime, "MAX_ROWS", 10)
    assert torch.equal(full, engine(text))
    split = logits_in_chunks(engine, text, [T])  # decode attention in place of prefill attention
    assert_logits_agree(steps, split, INT8_SHARE)


@torch.inference_mode()
def test_threads_change_no_bit(gpt):
    text, engine = ids(B, T), to_engine(quantize_model(gpt))

    def steps():
        caches = engine.body.caches()
        return torch.stack([engine.next_logits(text[:, i : i + 1], caches) for i in range(T)])

    single_thread, stepped = engine(text), steps()
    torch.set_num_threads(3)
    try:
        for _ in range(20):
            assert torch.equal(single_thread, engine(text))
        for _ in range(5):
            assert torch.equal(stepped, steps())
    finally:
        torch.set_num_threads(1)


@torch.inference_mode()
def test_nan_stays_nan(decoder):
    """Wherever it comes from: an activation, a softmax or quantization could turn it into a finite number."""
    text = ids(2, 12)
    for name, weight in decoder.named_parameters():
        before = weight.clone()
        weight.view(-1)[0] = torch.nan
        if "positions" in name:
            weight.fill_(torch.nan)
        if "tokens" in name:
            weight[text[0, 0]] = torch.nan
        for _, engine, _ in variants(decoder):
            caches = engine.body.caches()
            prompt = engine.head(engine.body(text[:, :-1], cache=caches))
            step = engine.next_logits(text[:, -1:], caches)
            assert not prompt[0, -1].isfinite().all(), f"{name}, a prompt"
            assert not step[0].isfinite().all(), f"{name}, a step"
        weight.copy_(before)


@torch.inference_mode()
def test_a_fully_masked_row_is_finite():
    config = BertConfig(vocab=V, context=T, dim=64, layers=2, heads=2, hidden=44, dropout=0.0)
    body = EngineBody(Bert(config).eval())
    mask = torch.ones(B, 1, T, T, dtype=torch.bool)
    mask[1, :, 3] = False
    assert body(ids(B, T), mask).isfinite().all()
    assert body(ids(B, T), torch.tensor([True, False, True])[:, None, None, None].expand(B, 1, 1, T)).isfinite().all()


@torch.inference_mode()
def test_too_many_tokens_and_unknown_ids_are_refused(decoder):
    engine = to_engine(quantize_model(decoder))
    caches = engine.body.caches()
    engine.body(ids(1, 40), cache=caches)
    for run in (lambda new, cache: engine.body(new, cache=cache), engine.next_logits):
        with pytest.raises(ValueError, match="41 tokens do not fit .* context of 40"):
            run(ids(1, 1), caches)
        with pytest.raises(IndexError):
            run(torch.tensor([[V]]), engine.body.caches())


def test_other_dtypes_than_fp32_are_unsupported(gpt):
    with pytest.raises(UnsupportedPart, match="float32"):
        to_engine(gpt.to(torch.bfloat16))


def test_an_unsupported_body_is_refused(gpt):
    with pytest.raises(UnsupportedPart, match="not support Linear"):
        check_supported(type(gpt)(torch.nn.Linear(2, 2), torch.nn.Identity()))
    gpt.body.blocks[1].feedforward.inner.activation = torch.tanh
    with pytest.raises(UnsupportedPart, match="tanh"):
        EngineBody(gpt.body)


def test_an_unknown_position_encoding_is_refused_and_not_left_out(gpt):
    gpt.body.positions = torch.nn.Identity()
    with pytest.raises(UnsupportedPart, match="the position encoding Identity"):
        to_engine(gpt)


@torch.inference_mode()
def test_prefill_attention_equals_decode_attention(decoder, monkeypatch):
    from regard.engine.kernels import prefill_attention

    text, exact, int8 = ids(B, T), to_engine(decoder), to_engine(quantize_model(decoder), kv_fp16=True)
    together = [logits_in_chunks(engine, text, [30, 7]) for engine in (exact, int8)]
    monkeypatch.setattr(prefill_attention, "MIN_ROWS", 10**9)
    assert_close(together[0], logits_in_chunks(exact, text, [30, 7]), **CLOSE)
    assert_logits_agree(together[1], logits_in_chunks(int8, text, [30, 7]), INT8_SHARE)


def test_prefills_are_rows_that_share_a_block_table_row():
    from regard.engine.kernels.prefill_attention import find_prefills

    table_rows = torch.tensor([4] * 9 + [2] * 12 + [4] * 10, dtype=torch.int32)
    assert find_prefills(table_rows).tolist() == [[0, 9], [9, 12], [21, 10]]
    assert find_prefills(torch.arange(20, dtype=torch.int32)).tolist() == []


@pytest.mark.parametrize(("inputs", "outputs"), [(37, 70), (64, 64), (16, 5)])
@pytest.mark.parametrize("rows", [1, 5, 31, 33, 70])
@torch.inference_mode()
def test_a_linear_layer_of_any_size_equals_pytorch(inputs, outputs, rows):
    torch.manual_seed(3)
    layer, x = torch.nn.Linear(inputs, outputs), torch.randn(rows, inputs)
    assert_close(EngineLMHead(layer)(x), layer(x), **CLOSE)
