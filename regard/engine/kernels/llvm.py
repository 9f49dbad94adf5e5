"""LLVM IR by hand: vector registers, addresses and atomic counters, which Numba does not offer.

`@jit` compiles a Python function with Numba on its first call and caches the machine code on disk. `@llvm_intrinsic`
emits LLVM IR in place of a call: the function takes the Numba types of the arguments, and returns the signature and
the function that emits the code with the IR builder `b`.

Numba reads its cache with pickle, so the cache directory must be writable by its user only; else nothing is cached.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding as llvm
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils, event
from numba.extending import intrinsic

from regard.cache_dir import kernel_cache_dir

F = TypeVar("F", bound=Callable[..., Any])

X86 = "x86" in llvm.get_process_triple()
REQUIRED_FEATURES = ("fma", "f16c")  # of an x86 processor


def cpu_has(feature: str) -> bool:
    """Whether this CPU has a feature; False when NUMBA_CPU_NAME targets another CPU."""
    return getattr(config, "CPU_NAME", None) is None and bool(llvm.get_host_cpu_features().get(feature))


def missing_features(name: str | None, features: str, host: Mapping[str, bool]) -> list[str]:
    """Required instructions that the target CPU lacks. LLVM would call library functions in their place that do not
    exist, and abort the process."""
    if name is None:
        return [feature for feature in REQUIRED_FEATURES if not host.get(feature)]
    return [feature for feature in REQUIRED_FEATURES if name == "generic" and f"+{feature}" not in features]


if X86 and (
    missing := missing_features(
        getattr(config, "CPU_NAME", None), getattr(config, "CPU_FEATURES", None) or "", llvm.get_host_cpu_features()
    )
):
    raise ImportError(f"the engine needs a CPU with {' and '.join(feature.upper() for feature in missing)}")

VNNI = cpu_has("avx512vnni")  # vpdpbusd: four int8 products and their sum in one instruction
LANES = 16 if cpu_has("avx512f") else 8  # fp32 numbers in a vector register
REGISTERS = 32 if cpu_has("avx512f") else 16

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
EXPONENT = 0x7F800000  # exponent bits of an fp32 number
KERNEL_CACHE, NO_CACHE_REASON = kernel_cache_dir(Path(__file__).parent)


class CompileNotice(event.Listener):
    """Prints, once per process, that kernels are being compiled: the first time on a machine takes up to a minute."""

    def __init__(self) -> None:
        self.printed = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if self.printed or not function.__module__.startswith("regard."):
            return
        self.printed = True
        cached = f"cached in {KERNEL_CACHE}" if KERNEL_CACHE else f"not cached: {NO_CACHE_REASON} (set NUMBA_CACHE_DIR)"
        print(f"regard: compiling kernels for this CPU, up to a minute; {cached}", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """Required by the interface."""


COMPILE_NOTICE = CompileNotice()
event.register("numba:compile", COMPILE_NOTICE)


@contextmanager
def numba_cache_dir(folder: Path) -> Iterator[None]:
    """Numba reads CACHE_DIR when a function is decorated; functions of other packages keep their own directory."""
    settings: Any = config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
    try:
        yield
    finally:
        settings.CACHE_DIR = before


def jit(function: F) -> F:
    dispatcher: Any = njit(
        nogil=True,
        error_model="numpy",  # checks for division by zero would prevent vectorisation
        fastmath={"nnan", "nsz", "arcp", "contract", "afn", "reassoc"},
    )(function)
    if KERNEL_CACHE:
        with numba_cache_dir(KERNEL_CACHE):
            dispatcher.enable_caching()
    return dispatcher


def llvm_intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    return intrinsic(function)


def dispatch(variants: Mapping[int, Callable[..., Any]]) -> Callable[..., None]:
    """One intrinsic for several variants, not yet decorated: its first argument is the key of the one that runs."""

    @llvm_intrinsic
    def dispatched(typing: Any, key: Any, *args: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, values: Any) -> Any:
            for value, variant in variants.items():
                with b.if_then(b.icmp_signed("==", values[0], i64(value))):
                    variant(typing, *args)[1](context, b, signature, cgutils.unpack_tuple(b, values[1]))
            return context.get_dummy_value()

        return types.void(types.int64, types.StarArgTuple([types.int64] * len(args))), emit

    return dispatched


def vector(kind: Any, count: int = LANES) -> Any:
    return ir.VectorType(kind, count)


def pointer_at(b: Any, address: Any, offset: Any) -> Any:
    return b.inttoptr(b.add(address, offset), ir.PointerType())


def i64(number: int) -> Any:
    return ir.Constant(I64, number)


def load(b: Any, kind: Any, address: Any, offset: Any) -> Any:
    return b.load(pointer_at(b, address, offset), typ=kind, align=1)


def splat(b: Any, value: Any) -> Any:
    """The same number in every lane."""
    undefined = ir.Constant(vector(value.type), ir.Undefined)
    lane0 = b.insert_element(undefined, value, ir.Constant(I32, 0))
    return b.shuffle_vector(lane0, undefined, ir.Constant(vector(I32), [0] * LANES))


def call(b: Any, name: str, result: Any, *args: Any, **flags: Any) -> Any:
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), args, **flags)


def lanewise(b: Any, name: str, *args: Any) -> Any:
    """An LLVM intrinsic on every lane."""
    return call(b, f"llvm.{name}.v{LANES}f32", vector(F32), *args)


def fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """x · y + z"""
    return lanewise(b, "fma", x, y, z)


def reduce_add(b: Any, lanes: Any) -> Any:
    """Horizontal sum of a register."""
    return call(b, f"llvm.vector.reduce.fadd.v{LANES}f32", F32, ir.Constant(F32, -0.0), lanes, fastmath=("reassoc",))


def opaque(b: Any, number: Any) -> Any:
    """The same number, hidden from the optimiser: it does not unroll a loop with this count."""
    return b.asm(ir.FunctionType(number.type, [number.type]), "", "=r,0", [number], side_effect=False)


def shuffle(b: Any, x: Any, y: Any, lanes: list[int]) -> Any:
    return b.shuffle_vector(x, y, ir.Constant(vector(I32, len(lanes)), lanes))


def zero_accumulators(b: Any, rows: int, columns: int) -> list[list[Any]]:
    zero = ir.Constant(vector(F32), [0.0] * LANES)
    return [[cgutils.alloca_once_value(b, zero) for _ in range(columns)] for _ in range(rows)]


def pointer_to(kind: Any) -> Callable[[Any], Any]:
    """An intrinsic that casts an address to a typed pointer, indexed like an array."""

    @llvm_intrinsic
    def pointer(typing: Any, address: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            return b.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), emit

    return pointer


floats, int8s = pointer_to(types.float32), pointer_to(types.int8)
int32s, int64s = pointer_to(types.int32), pointer_to(types.int64)


@llvm_intrinsic
def load_half(typing: Any, address: Any) -> Any:
    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.fpext(load(b, F16, args[0], i64(0)), F32)

    return types.float32(types.int64), emit


@llvm_intrinsic
def store_half(typing: Any, address: Any, x: Any) -> Any:
    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        b.store(b.fptrunc(args[1], F16), pointer_at(b, args[0], i64(0)), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), emit


@llvm_intrinsic
def nan(typing: Any) -> Any:
    """A NaN that the optimiser cannot see: `nnan` of @jit lets it assume that there are none."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.bitcast(opaque(b, ir.Constant(I32, 0x7FC00000)), F32)

    return types.float32(), emit


@llvm_intrinsic
def any_nonfinite(typing: Any, address: Any, count: Any) -> Any:
    """Whether one of `count` floats is NaN or infinite, that is, has all exponent bits set. Compared as integers in
    memory, as `nnan` of @jit lets the optimiser assume that no float is NaN."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        address, count = args
        b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)
        lane_max, tail_max = (
            cgutils.alloca_once_value(b, ir.Constant(kind, zero))
            for kind, zero in ((vector(I32), [0] * LANES), (I32, 0))
        )

        def update_max(kind: Any, mask: Any, maximum: Any, index: Any) -> None:
            exponent = b.and_(load(b, kind, address, b.mul(index, i64(4))), mask)
            current = b.load(maximum)
            b.store(b.select(b.icmp_unsigned(">", exponent, current), exponent, current), maximum)

        full = b.udiv(count, i64(LANES))
        with cgutils.for_range(b, full) as loop:
            index = b.mul(loop.index, i64(LANES))
            update_max(vector(I32), ir.Constant(vector(I32), [EXPONENT] * LANES), lane_max, index)
        tail = b.mul(full, i64(LANES))
        with cgutils.for_range(b, b.sub(count, tail)) as loop:
            update_max(I32, ir.Constant(I32, EXPONENT), tail_max, b.add(tail, loop.index))
        largest = call(b, f"llvm.vector.reduce.umax.v{LANES}i32", I32, b.load(lane_max))
        return b.or_(*(b.icmp_unsigned("==", m, ir.Constant(I32, EXPONENT)) for m in (largest, b.load(tail_max))))

    return types.boolean(types.int64, types.int64), emit


@llvm_intrinsic
def fetch_add(typing: Any, address: Any, amount: Any) -> Any:
    """Atomic addition; returns the value before it."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.atomic_rmw("add", b.inttoptr(args[0], ir.PointerType()), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@llvm_intrinsic
def atomic_load(typing: Any, address: Any) -> Any:
    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.load_atomic(b.inttoptr(args[0], ir.PointerType()), "seq_cst", 8, typ=I64)

    return types.int64(types.int64), emit


@llvm_intrinsic
def cpu_pause(typing: Any) -> Any:
    """The x86 `pause` instruction of a spin loop."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if X86:
            call(b, "llvm.x86.sse2.pause", ir.VoidType())
        return context.get_dummy_value()

    return types.void(), emit
