"""Rollout rows sum to one and follow the order of layers; the image tabs show the model's own numbers."""

import json
import zlib
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.testing import assert_close

from regard.data.tokenizer_train import TokenizerOptions, train_tokenizer
from regard.loaded_model import LoadedModel
from regard.modalities.image.image_files import labelled_image
from regard.modalities.image.image_transform import ImageTransform
from regard.modalities.image.preprocessor import ImagePreprocessor
from regard.modalities.synthetic import shapes
from regard.modalities.text.preprocessor import TextPreprocessor
from regard.models.bert import Bert, BertConfig
from regard.models.clip import CLIP, CLIPConfig
from regard.models.resnet import ResNet, ResNetConfig
from regard.models.vit import ViT, ViTConfig
from regard.tasks.classify import Classify
from regard.tasks.match import Match
from regard.view.attention_rollout import image_tab, pooling_weights, rollout, similarity_tab, trace_image

L, H, SIDE, PATCH = 2, 3, 32, 8
P = (SIDE // PATCH) ** 2
SCENES = shapes.shapes(6)
LABELS = ["circle", "cross", "square", "star"]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    names = [str(folder / f"{i}.png") for i in range(len(SCENES))]
    for name, scene in zip(names, SCENES, strict=True):
        Image.fromarray(scene.pixels).save(name)
    return names


def stirred(model: torch.nn.Module) -> torch.nn.Module:
    """Large random weights, so that heads look at some patches more than at others."""
    torch.manual_seed(4)
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.data = torch.randn_like(weight) * 0.3
    return model.eval()


def images() -> ImagePreprocessor:
    rows = [labelled_image(scene.pixels, scene.label, "shapes", i) for i, scene in enumerate(SCENES)]
    return ImagePreprocessor(ImageTransform.fit(rows))


def classifier(pooling: str = "first", body: torch.nn.Module | None = None, **config) -> LoadedModel:
    task = Classify(pooling=pooling, labels=LABELS, preprocessor=images())
    sizes = {"image_size": SIDE, "patch_size": PATCH, "dim": 12, "layers": L, "heads": H, "hidden": 20}
    return LoadedModel(stirred(task.head(body or ViT(ViTConfig(**sizes, **config)))), task)


def matcher() -> LoadedModel:
    tokenizer = train_tokenizer([scene.caption for scene in SCENES], TokenizerOptions())
    task = Match(preprocessor=images(), output=TextPreprocessor(tokenizer))
    towers = {
        "dim": 16,
        "layers": 1,
        "heads": 2,
        "image_dim": 12,
        "image_layers": L,
        "image_heads": H,
        "projection_dim": 7,
    }
    sizes = {
        name: size
        for name, size in task.sizes().items()
        if name in CLIPConfig.__dataclass_fields__.keys() - {"image_size"}
    }
    return LoadedModel(stirred(task.head(CLIP(CLIPConfig(image_size=SIDE, patch_size=PATCH, **towers, **sizes)))), task)


def numbers(blob: str, kind: type, *shape: int) -> np.ndarray:
    return np.frombuffer(zlib.decompress(b64decode(blob)), kind).reshape(shape)


@given(seed=st.integers(0, 99), layers=st.integers(1, 4), heads=st.integers(1, 3), tokens=st.integers(1, 6))
@settings(max_examples=30)
def test_rollout_rows_sum_to_one(seed: int, layers: int, heads: int, tokens: int) -> None:
    random = torch.Generator().manual_seed(seed)
    weights = (5 * torch.randn(layers, heads, tokens, tokens, generator=random)).softmax(-1)
    result = rollout(weights)
    assert result.shape == (layers, tokens, tokens)
    assert result.min() >= 0
    assert_close(result.sum(-1), torch.ones(layers, tokens))


def test_self_attention_is_a_fixed_point_and_one_hot_attention_halves_the_rest() -> None:
    T, layers = 5, 3
    itself = torch.eye(T).expand(layers, 2, T, T)
    assert_close(rollout(itself), itself[:, 0])
    at_first = torch.zeros(layers, 2, T, T)
    at_first[..., 0] = 1.0
    for layer, result in enumerate(rollout(at_first), 1):
        assert_close(result[1:, 1:], 0.5**layer * torch.eye(T - 1))
        assert_close(result[:, 0], torch.tensor([1.0] + (T - 1) * [1 - 0.5**layer]))


def test_layers_multiply_in_order() -> None:
    weights = torch.eye(3).repeat(2, 1, 1, 1)  # (L,1,T,T)
    weights[0, 0, 1] = torch.tensor([0.0, 0.0, 1.0])  # first, 1 takes from 2
    weights[1, 0, 0] = torch.tensor([0.0, 1.0, 0.0])  # then 0 takes from 1
    assert rollout(weights)[-1][0].tolist() == [0.5, 0.25, 0.25]
    assert rollout(weights.flip(0))[-1][0].tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("pooling", ["first", "mean", "last", "attention"])
@pytest.mark.parametrize("class_token", [True, False])
def test_pooling_weights_equal_the_pooling_of_the_head(pooling: str, class_token: bool, files: list[str]) -> None:
    loaded = classifier(pooling, class_token=class_token)
    _, activations = trace_image(loaded, files[0])
    assert_close(
        pooling_weights(pooling, activations, P + class_token) @ activations["body"][0], activations["head.pooling"][0]
    )


@pytest.mark.parametrize("pooling", ["first", "pooler", "mean", "attention"])
@pytest.mark.parametrize("conv_stem", [True, False])
def test_the_tab_of_a_classifier_has_its_rollout_and_weights(pooling: str, conv_stem: bool, files: list[str]) -> None:
    loaded = classifier(pooling, conv_stem=conv_stem, class_token=pooling != "mean")
    tab = json.loads(json.dumps(image_tab(loaded, files[2])))
    assert (tab["kind"], tab["grid"], tab["layers"], tab["heads"]) == ("image", [4, 4], L, H)
    reached = numbers(tab["rollout"], np.float32, L, P)
    np.testing.assert_allclose(reached.sum(1), 1.0, atol=1e-6)
    patch_weights = numbers(tab["weights"], np.uint8, L, H, P) / 255
    assert patch_weights.sum(-1).max() <= 1 + P / 255
    first = loaded.model.body.config.class_token
    _, activations = trace_image(loaded, files[2])
    weights = torch.stack([activations[f"body.blocks.{layer}.mixer.inner.weights"][0] for layer in range(L)])
    if pooling != "attention":
        row, rolled = (m.mean(-2) if pooling == "mean" else m[..., 0, :] for m in (weights, rollout(weights)))
        np.testing.assert_allclose(patch_weights, row[..., int(first) :], atol=0.51 / 255)
        patches = rolled[:, int(first) :]
        np.testing.assert_allclose(reached, patches / patches.sum(1, keepdim=True), atol=1e-6)
    assert [label for label, _ in tab["predictions"]] == sorted(LABELS, key=dict(tab["predictions"]).get, reverse=True)
    assert sum(p for _, p in tab["predictions"]) == pytest.approx(1.0, abs=1e-5)
    image = Image.open(BytesIO(b64decode(tab["image"].removeprefix("data:image/png;base64,"))))
    assert np.array_equal(np.asarray(image), SCENES[2].pixels)


def test_uniform_attention_gives_uniform_rollout(files: list[str]) -> None:
    loaded = classifier("mean", class_token=False)
    for block in loaded.model.body.blocks:
        block.mixer.inner.query.weight.data.zero_()
        block.mixer.inner.query.bias.data.zero_()
    tab = image_tab(loaded, files[0])
    np.testing.assert_allclose(numbers(tab["rollout"], np.float32, L, P), 1 / P, atol=1e-6)


def test_a_matching_model_shows_its_image_tower(files: list[str]) -> None:
    loaded, captions = matcher(), [scene.caption for scene in SCENES[:3]]
    alone = image_tab(loaded, files[1])
    assert alone["predictions"] == []
    assert (alone["layers"], alone["heads"]) == (L, H)
    np.testing.assert_allclose(numbers(alone["rollout"], np.float32, L, P).sum(1), 1.0, atol=1e-6)
    request = "\t".join([files[1], *captions])
    tab = image_tab(loaded, request)
    assert tab["rollout"] == alone["rollout"]
    assert tab["predictions"][0][0] == loaded(request)


def test_similarity_equals_the_models_scores(files: list[str]) -> None:
    loaded, captions = matcher(), [scene.caption for scene in SCENES[:3]]
    tab = json.loads(json.dumps(similarity_tab(loaded, "\t".join([files[0], captions[0], files[4], *captions[1:]]))))
    assert (tab["kind"], tab["texts"], len(tab["images"])) == ("similarity", captions, 2)
    scores, chances = np.array(tab["cosines"]), np.array(tab["probabilities"])
    assert scores.shape == chances.shape == (2, 3)
    np.testing.assert_allclose(chances.sum(1), 1.0, atol=1e-6)
    assert np.abs(scores).max() <= 1 + 1e-6
    for name, row, likely in zip((files[0], files[4]), scores, chances, strict=True):
        request = "\t".join([name, *captions])
        [best] = loaded.generate([request], num_return=3)
        assert [captions[i] for i in np.argsort(-row)] == [answer.text for answer in best]
        assert sorted(likely, reverse=True) == pytest.approx([answer.score for answer in best], abs=1e-6)


def test_other_models_have_no_tab(files: list[str], tmp_path: Path) -> None:
    convolved = classifier("mean", ResNet(ResNetConfig(dim=16, stages=2)))
    tokenizer = train_tokenizer(["ab", "ba"], TokenizerOptions("characters"))
    task = Classify(preprocessor=TextPreprocessor(tokenizer), labels=LABELS)
    reader = LoadedModel(task.head(Bert(BertConfig(len(tokenizer), dim=8, layers=1, hidden=8))), task)
    assert image_tab(convolved, files[0]) is None
    assert image_tab(reader, "ab") is None
    assert similarity_tab(classifier(), files[0]) is None
    assert similarity_tab(matcher(), files[0]) is None
    with pytest.raises(ValueError, match="none.png: no such file"):
        image_tab(classifier(), str(tmp_path / "none.png"))
