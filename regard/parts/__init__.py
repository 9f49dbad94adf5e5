"""Building blocks of models: each part implements one formula."""
