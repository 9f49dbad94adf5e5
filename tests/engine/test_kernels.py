"""Kernels of the engine, each against its formula; and the kernel cache."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("regard.engine.kernels.llvm", exc_type=ImportError)  # Numba, and a CPU that the engine supports

from numba import njit
from numba.core.caching import CompileResultCacheImpl

from regard.cache_dir import kernel_cache_dir
from regard.engine.bytecode import SOFTCAP
from regard.engine.compiler import ACTIVATION_CODES
from regard.engine.kernels import attention_tiles, llvm
from regard.engine.kernels.elementwise import activate
from regard.engine.kernels.gemm_int8 import group_tile, int8_tile, make_quantize_group, unpack_group
from regard.engine.kernels.llvm import LANES, VNNI, floats, llvm_intrinsic
from regard.engine.quantize import BLOCK, GROUP, pack_int8
from regard.parts.feedforward import ACTIVATIONS

X = torch.cat((torch.linspace(-30, 30, 4001), torch.tensor([0.0, 1e-20, -1e-20, 90.0, -90.0])))


@njit
def run_activation(address, width, activation):
    activate(floats(address), width, activation, 3.0)


@pytest.mark.parametrize("name", [*ACTIVATIONS, "cap"])
def test_activations_equal_pytorch(name):
    function = ACTIVATIONS.get(name, lambda x: 3 * torch.tanh(x / 3))
    x = X.clone()
    run_activation(x.data_ptr(), len(x), ACTIVATION_CODES.get(function, SOFTCAP))
    torch.testing.assert_close(x, function(X), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("variant", ["plain", "unpacked", *(["with VNNI"] if VNNI else [])])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_int8_tiles_equal_the_integer_product(rows, variant):
    """With the largest int8 values, so that an overflow would show."""
    vnni, unpacked = variant == "with VNNI", variant == "unpacked"
    tile, run_group_tile = (llvm_intrinsic(variant) for variant in (int8_tile(rows, vnni), group_tile(rows)))
    quantize = make_quantize_group(vnni)
    K, N = 3 * GROUP, BLOCK
    groups, size = K // GROUP, 1 if vnni else 2

    @njit
    def run(x, q, scales, zp, w, ws, y, workspace):
        for r in range(rows):
            for g in range(groups):
                index = g * rows + r if unpacked else r * groups + g
                quantize(x + 4 * GROUP * (r * groups + g), q + size * GROUP * index, scales + 4 * index, zp + 4 * index)
        if not unpacked:
            tile(q, scales, zp, w, ws, y, groups, 4 * BLOCK)
            return
        for g in range(groups):
            unpack_group(w + g * GROUP * BLOCK, workspace)
            first = g * rows
            run_group_tile(
                q + 2 * GROUP * first, scales + 4 * first, zp + 4 * first, workspace, ws + 2 * g * BLOCK, y, 4 * BLOCK
            )

    rng = np.random.default_rng(2)
    integers = rng.choice([-127, 127, 5], (rows, groups, GROUP)).astype(np.float32)
    integers[..., 0] = 127.0
    x = integers * 2.0 ** rng.integers(-3, 3, (rows, groups, 1)).astype(np.float32)
    weight = rng.choice([-127.0, 127.0, 3.0], (N, K)).astype(np.float32)
    weight[:, ::GROUP] = 127.0  # so that every scale is 1
    w, ws = (t.numpy() for t in pack_int8(torch.from_numpy(weight)))
    q, y, workspace = (
        np.zeros(size * rows * K, np.int8),
        np.zeros((rows, N), np.float32),
        np.zeros(2 * GROUP * N, np.int8),
    )
    scales, zp = np.zeros(rows * groups, np.float32), np.zeros(rows * groups, np.int32)
    run(*(a.ctypes.data for a in (x, q, scales, zp, w, ws, y, workspace)))
    expected = x.reshape(rows, K).astype(np.float64) @ weight.T.astype(np.float64)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("fp16", [False, True])
def test_attention_tiles_read_only_their_slots(fp16):
    scores, weighted_sum = (
        llvm_intrinsic(tile(32 // LANES, fp16))
        for tile in (attention_tiles.scores_tile, attention_tiles.weighted_sum_tile)
    )

    @njit
    def run(q, kv, slots, weights, y, count, stride):
        scores(q, kv, slots, weights, count, stride)
        weighted_sum(y, kv, slots, weights, count, stride)

    E, count = 32, 5
    kv = torch.randn(9, E).to(torch.float16 if fp16 else torch.float32)
    slots, q = torch.tensor([7, 2, 2, 8, 0], dtype=torch.int32), torch.randn(E)
    weights, y = torch.empty(count), torch.empty(E)
    run(*(t.data_ptr() for t in (q, kv, slots, weights, y)), count, kv[0].nbytes)
    gathered = kv[slots.long()].float()
    torch.testing.assert_close(weights, gathered @ q, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(y, (gathered @ q) @ gathered, atol=1e-4, rtol=1e-4)
    assert not torch.isnan(F.softmax(weights, 0)).any()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_kernel_cache_is_writable_by_its_user_only(tmp_path, home, monkeypatch):
    in_package = tmp_path / "source" / "__pycache__" / "kernels"
    assert kernel_cache_dir(tmp_path / "source") == (in_package, "")
    assert stat.S_IMODE(in_package.stat().st_mode) == 0o700
    in_package.chmod(0o770)
    user_cache = home / ".cache" / "regard" / "kernels"
    assert kernel_cache_dir(tmp_path / "source") == (user_cache, "")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(in_package))
    assert kernel_cache_dir(tmp_path / "source") == (None, f"{in_package} can be written by others")
    (tmp_path / "link").symlink_to(user_cache)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "link"))
    assert kernel_cache_dir(tmp_path)[1].endswith("is a link, not a directory")
    monkeypatch.setattr(os, "getuid", lambda: user_cache.stat().st_uid + 1)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(user_cache))
    assert kernel_cache_dir(tmp_path) == (None, f"{user_cache} belongs to another user")


def test_a_read_only_install_without_home_has_no_cache(tmp_path, home, monkeypatch):
    """As in a container: nothing is cached, and the reasons are returned."""

    def no_home(path):
        raise RuntimeError("Could not determine home directory.")

    (tmp_path / "file").touch()
    monkeypatch.setattr(Path, "expanduser", no_home)
    folder, reason = kernel_cache_dir(tmp_path / "file")
    assert folder is None
    assert reason == f"there is no home directory; {tmp_path}/file/__pycache__/kernels: Not a directory"


def new_kernel(monkeypatch, folder, reason=""):
    """A new kernel, with this folder as its cache."""

    def plus_one(x):
        return x + 1

    plus_one.__module__ = "regard.engine.tested"
    monkeypatch.setattr(llvm, "KERNEL_CACHE", folder)
    monkeypatch.setattr(llvm, "NO_CACHE_REASON", reason)
    monkeypatch.setattr(llvm.COMPILE_NOTICE, "printed", False)
    return llvm.jit(plus_one)


def test_the_first_call_prints_a_compile_notice(tmp_path, monkeypatch, capsys):
    assert new_kernel(monkeypatch, tmp_path)(1) == 2
    assert capsys.readouterr().err == (
        f"regard: compiling kernels for this CPU, up to a minute; cached in {tmp_path}\n"
    )
    assert [*tmp_path.rglob("*.nbi")]
    assert new_kernel(monkeypatch, tmp_path)(1) == 2
    assert capsys.readouterr().err == "", "cached already"


def test_without_a_cache_directory_kernels_still_compile(monkeypatch, capsys):
    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])  # Numba finds none either
    assert new_kernel(monkeypatch, None, "there is no home directory")(1) == 2
    assert "not cached: there is no home directory (set NUMBA_CACHE_DIR)" in capsys.readouterr().err
