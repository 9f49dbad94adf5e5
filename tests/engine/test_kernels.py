"""The functions and tiles that the engine is made of, each against its formula; and where they are kept."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)  # Numba, and a processor that the engine knows

from numba import njit
from numba.core.caching import CompileResultCacheImpl

from regard.engine.bytecode import CAP
from regard.engine.compiler import NAMED
from regard.engine.kernels import attention_tiles, llvm
from regard.engine.kernels.elementwise import activate
from regard.engine.kernels.gemm_int8 import VNNI, group_tile, int8_tile, part_group, rounding
from regard.engine.kernels.llvm import LANES, floats
from regard.engine.quantize import BLOCK, GROUP, packed
from regard.parts.feedforward import ACTIVATIONS
from regard.places import kernels_directory

X = torch.cat((torch.linspace(-30, 30, 4001), torch.tensor([0.0, 1e-20, -1e-20, 90.0, -90.0])))


@njit
def applied(address, width, which):
    activate(floats(address), width, which, 3.0)


@pytest.mark.parametrize("name", [*ACTIVATIONS, "cap"])
def test_activations_are_those_of_pytorch(name):
    function = ACTIVATIONS.get(name, lambda x: 3 * torch.tanh(x / 3))
    x = X.clone()
    applied(x.data_ptr(), len(x), NAMED.get(function, CAP))
    torch.testing.assert_close(x, function(X), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("how", ["plain", "parted", *(["with VNNI"] if VNNI else [])])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_a_tile_of_bytes_is_a_product_of_whole_numbers(rows, how):
    """The largest bytes there are, so that a sum that does not fit would be seen."""
    vnni, parted = how == "with VNNI", how == "parted"
    tile, of_group, rounded = int8_tile(rows, vnni), group_tile(rows), rounding(vnni)
    K, N = 3 * GROUP, BLOCK
    groups, size = K // GROUP, 1 if vnni else 2

    @njit
    def run(x, q, scales, less, w, ws, y, room):
        for r in range(rows):
            for g in range(groups):
                place = g * rows + r if parted else r * groups + g
                rounded(
                    x + 4 * GROUP * (r * groups + g), q + size * GROUP * place, scales + 4 * place, less + 4 * place
                )
        if not parted:
            tile(q, scales, less, w, ws, y, groups, 4 * BLOCK)
            return
        for g in range(groups):
            part_group(w + g * GROUP * BLOCK, room)
            first = g * rows
            of_group(
                q + 2 * GROUP * first, scales + 4 * first, less + 4 * first, room, ws + 2 * g * BLOCK, y, 4 * BLOCK
            )

    draw = np.random.default_rng(2)
    whole = draw.choice([-127, 127, 5], (rows, groups, GROUP)).astype(np.float32)
    whole[..., 0] = 127.0
    x = whole * 2.0 ** draw.integers(-3, 3, (rows, groups, 1)).astype(np.float32)
    weight = draw.choice([-127.0, 127.0, 3.0], (N, K)).astype(np.float32)
    weight[:, ::GROUP] = 127.0  # so that every scale is 1
    w, ws = (t.numpy() for t in packed(torch.from_numpy(weight)))
    q, y, room = np.zeros(size * rows * K, np.int8), np.zeros((rows, N), np.float32), np.zeros(2 * GROUP * N, np.int8)
    scales, less = np.zeros(rows * groups, np.float32), np.zeros(rows * groups, np.int32)
    run(*(a.ctypes.data for a in (x, q, scales, less, w, ws, y, room)))
    right = x.reshape(rows, K).astype(np.float64) @ weight.T.astype(np.float64)
    np.testing.assert_allclose(y, right, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("half", [False, True])
def test_attention_tiles_look_only_at_their_slots(half):
    score, mix = attention_tiles.scores_tile(32 // LANES, half), attention_tiles.mix_tile(32 // LANES, half)

    @njit
    def run(q, memory, slots, weights, y, count, stride):
        score(q, memory, slots, weights, count, stride)
        mix(y, memory, slots, weights, count, stride)

    E, count = 32, 5
    memory = torch.randn(9, E).to(torch.float16 if half else torch.float32)
    slots, q = torch.tensor([7, 2, 2, 8, 0], dtype=torch.int32), torch.randn(E)
    weights, y = torch.empty(count), torch.empty(E)
    run(*(t.data_ptr() for t in (q, memory, slots, weights, y)), count, memory[0].nbytes)
    seen = memory[slots.long()].float()
    torch.testing.assert_close(weights, seen @ q, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(y, (seen @ q) @ seen, atol=1e-4, rtol=1e-4)
    assert not torch.isnan(F.softmax(weights, 0)).any()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_compiled_code_is_kept_where_only_its_user_can_write(tmp_path, home, monkeypatch):
    beside = tmp_path / "source" / "__pycache__" / "kernels"
    assert kernels_directory(tmp_path / "source") == (beside, "")
    assert stat.S_IMODE(beside.stat().st_mode) == 0o700
    beside.chmod(0o770)
    ours = home / ".cache" / "regard" / "kernels"
    assert kernels_directory(tmp_path / "source") == (ours, "")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(beside))
    assert kernels_directory(tmp_path / "source") == (None, f"{beside} can be written by others")
    (tmp_path / "link").symlink_to(ours)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "link"))
    assert kernels_directory(tmp_path)[1].endswith("is a link, not a directory")
    monkeypatch.setattr(os, "getuid", lambda: ours.stat().st_uid + 1)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(ours))
    assert kernels_directory(tmp_path) == (None, f"{ours} belongs to another user")


def test_an_install_that_cannot_be_written_and_no_home(tmp_path, home, monkeypatch):
    """As in a container: nothing is kept, and the reasons are told."""

    def homeless(path):
        raise RuntimeError("Could not determine home directory.")

    (tmp_path / "file").touch()
    monkeypatch.setattr(Path, "expanduser", homeless)
    folder, why = kernels_directory(tmp_path / "file")
    assert folder is None
    assert why == f"there is no home directory; {tmp_path}/file/__pycache__/kernels: Not a directory"


def marked(monkeypatch, folder, why=""):
    """A new function of ours, compiled code being kept in that folder."""

    def plus_one(x):
        return x + 1

    plus_one.__module__ = "regard.engine.tested"
    monkeypatch.setattr(llvm, "KEPT", folder)
    monkeypatch.setattr(llvm, "NOT_KEPT", why)
    monkeypatch.setattr(llvm.SAYING, "said", False)
    return llvm.compiled(plus_one)


def test_the_first_run_tells_that_it_compiles(tmp_path, monkeypatch, capsys):
    assert marked(monkeypatch, tmp_path)(1) == 2
    assert capsys.readouterr().err == (
        f"regard: compiling for this processor, which may take a minute; it is kept in {tmp_path}\n"
    )
    assert [*tmp_path.rglob("*.nbi")]
    assert marked(monkeypatch, tmp_path)(1) == 2
    assert capsys.readouterr().err == "", "it is there already"


def test_without_a_place_it_compiles_and_keeps_nothing(monkeypatch, capsys):
    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])  # Numba finds none either
    assert marked(monkeypatch, None, "there is no home directory")(1) == 2
    assert "nothing is kept, as there is no home directory (set NUMBA_CACHE_DIR)" in capsys.readouterr().err
