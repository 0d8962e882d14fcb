"""Finished logs become segments; many segments become a few large parts."""
