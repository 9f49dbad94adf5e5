"""Links and anchors of the pages resolve, every figure is shown, and quoted code is that of the repository."""

import re
from functools import cache
from pathlib import Path

import pytest

from regard.lab import EXPERIMENTS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def prose(page):
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page):
    """The anchors of its headings."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads]
    return {re.sub(r"[^\w\- ]", "", head.strip()).replace(" ", "-") for head in plain}


@cache
def code():
    """Every line of code of the repository, stripped."""
    files = [file for part in ("regard", "tests", "benchmarks") for file in (ROOT / part).rglob("*.py")]
    return {line.strip() for file in files for line in file.read_text(encoding="utf-8").splitlines()}


@pages
def test_every_relative_link_and_anchor_resolves(page):
    for target in re.findall(r"!?\[[^\]]*\]\(([^)\s]+)\)", prose(page)):
        if not target.startswith("https://"):
            file, _, anchor = target.partition("#")
            linked = page.parent / file if file else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), target


@pages
def test_quoted_code_is_that_of_the_repository(page):
    """A block with an import is an example, and so are those after it; each line of all others is in the repository."""
    examples = False
    for kind, body in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind != "python":
            continue
        lines = [line.strip() for line in body.splitlines() if line.strip() not in ("", "...")]
        missing = [line for line in lines if line not in code()]
        examples |= bool(re.search(r"^(import|from) ", body, re.MULTILINE))
        assert not missing or examples, missing


def test_every_page_and_every_figure_is_linked():
    linked = {target.partition("#")[0] for page in PAGES for target in re.findall(r"\]\(([^)\s]+)\)", prose(page))}
    names = {Path(target).name for target in linked}
    assert {page.name for page in DOCS.glob("*.md")} - names <= {"index.md"}
    assert {picture.name for picture in (DOCS / "pictures").iterdir()} <= names


def test_the_pages_count_and_list_every_experiment():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {int(number) for number in re.findall(r"(\d+) claims of the lectures", readme)} == {len(EXPERIMENTS)}
    listed = re.findall(
        r"^\| \[(\w+)\]\(pictures/lab-\1\.png\)", (DOCS / "lab.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(EXPERIMENTS)
