"""Pages and figures of what a model computes."""
