"""Speed of a model on this machine, beside other backends that read the same folder."""
