"""ViT has the published sizes, sees all of an image, and says what transformers' says with the same weights."""

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
KINDS = pytest.mark.parametrize("resnet", [False, True], ids=["patches", "convolutions"])


def small(**how: bool) -> ViT:
    torch.manual_seed(1)
    return ViT(ViTConfig(IMAGE, C, PATCH, dim=D, layers=2, heads=3, hidden=10, **how)).double().eval()


def images() -> Tensor:
    return torch.randn(B, C, IMAGE, IMAGE, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(("name", "count"), [("tiny", 5_524_416), ("small", 21_665_664), ("base", 85_798_656)])
def test_published_sizes_are_as_large_as_published(name: str, count: int) -> None:
    with torch.device("meta"):
        body = ViT(ViTConfig(**SIZES[name]))
    assert sum(weight.numel() for weight in body.parameters()) == count


@KINDS
@pytest.mark.parametrize("class_token", [False, True])
def test_an_image_becomes_a_vector_for_each_place_and_one_for_the_whole(convolution: bool, class_token: bool) -> None:
    body = small(conv_stem=convolution, class_token=class_token)
    assert body(images()).shape == (B, P + class_token, D)


@KINDS
def test_every_pixel_reaches_every_vector(convolution: bool) -> None:
    body, pixels = small(conv_stem=convolution), images().requires_grad_()
    for place in range(P + 1):
        (slope,) = torch.autograd.grad(body(pixels)[:, place].square().sum(), pixels)
        assert (slope.abs().amax(1) > 0).all()


@KINDS
def test_every_weight_learns_but_the_bias_of_keys_which_no_softmax_can_see(convolution: bool, stirred) -> None:
    body = stirred(small(conv_stem=convolution).train())
    (body(images()) * torch.randn(P + 1, D)).sum().backward()
    idle = [name for name, w in body.named_parameters() if w.grad is None or w.grad.abs().max() < 1e-9]
    assert idle == [name for name, _ in body.named_parameters() if name.endswith("key.bias")]


@KINDS
def test_a_batch_equals_its_images_one_by_one(convolution: bool) -> None:
    body = small(conv_stem=convolution)
    assert_close(body(images()), torch.cat([body(image[None]) for image in images()]))


def test_queries_keys_and_values_go_without_a_bias_if_told() -> None:
    with_bias, without = ({name for name, _ in small(qkv_bias=bias).named_parameters()} for bias in (True, False))
    assert without < with_bias
    assert {name.split(".")[-2] for name in with_bias - without} == {"query", "key", "value"}


def test_patches_in_another_order_are_another_image() -> None:
    body, pixels = small(), images()
    moved = pixels.roll(PATCH, -1)
    assert (body(pixels)[:, 0] - body(moved)[:, 0]).abs().max() > 1e-6
    torch.nn.init.zeros_(body.positions.weight)
    assert_close(body(pixels)[:, 0], body(moved)[:, 0])


@pytest.mark.parametrize("shape", [(1, IMAGE, IMAGE), (C, IMAGE - PATCH, IMAGE), (C, 2 * IMAGE, 2 * IMAGE)])
def test_images_of_another_size_are_refused_with_both(shape: tuple[int, ...]) -> None:
    given = " x ".join(map(str, shape))
    with pytest.raises(ValueError, match=f"images of {C} x {IMAGE} x {IMAGE}, not {given}"):
        small()(torch.zeros(B, *shape, dtype=torch.float64))


def test_patches_that_do_not_tile_the_image_are_refused_unless_convolutions_take_their_place() -> None:
    with pytest.raises(ValueError, match=r"patch \(5\) must divide image \(28\)"):
        ViTConfig(image=28, patch=5)
    assert ViT(ViTConfig(image=28, patch=8, conv_stem=True)).positions.weight.size(0) == 1 + 4 * 4
    with pytest.raises(ValueError, match="8 ... times, not 5 times"):
        ViT(ViTConfig(image=28, patch=5, conv_stem=True))
    with pytest.raises(ValueError, match=r"heads \(5\) must divide dim \(96\)"):
        ViTConfig(heads=5)


def test_transformers_gives_our_vectors(stirred, copied) -> None:
    transformers = pytest.importorskip("transformers", reason="parity needs the dev extra")
    torch.manual_seed(1)
    config = transformers.ViTConfig(
        image_size=IMAGE, num_channels=C, patch_size=PATCH, hidden_size=D, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=10,
    )  # fmt: skip
    theirs = stirred(transformers.ViTModel(config, add_pooling_layer=False)).eval()
    tensors = dict(theirs.named_parameters())
    tensors["embeddings.position_embeddings"] = tensors["embeddings.position_embeddings"][0]
    ours = copied(tensors, small().float(), NAMES)
    pixels = images().float()
    with torch.inference_mode():
        assert_close(ours(pixels), theirs(pixel_values=pixels).last_hidden_state, rtol=0, atol=1e-5)
