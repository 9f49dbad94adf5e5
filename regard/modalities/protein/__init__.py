"""Proteins as a kind of input."""
