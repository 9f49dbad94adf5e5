"""What `make prove` finds out goes to its place on the page, and nothing else on it changes."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import prove  # noqa: E402


@pytest.mark.parametrize("proof", prove.PROOFS)
def test_every_proof_is_there_and_has_its_place_on_the_page(proof):
    page = prove.PAGE.read_text(encoding="utf-8")
    assert (prove.PAGE.parents[1] / "benchmarks" / f"{proof}.py").exists()
    once = prove.placed(page, proof, ["| a | b | c |"])
    assert "| a | b | c |" in once
    assert prove.placed(once, proof, ["| a | b | c |"]) == once
    outside = [text.split(f"<!-- {proof} -->")[0] + text.split(f"<!-- /{proof} -->")[1] for text in (page, once)]
    assert outside[0] == outside[1]


def test_a_page_without_the_place_is_refused():
    with pytest.raises(ValueError, match="needs one <!-- kill -->"):
        prove.placed("nothing here", "kill", [])
