"""Words and tags round-trip through every format; a bad line affects only its sentence."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data.lines import BadRow, Note
from regard.data.lint import lint
from regard.data.rows import Row
from regard.modalities.protocols import Target
from regard.modalities.text.modality import limited_texts
from regard.modalities.text.tagged_text import read_tagged, tagged_row

SHARED = Path("/work/shared/data")
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason=f"the shared data sets are not in {SHARED}")
WORD = st.text(st.characters(exclude_characters=" \t\n\r\0\ufeff", exclude_categories=["Cs"]), min_size=1).filter(
    lambda word: word.strip() and not word.startswith("-DOCSTART-")
)
TAG = st.sampled_from(["O", "B-x", "I-x", "B-y-z"])
SENTENCES = st.lists(st.lists(st.tuples(WORD, TAG), min_size=1, max_size=5), min_size=1, max_size=4)
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=15)
Pack = Callable[[bytes], bytes]
Sentences = list[list[tuple[str, str]]]


def write(file: Path, content: str | bytes) -> Path:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def blocks(sentences: Sentences, form: str) -> str:
    return "\n".join("".join(form.format(word=w, tag=t, n=n) for n, (w, t) in enumerate(s, 1)) for s in sentences)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@given(sentences=SENTENCES)
@SAME_FOLDER
def test_every_format_round_trips(tmp_path: Path, pack: Pack, sentences: Sentences) -> None:
    def put(name: str, content: str) -> Path:
        return write(tmp_path / name, pack(content.encode()))

    words, tags = ([" ".join(pair[side] for pair in s) for s in sentences] for side in (0, 1))
    objects = [json.dumps({"tokens": w.split(" "), "ner_tags": t.split()}) for w, t in zip(words, tags, strict=True)]
    row = "{n}\t{word}\tlemma\t{tag}\tXPOS\t_\t0\troot\t_\t_\n"
    files = [
        [put("a.conll", blocks(sentences, "{word}\t{tag}\n"))],
        [put("a.bio", blocks(sentences, "{word} POS  CHUNK {tag}\n"))],
        [put("a.test.annotated", "\n\n" + blocks(sentences, "{word}\t{tag}\n") + "\n \t\n")],
        [put("a.conllu", blocks(sentences, row))],
        [put("a.jsonl", "\n".join(objects))],
        [put("a.in", "\n".join(words)), put("a.out", "\n".join(tags))],
    ]
    for paths in files:
        items = [*read_tagged(paths)]
        assert [[*zip(item.input, item.target, strict=True)] for item in items] == sentences, paths


def test_the_line_of_a_sentence_is_its_first(tmp_path: Path) -> None:
    file = write(tmp_path / "a.conll", "-DOCSTART- -X- O\n\na x\nb y\n\n\nc z\n")
    assert [*read_tagged([file])] == [
        tagged_row(("a", "b"), ("x", "y"), str(file), 3),
        tagged_row(("c",), ("z",), str(file), 7),
    ]


UD = (
    "# text = vámonos al mar #\n"
    "1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tvamos\tir\tVERB\tV1\t_\t0\troot\t_\t_\n"
    "2\tnos\tnosotros\tPRON\tP2\t_\t1\tobj\t_\t_\n"
    "2.1\tnada\tnada\tNOUN\tN0\t_\t_\t_\t_\t_\n"
    "3\t#\t#\tSYM\tS3\t_\t1\tobl\t_\t_\n\n"
)


@pytest.mark.parametrize(
    ("fields", "words", "tags"),
    [
        (None, "vamos nos #", "VERB PRON SYM"),
        (("xpos",), "vamos nos #", "V1 P2 S3"),
        (("LEMMA", "deprel"), "ir nosotros #", "root obj obl"),
        (("3", "5"), "ir nosotros #", "V1 P2 S3"),
    ],
)
def test_conllu_skips_comments_multiword_tokens_and_empty_nodes(tmp_path, fields, words, tags) -> None:
    (row,) = read_tagged([write(tmp_path / "a.conllu", UD)], fields)
    assert (row.input_key, " ".join(row.target), row.line) == (words, tags, 3)


def test_a_number_sign_is_a_word_outside_conllu(tmp_path: Path) -> None:
    (row,) = read_tagged([write(tmp_path / "a.conll", "# O\n#tag B-x\n")])
    assert row.input == ("#", "#tag")


def test_fields_are_two_columns(tmp_path: Path) -> None:
    (row,) = read_tagged([write(tmp_path / "a.conll", "1 a DT O\n2 b NN O\n")], ("2", "3"))
    assert row[:2] == (("a", "b"), ("DT", "NN"))


def test_a_word_may_contain_other_white_space(tmp_path: Path) -> None:
    (row,) = read_tagged([write(tmp_path / "a.conll", "10\xa0000 NUM\na\u2028b X\n")])
    assert row.input == ("10\xa0000", "a\u2028b")
    (row,) = read_tagged([write(tmp_path / "b.conll", "New York\tB-x\n")])
    assert row.input == ("New York",)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"b", "unequal counts"),
        (b"b y z", "unequal counts"),
        (b"\xff y", "bad UTF-8"),
        (b"b\t", "empty"),
        (b"\ty", "empty"),
        (b"\0 y", "control character"),
    ],
)
def test_a_bad_line_affects_only_its_sentence(tmp_path: Path, bad: bytes, reason: str) -> None:
    file = write(tmp_path / "a.conll", b"a x\n\nc z\n" + bad + b"\nd z\n\ne z\n")
    first, second, third = read_tagged([file])
    assert (first.input, third.input) == (("a",), ("e",))
    assert (second.reason, second.line) == (reason, 4)


# files, contents, fields, location in the message, detail in the message
BROKEN = {
    "one column": (["a.conll"], ["a\nb\n"], None, "a.conll:1", "1 of the 2 columns"),
    "too few columns": (["a.conll"], ["a b\n"], ("1", "4"), "a.conll:1", "2 of the 4 columns"),
    "column 0": (["a.conll"], ["a b\n"], ("0", "1"), "a.conll", "counted from 1"),
    "one number": (["a.conll"], ["a b\n"], ("1",), "a.conll", "two numbers, e.g. 1 4, not 1"),
    "names of nothing": (["a.conll"], ["a b\n"], ("word", "tag"), "a.conll", "two numbers"),
    "three fields": (["a.conll"], ["a b\n"], ("1", "2", "3"), "fields", "not 1 2 3"),
    "nine columns": (["a.conllu"], [UD.replace("\t_\n", "\n")], None, "a.conllu:2", "9 tab-separated columns"),
    "unknown column": (["a.conllu"], [UD], ("pos",), "a.conllu", "two of id, form"),
    "more words": (["a.in", "a.out"], ["a b\n", "x\n"], None, "a.in:1", "2 words, but 1 tags"),
    "no words": (["a.in", "a.out"], ["\n", "\n"], None, "a.in:1", "no words"),
    "more lines": (["a.in", "a.out"], ["a\nb\n", "x\n"], None, "a.in:2", "a.out ends after 1"),
    "more tags in JSON": (["a.jsonl"], ['{"words": ["a"], "tags": ["x", "y"]}'], None, "a.jsonl:1", "1 words, but 2"),
    "no tags in JSON": (["a.jsonl"], ['{"words": ["a"]}'], None, "a.jsonl:1", "'tags'; the line has 'words': name"),
    "tags are a string": (["a.jsonl"], ['{"words": ["a"], "tags": "x"}'], None, "a.jsonl:1", "not a list of strings"),
    "a word is null": (["a.jsonl"], ['{"words": [null], "tags": ["x"]}'], None, "a.jsonl:1", "'words' is not a list"),
    "a word is empty": (["a.jsonl"], ['{"words": [""], "tags": ["x"]}'], None, "a.jsonl:1", "the word is empty"),
    "two CoNLL files": (["a.conll", "b.conll"], ["a x\n", "a x\n"], None, "a.conll", "join them"),
    "three files": (["a.x", "b.x", "c.x"], ["a", "a", "a"], None, "", "not from 3"),
    "nothing in it": (["a.conll"], [""], None, "a.conll", "the file is empty"),
    "only blank lines": (["a.conll"], ["\n\n"], None, "a.conll", "the file contains no words"),
}


@pytest.mark.parametrize(("files", "contents", "fields", "where", "detail"), BROKEN.values(), ids=BROKEN)
def test_broken_files_are_named(tmp_path, monkeypatch, files, contents, fields, where, detail) -> None:
    monkeypatch.chdir(tmp_path)
    for file, content in zip(files, contents, strict=True):
        write(Path(file), content)
    with pytest.raises(ValueError, match=".") as error:
        lint({"train": read_tagged(files, fields)})
    assert where in str(error.value)
    assert detail in str(error.value)


@given(content=st.lists(st.binary(max_size=9) | st.sampled_from([b"a\tb", b"\t", b"\n", b" ", b"\r"])).map(b"".join))
@SAME_FOLDER
def test_any_bytes_give_sentences_and_bad_rows_in_order(tmp_path: Path, content: bytes) -> None:
    for name in "a.conll", "a.conllu", "a.jsonl":
        items = [*read_tagged([write(tmp_path / name, b"a\tb\n" + content + b"\n.")])]
        assert {type(item) for item in items} <= {Row, BadRow, Note}
        lines = [item.line for item in items if not isinstance(item, Note)]
        assert lines == sorted({*lines})


def test_keys_of_a_row() -> None:
    row = tagged_row(("New York", "is"), ("B-x", "O"), "f", 1)
    assert (row.input_key, row.row_key) == ("New York is", "New York is\tB-x O")
    assert [*limited_texts(row, Target.TAGS).values()] == ["New York is"]


@needs_shared
@pytest.mark.parametrize(
    ("files", "sentences", "words", "tags"),
    [
        (["ud_english_ewt/en_ewt-ud-train.conllu.gz"], 12_544, 204_577, 17),
        (["ud_english_ewt/en_ewt-ud-dev.conllu.gz"], 2_001, 25_147, 17),
        (["ud_english_ewt/en_ewt-ud-test.conllu.gz"], 2_077, 25_094, 17),
        (["wnut17/wnut17train.conll"], 3_394, 62_730, 13),
        (["wnut17/emerging.dev.conll"], 1_009, 15_733, 13),
        (["wnut17/emerging.test.annotated"], 1_287, 23_394, 13),
        (["snips/train.seq.in", "snips/train.seq.out"], 13_084, 117_700, 72),
        (["snips/valid.seq.in", "snips/valid.seq.out"], 700, 6_384, 70),
    ],
)
def test_counts_of_real_data_sets(files, sentences, words, tags) -> None:
    rows = [*read_tagged([SHARED / file for file in files])]
    assert len(rows) == sentences
    assert sum(len(row.input) for row in rows) == words
    assert len({tag for row in rows for tag in row.target}) == tags
