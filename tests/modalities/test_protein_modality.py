"""Labels of residues: unknown ones do not count, and a little training beats the majority label."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.cli import main
from regard.load import load
from regard.modalities.protein.fasta import LabelledProtein, labelled_protein
from regard.modalities.protein.modality import ProteinModality
from regard.modalities.protein.preprocessor import ProteinPreprocessor
from regard.modalities.protein.protein_alphabet import EXAMPLE, protein_tokenizer
from regard.modalities.protocols import ReadOptions, Target
from regard.modalities.synthetic import chains as synthetic
from regard.modalities.synthetic.chains import chains, split
from regard.models.protein_encoder import ProteinEncoder as Body
from regard.models.protein_encoder import ProteinEncoderConfig
from regard.tasks.fill import Fill
from regard.tasks.tag import IGNORE, UNLABELLED, Tag
from regard.training.file_job import FileJob
from regard.training.start import make_settings
from regard.training.train import train
from regard.view.word_pieces import tokenize_words

SMALL = {"model": "protein_encoder", "dim": 16, "heads": 2, "hidden": 12, "device": "cpu", "evals": 1}


CHAINS = chains(1200)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(synthetic, "chains", lambda: CHAINS)  # a part of the synthetic data
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def chain(words: str, labels: str, line: int = 1) -> LabelledProtein:
    return labelled_protein(words, labels, "a.fasta", line)


def make_model() -> tuple[Tag, Any]:
    torch.manual_seed(1)
    task = Tag(tags=["C", "E", "H"], preprocessor=ProteinPreprocessor(protein_tokenizer()))
    sizes = {name: value for name, value in task.sizes().items() if name == "vocab"}
    body = Body(ProteinEncoderConfig(**sizes, context=16, dim=16, heads=2, hidden=12, dropout=0.0))
    return task, task.head(body).double().eval()


def test_an_unlabelled_residue_has_no_loss_and_no_gradient() -> None:
    task, model = make_model()
    examples = task.encode([chain("MKTAY", "CH-EH")], 16)
    assert examples.tags[0].tolist() == [IGNORE, 0, 2, UNLABELLED, 1, 2, IGNORE]
    batch = task.collate(examples, np.arange(1))
    states = model.body(*batch.inputs.arguments).detach().requires_grad_()
    labelled = (batch.tags >= 0).nonzero()
    loss = task.loss(type(model)(ConstantBody(states), model.head), batch)
    loss.total.backward()
    assert loss.count == 4
    assert states.grad is not None
    assert (states.grad.abs().amax(-1) > 0).nonzero().tolist() == labelled.tolist()


class ConstantBody(torch.nn.Module):
    """A body with constant outputs."""

    def __init__(self, x: torch.Tensor):
        super().__init__()
        self.x = x

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.x


def test_unlabelled_residues_do_not_change_scores() -> None:
    task, model = make_model()
    rows = [chain("MKTAYIAKQR", "CHHHEE--CC"), chain("GAVLI", "CCEEC", 2)]
    scores = task.score(model.float(), rows)
    for label in "CEH":
        guess = [rows[0]._replace(target=tuple(tag or label for tag in rows[0].target)), rows[1]]
        assert task.score(model, guess)["loss"] != scores["loss"]
    predicted = "".join(scores["predictions"])
    pairs = [(a, b) for a, b in zip("CHHHEE--CCCCEEC", predicted, strict=True) if a != "-"]
    assert scores["accuracy"] == pytest.approx(100 * sum(a == b for a, b in pairs) / len(pairs))
    with pytest.raises(ValueError, match=r"a\.fasta: no element has a label"):
        task.score(model, [chain("MK", "--")])


def test_a_protein_over_the_context_is_split_and_every_residue_labelled() -> None:
    task, model = make_model()
    [best] = task.predict(model.float(), [EXAMPLE * 3], task.decode_options())
    assert len(best[0].text) == 3 * len(EXAMPLE) > 2 * 16
    assert {*best[0].text} <= {*"CEH"}


def test_proteins_and_words_are_not_mixed() -> None:
    task, _ = make_model()
    Path("a.conll").write_text("a\tC\nb\tH\n")
    with pytest.raises(ValueError, match=r"a\.conll: proteins and labels are FASTA files"):
        list(ProteinModality().read(["a.conll"], ReadOptions(Target.TAGS)))
    with pytest.raises(ValueError, match="'1' is no amino acid"):
        list(task.predict(make_model()[1], ["MK1"], task.decode_options()))


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("tag", {"model": "bert", "vocab_size": 300}, "--vocab-size is for texts"),
        ("tag", {"model": "bert", "tokenizer": "unigram"}, "--tokenizer is for texts"),
        ("fill", {"model": "protein_encoder", "documents": "files"}, "--documents files is for texts"),
        ("fill", {"model": "protein_encoder", "data": "a.txt"}, r"a\.txt: this model reads proteins, in FASTA files"),
        ("fill", {"model": "bert", "valid": "a.txt"}, r"a\.txt: this model reads proteins"),
        (
            "tag",
            {"model": "protein_encoder", "data": ("a.txt", "b.fasta")},
            r"a\.txt: proteins and labels are FASTA files",
        ),
    ],
)
def test_options_of_texts_are_refused_for_proteins(task: str, options: dict[str, Any], message: str) -> None:
    Path("a.fasta").write_text(">one\nMKTAY\n>two\nGAVLI\n")
    Path("b.fasta").write_text(">one\nCHHHC\n>two\nEEEEC\n")
    Path("a.txt").write_text("a text\nanother\n")
    data: Any = ("a.fasta", "b.fasta") if task == "tag" else ("a.fasta",)
    with pytest.raises(ValueError, match=message):
        list(train(task, **{"data": data, "valid": data, "steps": 1, "device": "cpu", "output_dir": "run"} | options))


def test_fill_then_tag(capsys: pytest.CaptureFixture[str]) -> None:
    fill = FileJob.open(make_settings("fill", **SMALL, steps=2, output_dir="fill")).plan()
    assert isinstance(fill.task, Fill)
    assert [step.number for step in fill.train()] == [1, 2]
    tag = FileJob.open(make_settings("tag", from_="fill", steps=2, evals=1, output_dir="tag", device="cpu")).plan()
    body = load("fill").model.body.state_dict()
    assert all(torch.equal(weight, body[name]) for name, weight in tag.progress.model.body.state_dict().items())
    assert [step.number for step in tag.train()] == [1, 2]
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
    assert big == pytest.approx(small, abs=1e-5), "lower case is accepted"
    with pytest.raises(ValueError, match="'1' is no amino acid"):
        list(load("fill").embed(["MK1"]))


def test_every_residue_is_a_word_and_a_file_is_labelled_protein_by_protein(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [*_] = train("tag", **SMALL, steps=1, output_dir="tag")
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
    assert "two.fasta:4: not an amino acid, '1': the letters are" in capsys.readouterr().err


def test_a_little_training_beats_the_majority_label_of_each_letter() -> None:
    """So predictions depend on neighbours."""
    pairs = [(chain_item.residues, chain_item.states) for chain_item in CHAINS if split(chain_item) == "valid"]
    counts = Counter(pair for both in pairs for pair in zip(*both, strict=True))
    states = Counter(state for _, labels in pairs for state in labels)
    majority = 100 * max(states.values()) / states.total()
    letters = {letter for letter, _ in counts}
    by_letter = 100 * sum(max(counts[letter, state] for state in "HEC") for letter in letters) / counts.total()
    steps = [
        *train("tag", model="protein_encoder", dim=32, heads=2, hidden=48, layers=1, steps=60, evals=1, device="cpu")
    ]
    assert steps[-1].scores["accuracy"] > by_letter + 5 > majority + 5
