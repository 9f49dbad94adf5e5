"""`make prove` replaces the rows of its proofs on docs/reliability.md, and nothing else on the page."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import prove  # noqa: E402


@pytest.mark.parametrize("proof", prove.PROOFS)
def test_every_proof_exists_and_replaces_only_its_own_rows(proof):
    page = prove.PAGE.read_text(encoding="utf-8")
    assert (prove.PAGE.parents[1] / "benchmarks" / f"{proof}.py").exists()
    replaced = prove.replace_rows(page, proof, ["| a | b | c |"])
    assert "| a | b | c |" in replaced
    assert prove.replace_rows(replaced, proof, ["| a | b | c |"]) == replaced
    outside = [text.split(f"<!-- {proof} -->")[0] + text.split(f"<!-- /{proof} -->")[1] for text in (page, replaced)]
    assert outside[0] == outside[1]


def test_a_page_without_the_markers_is_refused():
    with pytest.raises(ValueError, match="needs one <!-- kill -->"):
        prove.replace_rows("no markers", "kill", [])
