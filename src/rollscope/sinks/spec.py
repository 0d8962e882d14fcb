"""Which sinks, with which options: one text for `init` and for `ROLLSCOPE_SINKS`.

    trackio:space_id=u/s,key=rollouts,groups_per_step=8;mlflow

`;` stands between sinks, `:` before the options, `,` between them. Nothing here loads a sink's
own library, so that `init` can check what was typed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import NamedTuple

from ..model.sample import Sample
from .base import Sink

_CLASSES = {"trackio": "Trackio", "mlflow": "MLflow", "weave": "Weave", "otlp": "Otlp"}
"""The class in the module of each sink."""
KNOWN = tuple(_CLASSES)
CAPS = Sample.__struct_fields__
"""Options of every sink, with the meaning that `Sample` gives them."""
TIMEOUT = 120.0
"""Seconds after which a call of a sink counts as hung, unless `timeout=` says otherwise."""
COMMON = (*CAPS, "timeout")
"""Options of every sink."""


class Spec(NamedTuple):
    """One sink that was asked for."""

    name: str
    options: Mapping[str, str] = {}

    def __str__(self) -> str:
        options = ",".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name

    @property
    def sample(self) -> Sample | None:
        """The cap, if one was given."""
        caps = [f"{name}={self.options[name]}" for name in CAPS if name in self.options]
        return Sample.parse(",".join(caps)) if caps else None

    @property
    def own(self) -> dict[str, str]:
        """The options that are the sink's own."""
        return {name: value for name, value in self.options.items() if name not in COMMON}

    @property
    def timeout(self) -> float:
        """Seconds that one call of the sink may take."""
        text = self.options.get("timeout")
        if text is None:
            return TIMEOUT
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < math.inf:
            raise ValueError(f"timeout={text}: expected seconds, more than 0")
        return seconds


def parse(sinks: str | Iterable[str]) -> tuple[Spec, ...]:
    """The sinks that a text asks for, or several texts. ValueError says what is wrong."""
    texts = sinks.split(";") if isinstance(sinks, str) else [t for s in sinks for t in s.split(";")]
    specs = tuple(_one(text.strip()) for text in texts if text.strip())
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the sink {name!r} is asked for twice")
    return specs


def check(sinks: str | Iterable[str]) -> tuple[str, ...]:
    """The same sinks, each as one text; ValueError says what is wrong."""
    return tuple(map(str, parse(sinks)))


def load(name: str) -> type[Sink]:
    """The class of a sink; ValueError lists the known ones."""
    if name in KNOWN:
        found = getattr(import_module(f"rollscope.sinks.{name}"), _CLASSES[name])
    else:
        points = {point.name: point for point in entry_points(group="rollscope.sinks")}
        if name not in points:
            known = ", ".join((*KNOWN, *sorted(points)))
            raise ValueError(
                f"there is no sink {name!r}. Known sinks: {known}. "
                'Type for example: rollscope.init(sinks=["trackio"])'
            )
        try:
            found = points[name].load()
        except Exception as error:
            raise ValueError(f"the sink {name!r} cannot be loaded: {error!r}") from error
    if not (isinstance(found, type) and issubclass(found, Sink)):
        raise ValueError(f"the sink {name!r} is not a subclass of rollscope.sinks.Sink: {found!r}")
    return found


def _one(text: str) -> Spec:
    name, colon, rest = text.partition(":")
    options: dict[str, str] = {}
    for item in rest.split(",") if colon else ():
        option, equals, value = item.partition("=")
        if not equals or not option.strip():
            raise ValueError(f"sink {text!r}: {item!r} is not an option; expected name=value")
        options[option.strip()] = value.strip()
    spec = Spec(name.strip(), options)
    known = load(spec.name).OPTIONS
    for option in spec.own:
        if option not in known:
            names = ", ".join((*known, *COMMON))
            raise ValueError(f"sink {spec.name!r} has no option {option!r}. It has: {names}")
    try:
        _ = spec.sample, spec.timeout
    except ValueError as error:
        raise ValueError(f"sink {text!r}: {error}") from error
    return spec
