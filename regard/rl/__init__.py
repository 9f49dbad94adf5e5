"""A model that acts: environments, policies, and how they learn inside a model of the world."""
