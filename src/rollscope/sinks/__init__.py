"""Forwarding to other systems: Trackio, MLflow, Weave, OpenTelemetry. See docs/sinks.md."""

from .base import Refused, Sink, Target
from .follower import Follower as follow
from .spec import KNOWN, Spec, check, load, parse

__all__ = ["KNOWN", "Refused", "Sink", "Spec", "Target", "check", "follow", "load", "parse"]
