"""Checkpoints of several ranks: any number writes, any number reads, a crash leaves the old state or the new one."""

import json
import math
import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

sys.path.append(str(Path(__file__).parent))
from test_checkpoint import KINDS, PowerLoss, every_failure  # noqa: E402
from thread_ranks import on_forks, on_threads  # noqa: E402

from regard.hub.tensor_slices import TensorSlice, slice_of  # noqa: E402
from regard.training import rank_checkpoint, sharded_state  # noqa: E402
from regard.training.checkpoint import LATEST, MANIFEST, find_damage, list_checkpoints, recover, save_folder  # noqa: E402
from regard.training.rank_checkpoint import find_damage_on_ranks, save_on_ranks  # noqa: E402
from regard.training.ranks import OtherRankError  # noqa: E402
from regard.training.run_folder import RunFolder  # noqa: E402
from regard.training.sharded_state import STATE, STATE_INDEX, Piece, StateReader, assign, state_files  # noqa: E402

SHAPES = {"a": (7, 3), "b": (2,), "c": (5, 4, 2), "d": (), "e": (0, 3), "f": (1, 6), "g": (9,)}
DTYPES = {"b": torch.bfloat16, "d": torch.int64, "f": torch.float64}


def tensors(seed=1):
    torch.manual_seed(seed)
    return {f"weights/{name}": torch.randn(size).mul(99).to(DTYPES.get(name)) for name, size in SHAPES.items()}


def part(name, whole, rank, size, dim=0):
    """This rank's part, as torch.chunk divides: the last ranks may get less, or nothing."""
    if not whole.dim():
        return slice_of(name, whole)
    length = math.ceil(whole.size(dim) / size)
    start = min(rank * length, whole.size(dim))
    local = whole.narrow(dim, start, min(length, whole.size(dim) - start)).clone()
    return TensorSlice(name, tuple(whole.shape), tuple(start * (d == dim) for d in range(whole.dim())), local)


def parts_of(state, rank, size, replicas=1):
    """Parts of one rank. "f" is divided by columns, "g" by no rank, and each part is held by `replicas` ranks."""
    dims = {"weights/f": 1}
    shards, shard = size // replicas, rank % (size // replicas)
    return [
        slice_of(name, whole) if name == "weights/g" else part(name, whole, shard, shards, dims.get(name, 0))
        for name, whole in state.items()
    ]


def save(parent, name, state, size, replicas=1):
    """The folder of a save by ranks that are threads, or the errors that they raised."""

    def act(ranks):
        files, room = state_files(parts_of(state, ranks.rank, size, replicas), ranks)
        if ranks.size == 1:
            return save_folder(parent, name, files)
        return save_on_ranks(ranks, parent, name, files, room)

    return on_threads(size, act)


def restored(folder, size, state):
    """All tensors, read by so many ranks, each its own part."""
    whole = {name: torch.full_like(tensor, 77) for name, tensor in state.items()}
    for rank in range(size):
        reader = StateReader(folder)
        for own in parts_of(whole, rank, size):
            reader.copy_into(own)
            own.of(whole[own.name]).copy_(own.tensor)
    return whole


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("writers", "replicas"), [(1, 1), (2, 1), (2, 2), (3, 1), (4, 1), (4, 2)])
def test_any_number_of_ranks_reads_what_any_number_wrote(writers, replicas, tmp_path, monkeypatch):
    monkeypatch.setattr(sharded_state, "BLOCK", 40)  # blocks of one row, or a few
    state = tensors()
    assert {*save(tmp_path, "step-1", state, writers, replicas)} == {tmp_path / "step-1"}
    assert not find_damage(tmp_path / "step-1")
    assert (tmp_path / LATEST).read_text() == "step-1\n"
    for readers in 1, 2, 3, 4:
        assert same(restored(tmp_path / "step-1", readers, state), state)
    wrong = state | {"weights/a": state["weights/a"] + 1}
    assert not same(restored(tmp_path / "step-1", 2, state), wrong)


def test_each_number_is_written_once(tmp_path):
    state = tensors()
    save(tmp_path, "step-1", state, 4, replicas=2)
    files = sorted((tmp_path / "step-1").glob("state-*.safetensors"))
    assert [file.name for file in files] == [f"state-{rank + 1:05d}-of-00004.safetensors" for rank in range(4)]
    stored = [load_file(file) for file in files]
    assert sum(t.nbytes for rank in stored for t in rank.values()) == sum(t.nbytes for t in state.values())
    index = json.loads((tmp_path / "step-1" / STATE_INDEX).read_bytes())
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in state.values())
    assert {name: tuple(entry["shape"]) for name, entry in index["tensors"].items()} == {
        name: tuple(tensor.shape) for name, tensor in state.items()
    }
    for entry in index["tensors"].values():
        assert sum(math.prod(item["shape"]) for item in entry["slices"]) == math.prod(entry["shape"])


def test_ranks_that_hold_the_same_write_the_file_of_one_process(tmp_path):
    state = tensors()
    save(tmp_path, "step-1", state, 1)
    save(tmp_path, "step-2", state, 2, replicas=2)
    assert {file.name for file in (tmp_path / "step-2").iterdir()} == {STATE, MANIFEST}
    assert (tmp_path / "step-1" / STATE).read_bytes() == (tmp_path / "step-2" / STATE).read_bytes()


@given(st.data())
@settings(deadline=None, derandomize=True, max_examples=100)
def test_the_ranks_share_the_writing_of_what_several_hold(data):
    """No rank writes more than the lightest load and the largest slice that it shares."""
    size = data.draw(st.integers(1, 6))
    sizes = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=20))
    pieces = [Piece(f"t{i}", "F32", (count,), (0,), (count,)) for i, count in enumerate(sizes)]
    plan = assign([pieces] * size)
    load = [sum(piece.nbytes for piece, rank in plan.items() if rank == writer) for writer in range(size)]
    assert {*plan} == {*pieces}
    assert max(load) - min(load) <= 4 * max(sizes)


def test_slices_that_do_not_make_a_whole_are_refused():
    half = Piece("t", "F32", (4,), (0,), (2,))
    with pytest.raises(ValueError, match=r"hold 2 numbers of t, \(4,\)"):
        assign([[half], [half]])
    with pytest.raises(ValueError, match=r"of t"):
        assign([[half], [half._replace(whole=(5,), offsets=(2,))]])


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    save(tmp_path, "step-1", tensors(), 2)
    reader = StateReader(tmp_path / "step-1")
    with pytest.raises(ValueError, match=r"weights/a has shape \(7, 3\) there, and \(7, 4\)"):
        reader.copy_into(slice_of("weights/a", torch.zeros(7, 4)))
    with pytest.raises(ValueError, match="weights/z is missing there"):
        reader.copy_into(slice_of("weights/z", torch.zeros(7, 4)))


@pytest.mark.parametrize("failing", [0, 1])
def test_a_full_disk_on_one_rank_stops_all_and_keeps_the_old_state(failing, tmp_path, monkeypatch):
    old = tensors()
    save(tmp_path, "step-1", old, 2)
    write_tensors = sharded_state.write_tensors

    def full(file, content):
        write_tensors(file, content)
        if file.name.startswith(f"state-0000{failing + 1}"):
            file.write_bytes(file.read_bytes()[:50])
            raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr(sharded_state, "write_tensors", full)
    for name in "step-1", "step-2":
        errors = save(tmp_path, name, tensors(2), 2)
        assert isinstance(errors[failing], OSError)
        assert isinstance(errors[1 - failing], OtherRankError)
        assert str(errors[1 - failing]).startswith(f"rank {failing}: ")
        for error in errors:
            assert f"{name}/state-0000{failing + 1}-of-00002.safetensors" in str(error)
            assert "No space left on device" in str(error)
        assert {file.name for file in tmp_path.iterdir()} == {"step-1", LATEST}
        assert same(restored(tmp_path / "step-1", 1, old), old)


def test_too_little_space_for_all_ranks_together_is_noticed_first(tmp_path, monkeypatch):
    needed = sum(tensor.nbytes for tensor in tensors().values())
    usage = rank_checkpoint.create_hidden.__globals__["shutil"].disk_usage(tmp_path)._replace(free=needed - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    errors = save(tmp_path, "step-1", tensors(), 2)
    assert all("not enough space for a checkpoint" in str(error) for error in errors)
    assert not [*tmp_path.iterdir()]
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=needed))
    assert {*save(tmp_path, "step-1", tensors(), 2)} == {tmp_path / "step-1"}


@KINDS
@pytest.mark.parametrize("name", ["step-1", "step-2"])
def test_whatever_call_fails_on_any_rank_the_old_or_the_new_state_is_intact(kind, name, tmp_path, monkeypatch):
    """Both ranks make disk accesses, in any order; after a power loss all later ones of both fail."""
    old, new = tensors(), tensors(2)
    monkeypatch.setattr(sharded_state, "write_tensors", lambda file, content: write_slowly(file, content))

    def prepare(parent):
        save(parent, "step-1", old, 2)

    def act(parent):
        errors = [result for result in save(parent, name, new, 2) if isinstance(result, BaseException)]
        raise_first(errors, kind)

    for parent in every_failure(tmp_path, prepare, act, kind):
        recover(parent)
        intact = [folder for folder in list_checkpoints(parent) if not find_damage(folder)]
        assert intact == list_checkpoints(parent), "a partial checkpoint is never visible"
        state = restored(intact[0], 1, old)
        assert same(state, old) or same(state, new)
        if name == "step-2":
            assert same(restored(parent / "step-1", 1, old), old)
        if kind is not PowerLoss:
            assert {file.name for file in parent.iterdir()} <= {"step-1", "step-2", LATEST}
    assert same(restored(parent / name, 1, old), new)


def write_slowly(file, content):
    """Through Python's calls, which can be made to fail."""
    with file.open("wb", buffering=0) as stream:
        os.write(stream.fileno(), b"")
        save_file(content, file)


def raise_first(errors, kind):
    for error in errors:
        if isinstance(error, kind):
            raise error
    assert not errors


@pytest.mark.parametrize(
    ("victim", "module", "call", "expected"),
    [
        (2, sharded_state, "write_tensors", "step-1"),
        (0, sharded_state, "write_tensors", "step-1"),
        (0, rank_checkpoint, "write_manifest", "step-1"),
        (0, rank_checkpoint, "rename_hidden", "step-2"),
    ],
)
def test_a_killed_rank_leaves_the_old_or_the_new_state_and_ends_the_others(
    victim, module, call, expected, tmp_path, monkeypatch
):
    """SIGKILL after a call of one of three processes that gloo connects."""
    states, run = {"step-1": tensors(), "step-2": tensors(2)}, tmp_path / "run"
    run.mkdir()
    save(run, "step-1", states["step-1"], 2)
    real = getattr(module, call)

    def act(ranks):
        def kill(*args):
            real(*args)
            if ranks.rank == victim:
                os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(module, call, kill)
        files, room = state_files(parts_of(states["step-2"], ranks.rank, ranks.size), ranks)
        return save_on_ranks(ranks, run, "step-2", files, room)

    outcomes = on_forks(3, act, tmp_path)
    assert outcomes.pop(victim) is None
    assert all("RuntimeError" in outcome for outcome in outcomes)
    newest = list_checkpoints(run)[0]
    assert newest.name == expected
    assert not find_damage(newest)
    assert same(restored(newest, 1, states[expected]), states[expected])
    save(run, "step-3", states["step-2"], 3)
    assert {file.name for file in run.iterdir()} <= {"step-1", "step-2", "step-3", LATEST, ".step-2"}


@pytest.mark.parametrize("file", ["state-00001-of-00003.safetensors", "state-00003-of-00003.safetensors", STATE_INDEX])
def test_all_ranks_see_the_damage_that_one_of_them_reads(file, tmp_path):
    for name in "step-1", "step-2":
        save(tmp_path, name, tensors(), 3)
    content = bytearray((tmp_path / "step-2" / file).read_bytes())
    content[-2] ^= 4
    (tmp_path / "step-2" / file).write_bytes(content)
    for name in "step-1", "step-2":
        (tmp_path / name / "state.json").write_text("{}")
    assert not any(on_threads(3, lambda ranks: find_damage_on_ranks(ranks, tmp_path / "step-1")))
    results = on_threads(3, lambda ranks: RunFolder(tmp_path, ranks).newest_checkpoint())
    assert results == [(tmp_path / "step-1", {}, [f"step-2/{file} differs from its checksum"])] * 3
    assert (tmp_path / "damaged-step-2").is_dir()


def test_the_checksums_of_a_checkpoint_are_computed_once(tmp_path, monkeypatch):
    from regard.training import checkpoint

    files, checksum = [], checkpoint.checksum
    monkeypatch.setattr(checkpoint, "checksum", lambda file: files.append(file.name) or checksum(file))
    save(tmp_path, "step-1", tensors(), 3)
    assert sorted(files) == sorted({*files})
    files.clear()
    on_threads(3, lambda ranks: find_damage_on_ranks(ranks, tmp_path / "step-1"))
    assert sorted(files) == sorted({*files})
