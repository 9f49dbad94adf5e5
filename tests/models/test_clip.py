"""CLIP's towers give unit vectors, ignore padding, and equal transformers with the same weights."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.models.clip import CLIP, SIZES, CLIPConfig
from regard.parts.pooling import EosPool

B, T, V, C, IMAGE, E = 3, 7, 19, 3, 8, 5
LENGTHS = [T, 2, 5]
END = V - 1


def tower(theirs: str, ours: str) -> dict[str, str]:
    return {
        f"{theirs}.{a}.{w}": f"{ours}.{b}.{w}"
        for w in ("weight", "bias")
        for a, b in {
            "encoder.layers.{}.layer_norm1": "blocks.{}.mixer.norm",
            "encoder.layers.{}.self_attn.q_proj": "blocks.{}.mixer.inner.query",
            "encoder.layers.{}.self_attn.k_proj": "blocks.{}.mixer.inner.key",
            "encoder.layers.{}.self_attn.v_proj": "blocks.{}.mixer.inner.value",
            "encoder.layers.{}.self_attn.out_proj": "blocks.{}.mixer.inner.out",
            "encoder.layers.{}.layer_norm2": "blocks.{}.feedforward.norm",
            "encoder.layers.{}.mlp.fc1": "blocks.{}.feedforward.inner.up",
            "encoder.layers.{}.mlp.fc2": "blocks.{}.feedforward.inner.down",
        }.items()
    }


NAMES = {
    "logit_scale": "scale",
    **tower("text_model", "text"),
    "text_model.embeddings.token_embedding.weight": "text.tokens.weight",
    "text_model.embeddings.position_embedding.weight": "text.positions.weight",
    "text_model.final_layer_norm.weight": "text.norm.weight",
    "text_model.final_layer_norm.bias": "text.norm.bias",
    "text_projection.weight": "text.out.weight",
    **tower("vision_model", "image"),
    "vision_model.embeddings.class_embedding": "image.first",
    "vision_model.embeddings.patch_embedding.weight": "image.stem.map.weight",
    "vision_model.embeddings.position_embedding.weight": "image.positions.weight",
    "vision_model.pre_layrnorm.weight": "image.embed_norm.weight",
    "vision_model.pre_layrnorm.bias": "image.embed_norm.bias",
    "vision_model.post_layernorm.weight": "image.norm.weight",
    "vision_model.post_layernorm.bias": "image.norm.bias",
    "visual_projection.weight": "image.out.weight",
}


@pytest.fixture
def body(randomize) -> CLIP:
    torch.manual_seed(1)
    sizes = {"dim": 12, "layers": 2, "heads": 3, "image_dim": 16, "image_layers": 3, "image_heads": 4}
    config = CLIPConfig(V, context=T, image_size=IMAGE, channels=C, patch_size=4, projection_dim=E, sep=END, **sizes)
    return randomize(CLIP(config)).double().eval()


def images() -> Tensor:
    return torch.randn(B + 1, C, IMAGE, IMAGE, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def texts() -> tuple[Tensor, Tensor]:
    """Rows that end with END, then random padding; and their mask."""
    real = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(END, (B, T), generator=torch.Generator().manual_seed(3))
    ids[torch.arange(B), torch.tensor(LENGTHS) - 1] = END
    return ids, real[:, None, None]


def test_published_parameter_count() -> None:
    with torch.device("meta"):
        body = CLIP(CLIPConfig(49_408, **SIZES["base"]))
    assert sum(weight.numel() for weight in body.parameters()) == 151_277_313


def test_towers_give_unit_vectors(body: CLIP) -> None:
    ids, mask = texts()
    for vectors, rows in (body.image(images()), B + 1), (body.text(ids, mask), B):
        assert vectors.shape == (rows, E)
        assert_close(vectors.norm(dim=-1), torch.ones(rows, dtype=vectors.dtype))


def test_score_is_a_scaled_cosine_with_a_clamped_scale_in_training(body: CLIP) -> None:
    (ids, mask), pixels = texts(), images()
    cosines = body.image(pixels) @ body.text(ids, mask).T
    assert body(pixels, ids, mask).shape == (B + 1, B)
    assert_close(body(pixels, ids, mask), cosines * body.scale.exp())
    torch.nn.init.constant_(body.scale, 9.0)
    assert_close(body(pixels, ids, mask), cosines * math.exp(9))
    assert_close(body.train()(pixels, ids, mask), cosines * 100)
    assert CLIP(body.config).scale.item() == pytest.approx(math.log(1 / 0.07))


def test_padding_of_a_text_is_invisible(body: CLIP) -> None:
    ids, mask = texts()
    together = body.text(ids, mask)
    for b, length in enumerate(LENGTHS):
        assert_close(body.text(ids[b : b + 1, :length])[0], together[b])
    garbage = torch.where(mask[:, 0, 0], ids, (ids + 5) % V)
    assert_close(body.text(garbage, mask), together)


@pytest.mark.parametrize(
    ("sep", "row", "position"),
    [
        (9, [3, 9, 4, 9, 5], 1),  # the first end token
        (9, [3, 7, 4, 8, 9], 3),  # an end token in the padding does not count: the last token
        (2, [3, 2, 8, 8, 9], 2),  # the first CLIP: the highest id
    ],
)
def test_eos_pool_position(sep: int, row: list[int], position: int) -> None:
    pool, x = EosPool(sep), torch.randn(2, 5, 3)
    ids, mask = torch.tensor([row, [4, 3, 9, 2, 3]]), torch.tensor([[True] * 4 + [False], [True] * 5])
    assert torch.equal(pool(x, ids, mask[:, None, None])[0], x[0, position])
    assert torch.equal(pool(x, ids)[1], x[1, 2])


def test_default_hidden_width_is_four_times_the_tower_width() -> None:
    assert (CLIPConfig(V, dim=12).hidden, CLIPConfig(V, image_dim=9).image_hidden) == (48, 36)
    body = CLIP(CLIPConfig(V, hidden=7, image_hidden=9))
    assert body.text.blocks[0].feedforward.inner.up.out_features == 7
    assert body.image.blocks[0].feedforward.inner.up.out_features == 9


def test_every_weight_but_key_biases_has_a_gradient(body: CLIP) -> None:
    ids, mask = texts()
    (body.train()(images(), ids, mask) * torch.randn(B + 1, B)).sum().backward()
    without_gradient = [name for name, w in body.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9]
    assert without_gradient == [name for name, _ in body.named_parameters() if name.endswith("key.bias")]


def test_invalid_sizes_are_refused(body: CLIP) -> None:
    with pytest.raises(ValueError, match=f"images of {C} x {IMAGE} x {IMAGE}, not {C} x 4 x {IMAGE}"):
        body.image(images()[:, :, :4])
    with pytest.raises(ValueError, match=rf"{T + 1} tokens .*context of {T}\b"):
        body.text(torch.zeros(B, T + 1, dtype=torch.long))
    with pytest.raises(ValueError, match=r"patch-size \(5\) must divide image-size \(32\)"):
        CLIPConfig(V, patch_size=5)
    with pytest.raises(ValueError, match=r"image-heads \(5\) must divide image-dim \(96\)"):
        CLIPConfig(V, image_heads=5)
    with pytest.raises(ValueError, match="8 ... times, not 5 times"):
        CLIP(CLIPConfig(V, patch_size=5, conv_stem=True))
    assert CLIP(CLIPConfig(V, patch_size=8, image_size=28, conv_stem=True)).image.positions.weight.size(0) == 1 + 4 * 4
    with pytest.raises(ValueError, match="projection-dim must be at least 1, not 0"):
        CLIPConfig(V, projection_dim=0)


def test_scores_equal_transformers(randomize, copy_weights, body: CLIP) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    torch.manual_seed(1)
    config = transformers.CLIPConfig(
        text_config={
            "vocab_size": V, "max_position_embeddings": T, "hidden_size": 12, "num_hidden_layers": 2,
            "num_attention_heads": 3, "intermediate_size": 48, "bos_token_id": 0, "eos_token_id": END,
        },
        vision_config={
            "image_size": IMAGE, "num_channels": C, "patch_size": 4, "hidden_size": 16, "num_hidden_layers": 3,
            "num_attention_heads": 4, "intermediate_size": 64,
        },
        projection_dim=E,
    )  # fmt: skip
    theirs = randomize(transformers.CLIPModel(config)).eval()
    ours = copy_weights(dict(theirs.named_parameters()), body.float(), NAMES)
    (ids, mask), pixels = texts(), images().float()
    with torch.inference_mode():
        theirs_logits = theirs(input_ids=ids, pixel_values=pixels, attention_mask=mask[:, 0, 0].long())
        assert_close(ours.image(pixels), theirs_logits.image_embeds, rtol=0, atol=1e-5)
        assert_close(ours.text(ids, mask), theirs_logits.text_embeds, rtol=0, atol=1e-5)
        assert_close(ours(pixels, ids, mask), theirs_logits.logits_per_image, rtol=0, atol=1e-4)
