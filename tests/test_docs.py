"""The pages hold together: every link leads somewhere, every picture is there, and quoted code is the code."""

import re
from functools import cache
from pathlib import Path

import pytest

from regard.lab import EXPERIMENTS

HOUSE = Path(__file__).parents[1]
DOCS = HOUSE / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), HOUSE / "README.md", HOUSE / "CONTRIBUTING.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def prose(page):
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page):
    """What its headings are called in links."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads]
    return {re.sub(r"[^\w\- ]", "", head.strip()).replace(" ", "-") for head in plain}


@cache
def code():
    """Every line of the tree, without what stands before it."""
    files = [file for part in ("regard", "tests", "benchmarks") for file in (HOUSE / part).rglob("*.py")]
    return {line.strip() for file in files for line in file.read_text(encoding="utf-8").splitlines()}


@pages
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"!?\[[^\]]*\]\(([^)\s]+)\)", prose(page)):
        if not target.startswith("https://"):
            file, _, anchor = target.partition("#")
            there = page.parent / file if file else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), target


@pages
def test_what_is_quoted_is_the_code(page):
    """What imports something is an example; all other Python stands in the tree, line by line."""
    examples = False
    for kind, body in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind != "python":
            continue
        lines = [line.strip() for line in body.splitlines() if line.strip() not in ("", "...")]
        missing = [line for line in lines if line not in code()]
        examples |= bool(re.search(r"^(import|from) ", body, re.MULTILINE))
        assert not missing or examples, missing


def test_every_page_and_every_picture_is_shown_somewhere():
    linked = {target.partition("#")[0] for page in PAGES for target in re.findall(r"\]\(([^)\s]+)\)", prose(page))}
    names = {Path(target).name for target in linked}
    assert {page.name for page in DOCS.glob("*.md")} - names <= {"index.md"}
    assert {picture.name for picture in (DOCS / "pictures").iterdir()} <= names


def test_every_claim_of_the_lectures_is_counted_and_told():
    readme = (HOUSE / "README.md").read_text(encoding="utf-8")
    assert {int(number) for number in re.findall(r"(\d+) claims of the lectures", readme)} == {len(EXPERIMENTS)}
    told = re.findall(
        r"^\| \[(\w+)\]\(pictures/lab-\1\.png\)", (DOCS / "lab.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(told) == sorted(EXPERIMENTS)
