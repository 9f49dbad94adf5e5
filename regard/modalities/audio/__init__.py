"""Audio as a kind of input."""
