"""From files to batches: reading, linting, splitting, tokenizing, batching."""
