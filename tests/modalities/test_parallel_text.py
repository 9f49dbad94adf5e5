"""Pairs round-trip through files, line by line, and no source is in both splits."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data import lines
from regard.data.lines import BadRow, Note
from regard.data.rows import Row, normalize_text, train_valid_split
from regard.modalities.protocols import Target
from regard.modalities.text.modality import limited_texts
from regard.modalities.text.parallel_text import TextPair, pairs_from_memory, read_pairs

LETTER = st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"])
SENTENCE = st.text(LETTER, min_size=1).filter(str.strip)
SENTENCES = st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1)
Pack = Callable[[bytes], bytes]
SAME_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

ODD = "a\u2028b\x0bc\x0cd\x85e\u2029f\x1cg"  # str.splitlines would split it


def write(file: Path, content: str | bytes) -> Path:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def read_all(files: list[Path], fields: tuple[str, str] | None = None) -> tuple[list[TextPair], list[BadRow]]:
    items = [*read_pairs(files, fields)]
    return [item for item in items if isinstance(item, Row)], [item for item in items if isinstance(item, BadRow)]


def plain(pairs: list[TextPair]) -> list[tuple[str, str]]:
    return [(*pair.input, pair.target) for pair in pairs]


def text_pair(source: str, target: str, file: str, line: int) -> TextPair:
    return Row((source,), target, file, line, source)


def make_rows(pairs: list[tuple[str, str]]) -> list[TextPair]:
    return [text_pair(source, target, "made", line) for line, (source, target) in enumerate(pairs, 1)]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@given(pairs=SENTENCES)
@SAME_FOLDER
def test_every_format_round_trips(tmp_path: Path, pack: Pack, pairs: list[tuple[str, str]]) -> None:
    if pairs[0][0].startswith("\ufeff"):
        return  # at the start of a file this is a BOM
    write(tmp_path / "a.tsv", pack("".join(f"{s}\t{t}\n" for s, t in pairs).encode()))
    write(tmp_path / "a.jsonl", pack("\n".join(json.dumps({"source": s, "target": t}) for s, t in pairs).encode()))
    write(tmp_path / "a.en", pack("".join(f"{s}\n" for s, _ in pairs).encode()))
    write(tmp_path / "a.de", pack(b"\xef\xbb\xbf" + "\r\n".join(t for _, t in pairs).encode()))
    for files in ["a.tsv"], ["a.jsonl"], ["a.en", "a.de"]:
        result, bad = read_all([tmp_path / file for file in files])
        assert bad == []
        assert plain(result) == pairs
        assert [pair.line for pair in result] == [*range(1, len(pairs) + 1)]


@given(content=st.lists(st.binary(max_size=9) | st.sampled_from([b"a\tb", b"\r", b"\n", b"\xe2"])).map(b"".join))
@SAME_FOLDER
def test_every_line_gives_one_pair_or_one_bad_row(tmp_path: Path, content: bytes) -> None:
    pairs, bad = read_all([write(tmp_path / "a.tsv", b"a\tb\n" + content + b"\n.")])
    assert sorted(item.line for item in pairs + bad) == [*range(1, content.count(b"\n") + 4)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_the_read_size_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    file = write(tmp_path / "a.tsv", "Größe\tsize\r\n\r\nfünf\tfive\n".encode() + b"\xff\tx\n" + f"{ODD}\tß".encode())
    expected = list(read_pairs([file]))
    monkeypatch.setattr(lines, "READ_SIZE", size)
    assert list(read_pairs([file])) == expected
    assert [type(item) for item in expected] == [Row, BadRow, Row, BadRow, Row, Note, Note]


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    pairs, bad = read_all([write(tmp_path / "a.tsv", f"{ODD}\tx{ODD}\nc\td\n")])
    assert plain(pairs) == [(ODD, f"x{ODD}"), ("c", "d")]
    assert bad == []


def test_gzip_is_detected_by_content(tmp_path: Path) -> None:
    content = b"a\tb\n"
    compressed = write(tmp_path / "packed.tsv", gzip.compress(content))
    uncompressed = write(tmp_path / "plain.tsv.gz", content)
    twice = write(tmp_path / "twice.tsv.gz", gzip.compress(content) + gzip.compress(content))
    assert plain(read_all([compressed])[0]) == plain(read_all([uncompressed])[0]) == [("a", "b")]
    assert plain(read_all([twice])[0]) == [("a", "b")] * 2


def test_bom_and_crlf_are_stripped_and_noted(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", b"\xef\xbb\xbfa\tb\r\nc\td\ne\tf\r")
    assert list(read_pairs([file])) == [
        text_pair("a", "b", str(file), 1),
        text_pair("c", "d", str(file), 2),
        text_pair("e", "f", str(file), 3),
        Note(str(file), "BOM", 1),
        Note(str(file), "CRLF", 2),
    ]


def test_a_pair_keeps_the_file_name_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a.tsv"), "a\tb\n")
    assert read_all(["./a.tsv"])[0] == [text_pair("a", "b", "./a.tsv", 1)]


@pytest.mark.parametrize(
    ("name", "content", "fields"),
    [
        ("a.tsv", "1\tHaus\thouse\n", ("3", "2")),
        ("a.tsv", "id\tde\ten\n1\tHaus\thouse\n", ("en", "de")),
        ("a.txt", "\ufeffde\ten\r\nHaus\thouse\r\n", ("en", "de")),
        ("a.jsonl", '{"en": "house", "de": "Haus"}\n', ("en", "de")),
        ("A.JSON", '{"translation": {"de": "Haus", "en": "house"}, "id": 1}\n', ("en", "de")),
        ("a.jsonl", '{"translation": {"source": "house", "target": "Haus"}}\n', None),
        ("a.jsonl", '{"source": "house", "target": "Haus", "translation": {}}\n', None),
    ],
)
def test_fields_select_columns_and_keys(
    tmp_path: Path, name: str, content: str, fields: tuple[str, str] | None
) -> None:
    pairs, bad = read_all([write(tmp_path / name, content)], fields)
    assert plain(pairs) == [("house", "Haus")]
    assert bad == []


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_unequal_counts_name_both_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(lines, "READ_SIZE", block)
    longer, shorter = write(tmp_path / "a.en", "a\nb\nc\nd\n"), write(tmp_path / "a.de", "A\nB\n")
    for files in [longer, shorter], [shorter, longer]:
        pairs, bad = read_all(files)
        assert len(pairs) == 2
        detail = f"{longer} has 4 lines, but {shorter} ends after 2"
        assert bad == [BadRow(str(longer), line, "unequal counts", detail) for line in (3, 4)]


def test_a_gzip_bomb_is_refused_before_it_is_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 3 << 20)
    sizes, unpack = [], gzip.GzipFile.read

    def count(self: gzip.GzipFile, size: int = -1) -> bytes:
        sizes.append(size)
        return unpack(self, size)

    monkeypatch.setattr(gzip.GzipFile, "read", count)
    file = write(tmp_path / "a.tsv.gz", gzip.compress(b"a\tb\n" + b"\0" * (50 << 20), compresslevel=1))
    with pytest.raises(ValueError, match=r"a\.tsv\.gz:2: a line of over 3 MB"):
        read_all([file])
    assert min(sizes) > 0
    assert sum(sizes) <= 5 << 20


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    file = write(tmp_path / "a.tsv", "a\tb\n")
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(ValueError, match=r"a\.tsv: cannot be read: Permission denied"):
        read_all([file])


def test_pairs_from_memory_are_checked_as_those_of_files() -> None:
    items = list(pairs_from_memory([("a", "b"), ("a", " "), ("\ud800", "b"), ("a", "\0")], "mine"))
    assert [item if isinstance(item, Row) else (item.file, item.line, item.reason) for item in items] == [
        text_pair("a", "b", "mine", 1),
        ("mine", 2, "empty"),
        ("mine", 3, "bad UTF-8"),
        ("mine", 4, "control character"),
    ]


@given(SENTENCES, st.floats(0.001, 0.999), st.text(max_size=3))
def test_no_source_is_in_both_splits(pairs: list[tuple[str, str]], share: float, salt: str) -> None:
    rows = make_rows(pairs)
    if len({normalize_text(pair.input[0]) for pair in rows}) < 2:
        with pytest.raises(ValueError, match=f"cannot hold out {share} of {len(rows)} examples with 1 different"):
            train_valid_split(rows, share, salt)
        return
    train, valid = train_valid_split(rows, share, salt)
    assert train
    assert valid
    assert sorted(train + valid) == sorted(rows)
    assert not {normalize_text(pair.input[0]) for pair in train} & {normalize_text(pair.input[0]) for pair in valid}
    train_reversed, valid_reversed = train_valid_split(rows[::-1], share, salt)
    assert (train_reversed[::-1], valid_reversed[::-1]) == (train, valid)


def test_a_sentence_stays_in_its_split_when_others_are_added() -> None:
    rows = make_rows([(f"sentence {i}", "x") for i in range(3000)])
    valid = {*train_valid_split(rows[:1000], 0.1)[1]}
    assert 60 < len(valid) < 140
    assert {pair for pair in train_valid_split(rows, 0.1)[1] if pair.line <= 1000} == valid
    assert {*train_valid_split(rows[:1000], 0.1, salt="other")[1]} != valid


def test_spellings_of_a_sentence_stay_in_one_split() -> None:
    once = [(f"Straße {i}", "x") for i in range(100)]
    respelled = [(f" STRASSE  {i}", "y") for i in range(100)]
    for side in train_valid_split(make_rows(once + respelled), 0.5):
        lines = {pair.line for pair in side}
        assert {line % 100 for line in lines if line <= 100} == {line % 100 for line in lines if line > 100}


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan")])
def test_invalid_shares_are_named(share: float) -> None:
    with pytest.raises(ValueError, match=f"between 0 and 1, not {share}"):
        train_valid_split(make_rows([("a", "b"), ("c", "d")]), share)


def test_an_empty_list_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="0 examples"):
        train_valid_split([], 0.5)


def test_keys_of_a_pair() -> None:
    pair = text_pair("Tee", "tea", "f", 1)
    assert (pair.input_key, pair.row_key) == ("Tee", "Tee\ttea")
    assert limited_texts(pair, Target.TEXT) == {"source": "Tee", "target": "tea"}


def test_any_row_with_an_input_key_can_be_split() -> None:
    rows = [Row(b"", str(i), "f", i, f"{i % 50:x}") for i in range(200)]
    train, valid = train_valid_split(rows, 0.2)
    assert sorted(train + valid) == sorted(rows)
    assert not {row.input_key for row in train} & {row.input_key for row in valid}
    with pytest.raises(ValueError, match="of 2 examples with 1 different inputs"):
        train_valid_split([rows[0], rows[50]], 0.5)
