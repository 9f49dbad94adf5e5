"""Number series as a kind of input."""
