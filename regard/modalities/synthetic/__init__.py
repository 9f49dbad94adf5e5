"""Generators of the synthetic data sets that ship with the package."""
