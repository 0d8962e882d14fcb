"""Forwarding to other systems: Trackio, MLflow, Weave, OpenTelemetry. See docs/sinks.md."""

from .base import Metric, Refused, Sink, Target
from .follower import Follower as follow
from .spec import KNOWN, Spec, check, load, parse

__all__ = [
    "KNOWN",
    "Metric",
    "Refused",
    "Sink",
    "Spec",
    "Target",
    "check",
    "follow",
    "load",
    "parse",
]
