"""From files to batches: reading, checking, cutting into tokens."""
