"""The target, the drafter, and how their weights are read."""
