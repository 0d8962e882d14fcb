"""Forwarding to other systems: Trackio, MLflow, Weave, OpenTelemetry. See docs/sinks.md."""

from .base import Refused, Sink, Target
from .follow import Follower
from .spec import KNOWN, Spec, load, parse

__all__ = ["KNOWN", "Follower", "Refused", "Sink", "Spec", "Target", "load", "parse"]
