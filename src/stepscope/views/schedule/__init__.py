"""The effect of each phase of a learning-rate schedule."""
