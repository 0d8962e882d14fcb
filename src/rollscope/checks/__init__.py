"""Is the capture right, what is odd about a rollout, and what differs between two."""

from .align import Alignment, align

__all__ = ["Alignment", "align"]
