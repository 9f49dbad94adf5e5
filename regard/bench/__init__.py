"""How fast a model is on this machine, beside others that read the same folder."""
