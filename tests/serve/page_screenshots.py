"""Screenshots of the page with an answer of every model of a running server: light, dark and at the width of a phone.

    regard serve runs/demo runs/story ...
    python tests/serve/page_screenshots.py http://127.0.0.1:8000/ FOLDER [MODEL ...]

One PNG per model and variant, and those of the look page, of a stream, and of an error.
"""

import argparse
import json
import tempfile
import urllib.request
import wave
from pathlib import Path

import numpy as np
from page_browser import EXAMPLE, LOOK, RUN, PageBrowser, installed
from PIL import Image

from regard.modalities.synthetic import cart, shapes, voices, waves
from regard.modalities.trajectory.episode_files import write_episodes

VARIANTS = {"light": (1200, "light"), "dark": (1200, "dark"), "phone": (400, "light")}


def write_inputs(folder):
    """A file for every first suffix of a modality."""
    Image.fromarray(shapes.shapes(5)[3].pixels).resize((192, 192), 0).save(folder / "scene.png")
    clip = voices.voices("valid", 1)[0]
    with wave.open(str(folder / "seven.wav"), "wb") as out:
        out.setparams((1, 2, voices.SAMPLING_RATE, len(clip.samples), "NONE", ""))
        out.writeframes(clip.samples.astype("<i2").tobytes())
    np.savetxt(folder / "demand.csv", np.array(waves.demand("test")[0])[:200], delimiter=",", header="a,b", comments="")
    write_episodes(folder / "cart.npz", [next(iter(cart.carts(1)))])
    return {file.suffix: file for file in folder.iterdir()}


def take(browser, url, folder, models, files):
    for variant, (width, scheme) in VARIANTS.items():
        browser.goto(url, width, scheme, expected=("422",))
        browser.wait(f"#composer {RUN}")
        browser.shot(folder / f"start-{variant}.png")
        for model in models:
            show_answer(browser, model, files)
            browser.shot(folder / f"{model['id']}-{variant}.png")
            if browser.overflow() > 0:
                print(f"{model['id']}, {variant}: {browser.overflow()} pixels too wide")
        show_error(browser, models[0])
        browser.shot(folder / f"error-{variant}.png")
        if any(model["aligns"] for model in models):
            show_look(browser, next(model for model in models if model["aligns"]), files)
            browser.shot(folder / f"look-{variant}.png")
        for problem in browser.problems:
            print(f"{variant}: {problem}")


def show_answer(browser, model, files):
    browser.choose_model(model["id"])
    if model["example"]:
        browser.click(EXAMPLE)
    if model["fields"][0]["kind"] == "file":
        browser.drop(files[model["fields"][0]["formats"][0]])
    browser.ask()
    if model["aligns"] and browser.all(".aligned", "1"):
        browser.hover(".aligned.target .word[data-word='2']")
    if model["task"] == "write":
        browser.click("[data-disclosure=options]")
        browser.click("[data-disclosure=code]")
    browser.settle()


def show_error(browser, model):
    browser.choose_model(model["id"])
    browser.run("document.querySelectorAll('textarea').forEach((area) => (area.value = ''))")
    browser.click(RUN)
    browser.wait("#notice:not([hidden])")


def show_look(browser, model, files):
    show_answer(browser, model, files)
    browser.click(LOOK)
    browser.wait_for("document.querySelector('#look[open] iframe')?.src")
    browser.run("new Promise((done) => setTimeout(done, 1500)).then(() => null)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    if not installed():
        parser.error("Chromium is not installed")
    args.folder.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(f"{args.url}v1/models") as response:
        models = [m for m in json.load(response)["data"] if not args.models or m["id"] in args.models]
    with tempfile.TemporaryDirectory() as profile, tempfile.TemporaryDirectory() as inputs:
        browser = PageBrowser(Path(profile))
        take(browser, args.url, args.folder, models, write_inputs(Path(inputs)))
        browser.close()
    print(f"{args.folder}/*.png")


if __name__ == "__main__":
    main()
