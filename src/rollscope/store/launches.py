"""Which launch of a run began after which: by what its begin found there, not by clocks.

A writer that begins notes how much every other launch had written by then. A launch that wrote
nothing more had ended. Clocks of different machines may be a day apart; they decide only between
launches that never saw each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from . import paths
from .listing import RunFiles, list_run
from .writers import WriterInfo, read_infos


def look(directory: Path, launch: str) -> dict[str, int]:
    """What a writer of this launch finds as it begins: bytes of the others' logs, by launch."""
    infos = read_infos(directory)
    if not infos:
        return {}
    found = written(list_run(directory), infos.values())
    return {other: size for other, size in found.items() if other != launch}


def written(files: RunFiles, infos: Iterable[WriterInfo]) -> dict[str, int]:
    """How many bytes the logs of each launch have, sealed or not."""
    logs = dict(files.covers.logs)
    for unit in files.units.values():
        logs |= unit.info.logs
    logs |= {name: log.size for name, log in files.logs.items()}
    launches = {info.writer: info.launch for info in infos}
    sizes = dict.fromkeys(launches.values(), 0)
    for name, size in logs.items():
        names = paths.split_log_name(name)
        if names is not None and names[0] in launches:
            sizes[launches[names[0]]] += size
    return sizes


def found(infos: Iterable[WriterInfo]) -> dict[str, dict[str, int]]:
    """What each launch found as its first writer began. What only a later one found is -1."""
    looks: dict[str, list[dict[str, int]]] = {}
    for info in infos:
        if info.found is not None:
            looks.setdefault(info.launch, []).append(info.found)
    return {
        launch: {name: min(look.get(name, -1) for look in some) for name in set().union(*some)}
        for launch, some in looks.items()
    }
