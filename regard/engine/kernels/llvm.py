"""LLVM by hand: registers, addresses and shared counters, for what Numba has no words for.

A function marked `compiled` is Numba's: compiled when first called, and kept on disk. One marked `emitted` writes LLVM
code in its place: it takes the types of its arguments, and gives its own type and what writes the code.

What is kept is read with pickle, so it lies in a directory that only its user can write; without one, nothing is kept.
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

from regard.places import kernels_directory

F = TypeVar("F", bound=Callable[..., Any])

X86 = "x86" in llvm.get_process_triple()
NEEDED = ("fma", "f16c")  # of an x86 processor


def has(feature: str) -> bool:
    """Of this processor, unless Numba is told to compile for another."""
    return getattr(config, "CPU_NAME", None) is None and bool(llvm.get_host_cpu_features().get(feature))


def lacks(name: str | None, features: str, host: Mapping[str, bool]) -> list[str]:
    """Instructions that LLVM would replace by calls to functions that are not there: the process would be aborted."""
    if name is None:
        return [one for one in NEEDED if not host.get(one)]
    return [one for one in NEEDED if name == "generic" and f"+{one}" not in features]


if X86 and (
    missing := lacks(
        getattr(config, "CPU_NAME", None), getattr(config, "CPU_FEATURES", None) or "", llvm.get_host_cpu_features()
    )
):
    raise ImportError(f"the engine needs a processor with {' and '.join(one.upper() for one in missing)}")

VNNI = has("avx512vnni")  # four int8 products and their sum at once
LANES = 16 if has("avx512f") else 8  # numbers in a register
REGISTERS = 32 if has("avx512f") else 16

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
EXPONENT = 0x7F800000  # the bits of it


KEPT, NOT_KEPT = kernels_directory(Path(__file__).parent)


class Saying(event.Listener):
    """Says, once, that code of ours is being compiled: the first time on a machine this takes up to a minute."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if self.said or not function.__module__.startswith("regard."):
            return
        self.said = True
        kept = f"it is kept in {KEPT}" if KEPT else f"nothing is kept, as {NOT_KEPT} (set NUMBA_CACHE_DIR)"
        print(f"regard: compiling for this processor, which may take a minute; {kept}", file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        """There is nothing to add."""


SAYING = Saying()
event.register("numba:compile", SAYING)


@contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Numba looks where to keep a function when it is marked, and elsewhere for those of other programs."""
    settings: Any = config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder)
    try:
        yield
    finally:
        settings.CACHE_DIR = before


def compiled(function: F) -> F:
    made: Any = njit(
        nogil=True,
        error_model="numpy",  # to look for divisions by zero would keep loops from becoming vector code
        fastmath={"nnan", "nsz", "arcp", "contract", "afn", "reassoc"},
    )(function)
    if KEPT:
        with keeping(KEPT):
            made.enable_caching()
    kept: F = made
    return kept


def emitted(function: Callable[..., Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = intrinsic(function)
    return made


def many(kind: Any, count: int = LANES) -> Any:
    return ir.VectorType(kind, count)


def at(b: Any, address: Any, offset: Any) -> Any:
    return b.inttoptr(b.add(address, offset), ir.PointerType())


def fixed(number: int) -> Any:
    return ir.Constant(I64, number)


def load(b: Any, kind: Any, address: Any, offset: Any) -> Any:
    return b.load(at(b, address, offset), typ=kind, align=1)


def spread(b: Any, value: Any) -> Any:
    """The same number in every lane."""
    nothing = ir.Constant(many(value.type), ir.Undefined)
    one = b.insert_element(nothing, value, ir.Constant(I32, 0))
    return b.shuffle_vector(one, nothing, ir.Constant(many(I32), [0] * LANES))


def call(b: Any, name: str, result: Any, *args: Any, **flags: Any) -> Any:
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), args, **flags)


def each(b: Any, name: str, *args: Any) -> Any:
    """An operation of LLVM's on every lane."""
    return call(b, f"llvm.{name}.v{LANES}f32", many(F32), *args)


def fused(b: Any, x: Any, y: Any, z: Any) -> Any:
    """x · y + z"""
    return each(b, "fma", x, y, z)


def across(b: Any, lanes: Any) -> Any:
    """Their sum."""
    return call(b, f"llvm.vector.reduce.fadd.v{LANES}f32", F32, ir.Constant(F32, -0.0), lanes, fastmath=("reassoc",))


def across_each(b: Any, registers: list[Any]) -> Any:
    """The sums of LANES registers, in one: halves of two are added and stand side by side, then quarters of four ..."""
    size = LANES // 2
    while len(registers) > 1:
        one, other = ([i for i in range(2 * LANES) if i // size % 2 == odd] for odd in (0, 1))
        pairs = zip(registers[::2], registers[1::2], strict=True)
        registers = [b.fadd(chosen(b, x, y, one), chosen(b, x, y, other)) for x, y in pairs]
        size //= 2
    return registers[0]


def opaque(b: Any, number: Any) -> Any:
    """The same number, of which LLVM knows nothing: a loop of so many rounds stays one, and its sums in registers."""
    return b.asm(ir.FunctionType(number.type, [number.type]), "", "=r,0", [number], side_effect=False)


def chosen(b: Any, x: Any, y: Any, lanes: list[int]) -> Any:
    return b.shuffle_vector(x, y, ir.Constant(many(I32, len(lanes)), lanes))


def zeros(b: Any, rows: int, columns: int) -> list[list[Any]]:
    nothing = ir.Constant(many(F32), [0.0] * LANES)
    return [[cgutils.alloca_once_value(b, nothing) for _ in range(columns)] for _ in range(rows)]


def pointer_to(kind: Any) -> Callable[[Any], Any]:
    """What lies at an address, to be indexed like an array."""

    @emitted
    def pointer(typing: Any, address: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
            return b.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), emit

    return pointer


floats, bytes_ = pointer_to(types.float32), pointer_to(types.int8)
int32s, int64s = pointer_to(types.int32), pointer_to(types.int64)


@emitted
def half_at(typing: Any, address: Any) -> Any:
    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.fpext(load(b, F16, args[0], fixed(0)), F32)

    return types.float32(types.int64), emit


@emitted
def put_half(typing: Any, address: Any, x: Any) -> Any:
    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        b.store(b.fptrunc(args[1], F16), at(b, args[0], fixed(0)), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), emit


@emitted
def nan(typing: Any) -> Any:
    """Compiled functions may assume that no number is NaN, so LLVM must not see that this one is."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.bitcast(opaque(b, ir.Constant(I32, 0x7FC00000)), F32)

    return types.float32(), emit


@emitted
def not_finite(typing: Any, address: Any, count: Any) -> Any:
    """Whether one of so many numbers is NaN or infinite: all bits of its exponent are set. Looked up as integers, and
    in memory, as compiled functions may assume that no number of theirs is NaN."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        address, count = args
        b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)
        most, last = (
            cgutils.alloca_once_value(b, ir.Constant(kind, zero)) for kind, zero in ((many(I32), [0] * LANES), (I32, 0))
        )

        def look(kind: Any, mask: Any, kept: Any, place: Any) -> None:
            found = b.and_(load(b, kind, address, b.mul(place, fixed(4))), mask)
            so_far = b.load(kept)
            b.store(b.select(b.icmp_unsigned(">", found, so_far), found, so_far), kept)

        full = b.udiv(count, fixed(LANES))
        with cgutils.for_range(b, full) as loop:
            look(many(I32), ir.Constant(many(I32), [EXPONENT] * LANES), most, b.mul(loop.index, fixed(LANES)))
        done = b.mul(full, fixed(LANES))
        with cgutils.for_range(b, b.sub(count, done)) as loop:
            look(I32, ir.Constant(I32, EXPONENT), last, b.add(done, loop.index))
        largest = call(b, f"llvm.vector.reduce.umax.v{LANES}i32", I32, b.load(most))
        either = (b.icmp_unsigned("==", one, ir.Constant(I32, EXPONENT)) for one in (largest, b.load(last)))
        return b.or_(*either)

    return types.boolean(types.int64, types.int64), emit


@emitted
def floor(typing: Any, x: Any) -> Any:
    return types.float32(types.float32), lambda context, b, signature, args: call(b, "llvm.floor.f32", F32, args[0])


@emitted
def two_to(typing: Any, power: Any) -> Any:
    """2 to a whole power, by writing it where a float has its exponent."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        exponent = b.add(b.fptosi(args[0], I32), ir.Constant(I32, 127))
        return b.bitcast(b.shl(exponent, ir.Constant(I32, 23)), F32)

    return types.float32(types.float32), emit


@emitted
def fetch_add(typing: Any, address: Any, amount: Any) -> Any:
    """Add to a shared number, and tell what it was before."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.atomic_rmw("add", b.inttoptr(args[0], ir.PointerType()), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@emitted
def peek(typing: Any, address: Any) -> Any:
    """A shared number, as it is now."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.load_atomic(b.inttoptr(args[0], ir.PointerType()), "seq_cst", 8, typ=I64)

    return types.int64(types.int64), emit


@emitted
def relax(typing: Any) -> Any:
    """A breath while waiting for another core."""

    def emit(context: Any, b: Any, signature: Any, args: Any) -> Any:
        if X86:
            call(b, "llvm.x86.sse2.pause", ir.VoidType())
        return context.get_dummy_value()

    return types.void(), emit
