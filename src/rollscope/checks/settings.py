"""`checks.toml` in the store's root: which checks look, and with which parameters.

[reply.loop]            # for all projects
ratio = 12.0

[answer.leaked]         # a check that is off by default
on = true

[project.math.reply.loop]
on = false              # for one project
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .check import Bound, Check, Value
from .registry import known

FILE = "checks.toml"


class SettingsError(ValueError):
    """`checks.toml` cannot be understood. The text says where and what to type."""


class Settings:
    """What the file says; without a file, the defaults."""

    def __init__(self, path: Path, checks: Mapping[str, Check] | None = None) -> None:
        self._path = path
        self._checks = known() if checks is None else checks
        body = self._read()
        projects = body.pop("project", {})
        if not isinstance(projects, dict):
            raise SettingsError(f"{path}: [project] has a table for each project")
        self._everywhere = self._of_checks(body, "")
        self._projects = {
            name: self._of_checks(found, f"project.{name}.") for name, found in projects.items()
        }

    def _read(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"{self._path} cannot be read: {error}") from None

    def _of_checks(self, body: Mapping[str, Any], where: str) -> dict[str, dict[str, Any]]:
        """The settings of each check that a table names; ids may be quoted or not."""
        found: dict[str, dict[str, Any]] = {}
        for name, value in body.items():
            if not isinstance(value, dict):
                what = f"{where}{name} belongs to no check: write it below one, as in [reply.loop]"
                raise SettingsError(f"{self._path}: {what}")
            if name in self._checks:
                found[name] = value
                continue
            for rest, settings in value.items():
                if f"{name}.{rest}" not in self._checks or not isinstance(settings, dict):
                    raise SettingsError(self._unknown(f"{name}.{rest}", where))
                found[f"{name}.{rest}"] = settings
        for id, settings in found.items():
            self._try(self._checks[id], settings, where)
        return found

    def _unknown(self, id: str, where: str) -> str:
        import difflib

        near = difflib.get_close_matches(id, self._checks, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        where = f"{self._path}: [{where}{id}]"
        return f"{where}: there is no such check{hint} (rollscope findings lists them)"

    def _try(self, check: Check, settings: Mapping[str, Any], where: str) -> None:
        defaults = {p.name: p.default for p in check.parameters}
        for name, value in settings.items():
            place = f"{self._path}: [{where}{check.id}]"
            if name == "on":
                if not isinstance(value, bool):
                    raise SettingsError(f"{place}: on is true or false, not {value!r}")
            elif name not in defaults:
                listed = ", ".join(["on", *defaults])
                raise SettingsError(f"{place} has no parameter {name!r}; it has: {listed}")
            elif not _fits(value, defaults[name]):
                kind = _KINDS[type(defaults[name])]
                raise SettingsError(f"{place}: {name} is {kind}, not {value!r}")

    def bound(self, project: str) -> list[Bound[Any]]:
        """The checks that look at rollouts of a project, with their parameters."""
        found = []
        for id, check in self._checks.items():
            said = {**self._everywhere.get(id, {}), **self._projects.get(project, {}).get(id, {})}
            if said.pop("on", not check.off):
                settings: dict[str, Value] = {p.name: p.default for p in check.parameters}
                found.append(Bound(check, settings | {n: _typed(v) for n, v in said.items()}))
        return found

    def off(self, project: str) -> set[str]:
        """The checks that do not look at rollouts of a project."""
        return self._checks.keys() - {bound.check.id for bound in self.bound(project)}


_KINDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false",
          tuple: "a list of texts"}  # fmt: skip


def _fits(value: Any, default: Value) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, (int, float))
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    return isinstance(value, type(default))


def _typed(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value
