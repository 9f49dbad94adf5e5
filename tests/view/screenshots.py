"""Screenshots of every tab of the page, light, dark and as narrow as a telephone, to look at after a change.

    python tests/view/screenshots.py FOLDER                    of models trained for a minute each on bundled data
    python tests/view/screenshots.py FOLDER page.html ...      of existing pages

FOLDER keeps the models in runs/, their pages in pages/ and one picture for each page, tab and look. What is there
already is not trained again.
"""

import argparse
import tempfile
from pathlib import Path

from conftest import Browser, installed
from PIL import Image

from regard.cli import main as regard
from regard.data.bundled import phrasebook, shapes

LOOKS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (400, "light")}
MODELS = {  # what is trained
    "translate": ["translate"],
    "write": ["write"],
    "fill": ["fill"],
    "tag": ["tag"],
    "see": ["classify", "--model", "vit"],
    "match": ["match"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("pages", type=Path, nargs="*")
    parser.add_argument("--minutes", default="1", help="of training for each model")
    given = parser.parse_args()
    if not installed():
        parser.error("there is no Chromium to look with")
    given.folder.mkdir(parents=True, exist_ok=True)
    for page in given.pages or made(given.folder, given.minutes):
        shoot(page, given.folder)


def made(folder, minutes):
    """A page of each model."""
    for name, text in texts(folder).items():
        run, page = folder / "runs" / name, folder / "pages" / f"{name}.html"
        if not (run / "README.md").exists():
            must(regard(["train", *MODELS[name], "--out", str(run), "--minutes", minutes, "--overwrite"]))
        must(regard(["look", str(run), text, "--out", str(page)]))
        yield page


def must(code):
    if code:
        raise SystemExit(code)


def texts(folder):
    """What each model is to look at: what it never saw in training."""
    unseen = (phrase for phrase in phrasebook.phrases(3000) if phrasebook.split(phrase) == "test")
    phrase = max(unseen, key=lambda one: len(one.english))
    scenes = [scene for scene in shapes.shapes(200) if shapes.split(scene) == "test"][:4]
    files = [str(folder / f"scene-{i}.png") for i in range(len(scenes))]
    for scene, file in zip(scenes, files, strict=True):
        Image.fromarray(scene.pixels).save(file)
    return {
        "translate": phrase.english,
        "write": "You are in the kitchen. The lamp is on the table.",
        "fill": phrase.english,
        "tag": phrase.german,
        "see": files[0],
        "match": "\t".join([*files, *(scene.caption for scene in scenes)]),
    }


def shoot(page, folder):
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(Path(profile))
        for look, (width, scheme) in LOOKS.items():
            browser.visit(page, width, scheme)
            browser.wait("section[data-ready]")
            for kind in browser.all("[role=tab]", "e.dataset.kind"):
                browser.turn_to(kind)
                browser.shot(folder / f"{page.stem}-{kind}-{look}.png")
            for problem in browser.problems:
                print(f"{page.name}: {problem}")
        browser.close()
    print(f"{page.stem}: {folder}/{page.stem}-*.png")


if __name__ == "__main__":
    main()
