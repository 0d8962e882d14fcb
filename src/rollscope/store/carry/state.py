"""What is known at home of each node: `<run>/carry/<node>.json`, for the doctor."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...model.known import known
from ...model.schema import VERSION
from .. import paths, small


@known
class Carried(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One node that a run is fetched from."""

    version: int = VERSION
    node: str
    """Ray's id of it."""
    host: str
    directory: str
    """Of the run, on that node."""
    bytes: int = 0
    """Fetched by the process that does it now."""
    heard: float | None = None
    """When the node last answered, Unix seconds. None: it has not."""
    left: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Logs that were on the node when it last answered: how many bytes lie here, and there."""
    writers: list[str] = msgspec.field(default_factory=list)
    """Who wrote there."""
    is_shared: bool = False
    """Its directory proved to be this one, so nothing is fetched from it."""
    gone: float | None = None
    """When Ray told that the node is dead. None: it has not."""
    problem: str | None = None
    """Why nothing is fetched right now."""


def write(directory: Path, state: Carried) -> None:
    folder = directory / "carry"
    folder.mkdir(exist_ok=True)
    paths.replace_file(folder / f"{state.node}.json", small.pack(state))


def read_all(directory: Path, problems: dict[str, str] | None = None) -> list[Carried]:
    """The nodes that a run was fetched from."""
    states = []
    for entry in paths.entries(directory / "carry", problems):
        if not entry.name.endswith(".json"):
            continue
        try:
            states.append(small.load(Path(entry.path), Carried))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            if problems is not None:
                problems[entry.path] = f"cannot be read ({error})"
    return states
