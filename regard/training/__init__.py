"""Training: a loop that yields steps, and a run folder that can be resumed."""
