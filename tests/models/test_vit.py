"""ViT has the published sizes, sees the whole image, and equals transformers with the same weights."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.models.vit import SIZES, ViT, ViTConfig

B, C, IMAGE, PATCH, D = 2, 3, 12, 4, 18
P = (IMAGE // PATCH) ** 2
NAMES = {
    "embeddings.cls_token": "first",
    "embeddings.position_embeddings": "positions.weight",
    **{
        f"{theirs}.{w}": f"{ours}.{w}"
        for w in ("weight", "bias")
        for theirs, ours in {
            "embeddings.patch_embeddings.projection": "stem.map",
            "layers.{}.layernorm_before": "blocks.{}.mixer.norm",
            "layers.{}.attention.q_proj": "blocks.{}.mixer.inner.query",
            "layers.{}.attention.k_proj": "blocks.{}.mixer.inner.key",
            "layers.{}.attention.v_proj": "blocks.{}.mixer.inner.value",
            "layers.{}.attention.o_proj": "blocks.{}.mixer.inner.out",
            "layers.{}.layernorm_after": "blocks.{}.feedforward.norm",
            "layers.{}.mlp.fc1": "blocks.{}.feedforward.inner.up",
            "layers.{}.mlp.fc2": "blocks.{}.feedforward.inner.down",
            "layernorm": "norm",
        }.items()
    },
}
KINDS = pytest.mark.parametrize("conv_stem", [False, True], ids=["patches", "convolutions"])


def make_body(**options: bool) -> ViT:
    torch.manual_seed(1)
    return ViT(ViTConfig(IMAGE, C, PATCH, dim=D, layers=2, heads=3, hidden=10, **options)).double().eval()


def images() -> Tensor:
    return torch.randn(B, C, IMAGE, IMAGE, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(("name", "count"), [("tiny", 5_524_416), ("small", 21_665_664), ("base", 85_798_656)])
def test_published_parameter_counts(name: str, count: int) -> None:
    with torch.device("meta"):
        body = ViT(ViTConfig(**SIZES[name]))
    assert sum(weight.numel() for weight in body.parameters()) == count


@KINDS
@pytest.mark.parametrize("class_token", [False, True])
def test_output_shape(conv_stem: bool, class_token: bool) -> None:
    body = make_body(conv_stem=conv_stem, class_token=class_token)
    assert body(images()).shape == (B, P + class_token, D)


@KINDS
def test_every_pixel_reaches_every_vector(conv_stem: bool) -> None:
    body, pixels = make_body(conv_stem=conv_stem), images().requires_grad_()
    for position in range(P + 1):
        (gradient,) = torch.autograd.grad(body(pixels)[:, position].square().sum(), pixels)
        assert (gradient.abs().amax(1) > 0).all()


@KINDS
def test_every_weight_but_key_biases_has_a_gradient(conv_stem: bool, randomize) -> None:
    body = randomize(make_body(conv_stem=conv_stem).train())
    (body(images()) * torch.randn(P + 1, D)).sum().backward()
    without_gradient = [name for name, w in body.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9]
    assert without_gradient == [name for name, _ in body.named_parameters() if name.endswith("key.bias")]


@KINDS
def test_batch_equals_single_images(conv_stem: bool) -> None:
    body = make_body(conv_stem=conv_stem)
    assert_close(body(images()), torch.cat([body(image[None]) for image in images()]))


def test_qkv_bias_can_be_disabled() -> None:
    with_bias, without_bias = (
        {name for name, _ in make_body(qkv_bias=bias).named_parameters()} for bias in (True, False)
    )
    assert without_bias < with_bias
    assert {name.split(".")[-2] for name in with_bias - without_bias} == {"query", "key", "value"}


def test_positions_distinguish_patches() -> None:
    body, pixels = make_body(), images()
    shifted = pixels.roll(PATCH, -1)
    assert (body(pixels)[:, 0] - body(shifted)[:, 0]).abs().max() > 1e-6
    torch.nn.init.zeros_(body.positions.weight)
    assert_close(body(pixels)[:, 0], body(shifted)[:, 0])


@pytest.mark.parametrize("shape", [(1, IMAGE, IMAGE), (C, IMAGE - PATCH, IMAGE), (C, 2 * IMAGE, 2 * IMAGE)])
def test_other_image_shapes_are_refused(shape: tuple[int, ...]) -> None:
    shape_text = " x ".join(map(str, shape))
    with pytest.raises(ValueError, match=f"images of {C} x {IMAGE} x {IMAGE}, not {shape_text}"):
        make_body()(torch.zeros(B, *shape, dtype=torch.float64))


def test_indivisible_patch_size_is_refused_unless_conv_stem() -> None:
    with pytest.raises(ValueError, match=r"patch-size \(5\) must divide image-size \(28\)"):
        ViTConfig(image_size=28, patch_size=5)
    assert ViT(ViTConfig(image_size=28, patch_size=8, conv_stem=True)).positions.weight.size(0) == 1 + 4 * 4
    with pytest.raises(ValueError, match="8 ... times, not 5 times"):
        ViT(ViTConfig(image_size=28, patch_size=5, conv_stem=True))
    with pytest.raises(ValueError, match=r"heads \(5\) must divide dim \(96\)"):
        ViTConfig(heads=5)


def test_vectors_equal_transformers(randomize, copy_weights) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    torch.manual_seed(1)
    config = transformers.ViTConfig(
        image_size=IMAGE, num_channels=C, patch_size=PATCH, hidden_size=D, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=10,
    )  # fmt: skip
    theirs = randomize(transformers.ViTModel(config, add_pooling_layer=False)).eval()
    tensors = dict(theirs.named_parameters())
    tensors["embeddings.position_embeddings"] = tensors["embeddings.position_embeddings"][0]
    ours = copy_weights(tensors, make_body().float(), NAMES)
    pixels = images().float()
    with torch.inference_mode():
        assert_close(ours(pixels), theirs(pixel_values=pixels).last_hidden_state, rtol=0, atol=1e-5)
