"""Contracts of every text body: causality, caches, padding, packing, gradients and traces."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.look import look
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.llama import Llama, LlamaConfig
from regard.models.nanochat import NanoChat, NanoChatConfig
from regard.parts.heads import Model

B, T, V, D, H, LAYERS = 3, 9, 19, 24, 6, 2
CONTEXT, SEP = 17, 4
SIZES = {"vocab": V, "context": CONTEXT, "dim": D, "layers": LAYERS, "heads": H, "hidden": 10, "dropout": 0.1}
BODIES = {
    "gpt": (GPT, GPTConfig(**SIZES)),
    "llama": (Llama, LlamaConfig(**SIZES, kv_heads=3)),
    "nanochat": (NanoChat, NanoChatConfig(**SIZES, kv_heads=2)),
    "bert": (Bert, BertConfig(**SIZES, sep=SEP)),
}
CAUSAL = [name for name in BODIES if name != "bert"]
CHUNKS = [(0, 4), (4, 7), (7, 8), (8, 9)]
LENGTHS = [T, 2, 5]
TEXTS = [[4, 3, 2], [9], [1, 8]]  # lengths of the texts packed into each row


@pytest.fixture
def body(request: pytest.FixtureRequest, randomize) -> nn.Module:
    torch.manual_seed(1)
    kind, config = BODIES[request.param]
    return randomize(kind(config)).double().eval()


every_body = pytest.mark.parametrize("body", BODIES, indirect=True)
every_causal_body = pytest.mark.parametrize("body", CAUSAL, indirect=True)


def close(body: nn.Module, ours: Tensor, theirs: Tensor) -> None:
    """Rotary tables are in single precision; the rest is in double precision."""
    error = 1e-6 if isinstance(body, Llama | NanoChat) else 1e-10
    assert_close(ours, theirs, rtol=error, atol=error)


def ids(length: int = T) -> Tensor:
    return torch.randint(V - 1, (B, length), generator=torch.Generator().manual_seed(length))


def padding(lengths: list[int], longest: int = T) -> Tensor:
    return (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]


def same_text(texts: list[list[int]]) -> Tensor:
    """(B,1,T,T), True where two tokens are of one text."""
    number = torch.stack([torch.tensor([i for i, n in enumerate(row) for _ in range(n)]) for row in texts])
    return (number[:, :, None] == number[:, None])[:, None]


@every_body
def test_output_shapes(body: nn.Module) -> None:
    model = Model(body, body.lm_head().double())
    assert body(ids()).shape == (B, T, D)
    assert model(ids()).shape == (B, T, V)


@every_causal_body
def test_causal_bodies_ignore_later_tokens(body: nn.Module) -> None:
    tokens, before = ids(), body(ids())
    for changed in range(T):
        altered = tokens.clone()
        altered[:, changed] = (tokens[:, changed] + 1) % V
        differs = (body(altered) - before).abs().amax((0, 2)) > 1e-9
        assert differs.tolist() == [t >= changed for t in range(T)]


@pytest.mark.parametrize("body", ["bert"], indirect=True)
def test_bert_sees_both_sides(body: nn.Module) -> None:
    tokens, before = ids(), body(ids())
    for changed in range(T):
        altered = tokens.clone()
        altered[:, changed] = (tokens[:, changed] + 1) % V
        assert ((body(altered) - before).abs().amax(-1) > 1e-9).all()


@every_causal_body
@pytest.mark.parametrize("chunks", [CHUNKS, [(t, t + 1) for t in range(T)]], ids=["chunks", "single tokens"])
def test_chunks_with_a_cache_equal_the_full_forward(body: nn.Module, chunks: list[tuple[int, int]]) -> None:
    tokens, caches = ids(), body.caches()
    with torch.inference_mode():
        parts = [body(tokens[:, a:b], cache=caches) for a, b in chunks]
    assert [cache.length for cache in caches] == [T] * LAYERS
    close(body, torch.cat(parts, 1), body(tokens))
    assert [cache.length for cache in body.caches()] == [0] * LAYERS


@every_causal_body
@pytest.mark.parametrize("kind", ["padded", "packed"])
def test_masks_with_a_cache_equal_the_full_forward(body: nn.Module, kind: str) -> None:
    tokens, caches = ids(), body.caches()
    mask = padding(LENGTHS) if kind == "padded" else same_text(TEXTS)
    chunks = CHUNKS if kind == "padded" else [(0, 4), (4, 9)]
    with torch.inference_mode():
        parts = [
            body(tokens[:, a:b], mask[..., :b] if kind == "padded" else mask[..., a:b, :b], caches) for a, b in chunks
        ]
    close(body, torch.cat(parts, 1), body(tokens, mask))


@every_body
@pytest.mark.parametrize("extra", [0, 1, 8])
def test_padding_is_invisible(body: nn.Module, extra: int) -> None:
    mask, longer = padding(LENGTHS), padding(LENGTHS, T + extra)
    garbage = torch.cat((ids(), ids(extra) if extra else ids()[:, :0]), 1)
    garbage = torch.where(longer[:, 0, 0], garbage, (garbage * 7 + 3) % V)
    real = mask[:, 0, 0]
    close(body, body(garbage, longer)[:, :T][real], body(ids(), mask)[real])


@every_body
def test_batch_equals_single_texts(body: nn.Module) -> None:
    together = body(ids(), padding(LENGTHS))
    for b, length in enumerate(LENGTHS):
        close(body, together[b, :length], body(ids()[b : b + 1, :length])[0])


@every_body
def test_packed_texts_are_independent(body: nn.Module) -> None:
    tokens = ids()
    tokens[0, 2] = tokens[1, 3] = tokens[2, 5] = SEP
    together = body(tokens, same_text(TEXTS))
    for b, row in enumerate(TEXTS):
        for end, length in zip(torch.tensor(row).cumsum(0).tolist(), row, strict=True):
            alone = body(tokens[b : b + 1, end - length : end])[0]
            close(body, together[b, end - length : end], alone)


@every_body
def test_every_weight_but_key_biases_has_a_gradient(body: nn.Module, randomize) -> None:
    model = Model(body.train(), randomize(body.lm_head()).double())
    tokens = torch.cat((ids(CONTEXT - 1), torch.full((B, 1), SEP)), 1)  # a row of positions for every token
    tokens[:, 3] = SEP
    model.head.loss(body(tokens).flatten(0, 1), tokens.flatten(), 0.1).backward()
    without_gradient = [name for name, w in model.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9]
    assert without_gradient == [name for name, _ in model.named_parameters() if name.endswith("key.bias")]


@every_body
def test_dropout_acts_in_training_only(body: nn.Module) -> None:
    assert torch.equal(body(ids()), body(ids()))
    body.train()
    assert not torch.equal(body(ids()), body(ids()))


@every_body
def test_more_tokens_than_the_context_are_refused(body: nn.Module) -> None:
    assert body(ids(CONTEXT)).shape == (B, CONTEXT, D)
    with pytest.raises(ValueError, match=rf"{CONTEXT + 1} tokens .*context of {CONTEXT}\b"):
        body(ids(CONTEXT + 1))


@every_causal_body
def test_cache_does_not_exceed_the_context(body: nn.Module) -> None:
    caches = body.caches()
    body(ids(CONTEXT), cache=caches)
    with pytest.raises(ValueError, match=rf"{CONTEXT + 1} tokens .*context of {CONTEXT}\b"):
        body(ids(1), cache=caches)


@every_body
def test_trace_records_attention_and_changes_no_bit(body: nn.Module) -> None:
    mask = padding(LENGTHS)
    before = body(ids(), mask)
    with look(body) as trace:
        assert torch.equal(body(ids(), mask), before)
    for layer in range(LAYERS):
        weights = trace[f"blocks.{layer}.mixer.inner.weights"]
        assert weights.shape == (B, H, T, T)
        assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=weights.dtype))
        assert not weights[~mask.expand_as(weights)].any()
        assert bool(weights.triu(1).any()) is isinstance(body, Bert)


@every_body
def test_deepcopy_shares_nothing(body: nn.Module) -> None:
    before, clone = body(ids()), copy.deepcopy(body)
    assert torch.equal(clone(ids()), before)
    with torch.no_grad():
        for weight in [*body.parameters(), *body.buffers()]:
            weight.zero_()
    assert torch.equal(clone(ids()), before)


@every_body
def test_bf16_throughout(body: nn.Module) -> None:
    exact = body(ids())
    bf16 = body.bfloat16()(ids())
    assert bf16.dtype == torch.bfloat16
    assert_close(bf16.double(), exact, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", BODIES)
def test_invalid_sizes_are_refused(name: str) -> None:
    config = BODIES[name][1].__class__
    for field in ("vocab", "context", "dim", "layers", "heads", "hidden"):
        with pytest.raises(ValueError, match=f"{field} must be at least 1, not 0"):
            config(**{**SIZES, field: 0})
    with pytest.raises(ValueError, match=r"heads \(5\) .*dim \(24\)"):
        config(**{**SIZES, "heads": 5})
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1, not 1"):
        config(**{**SIZES, "dropout": 1})


@pytest.mark.parametrize("name", BODIES)
def test_pad_defaults_to_the_last_id(name: str) -> None:
    config = BODIES[name][1].__class__
    assert config(V).pad == V - 1
    assert config(V, pad=2).pad == 2


@pytest.mark.parametrize("name", ["llama", "nanochat"])
def test_kv_heads_must_divide_heads(name: str) -> None:
    config = BODIES[name][1].__class__
    assert config(**SIZES).kv_heads == H
    with pytest.raises(ValueError, match=r"kv-heads \(4\) must divide heads \(6\)"):
        config(**SIZES, kv_heads=4)
    with pytest.raises(ValueError, match="kv-heads must be 0 or more, not -2"):
        config(**SIZES, kv_heads=-2)
    with pytest.raises(ValueError, match=r"heads \(8\) must divide dim \(24\) into heads of even width"):
        config(**{**SIZES, "heads": 8})
