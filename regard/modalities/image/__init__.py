"""Images as a kind of input."""
