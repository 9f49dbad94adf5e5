"""Proteins and labels are read from FASTA as written, and errors name file, line and record."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.lines import BadRow, Note
from regard.data.lint import BadRowsError, lint
from regard.data.rows import Row
from regard.modalities.protein.fasta import is_fasta, labelled_protein, read_labelled_proteins
from regard.modalities.protein.modality import open_proteins
from regard.modalities.protein.protein_alphabet import (
    ALPHABET,
    AMINO_ACIDS,
    NONSTANDARD,
    is_protein_tokenizer,
    parse_protein,
    protein_tokenizer,
)
from regard.modalities.protocols import ReadOptions, Target

SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
NAME = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)
ROW = st.lists(
    st.tuples(st.sampled_from(sorted(ALPHABET)), st.sampled_from("HEC-*>x")), min_size=1, max_size=30
).filter(lambda row: row[0][1] != ">")
Pack = Callable[[bytes], bytes]
Rows = dict[str, list[tuple[str, str]]]


def wrapped(letters: str, width: int) -> str:
    """Several lines, unless one of them would begin as a name does."""
    lines = [letters[i : i + width] for i in range(0, len(letters), width)]
    return letters if any(line.startswith(">") for line in lines) else "\n".join(lines)


def put(file: Path, content: str, pack: Pack = bytes) -> Path:
    file.write_bytes(pack(content.encode()))
    return file


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@given(rows=st.dictionaries(NAME, ROW, min_size=1, max_size=4), width=st.integers(1, 40))
@SAME_FOLDER
def test_written_proteins_and_labels_are_read_back(tmp_path: Path, pack: Pack, rows: Rows, width: int) -> None:
    said = {
        name: ("".join(first for first, _ in row), "".join(second for _, second in row)) for name, row in rows.items()
    }
    chains = "".join(f">{name} a remark\n{wrapped(letters, width)}\n\n" for name, (letters, _) in said.items())
    labels = "".join(f">{name}\tSET=train\n{wrapped(tags, width)}\n" for name, (_, tags) in reversed(said.items()))
    files = [put(tmp_path / "a.fasta", chains, pack), put(tmp_path / "b.fasta.gz", labels, pack)]
    rows, lines = [*read_labelled_proteins(files)], chains.split("\n")
    assert [(lines[row.line - 1], row.input, "".join(tag or "-" for tag in row.target)) for row in rows] == [
        (f">{name} a remark", *both) for name, both in said.items()
    ]
    documents = open_proteins([*map(str, files[:1])], ReadOptions(Target.MASKED), skip_bad=False)
    assert [piece.text for piece in documents] == [row.input for row in rows]


def test_lower_case_stars_and_crlf_are_normalized(tmp_path: Path) -> None:
    chains = put(tmp_path / "a.fa", ">one\r\nmkt\r\nAY*\r\n")
    labels = put(tmp_path / "b.fa", ">one\nCH*-C\n")
    row, note = read_labelled_proteins([chains, labels])
    assert row == labelled_protein("MKTAY", "CH*-C", str(chains), 1)
    assert row.target == ("C", "H", "*", "", "C")
    assert note == Note(str(chains), "CRLF", 3)


LABELS = ">one\nCH\n>two\nEE\n"
FAULTS = {  # chains, labels, file, line, why, what else is said
    "another length": (">one\nMK\n>two\nMKT\n", LABELS, "b.fasta", 3, "unequal counts", "'two' has 2 labels, but 3"),
    "no labels": (">one\nMK\n>two\nMK\n>six\nMK\n", LABELS, "a.fasta", 5, "missing field", "'six' has no labels in"),
    "no chain": (">one\nMK\n", LABELS, "b.fasta", 3, "missing field", "'two' has no protein in"),
    "no amino acid": (">one\nMK\n>two\nM1\n", LABELS, "a.fasta", 4, "not an amino acid", "'1': the letters are"),
    "a gap": (">one\nM\nK\n>two\nM\n-K\n", LABELS, "a.fasta", 6, "not an amino acid", "'-': the letters are"),
    "an end in the middle": (
        ">one\nM*\nK\n>two\nMK\n",
        LABELS,
        "a.fasta",
        3,
        "not an amino acid",
        "'*': the letters are",
    ),
    "a name twice": (
        ">one\nMK\n>two\nMK\n>one\nMK\n",
        LABELS,
        "a.fasta",
        5,
        "name twice",
        "'one' is also the name in line 1",
    ),
    "labels twice": (
        ">one\nMK\n>two\nMK\n",
        f"{LABELS}>two\nEE\n",
        "b.fasta",
        5,
        "name twice",
        "'two' is also the name in line 3",
    ),
    "no residues": (">one\n\n>two\nMK\n", LABELS, "a.fasta", 1, "empty", "no letters under 'one'"),
    "no residues at the end": (">one\nMK\n>two\n", LABELS, "a.fasta", 3, "empty", "no letters under 'two'"),
    "no sign": ("MK\n>one\nMK\n>two\nMK\n", LABELS, "a.fasta", 1, "no name", "above 'MK'"),
    "no name": (">one\nMK\n>two\nMK\n> \nMK\n", LABELS, "a.fasta", 5, "no name", "no name after >"),
    "a blank label": (
        ">one\nMK\n>two\nMK\n",
        ">one\n H\n>two\nEE\n",
        "b.fasta",
        2,
        "control character",
        "' ' is no label",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_name_file_line_and_record(tmp_path: Path, fault: str) -> None:
    chains, labels, file, line, why, says = FAULTS[fault]
    files = [put(tmp_path / "a.fasta", chains), put(tmp_path / "b.fasta", labels)]
    items = [*read_labelled_proteins(files)]
    [bad] = [item for item in items if isinstance(item, BadRow)]  # each error is reported once
    assert (str(tmp_path / file), line, why) == bad[:3]
    assert says in bad.detail
    good = [item for item in items if isinstance(item, Row)]
    assert good
    with pytest.raises(BadRowsError, match=f"{file}:{line}: "):
        lint({"train": iter(items)})
    assert lint({"train": iter(items)}, skip_bad=True)[0]["train"] == good


def test_an_undecodable_line_spoils_only_its_record(tmp_path: Path) -> None:
    chains = put(tmp_path / "a.fasta", ">one\nM?K\n>two\nMK\n", lambda text: text.replace(b"?", b"\xff"))
    labels = put(tmp_path / "b.fasta", LABELS)
    bad, two = read_labelled_proteins([chains, labels])
    assert (bad.line, bad.reason, two.input, two.line) == (2, "bad UTF-8", "MK", 3)


@pytest.mark.parametrize(
    ("files", "fields", "says"),
    [
        (["a.fasta"], None, "labels, under the same names, in another, not in 1"),
        (["a.fasta", "b.fasta", "a.fasta"], None, "not in 3"),
        (["a.fasta", "c.txt"], None, r"c\.txt: proteins and labels are FASTA files"),
        (["a.fasta", "b.fasta"], ("1", "2"), "no fields like 1 and 2"),
        (["a.fasta", "gone.fasta"], None, r"gone\.fasta: no such file"),
        (["a.fasta", "blank.fasta"], None, r"blank\.fasta: the file has no FASTA record"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, files: list[str], fields: tuple[str, ...] | None, says: str) -> None:
    for name, content in {"a.fasta": LABELS, "b.fasta": LABELS, "c.txt": LABELS, "blank.fasta": "\n\n"}.items():
        put(tmp_path / name, content)
    with pytest.raises(ValueError, match=says):
        list(read_labelled_proteins([tmp_path / file for file in files], fields))


def test_suffixes_identify_fasta_files() -> None:
    assert all(map(is_fasta, ["a.fasta", "A.FA", "b.faa.gz", Path("c.fasta.gz")]))
    assert not any(map(is_fasta, ["fasta", "a.txt", "a.fasta.txt", "a.gz"]))


@given(st.text(st.sampled_from(sorted(ALPHABET)), min_size=1, max_size=50))
@settings(deadline=None, max_examples=25)
def test_every_residue_is_a_token(chain: str) -> None:
    tokenizer = protein_tokenizer()
    [ids] = tokenizer.encode([chain])
    assert len(ids) == len(chain) + len(tokenizer.template_ids)
    assert tokenizer.token_id("[UNK]") not in ids
    assert tokenizer.decode([ids]) == ["".join("X" if letter in NONSTANDARD else letter for letter in chain)]


def test_a_saved_protein_tokenizer_is_recognized(tmp_path: Path) -> None:
    from regard.data.tokenizer import Tokenizer
    from regard.data.tokenizer_train import BERT_LAYOUT, GPT_LAYOUT, TokenizerOptions, train_tokenizer

    protein_tokenizer().save(tmp_path)
    assert is_protein_tokenizer(Tokenizer.load(tmp_path))
    for layout in (BERT_LAYOUT, GPT_LAYOUT):
        tokenizer = train_tokenizer([AMINO_ACIDS, "a text"], TokenizerOptions("characters"), layout)
        assert not is_protein_tokenizer(tokenizer)


def test_user_input_is_parsed_or_refused() -> None:
    assert parse_protein(" mkt ayi* ") == "MKTAYI"
    with pytest.raises(ValueError, match="'1' is no amino acid"):
        parse_protein("MK1")
