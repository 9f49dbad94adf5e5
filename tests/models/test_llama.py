"""LLaMA has the published sizes, and equals transformers with the same weights."""

import pytest
import torch
from torch.testing import assert_close

from regard.models.llama import SIZES, Llama, LlamaConfig
from regard.parts.heads import Model

B, T, V = 3, 7, 19
LENGTHS = [T, 2, 5]
NAMES = {
    f"{theirs}.weight": f"{ours}.weight"
    for theirs, ours in {
        "model.embed_tokens": "body.tokens",
        "model.layers.{}.input_layernorm": "body.blocks.{}.mixer.norm",
        "model.layers.{}.self_attn.q_proj": "body.blocks.{}.mixer.inner.query",
        "model.layers.{}.self_attn.k_proj": "body.blocks.{}.mixer.inner.key",
        "model.layers.{}.self_attn.v_proj": "body.blocks.{}.mixer.inner.value",
        "model.layers.{}.self_attn.o_proj": "body.blocks.{}.mixer.inner.out",
        "model.layers.{}.post_attention_layernorm": "body.blocks.{}.feedforward.norm",
        "model.layers.{}.mlp.gate_proj": "body.blocks.{}.feedforward.inner.gate",
        "model.layers.{}.mlp.up_proj": "body.blocks.{}.feedforward.inner.up",
        "model.layers.{}.mlp.down_proj": "body.blocks.{}.feedforward.inner.down",
        "model.norm": "body.norm",
        "lm_head": "head",
    }.items()
}


def count_weights(config: LlamaConfig) -> int:
    with torch.device("meta"):
        body = Llama(config)
        model = Model(body, body.lm_head())
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_parameter_count_equals_the_formula(name: str) -> None:
    c = LlamaConfig(vocab=1000, **SIZES[name])
    kv_dim = c.dim * c.kv_heads // c.heads
    block = 2 * c.dim**2 + 2 * c.dim * kv_dim + 3 * c.dim * c.hidden + 2 * c.dim
    assert count_weights(c) == 2 * c.vocab * c.dim + c.layers * block + c.dim


@pytest.mark.parametrize(("name", "vocab", "count"), [("7b", 32_000, 6_738_415_616), ("8b", 128_256, 8_030_261_248)])
def test_published_parameter_counts(name: str, vocab: int, count: int) -> None:
    assert count_weights(LlamaConfig(vocab=vocab, **SIZES[name])) == count


def test_output_layer_is_untied() -> None:
    torch.manual_seed(1)
    body = Llama(LlamaConfig(200))
    output = body.lm_head()
    assert output.weight.shape == body.tokens.weight.shape
    assert output.weight.requires_grad
    assert output.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not torch.equal(output.weight, body.tokens.weight)


def test_tied_output_layer_is_the_embedding() -> None:
    body = Llama(LlamaConfig(V, tie_embeddings=True))
    assert body.lm_head().weight is body.tokens.weight


@pytest.mark.parametrize(
    ("biases", "expected"),
    [
        ("none", set()),
        ("qkv", {"query", "key", "value"}),
        ("attention", {"query", "key", "value", "out"}),
        ("feedforward", {"gate", "up", "down"}),
        ("all", {"query", "key", "value", "out", "gate", "up", "down"}),
    ],
)
def test_biases_are_where_configured_and_start_at_zero(biases: str, expected: set[str]) -> None:
    body = Llama(LlamaConfig(V, layers=1, biases=biases))
    biases_by_name = {name.split(".")[-2]: weight for name, weight in body.named_parameters() if name.endswith("bias")}
    assert set(biases_by_name) == expected
    assert not any(weight.any() for weight in biases_by_name.values())


def test_head_dim_may_differ_from_dim_over_heads() -> None:
    body = Llama(LlamaConfig(V, context=11, dim=12, layers=1, heads=3, kv_heads=1, head_dim=10, hidden=20))
    mixer = body.blocks[0].mixer.inner
    assert [tuple(m.weight.shape) for m in (mixer.query, mixer.key, mixer.out)] == [(30, 12), (10, 12), (12, 30)]
    assert body(torch.randint(V, (B, T))).shape == (B, T, 12)
    assert LlamaConfig(V, dim=12, heads=3).head_dim == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dim": 15, "heads": 3}, "into heads of even width"),
        ({"head_dim": 7}, "heads of even width"),
        ({"rope_factor": 0.0}, "rope-factor must be above 0"),
        ({"norm_eps": -1e-5}, "norm-eps must be above 0"),
        ({"rope_theta": 0.0}, "rope-theta must be above 0"),
        ({"rope_original_context": -1}, "rope-original-context must be 0 or more"),
    ],
)
def test_invalid_values_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LlamaConfig(V, **wrong)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("kv_heads", "rope_theta", "norm_eps"), [(6, 10_000.0, 1e-6), (2, 500.0, 1e-3)])
def test_logits_equal_transformers(
    kv_heads: int, rope_theta: float, norm_eps: float, padded: bool, randomize, copy_weights
) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=V, max_position_embeddings=11, hidden_size=24, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=kv_heads, intermediate_size=20, rms_norm_eps=norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
    )  # fmt: skip
    theirs = randomize(transformers.LlamaForCausalLM(config)).eval()
    body = Llama(
        LlamaConfig(
            V,
            context=11,
            dim=24,
            layers=3,
            heads=6,
            kv_heads=kv_heads,
            hidden=20,
            rope_theta=rope_theta,
            norm_eps=norm_eps,
        )
    )
    ours = copy_weights(dict(theirs.named_parameters()), Model(body, body.lm_head()), NAMES).eval()
    ids = torch.randint(V, (B, T))
    real = torch.arange(T) < torch.tensor(LENGTHS if padded else [T] * B)[:, None]
    with torch.inference_mode():
        ours_logits = ours(ids, mask=real[:, None, None] if padded else None)
        theirs_logits = theirs(input_ids=ids, attention_mask=real.long()).logits
    assert_close(ours_logits[real], theirs_logits[real], rtol=0, atol=1e-5)
