"""The generators of the data that ships with the package."""
