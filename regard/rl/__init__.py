"""Reinforcement learning: environments, policies, PPO, GAIL, and Dyna with a learned world model."""
