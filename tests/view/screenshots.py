"""Screenshots of every tab of the page, light, dark and at the width of a phone, for review after a change.

    python tests/view/screenshots.py FOLDER                    of models trained for a minute each on bundled data
    python tests/view/screenshots.py FOLDER page.html ...      of existing pages

FOLDER holds the models in runs/, their pages in pages/ and one PNG per page, tab and variant. Existing models are not
trained again.
"""

import argparse
import tempfile
from pathlib import Path

from conftest import Browser, installed
from PIL import Image

from regard.cli import main as regard
from regard.modalities.synthetic import phrasebook, shapes

VARIANTS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (400, "light")}
MODELS = {
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
    parser.add_argument("--minutes", default="1", help="training time of each model")
    args = parser.parse_args()
    if not installed():
        parser.error("Chromium is not installed")
    args.folder.mkdir(parents=True, exist_ok=True)
    for page in args.pages or build_pages(args.folder, args.minutes):
        take_screenshots(page, args.folder)


def build_pages(folder, minutes):
    """Train each model and write its page."""
    for name, text in texts(folder).items():
        run, page = folder / "runs" / name, folder / "pages" / f"{name}.html"
        if not (run / "README.md").exists():
            exit_on_error(
                regard(["train", *MODELS[name], "--output-dir", str(run), "--minutes", minutes, "--overwrite"])
            )
        exit_on_error(regard(["look", str(run), text, "--output", str(page)]))
        yield page


def exit_on_error(code):
    if code:
        raise SystemExit(code)


def texts(folder):
    """An input for each model, from its test split."""
    test_phrases = (phrase for phrase in phrasebook.phrases(3000) if phrasebook.split(phrase) == "test")
    phrase = max(test_phrases, key=lambda phrase: len(phrase.english))
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


def take_screenshots(page, folder):
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(Path(profile))
        for variant, (width, scheme) in VARIANTS.items():
            browser.visit(page, width, scheme)
            browser.wait("section[data-ready]")
            for kind in browser.all("[role=tab]", "e.dataset.kind"):
                browser.turn_to(kind)
                browser.shot(folder / f"{page.stem}-{kind}-{variant}.png")
            for problem in browser.problems:
                print(f"{page.name}: {problem}")
        browser.close()
    print(f"{page.stem}: {folder}/{page.stem}-*.png")


if __name__ == "__main__":
    main()
