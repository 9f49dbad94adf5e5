"""GPT has the published sizes and initial scales, and equals transformers' GPT-2 with the same weights."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from regard.models.gpt import GPT, SIZES, GPTConfig
from regard.parts.heads import Model

B, T, V = 3, 7, 19
LENGTHS = [T, 2, 5]
NAMES = {
    "transformer.wte.weight": "body.tokens.weight",
    "transformer.wpe.weight": "body.positions.weight",
    **{
        f"{theirs}.{w}": f"{ours}.{w}"
        for w in ("weight", "bias")
        for theirs, ours in {
            "transformer.h.{}.ln_1": "body.blocks.{}.mixer.norm",
            "transformer.h.{}.attn.query": "body.blocks.{}.mixer.inner.query",
            "transformer.h.{}.attn.key": "body.blocks.{}.mixer.inner.key",
            "transformer.h.{}.attn.value": "body.blocks.{}.mixer.inner.value",
            "transformer.h.{}.attn.c_proj": "body.blocks.{}.mixer.inner.out",
            "transformer.h.{}.ln_2": "body.blocks.{}.feedforward.norm",
            "transformer.h.{}.mlp.c_fc": "body.blocks.{}.feedforward.inner.up",
            "transformer.h.{}.mlp.c_proj": "body.blocks.{}.feedforward.inner.down",
            "transformer.ln_f": "body.norm",
        }.items()
    },
}


def split_qkv(theirs: nn.Module) -> dict[str, Tensor]:
    """Transpose their matrices, and split the joint matrix of query, key and value."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in theirs.named_parameters():
        transposed = tensor.T if tensor.dim() == 2 and ".h." in name else tensor
        if "c_attn" in name:
            for role, part in zip(("query", "key", "value"), transposed.chunk(3), strict=True):
                tensors[name.replace("c_attn", role)] = part
        else:
            tensors[name] = transposed
    return tensors


def expected_count(c: GPTConfig) -> int:
    block = 4 * (c.dim**2 + c.dim) + 2 * c.dim * c.hidden + c.hidden + c.dim + 4 * c.dim
    return (c.vocab + c.context) * c.dim + c.layers * block + 2 * c.dim


def count_weights(config: GPTConfig) -> int:
    with torch.device("meta"):
        body = GPT(config)
        model = Model(body, body.lm_head())
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("name", ["tiny", "mini", "gpt2", "gpt3"])
def test_parameter_count_equals_the_formula(name: str) -> None:
    config = GPTConfig(vocab=1000, **SIZES[name])
    assert count_weights(config) == expected_count(config)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("gpt3", pytest.approx(175e9, rel=0.01)),
    ],
)
def test_published_parameter_counts(name: str, count: int) -> None:
    assert expected_count(GPTConfig(vocab=50_257, **SIZES[name])) == count


def test_residual_outputs_start_scaled_by_depth() -> None:
    torch.manual_seed(1)
    body = GPT(GPTConfig(500, dim=96, layers=8, heads=4, hidden=200))
    for name, weight in body.named_parameters():
        if weight.dim() == 2:
            is_residual_output = name.endswith(("mixer.inner.out.weight", "feedforward.inner.down.weight"))
            assert weight.std().item() == pytest.approx(
                0.02 / math.sqrt(16) if is_residual_output else 0.02, rel=0.1
            ), name
        elif name.endswith("bias"):
            assert not weight.any()


def test_output_layer_is_tied() -> None:
    body = GPT(GPTConfig(V))
    assert body.lm_head().weight is body.tokens.weight
    assert "head.weight" not in dict(Model(body, body.lm_head()).named_parameters())


def test_untied_output_layer_has_the_same_initial_scale() -> None:
    torch.manual_seed(1)
    body = GPT(GPTConfig(200, tie_embeddings=False))
    output = body.lm_head()
    assert not torch.equal(output.weight, body.tokens.weight)
    assert output.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_norm_eps_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="norm-eps must be above 0"):
        GPTConfig(V, norm_eps=0.0)


@pytest.mark.parametrize("padded", [False, True])
def test_logits_equal_transformers(padded: bool, randomize, copy_weights) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=11, n_embd=12, n_layer=3, n_head=3, n_inner=20, bos_token_id=0, eos_token_id=0
    )
    theirs = randomize(transformers.GPT2LMHeadModel(config)).eval()
    body = GPT(GPTConfig(V, context=11, dim=12, layers=3, heads=3, hidden=20))
    ours = copy_weights(split_qkv(theirs), Model(body, body.lm_head()), NAMES).eval()
    ids = torch.randint(V, (B, T))
    real = torch.arange(T) < torch.tensor(LENGTHS if padded else [T] * B)[:, None]
    with torch.inference_mode():
        ours_logits = ours(ids, mask=real[:, None, None] if padded else None)
        theirs_logits = theirs(input_ids=ids, attention_mask=real.long()).logits
    assert_close(ours_logits[real], theirs_logits[real], rtol=0, atol=1e-5)
