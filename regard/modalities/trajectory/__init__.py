"""Trajectories as a kind of input."""
