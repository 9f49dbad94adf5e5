"""The Transformer has the published sizes; masks, caches, padding and gradients work."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.models.transformer import SIZES, Transformer, TransformerConfig
from regard.parts.heads import BiasedLMHead, Model

B, S, T, V = 3, 7, 9, 19
CONTEXT = 17
CHUNKS = [(0, 4), (4, 7), (7, 8), (8, 9)]
LENGTHS = [S, 2, 5]


@pytest.fixture(params=[False, True], ids=["pre-norm", "post-norm"])
def body(request: pytest.FixtureRequest) -> Transformer:
    torch.manual_seed(1)
    sizes = {"dim": 12, "encoder_layers": 2, "decoder_layers": 3, "heads": 3, "hidden": 10}
    return Transformer(TransformerConfig(V, CONTEXT, post_norm=request.param, **sizes)).double().eval()


def ids(length: int) -> Tensor:
    return torch.randint(V - 1, (B, length), generator=torch.Generator().manual_seed(length))


def mask_of(lengths: list[int], longest: int) -> Tensor:
    return (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]


def expected_count(c: TransformerConfig) -> int:
    """Four square matrices per attention, two per feed-forward, a norm for each, one shared embedding."""
    attention, feedforward, norm = 4 * (c.dim**2 + c.dim), 2 * c.dim * c.hidden + c.hidden + c.dim, 2 * c.dim
    encoder = c.encoder_layers * (attention + feedforward + 2 * norm)
    decoder = c.decoder_layers * (2 * attention + feedforward + 3 * norm)
    return c.vocab * c.dim + encoder + decoder + (not c.post_norm) * 2 * norm


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("post_norm", [False, True])
def test_parameter_count_equals_the_formula(name: str, post_norm: bool) -> None:
    config = TransformerConfig(vocab=1000, post_norm=post_norm, **SIZES[name])
    with torch.device("meta"):
        body = Transformer(config)
    assert sum(weight.numel() for weight in body.parameters()) == expected_count(config)


@pytest.mark.parametrize(("name", "millions"), [("base", 65), ("big", 213)])
def test_published_parameter_counts(name: str, millions: int) -> None:
    assert expected_count(TransformerConfig(vocab=37_000, **SIZES[name])) / 1e6 == pytest.approx(millions, rel=0.04)


def test_decoder_is_causal(body: Transformer) -> None:
    source, target = ids(S), ids(T)
    before = body(source, target)
    assert before.shape == (B, T, body.config.dim)
    for changed in range(T):
        altered = target.clone()
        altered[:, changed] = (target[:, changed] + 1) % (V - 1)
        differs = (body(source, altered) - before).abs().amax((0, 2)) > 1e-9
        assert differs.tolist() == [t >= changed for t in range(T)]


def test_every_source_token_reaches_every_target_token(body: Transformer) -> None:
    source, target = ids(S), ids(T)
    for changed in range(S):
        altered = source.clone()
        altered[:, changed] = (source[:, changed] + 1) % (V - 1)
        assert ((body(altered, target) - body(source, target)).abs().amax(-1) > 1e-9).all()


@pytest.mark.parametrize("extra", range(9))
def test_padding_of_the_source_is_invisible(body: Transformer, extra: int) -> None:
    source, target, mask = ids(S), ids(T), mask_of(LENGTHS, S)
    garbage = torch.cat((source, ids(extra) if extra else source[:, :0]), 1)
    longer = mask_of(LENGTHS, S + extra)
    garbage = torch.where(longer[:, 0, 0], garbage, (garbage * 7 + 3) % V)
    assert_close(body(garbage, target, longer), body(source, target, mask))


def test_chunks_with_a_cache_equal_the_full_forward(body: Transformer) -> None:
    source, target, mask = ids(S), ids(T), mask_of(LENGTHS, S)
    with torch.inference_mode():
        caches = body.decoder_caches(source, mask)
        chunks = [body.decode(target[:, a:b], cache=caches) for a, b in CHUNKS]
    assert [cache.length for cache in caches] == [T] * 3
    assert_close(torch.cat(chunks, 1), body(source, target, mask))


def test_batch_equals_single_sentences(body: Transformer) -> None:
    source, target, mask = ids(S), ids(T), mask_of(LENGTHS, S)
    together = body(source, target, mask)
    for b, length in enumerate(LENGTHS):
        assert_close(body(source[b : b + 1, :length], target[b : b + 1, : T - b])[0], together[b, : T - b])


def test_every_weight_but_key_biases_has_a_gradient(body: Transformer) -> None:
    model = Model(body.train(), BiasedLMHead(body.tokens).double())
    model.head.loss(body(ids(S), ids(T), mask_of(LENGTHS, S)).flatten(0, 1), ids(T).flatten(), 0.1).backward()
    without_gradient = [name for name, w in model.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9]
    assert without_gradient == [name for name, _ in model.named_parameters() if name.endswith("key.bias")]


def test_dropout_acts_in_training_only(body: Transformer) -> None:
    source, target = ids(S), ids(T)
    assert torch.equal(body(source, target), body(source, target))
    body.train()
    assert not torch.equal(body(source, target), body(source, target))


def test_more_tokens_than_the_context_are_refused(body: Transformer) -> None:
    message = rf"{CONTEXT + 1} tokens .*context of {CONTEXT}\b"
    with pytest.raises(ValueError, match=message):
        body(ids(CONTEXT + 1), ids(T))
    with pytest.raises(ValueError, match=message):
        body(ids(S), ids(CONTEXT + 1))
    assert body(ids(CONTEXT), ids(CONTEXT)).shape == (B, CONTEXT, body.config.dim)


def test_indivisible_width_is_refused() -> None:
    with pytest.raises(ValueError, match=r"heads \(5\) .*dim \(12\)"):
        TransformerConfig(V, dim=12, heads=5)


def test_pad_defaults_to_the_last_id() -> None:
    assert TransformerConfig(V).pad == V - 1
    assert TransformerConfig(V, pad=2).pad == 2


def test_scale_embedding_multiplies_by_the_root_of_dim() -> None:
    torch.manual_seed(1)
    small, large = (
        Transformer(TransformerConfig(V, CONTEXT, dim=16, heads=2, scale_embedding=scale_embedding))
        for scale_embedding in (False, True)
    )
    small.tokens.load_state_dict(large.tokens.state_dict())
    assert_close(small.tokens(ids(T)) * 4, large.tokens(ids(T)))


@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh", "silu"])
def test_activations_differ(activation: str) -> None:
    sizes = {"dim": 12, "encoder_layers": 1, "decoder_layers": 1, "heads": 3, "hidden": 10}
    relu, altered = (Transformer(TransformerConfig(V, CONTEXT, **sizes, activation=a)) for a in ("relu", activation))
    altered.load_state_dict(relu.state_dict())
    assert not torch.allclose(relu(ids(S), ids(T)), altered(ids(S), ids(T)), atol=1e-4)
