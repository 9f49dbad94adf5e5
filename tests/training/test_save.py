"""Whatever fails while saving, the old state or the new one is there, whole."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import atomic
from regard.atomic import replace_file
from regard.training import save
from regard.training.save import LATEST, MANIFEST, damage, keep_newest, recover, save_folder, saves

OLD, NEW = b"old state" * 9, b"the new state" * 7
DISK = ["mkdir", "open", "fsync", "rename", "replace", "unlink", "rmdir"]  # what of `os` reaches the disk


class Failed(OSError):
    """The disk is full, once."""


class Crashed(BaseException):
    """The power is gone: nothing after it happens, no cleaning up either."""


def files(content: bytes) -> dict[str, Callable[[Path], None]]:
    return {"a.bin": lambda file: put(file, content[::-1]), "b.bin": lambda file: put(file, content)}


def put(file: Path, content: bytes) -> None:
    """Half of it is written when the second half may fail."""
    with file.open("wb", buffering=0) as stream:
        for half in content[:30], content[30:]:
            os.write(stream.fileno(), half)


def fail_at(number: int, kind: type[BaseException], patch: pytest.MonkeyPatch) -> list[str]:
    """Let the `number`-th call that reaches the disk fail; after a crash, all later ones too. Returns the calls."""
    calls: list[str] = []

    def failing(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            calls.append(name)
            if len(calls) == number or (len(calls) > number and kind is Crashed):
                raise kind(f"call {number}: {name}")
            return real(*args, **kwargs)

        return call

    for name in [*DISK, "write"]:
        patch.setattr(os, name, failing(name, getattr(os, name)))
    patch.setattr(Path, "write_bytes", failing("write_bytes", Path.write_bytes))
    return calls


def every_failure(
    folder: Path, prepare: Callable[[Path], None], act: Callable[[Path], object], kind: type[BaseException]
) -> Iterator[Path]:
    """Act in a fresh folder again and again, each time failing one call later, until nothing fails any more."""
    for number in range(1, 200):
        parent = folder / str(number)
        parent.mkdir()
        prepare(parent)
        with pytest.MonkeyPatch.context() as patch, suppress(kind):
            calls = fail_at(number, kind, patch)
            act(parent)
        yield parent
        if len(calls) < number:
            return
    raise AssertionError("it never came to an end")


def content(folder: Path) -> bytes:
    return (folder / "b.bin").read_bytes()


def whole_ones(parent: Path) -> list[Path]:
    return [folder for folder in saves(parent) if not damage(folder)]


def with_two_saves(parent: Path) -> None:
    save_folder(parent, "step-9", files(OLD[1:]))
    save_folder(parent, "step-10", files(OLD))


KINDS = pytest.mark.parametrize("kind", [Failed, Crashed])


@KINDS
def test_a_failed_save_leaves_every_old_one_and_names_a_whole_one(tmp_path: Path, kind: type[BaseException]) -> None:
    for parent in every_failure(tmp_path, with_two_saves, lambda p: save_folder(p, "step-11", files(NEW)), kind):
        newest = whole_ones(parent)[0]
        assert newest.name in ("step-10", "step-11")
        assert content(newest) == (OLD if newest.name == "step-10" else NEW)
        assert [content(parent / name) for name in ("step-9", "step-10")] == [OLD[1:], OLD]
        latest = (parent / LATEST).read_text().strip()
        assert parent / latest in whole_ones(parent)
        assert saves(parent) == whole_ones(parent), "a half save is never visible"
        if kind is Failed:
            assert {f.name for f in parent.iterdir()} <= {"step-9", "step-10", "step-11", LATEST}
    assert newest.name == latest == "step-11"


@KINDS
def test_saving_again_under_the_same_name_leaves_the_old_or_the_new(tmp_path: Path, kind: type[BaseException]) -> None:
    for parent in every_failure(tmp_path, with_two_saves, lambda p: save_folder(p, "step-10", files(NEW)), kind):
        recover(parent)
        assert [content(save) for save in whole_ones(parent)] in ([OLD, OLD[1:]], [NEW, OLD[1:]])
    assert content(parent / "step-10") == NEW


@pytest.mark.parametrize("name", ["step-10", "step-11"])
@pytest.mark.parametrize("broken", ["a.bin", "b.bin"])
def test_a_writer_that_fails_leaves_everything_as_it_was(tmp_path: Path, name: str, broken: str) -> None:
    with_two_saves(tmp_path)
    before = {f.relative_to(tmp_path): f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}

    def fail(file: Path) -> None:
        file.write_bytes(NEW[:5])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        save_folder(tmp_path, name, files(NEW) | {broken: fail})
    assert {f.relative_to(tmp_path): f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()} == before
    assert {f.name for f in tmp_path.iterdir()} == {"step-9", "step-10", LATEST}


def test_what_the_disk_garbled_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_two_saves(tmp_path)
    sums = iter("abcd")
    monkeypatch.setattr(save, "checksum", lambda _: next(sums))
    with pytest.raises(OSError, match="step-11 was not saved: .*a.bin is not as it was written"):
        save_folder(tmp_path, "step-11", files(NEW))
    assert (tmp_path / LATEST).read_text() == "step-10\n"
    assert [f.name for f in saves(tmp_path)] == ["step-10", "step-9"]


@KINDS
@pytest.mark.parametrize("given_as", ["bytes", "writer"])
def test_a_replaced_file_is_the_old_or_the_new(tmp_path: Path, kind: type[BaseException], given_as: str) -> None:
    new = NEW if given_as == "bytes" else lambda file: put(file, NEW)
    found = []
    for parent in every_failure(
        tmp_path, lambda p: put(p / "model", OLD), lambda p: replace_file(p / "model", new), kind
    ):
        found.append((parent / "model").read_bytes())
    assert {*found} == {OLD, NEW}
    assert found == sorted(found, key=[OLD, NEW].index), "once new, always new"


def test_everything_is_on_the_disk_before_a_name_points_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: set[Path] = set()
    renamed: list[Path] = []

    def fsync(path: Path) -> None:
        flushed.add(path)

    def move(real: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def call(source: Path, target: Path) -> None:
            wanted = {f for f in source.iterdir() if f.name != MANIFEST} if source.is_dir() else {source}
            assert wanted <= flushed
            assert not renamed or renamed[-1].parent in flushed, "a rename is only on the disk when its folder is"
            flushed.discard(target.parent)
            renamed.append(target)
            real(source, target)

        return call

    for module in atomic, save:
        monkeypatch.setattr(module, "fsync", fsync)
    for name in "rename", "replace":
        monkeypatch.setattr(os, name, move(getattr(os, name)))
    save_folder(tmp_path, "step-1", files(NEW))
    assert [path.name for path in renamed] == [MANIFEST, "step-1", LATEST]
    assert tmp_path in flushed


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(tmp_path_factory.mktemp("run"), "step-1", files(OLD))


@given(name=st.sampled_from(["a.bin", "b.bin", MANIFEST]), data=st.data())
@settings(deadline=None, derandomize=True, max_examples=300)
def test_one_flipped_bit_anywhere_is_found(saved: Path, name: str, data: st.DataObject) -> None:
    whole = (saved / name).read_bytes()
    flipped = bytearray(whole)
    flipped[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (saved / name).write_bytes(flipped)
    assert "step-1" in damage(saved)
    (saved / name).write_bytes(whole)
    assert damage(saved) == ""


@pytest.mark.parametrize("name", ["a.bin", "b.bin", MANIFEST])
@pytest.mark.parametrize("harm", ["cut", "emptied", "lengthened", "missing", "a folder"])
def test_every_other_damage_is_found(tmp_path: Path, name: str, harm: str) -> None:
    folder = save_folder(tmp_path, "step-1", files(OLD))
    file = folder / name
    whole = file.read_bytes()
    if harm in ("missing", "a folder"):
        file.unlink()
        if harm == "a folder":
            file.mkdir()
    else:
        file.write_bytes({"cut": whole[:-1], "emptied": b"", "lengthened": whole + b"0"}[harm])
    assert "step-1" in damage(folder)


@pytest.mark.parametrize("manifest", ["[]", "null", "1", '"a"', '{"a.bin": 1}', '{"a.bin": {}}'])
def test_a_manifest_of_another_form_proves_nothing(tmp_path: Path, manifest: str) -> None:
    folder = save_folder(tmp_path, "step-1", files(OLD))
    (folder / MANIFEST).write_text(manifest)
    assert "step-1" in damage(folder)


def test_saves_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in "step-9", "step-10", "step-100", "step-x", "step-", ".step-11-123", "other":
        (tmp_path / name).mkdir()
    assert [f.name for f in saves(tmp_path)] == ["step-100", "step-10", "step-9"]
    keep_newest(tmp_path, 2)
    assert [f.name for f in saves(tmp_path)] == ["step-100", "step-10"]
    assert (tmp_path / "step-x").exists()
    assert saves(tmp_path / "nowhere") == []
