"""Texts as a kind of input."""
