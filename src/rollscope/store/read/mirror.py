"""A store on object storage, kept as a folder on this machine.

    mirror = Mirror("s3://bucket/rollouts", folder)
    mirror.sync()                       # the folder is now like the bucket
    with mirror.following(every=5.0):   # and stays so
        ...

Sealed files never change and logs only grow, so every byte is fetched once. A sealed
directory comes into the folder by one rename, when all its files are there; what went away
goes away last. So whoever reads the folder sees what a reader of the store itself would see.
Nothing is ever written to the bucket.

With `whole=False`, of a sealed directory only the descriptions come here, `sealed` knows the rest,
and `far` reads it by ranges.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from .. import small
from ..listing import COVERS, Covers
from ..paths import PRIVATE, encode_name
from ..units import INFO, UnitInfo
from .bucket import Bucket, Remote

_AT_ONCE = 32
"""Small files that are asked for at a time: each takes as long as the way there and back."""
_ABANDONED = 86_400.0
"""Seconds after which what somebody began to fetch is nobody's any more."""
_OF_A_RUN = ("run.json", "live", "writers", "derived", "reports")
"""What is read of a run, besides what is sealed. The rest is for processes beside the writers."""


class Synced(NamedTuple):
    """What a look at the bucket brought."""

    files: int
    bytes: int


def cache_of(url: str) -> Path:
    """Where what comes from an address lies on this machine."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "rollscope" / encode_name(url.rstrip("/"))


class Mirror:
    """Follows one address. One process may follow it into a folder at a time."""

    def __init__(self, url: str, folder: Path | None = None, *, whole: bool = True) -> None:
        self.url = url
        self.bucket = Bucket(url)
        self._whole = whole
        home = folder if folder is not None else cache_of(url)
        self.folder = home / ("store" if whole else "descriptions")
        self.sealed: dict[str, Remote] = {}
        """The files of sealed directories that are here, by their path in the store."""
        home.mkdir(PRIVATE, parents=True, exist_ok=True)
        self.folder.mkdir(exist_ok=True)
        # Its own place: several processes may read one bucket, and none takes away another's.
        for left in home.glob("fetching-*"):
            if time.time() - left.stat().st_mtime > _ABANDONED:
                shutil.rmtree(left, ignore_errors=True)
        self._fetching = Path(tempfile.mkdtemp(prefix="fetching-", dir=home))
        self.close = weakref.finalize(self, shutil.rmtree, self._fetching, True)
        """Takes away what was not finished."""

    def sync(self) -> Synced:
        """Look once and fetch what is new."""
        there = self.bucket.list()
        units = _units(there)
        self._fetched: list[int] = []
        new = [unit for unit in sorted(units) if not (self.folder / unit).exists()]
        self._all(lambda unit: self._fetch_unit(unit, units[unit]), new)
        self._all(
            lambda path: self._fetch_file(path, there[path]),
            (path for path in there if _unit_of(path) is None and path.split("/")[2] in _OF_A_RUN),
        )
        self._forget(there)
        here = {unit: files for unit, files in units.items() if (self.folder / unit).exists()}
        self.sealed = {path: remote for files in here.values() for path, remote in files.items()}
        return Synced(len(self._fetched), sum(self._fetched))

    def _all(self, work: Callable[[str], None], names: Iterable[str]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(work, names):
                pass

    @contextlib.contextmanager
    def following(
        self, every: float = 5.0, failed: Callable[[str], None] | None = None
    ) -> Iterator[None]:
        """Looks again and again until the block ends; `failed` is told once per kind of failure."""
        end, told = threading.Event(), set[str]()

        def run() -> None:
            while not end.wait(every):
                try:
                    self.sync()
                except Exception as error:  # the network: what is here can still be read
                    if failed is not None and type(error).__name__ not in told:
                        told.add(type(error).__name__)
                        failed(f"{self.url}: {error}")

        thread = threading.Thread(target=run, name="rollscope-mirror", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join(30)

    def _fetch_unit(self, unit: str, files: dict[str, Remote]) -> None:
        """A sealed directory; nothing as long as some of it is still on its way there."""
        new = Path(tempfile.mkdtemp(dir=self._fetching))
        described = [path for path in files if path.endswith(".json")]
        rest = [path for path in files if self._whole and path not in described]
        with contextlib.suppress(FileNotFoundError):  # it went away: its successor is there
            self._download(unit, described, new)
            if _is_whole(unit, new, files):
                self._download(unit, rest, new)
                place = self.folder / unit
                place.parent.mkdir(parents=True, exist_ok=True)
                self.sealed |= files
                with contextlib.suppress(OSError):  # another process has brought it
                    new.rename(place)
                self._fetched += [files[path].size for path in (*described, *rest)]
        shutil.rmtree(new, ignore_errors=True)

    def _download(self, unit: str, files: list[str], new: Path) -> None:
        for path in files:
            target = new / PurePosixPath(path).relative_to(unit)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._write(path, target)

    def _write(self, path: str, target: Path) -> None:
        with target.open("wb") as file:
            for piece in self.bucket.pieces(path):
                file.write(piece)

    def _fetch_file(self, path: str, remote: Remote) -> None:
        """A log, of which only the new part is fetched, or a small file that may change."""
        target = self.folder / path
        have = target.stat().st_size if target.exists() else 0
        is_complete = have == remote.size and target.exists()
        if PurePosixPath(path).parent.name == "live" and have <= remote.size:
            if not is_complete:
                self._grow(path, target, have, remote.size)
            return
        if is_complete and target.stat().st_mtime == remote.time:
            return
        new = Path(tempfile.mkdtemp(dir=self._fetching))
        with contextlib.suppress(FileNotFoundError):
            self._write(path, new / "file")
            os.utime(new / "file", (remote.time, remote.time))
            target.parent.mkdir(parents=True, exist_ok=True)
            (new / "file").replace(target)
            self._fetched.append(remote.size)
        shutil.rmtree(new, ignore_errors=True)

    def _grow(self, path: str, target: Path, have: int, size: int) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            news = self.bucket.read(path, have, size) if size > have else b""
            log = os.open(target, os.O_WRONLY | os.O_CREAT, 0o600)
            try:  # at its place: another process may have written the same bytes meanwhile
                os.pwrite(log, news, have)
            finally:
                os.close(log)
            self._fetched.append(size - have)

    def _forget(self, there: dict[str, Remote]) -> None:
        """Take away what is gone from the bucket, whole directories at once."""
        kept = set(_units(there))
        for path in [p for p in self.folder.rglob("*") if p.is_file()]:
            name = path.relative_to(self.folder).as_posix()
            unit = _unit_of(name)
            if unit is None and name not in there:
                path.unlink(missing_ok=True)
            elif unit is not None and unit not in kept and (self.folder / unit).exists():
                gone = Path(tempfile.mkdtemp(dir=self._fetching)) / "gone"
                (self.folder / unit).rename(gone)
                shutil.rmtree(gone.parent, ignore_errors=True)


def _unit_of(path: str) -> str | None:
    """The sealed directory that a file belongs to: `project/run/segments/name`, or merged."""
    parts = PurePosixPath(path).parts
    if len(parts) > 4 and parts[2] in ("segments", "merged"):
        return "/".join(parts[:4])
    return None


def _units(there: dict[str, Remote]) -> dict[str, dict[str, Remote]]:
    units: dict[str, dict[str, Remote]] = {}
    for path, remote in there.items():
        if (unit := _unit_of(path)) is not None:
            units.setdefault(unit, {})[path] = remote
    return units


def _is_whole(unit: str, new: Path, files: dict[str, Remote]) -> bool:
    """Are all files there that the descriptions in `new` name?"""
    try:
        if f"{unit}/{COVERS}" in files:
            covers = small.load(new / COVERS, Covers)
            return all(_has_tables(f"{unit}/{part}", new / part, files) for part in covers.parts)
        return PurePosixPath(unit).parent.name == "segments" and _has_tables(unit, new, files)
    except ValueError:
        return True  # it is damaged: the reader says so, and shows what can be shown


def _has_tables(unit: str, new: Path, files: dict[str, Remote]) -> bool:
    if f"{unit}/{INFO}" not in files:
        return False
    info = small.load(new / INFO, UnitInfo)
    return all(f"{unit}/{table}.parquet" in files for table in info.rows)
