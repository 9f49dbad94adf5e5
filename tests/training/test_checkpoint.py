"""Whatever call fails during a save, the old checkpoint or the new one is intact."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import atomic
from regard.atomic import replace_file
from regard.training import checkpoint
from regard.training.checkpoint import (
    LATEST,
    MANIFEST,
    find_damage,
    keep_newest,
    list_checkpoints,
    recover,
    save_folder,
)

OLD, NEW = b"old state" * 9, b"the new state" * 7
DISK = ["mkdir", "open", "fsync", "rename", "replace", "unlink", "rmdir"]  # of `os`


class FailedWrite(OSError):
    """One call fails, as on a full disk."""


class PowerLoss(BaseException):
    """All later calls fail as well: nothing cleans up."""


def writers(content: bytes) -> dict[str, Callable[[Path], None]]:
    return {
        "a.bin": lambda file: write_in_halves(file, content[::-1]),
        "b.bin": lambda file: write_in_halves(file, content),
    }


def write_in_halves(file: Path, content: bytes) -> None:
    """Write in two calls, so that the second may fail after the first."""
    with file.open("wb", buffering=0) as stream:
        for half in content[:30], content[30:]:
            os.write(stream.fileno(), half)


def fail_at(number: int, kind: type[BaseException], patch: pytest.MonkeyPatch) -> list[str]:
    """Let the `number`-th disk access fail; after a power loss, all later ones too. Returns the calls."""
    calls: list[str] = []

    def failing(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            calls.append(name)
            if len(calls) == number or (len(calls) > number and kind is PowerLoss):
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
    """Call `act` in a new folder each time, failing one call later, until no call fails."""
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
    raise AssertionError("the number of calls is not bounded")


def content(folder: Path) -> bytes:
    return (folder / "b.bin").read_bytes()


def intact_checkpoints(parent: Path) -> list[Path]:
    return [folder for folder in list_checkpoints(parent) if not find_damage(folder)]


def save_two(parent: Path) -> None:
    save_folder(parent, "step-9", writers(OLD[1:]))
    save_folder(parent, "step-10", writers(OLD))


KINDS = pytest.mark.parametrize("kind", [FailedWrite, PowerLoss])


@KINDS
def test_a_failed_save_keeps_every_old_checkpoint(tmp_path: Path, kind: type[BaseException]) -> None:
    for parent in every_failure(tmp_path, save_two, lambda p: save_folder(p, "step-11", writers(NEW)), kind):
        newest = intact_checkpoints(parent)[0]
        assert newest.name in ("step-10", "step-11")
        assert content(newest) == (OLD if newest.name == "step-10" else NEW)
        assert [content(parent / name) for name in ("step-9", "step-10")] == [OLD[1:], OLD]
        latest = (parent / LATEST).read_text().strip()
        assert parent / latest in intact_checkpoints(parent)
        assert list_checkpoints(parent) == intact_checkpoints(parent), "a partial checkpoint is never visible"
        if kind is FailedWrite:
            assert {f.name for f in parent.iterdir()} <= {"step-9", "step-10", "step-11", LATEST}
    assert newest.name == latest == "step-11"


@KINDS
def test_saving_under_the_same_name_is_atomic(tmp_path: Path, kind: type[BaseException]) -> None:
    for parent in every_failure(tmp_path, save_two, lambda p: save_folder(p, "step-10", writers(NEW)), kind):
        recover(parent)
        assert [content(save) for save in intact_checkpoints(parent)] in ([OLD, OLD[1:]], [NEW, OLD[1:]])
    assert content(parent / "step-10") == NEW


@pytest.mark.parametrize("name", ["step-10", "step-11"])
@pytest.mark.parametrize("broken", ["a.bin", "b.bin"])
def test_a_failing_writer_changes_nothing(tmp_path: Path, name: str, broken: str) -> None:
    save_two(tmp_path)
    before = {f.relative_to(tmp_path): f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}

    def fail(file: Path) -> None:
        file.write_bytes(NEW[:5])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        save_folder(tmp_path, name, writers(NEW) | {broken: fail})
    assert {f.relative_to(tmp_path): f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()} == before
    assert {f.name for f in tmp_path.iterdir()} == {"step-9", "step-10", LATEST}


def test_a_checkpoint_is_verified_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_two(tmp_path)
    sums = iter("abcd")
    monkeypatch.setattr(checkpoint, "checksum", lambda _: next(sums))
    with pytest.raises(OSError, match="step-11 was not saved: .*a.bin differs from its checksum"):
        save_folder(tmp_path, "step-11", writers(NEW))
    assert (tmp_path / LATEST).read_text() == "step-10\n"
    assert [f.name for f in list_checkpoints(tmp_path)] == ["step-10", "step-9"]


@KINDS
@pytest.mark.parametrize("content_type", ["bytes", "writer"])
def test_replacing_a_file_is_atomic(tmp_path: Path, kind: type[BaseException], content_type: str) -> None:
    new = NEW if content_type == "bytes" else lambda file: write_in_halves(file, NEW)
    contents = []
    for parent in every_failure(
        tmp_path, lambda p: write_in_halves(p / "model", OLD), lambda p: replace_file(p / "model", new), kind
    ):
        contents.append((parent / "model").read_bytes())
    assert {*contents} == {OLD, NEW}
    assert contents == sorted(contents, key=[OLD, NEW].index), "the new content never reverts to the old"


def test_everything_is_fsynced_before_a_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: set[Path] = set()
    renamed: list[Path] = []

    def fsync(path: Path) -> None:
        flushed.add(path)

    def move(real: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def call(source: Path, target: Path) -> None:
            expected = {f for f in source.iterdir() if f.name != MANIFEST} if source.is_dir() else {source}
            assert expected <= flushed
            assert not renamed or renamed[-1].parent in flushed, "a rename is durable only after an fsync of its folder"
            flushed.discard(target.parent)
            renamed.append(target)
            real(source, target)

        return call

    for module in atomic, checkpoint:
        monkeypatch.setattr(module, "fsync", fsync)
    for name in "rename", "replace":
        monkeypatch.setattr(os, name, move(getattr(os, name)))
    save_folder(tmp_path, "step-1", writers(NEW))
    assert [path.name for path in renamed] == [MANIFEST, "step-1", LATEST]
    assert tmp_path in flushed


@pytest.fixture(scope="module")
def saved_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folder(tmp_path_factory.mktemp("run"), "step-1", writers(OLD))


@given(name=st.sampled_from(["a.bin", "b.bin", MANIFEST]), data=st.data())
@settings(deadline=None, derandomize=True, max_examples=300)
def test_a_flipped_bit_is_detected(saved_checkpoint: Path, name: str, data: st.DataObject) -> None:
    intact = (saved_checkpoint / name).read_bytes()
    flipped = bytearray(intact)
    flipped[data.draw(st.integers(0, len(intact) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (saved_checkpoint / name).write_bytes(flipped)
    assert "step-1" in find_damage(saved_checkpoint)
    (saved_checkpoint / name).write_bytes(intact)
    assert find_damage(saved_checkpoint) == ""


@pytest.mark.parametrize("name", ["a.bin", "b.bin", MANIFEST])
@pytest.mark.parametrize("harm", ["cut", "emptied", "lengthened", "missing", "a folder"])
def test_other_damage_is_detected(tmp_path: Path, name: str, harm: str) -> None:
    folder = save_folder(tmp_path, "step-1", writers(OLD))
    file = folder / name
    intact = file.read_bytes()
    if harm in ("missing", "a folder"):
        file.unlink()
        if harm == "a folder":
            file.mkdir()
    else:
        file.write_bytes({"cut": intact[:-1], "emptied": b"", "lengthened": intact + b"0"}[harm])
    assert "step-1" in find_damage(folder)


@pytest.mark.parametrize("manifest", ["[]", "null", "1", '"a"', '{"a.bin": 1}', '{"a.bin": {}}'])
def test_a_malformed_manifest_is_damage(tmp_path: Path, manifest: str) -> None:
    folder = save_folder(tmp_path, "step-1", writers(OLD))
    (folder / MANIFEST).write_text(manifest)
    assert "step-1" in find_damage(folder)


def test_checkpoints_are_sorted_by_step(tmp_path: Path) -> None:
    for name in "step-9", "step-10", "step-100", "step-x", "step-", ".step-11-123", "other":
        (tmp_path / name).mkdir()
    assert [f.name for f in list_checkpoints(tmp_path)] == ["step-100", "step-10", "step-9"]
    keep_newest(tmp_path, 2)
    assert [f.name for f in list_checkpoints(tmp_path)] == ["step-100", "step-10"]
    assert (tmp_path / "step-x").exists()
    assert list_checkpoints(tmp_path / "nowhere") == []
