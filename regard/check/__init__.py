"""Checks of a model folder: properties that every model of its kind must have, each with a bound and advice."""
