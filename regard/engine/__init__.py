"""Speed: passes over a finished model, known to no part and no model."""
