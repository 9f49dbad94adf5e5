"""nanochat has its published sizes, starts as the identity, and equals transformers with the same weights."""

import pytest
import torch
from torch.testing import assert_close

from regard.models.nanochat import SIZES, NanoChat, NanoChatConfig
from regard.parts.heads import Model

B, T, V = 3, 7, 19
LENGTHS = [T, 2, 5]
NAMES = {
    f"{theirs}.weight": f"{ours}.weight"
    for theirs, ours in {
        "model.embed_tokens": "body.tokens",
        "model.layers.{}.self_attn.q_proj": "body.blocks.{}.mixer.inner.query",
        "model.layers.{}.self_attn.k_proj": "body.blocks.{}.mixer.inner.key",
        "model.layers.{}.self_attn.v_proj": "body.blocks.{}.mixer.inner.value",
        "model.layers.{}.self_attn.o_proj": "body.blocks.{}.mixer.inner.out",
        "model.layers.{}.mlp.fc1": "body.blocks.{}.feedforward.inner.up",
        "model.layers.{}.mlp.fc2": "body.blocks.{}.feedforward.inner.down",
        "lm_head": "head",
    }.items()
}


@pytest.mark.parametrize("name", SIZES)
def test_parameter_count_equals_the_formula(name: str) -> None:
    c = NanoChatConfig(vocab=1000, **SIZES[name])
    with torch.device("meta"):
        body = NanoChat(c)
        model = Model(body, body.lm_head())
    count = sum(weight.numel() for weight in model.parameters())
    assert count == 2 * c.vocab * c.dim + c.layers * (4 * c.dim**2 + 2 * c.dim * c.hidden)


def test_blocks_start_as_the_identity_with_uniform_predictions() -> None:
    torch.manual_seed(1)
    body = NanoChat(NanoChatConfig(V))
    model, ids = Model(body, body.lm_head()), torch.randint(V, (B, T))
    assert_close(body(ids), body.norm(body.embed_norm(body.tokens(ids))))
    assert_close(model(ids).softmax(-1), torch.full((B, T, V), 1 / V), rtol=0.1, atol=0.0)


def test_output_layer_is_untied() -> None:
    body = NanoChat(NanoChatConfig(V))
    assert not torch.equal(body.lm_head().weight, body.tokens.weight)


def test_softcap_bounds_the_logits_and_keeps_their_order() -> None:
    torch.manual_seed(1)
    body = NanoChat(NanoChatConfig(V, softcap=2.0, tie_embeddings=True))
    capped, plain = body.lm_head(), NanoChat(NanoChatConfig(V)).lm_head()
    assert capped.weight is body.tokens.weight
    x = torch.randn(B, T, body.config.dim, dtype=torch.float64) * 5
    capped, plain = capped.double(), plain.double()
    plain.weight = capped.weight
    assert plain(x).abs().max() > 2
    assert 1.2 < capped(x).abs().max() < 2
    assert torch.equal(capped(x).argsort(-1), plain(x).argsort(-1))
    targets = torch.randint(V, (B * T,))
    chosen = capped(x).flatten(0, 1).log_softmax(-1).gather(1, targets[:, None])
    assert_close(capped.loss(x.flatten(0, 1), targets), -chosen.sum())


@pytest.mark.parametrize("wrong", [{"softcap": -1.0}, {"rope_theta": 0.0}, {"norm_eps": 0.0}])
def test_invalid_values_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong)).replace('_', '-')} must be"):
        NanoChatConfig(V, **wrong)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kv_heads", [6, 2])
def test_logits_equal_transformers(kv_heads: int, padded: bool, randomize, copy_weights) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    torch.manual_seed(1)
    config = transformers.NanoChatConfig(
        vocab_size=V, max_position_embeddings=11, hidden_size=24, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=kv_heads, intermediate_size=20, final_logit_softcapping=None,
    )  # fmt: skip
    theirs = randomize(transformers.NanoChatForCausalLM(config)).eval()
    body = NanoChat(NanoChatConfig(V, context=11, dim=24, layers=3, heads=6, kv_heads=kv_heads, hidden=20))
    ours = copy_weights(dict(theirs.named_parameters()), Model(body, body.lm_head()), NAMES).eval()
    ids = torch.randint(V, (B, T))
    real = torch.arange(T) < torch.tensor(LENGTHS if padded else [T] * B)[:, None]
    with torch.inference_mode():
        ours_logits = ours(ids, mask=real[:, None, None] if padded else None)
        theirs_logits = theirs(input_ids=ids, attention_mask=real.long()).logits
    assert_close(ours_logits[real], theirs_logits[real], rtol=0, atol=1e-5)
