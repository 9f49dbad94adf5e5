"""A label for every residue: what nobody knows counts for nothing, and a little training beats the commonest label."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.cli import main
from regard.data.bundled import chains as bundled
from regard.data.bundled.chains import chains, split
from regard.data.fasta import Chain
from regard.data.residues import EXAMPLE, spelling
from regard.load import load
from regard.models.chain import Chain as Body
from regard.models.chain import ChainConfig
from regard.tasks.fill import Fill
from regard.tasks.tag import NOT, UNTOLD, Tag
from regard.training.settings import start
from regard.training.train import carry_out, planned, prepare, train
from regard.view.word_pieces import tokenize_words

SMALL = {"model": "chain", "dim": 16, "heads": 2, "hidden": 12, "device": "cpu", "checks": 1}


SOME = chains(1200)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bundled, "chains", lambda: SOME)  # a part of what ships
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def chain(words: str, labels: str, line: int = 1) -> Chain:
    return Chain(words, tuple("" if label == "-" else label for label in labels), f"p{line}", "a.fasta", line)


def made() -> tuple[Tag, Any]:
    torch.manual_seed(1)
    task = Tag(tags=["C", "E", "H"], tokenizer=spelling())
    sizes = {name: value for name, value in task.sizes().items() if name == "vocab"}
    body = Body(ChainConfig(**sizes, context=16, dim=16, heads=2, hidden=12, dropout=0.0))
    return task, task.head(body).double().eval()


def test_a_residue_without_a_label_has_no_loss_and_no_gradient() -> None:
    task, model = made()
    examples = task.prepare([chain("MKTAY", "CH-EH")], 16)
    assert examples.tags[0].tolist() == [NOT, 0, 2, UNTOLD, 1, 2, NOT]
    batch = task.batch(examples, np.arange(1))
    kept = model.body(batch.ids, batch.mask).detach().requires_grad_()
    known = (batch.tags >= 0).nonzero()
    loss = task.loss(type(model)(Kept(kept), model.head), batch)
    loss.total.backward()
    assert loss.count == 4
    assert kept.grad is not None
    assert (kept.grad.abs().amax(-1) > 0).nonzero().tolist() == known.tolist()


class Kept(torch.nn.Module):
    """A body that always says the same."""

    def __init__(self, x: torch.Tensor):
        super().__init__()
        self.x = x

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.x


def test_whatever_stands_there_would_not_count() -> None:
    task, model = made()
    rows = [chain("MKTAYIAKQR", "CHHHEE--CC"), chain("GAVLI", "CCEEC", 2)]
    scores = task.score(model.float(), rows)
    for label in "CEH":
        guess = [rows[0]._replace(tags=tuple(tag or label for tag in rows[0].tags)), rows[1]]
        assert task.score(model, guess)["loss"] != scores["loss"]
    said = "".join(scores["answers"])
    pairs = [(a, b) for a, b in zip("CHHHEE--CCCCEEC", said, strict=True) if a != "-"]
    assert scores["accuracy"] == pytest.approx(100 * sum(a == b for a, b in pairs) / len(pairs))
    with pytest.raises(ValueError, match=r"a\.fasta: there is nothing to score"):
        task.score(model, [chain("MK", "--")])


def test_a_chain_over_the_context_is_cut_and_every_residue_answered() -> None:
    task, model = made()
    [best] = task.predict(model.float(), [EXAMPLE * 3], task.ways())
    assert len(best[0].text) == 3 * len(EXAMPLE) > 2 * 16
    assert {*best[0].text} <= {*"CEH"}


def test_chains_are_not_words_and_words_are_not_chains() -> None:
    from regard.data.tagged import Tagged

    task, _ = made()
    with pytest.raises(ValueError, match=r"a\.conll: this model reads proteins, in two FASTA files"):
        task.prepare([Tagged(("a", "b"), ("C", "H"), "a.conll", 1)], 16)
    with pytest.raises(ValueError, match="'1' is no amino acid"):
        list(task.predict(made()[1], ["MK1"], task.ways()))


@pytest.mark.parametrize(
    ("task", "how", "says"),
    [
        ("tag", {"model": "bert", "vocab": 300}, "--vocab is for texts"),
        ("tag", {"model": "bert", "pieces": "unigram"}, "--pieces is for texts"),
        ("fill", {"model": "chain", "documents": "files"}, "--documents files is for texts"),
        ("fill", {"model": "chain", "data": "a.txt"}, r"a\.txt: this model reads proteins, in FASTA files"),
        ("fill", {"model": "bert", "valid": "a.txt"}, r"a\.txt: this model reads proteins"),
        ("tag", {"model": "chain", "data": ("a.txt", "b.fasta")}, r"a\.txt: chains and their labels are FASTA files"),
    ],
)
def test_options_of_texts_are_refused(task: str, how: dict[str, Any], says: str) -> None:
    Path("a.fasta").write_text(">one\nMKTAY\n>two\nGAVLI\n")
    Path("b.fasta").write_text(">one\nCHHHC\n>two\nEEEEC\n")
    Path("a.txt").write_text("a text\nanother\n")
    data: Any = ("a.fasta", "b.fasta") if task == "tag" else ("a.fasta",)
    with pytest.raises(ValueError, match=says):
        list(train(task, **{"data": data, "valid": data, "steps": 1, "device": "cpu", "out": "run"} | how))


def test_hidden_residues_first_then_labels_and_a_letter_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    fill = planned(prepare(start("fill", **SMALL, steps=2, out="fill")))
    assert isinstance(fill.task, Fill)
    assert [step.number for step in carry_out(fill)] == [1, 2]
    tag = planned(prepare(start("tag", from_="fill", steps=2, checks=1, out="tag", device="cpu")))
    body = load("fill").model.body.state_dict()
    assert all(torch.equal(weight, body[name]) for name, weight in tag.progress.model.body.state_dict().items())
    assert [step.number for step in carry_out(tag)] == [1, 2]
    capsys.readouterr()
    assert main(["run", "tag", EXAMPLE]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert len(line) == len(EXAMPLE)
    assert {*line} <= {*"HEC"}
    assert main(["run", "fill", f"{EXAMPLE[:5]}[MASK]{EXAMPLE[6:]}", "--num-return", "3"]) == 0
    answers = [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()]
    assert len({answer[5] for answer in answers}) == 3
    assert {answer[:5] + answer[6:] for answer in answers} == {EXAMPLE[:5] + EXAMPLE[6:]}
    big, small = load("fill").embed([EXAMPLE, EXAMPLE.lower()])
    assert big == pytest.approx(small, abs=1e-5), "small letters are capital ones here too"
    with pytest.raises(ValueError, match="'1' is no amino acid"):
        list(load("fill").embed(["MK1"]))


def test_every_residue_is_a_word_to_whoever_looks_and_a_file_is_answered_chain_by_chain(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [*_] = train("tag", **SMALL, steps=1, out="tag")
    loaded = load("tag")
    [ids] = loaded.tokenizer.encode([EXAMPLE])
    text = tokenize_words(loaded.tokenizer, ids)
    assert text.words == [*EXAMPLE]
    assert text.word_ids == [-1, *range(len(EXAMPLE)), -1]
    Path("two.fasta").write_text(f">one\n{EXAMPLE[:9]}\n{EXAMPLE[9:]}\n>two\nMKT\n")
    capsys.readouterr()
    assert main(["run", "tag", "--file", "two.fasta"]) == 0
    assert [*map(len, capsys.readouterr().out.splitlines())] == [len(EXAMPLE), 3]
    Path("two.fasta").write_text(">one\nMKT\n>two\nM1T\n")
    assert main(["run", "tag", "--file", "two.fasta"]) == 2
    assert "two.fasta:4: not an amino acid, '1' is none" in capsys.readouterr().err


def test_a_little_training_beats_the_commonest_label_and_that_of_each_letter() -> None:
    """So it has learnt from neighbours."""
    pairs = [(one.residues, one.states) for one in SOME if split(one) == "valid"]
    counts = Counter(pair for both in pairs for pair in zip(*both, strict=True))
    states = Counter(state for _, labels in pairs for state in labels)
    commonest = 100 * max(states.values()) / states.total()
    letters = {letter for letter, _ in counts}
    of_letters = 100 * sum(max(counts[letter, state] for state in "HEC") for letter in letters) / counts.total()
    steps = [*train("tag", model="chain", dim=32, heads=2, hidden=48, layers=1, steps=60, checks=1, device="cpu")]
    assert steps[-1].scores["accuracy"] > of_letters + 5 > commonest + 5
