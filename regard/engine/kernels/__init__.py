"""Kernels: Numba functions and LLVM code that run a compiled program on the CPU."""
