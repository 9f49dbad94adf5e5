"""A small text adventure: its words, its world, what can be done there, and somebody who plays it."""
