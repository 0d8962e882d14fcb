"""Appending to the logs of a run."""
