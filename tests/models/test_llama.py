"""LLaMA has the published sizes, and says what transformers' says with the same weights."""

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


def masked_softmax(config: LlamaConfig) -> int:
    with torch.device("meta"):
        body = Llama(config)
        model = Model(body, body.lm_head())
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_a_size_has_the_weights_that_its_formula_counts(name: str) -> None:
    c = LlamaConfig(vocab=1000, **SIZES[name])
    narrow = c.dim * c.kv_heads // c.heads
    block = 2 * c.dim**2 + 2 * c.dim * narrow + 3 * c.dim * c.hidden + 2 * c.dim
    assert masked_softmax(c) == 2 * c.vocab * c.dim + c.layers * block + c.dim


@pytest.mark.parametrize(("name", "vocab", "count"), [("7b", 32_000, 6_738_415_616), ("8b", 128_256, 8_030_261_248)])
def test_published_sizes_are_as_large_as_published(name: str, vocab: int, count: int) -> None:
    assert masked_softmax(LlamaConfig(vocab=vocab, **SIZES[name])) == count


def test_the_output_layer_is_a_matrix_of_its_own() -> None:
    torch.manual_seed(1)
    body = Llama(LlamaConfig(200))
    output = body.lm_head()
    assert output.weight.shape == body.tokens.weight.shape
    assert output.weight.requires_grad
    assert output.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not torch.equal(output.weight, body.tokens.weight)


def test_a_tied_output_layer_is_the_embedding_itself() -> None:
    body = Llama(LlamaConfig(V, tie_embeddings=True))
    assert body.lm_head().weight is body.tokens.weight


@pytest.mark.parametrize(
    ("biases", "wanted"),
    [
        ("none", set()),
        ("qkv", {"query", "key", "value"}),
        ("attention", {"query", "key", "value", "out"}),
        ("feedforward", {"gate", "up", "down"}),
        ("all", {"query", "key", "value", "out", "gate", "up", "down"}),
    ],
)
def test_biases_are_where_they_are_asked_for_and_begin_as_nothing(biases: str, wanted: set[str]) -> None:
    body = Llama(LlamaConfig(V, layers=1, biases=biases))
    found = {name.split(".")[-2]: weight for name, weight in body.named_parameters() if name.endswith("bias")}
    assert set(found) == wanted
    assert not any(weight.any() for weight in found.values())


def test_a_head_may_be_wider_than_its_share() -> None:
    body = Llama(LlamaConfig(V, context=11, dim=12, layers=1, heads=3, kv_heads=1, head_dim=10, hidden=20))
    mixer = body.blocks[0].mixer.inner
    assert [tuple(m.weight.shape) for m in (mixer.query, mixer.key, mixer.out)] == [(30, 12), (10, 12), (12, 30)]
    assert body(torch.randint(V, (B, T))).shape == (B, T, 12)
    assert LlamaConfig(V, dim=12, heads=3).head_dim == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dim": 15, "heads": 3}, "into even widths"),
        ({"head_dim": 7}, "even widths"),
        ({"stretch": 0.0}, "stretch must be above 0"),
        ({"norm_eps": -1e-5}, "eps must be above 0"),
        ({"base": 0.0}, "base must be above 0"),
        ({"trained": -1}, "trained must be 0 or more"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LlamaConfig(V, **wrong)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("kv_heads", "base", "norm_eps"), [(6, 10_000.0, 1e-6), (2, 500.0, 1e-3)])
def test_transformers_gives_our_logits(kv_heads: int, base: float, eps: float, padded: bool, stirred, copied) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=V, max_position_embeddings=11, hidden_size=24, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=kv_heads, intermediate_size=20, rms_norm_eps=eps,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )  # fmt: skip
    theirs = stirred(transformers.LlamaForCausalLM(config)).eval()
    body = Llama(
        LlamaConfig(V, context=11, dim=24, layers=3, heads=6, kv_heads=kv_heads, hidden=20, base=base, eps=eps)
    )
    ours = copied(dict(theirs.named_parameters()), Model(body, body.lm_head()), NAMES).eval()
    ids = torch.randint(V, (B, T))
    real = torch.arange(T) < torch.tensor(LENGTHS if padded else [T] * B)[:, None]
    with torch.inference_mode():
        mine = ours(ids, mask=real[:, None, None] if padded else None)
        said = theirs(input_ids=ids, attention_mask=real.long()).logits
    assert_close(mine[real], said[real], rtol=0, atol=1e-5)
