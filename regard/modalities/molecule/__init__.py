"""Molecules as a kind of input."""
