"""What runs on a node that is fetched from: an actor that reads the files of one run there.

Ray sends this class by value, so the node needs no Rollscope where Ray's own workers look for it.
Therefore only the standard library is used here, and answers are made of plain types.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

_LOOK = 0.1
"""Seconds between two looks for something new: about two frames of a writer."""

Answer = tuple[dict[str, tuple[int, bytes]], dict[str, int], list[tuple[str, int, bytes]]]
"""Writers' files that have changed, each with its time of change; the size of every log; pieces of
logs, each with its name and offset."""


class Node:
    """The files of one run on this node. It is told which when there is one."""

    def sees(self, path: str) -> bool:
        """Is this file here?"""
        return Path(path).exists()

    def begin(self, directory: str, token: str) -> None:
        """Follow a run. `token` is the name of home's file."""
        self._folder = Path(directory).parent.parent / ".carry"
        self._token = self._folder / token
        self._live = Path(directory, "live")
        self._writers = Path(directory, "writers")

    def more(self, have: dict[str, int], seen: dict[str, int], budget: int, wait: float) -> Answer:
        """What is new, or nothing after `wait` seconds. `have`: how many bytes of which logs lie at
        home; no other log is read. `seen`: the times of change of the writers' files there. At most
        `budget` bytes of logs."""
        until = time.monotonic() + wait
        while True:
            # Writers' files first: the logs then hold at least what these say.
            infos = self._infos(seen)
            sizes = {name: found.st_size for name, found in _regular(self._live).items()}
            pieces = self._pieces(have, sizes, budget)
            is_new = infos or pieces or not sizes.keys() <= have.keys()
            if is_new or time.monotonic() >= until:
                return infos, sizes, pieces
            time.sleep(_LOOK)

    def _infos(self, seen: dict[str, int]) -> dict[str, tuple[int, bytes]]:
        infos = {}
        for name, found in _regular(self._writers).items():
            if seen.get(name) != found.st_mtime_ns:
                try:
                    with (self._writers / name).open("rb") as file:
                        changed = os.fstat(file.fileno()).st_mtime_ns
                        infos[name] = changed, file.read()
                except OSError:
                    continue  # being replaced
        return infos

    def _pieces(
        self, have: dict[str, int], sizes: dict[str, int], budget: int
    ) -> list[tuple[str, int, bytes]]:
        """The short ones first, so that a long one keeps none of them waiting."""
        left = {name: sizes[name] - size for name, size in have.items() if name in sizes}
        pieces = []
        for name in sorted((name for name in left if left[name] > 0), key=left.__getitem__):
            if budget <= 0:
                break
            try:
                with (self._live / name).open("rb") as file:
                    file.seek(have[name])
                    data = file.read(min(left[name], budget))
            except OSError:
                continue
            budget -= len(data)
            pieces.append((name, have[name], data))
        return pieces

    def remove(self, name: str, size: int, other: tuple[int, int] | None) -> str:
        """Remove a log of which this many bytes lie at home. `other`: inode and time of change of
        the file there. Returns `removed`, `grown`, or `same`: this is home's own directory."""
        path = self._live / name
        if self._is_home():
            return "same"
        try:
            found = path.stat()
        except FileNotFoundError:
            return "removed"
        if other is not None and (found.st_ino, found.st_mtime_ns) == tuple(other):
            return "same"
        if found.st_size != size:
            return "grown"
        path.unlink()
        return "removed"

    def _is_home(self) -> bool:
        """Is home's file here? What this node makes in that folder first lets a network file system
        look at it anew."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            probe = self._folder / f".{os.urandom(8).hex()}"
            probe.touch()
            probe.unlink()
        return self._token.exists()


def _regular(folder: Path) -> dict[str, os.stat_result]:
    """Files of a folder, without unfinished ones."""
    files = {}
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return {}
    for path in paths:
        try:
            found = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            files[path.name] = found
    return files
