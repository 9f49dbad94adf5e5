"""The doctor: whether a model does what every model of its kind promises, and what to do if it does not."""
