"""A store on object storage, kept as a folder on this machine.

    mirror = Mirror("s3://bucket/rollouts", folder)
    mirror.sync()                       # the folder is now like the bucket
    with mirror.following(every=5.0):   # and stays so
        ...

Sealed files never change and logs only grow, so every byte is fetched once. A sealed
directory comes into the folder by one rename, when all its files are there; what went away
goes away last. So whoever reads the folder sees what a reader of the store itself would see.
Nothing is ever written to the bucket.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from ..listing import COVERS, Covers
from ..paths import PRIVATE, encode_name
from ..units import INFO, UnitInfo

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "file")


class MirrorError(ValueError):
    """An address that cannot be read; the text says why and what to do instead."""


class Synced(NamedTuple):
    """What a look at the bucket brought."""

    files: int
    bytes: int


def cache_of(url: str) -> Path:
    """Where the folder of an address lies on this machine."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "rollscope" / encode_name(url.rstrip("/"))


class Mirror:
    """Follows one address. One process may follow it into a folder at a time."""

    def __init__(self, url: str, folder: Path | None = None) -> None:
        self.url = url
        home = folder if folder is not None else cache_of(url)
        self.folder = home / "store"
        self._fetching = home / "fetching"
        self._remote: Any = _open(url)
        home.mkdir(PRIVATE, parents=True, exist_ok=True)
        self.folder.mkdir(exist_ok=True)
        shutil.rmtree(self._fetching, ignore_errors=True)  # what an earlier one left half done
        self._fetching.mkdir()

    def sync(self) -> Synced:
        """Look once and fetch what is new."""
        there = self._list()
        self._fetched: list[int] = []
        for unit, files in sorted(_units(there).items()):
            if not (self.folder / unit).exists():
                self._fetch_unit(unit, files)
        for path, meta in there.items():
            if _unit_of(path) is None:
                self._fetch_file(path, meta)
        self._forget(there)
        return Synced(len(self._fetched), sum(self._fetched))

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

    def _list(self) -> dict[str, Any]:
        import obstore

        found = {}
        for batch in obstore.list(self._remote):
            for meta in batch:
                parts = PurePosixPath(meta["path"]).parts
                if len(parts) > 2 and ".." not in parts and not meta["path"].startswith("/"):
                    found[meta["path"]] = meta
        return found

    def _fetch_unit(self, unit: str, files: dict[str, Any]) -> None:
        """A sealed directory, whole; nothing as long as some of it is still on its way there."""
        if not self._is_whole(unit, files):
            return
        new = Path(tempfile.mkdtemp(dir=self._fetching))
        with contextlib.suppress(FileNotFoundError):  # it went away: its successor is there
            for path in files:
                target = new / PurePosixPath(path).relative_to(unit)
                target.parent.mkdir(parents=True, exist_ok=True)
                self._download(path, target)
            place = self.folder / unit
            place.parent.mkdir(parents=True, exist_ok=True)
            new.rename(place)
            self._fetched += [meta["size"] for meta in files.values()]
        shutil.rmtree(new, ignore_errors=True)

    def _is_whole(self, unit: str, files: dict[str, Any]) -> bool:
        if f"{unit}/{COVERS}" in files:
            covers = msgspec.json.decode(self._read(f"{unit}/{COVERS}"), type=Covers)
            return all(self._has_tables(f"{unit}/{part}", files) for part in covers.parts)
        return PurePosixPath(unit).parent.name == "segments" and self._has_tables(unit, files)

    def _has_tables(self, unit: str, files: dict[str, Any]) -> bool:
        if f"{unit}/{INFO}" not in files:
            return False
        info = msgspec.json.decode(self._read(f"{unit}/{INFO}"), type=UnitInfo)
        return all(f"{unit}/{table}.parquet" in files for table in info.rows)

    def _fetch_file(self, path: str, meta: Any) -> None:
        """A log, of which only the new part is fetched, or a small file that may change."""
        target = self.folder / path
        have = target.stat().st_size if target.exists() else 0
        is_complete = have == meta["size"] and target.exists()
        if PurePosixPath(path).parent.name == "live" and have <= meta["size"]:
            if not is_complete:
                self._grow(path, target, have, meta["size"])
            return
        when = meta["last_modified"].timestamp()
        if is_complete and target.stat().st_mtime == when:
            return
        new = self._fetching / "file"
        with contextlib.suppress(FileNotFoundError):
            self._download(path, new)
            os.utime(new, (when, when))
            target.parent.mkdir(parents=True, exist_ok=True)
            new.replace(target)
            self._fetched.append(meta["size"])

    def _grow(self, path: str, target: Path, have: int, size: int) -> None:
        import obstore

        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError), target.open("ab") as log:
            if size > have:
                log.write(bytes(obstore.get_range(self._remote, path, start=have, end=size)))
            self._fetched.append(size - have)

    def _download(self, path: str, target: Path) -> None:
        import obstore

        with target.open("wb") as file:
            for piece in obstore.get(self._remote, path):
                file.write(piece)

    def _read(self, path: str) -> bytes:
        import obstore

        return bytes(obstore.get(self._remote, path).bytes())

    def _forget(self, there: dict[str, Any]) -> None:
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


def _units(there: dict[str, Any]) -> dict[str, dict[str, Any]]:
    units: dict[str, dict[str, Any]] = {}
    for path, meta in there.items():
        if (unit := _unit_of(path)) is not None:
            units.setdefault(unit, {})[path] = meta
    return units


def _open(url: str) -> Any:
    scheme = url.partition("://")[0]
    if scheme in ("http", "https"):
        raise MirrorError(
            f"{url}: a web server does not tell which files it has. Give the bucket behind it "
            "(s3://, gs://, az://), or open a running Rollscope server in the browser"
        )
    if scheme not in SCHEMES:
        raise MirrorError(f"{url}: known are {', '.join(f'{s}://' for s in SCHEMES)}")
    try:
        from obstore.store import from_url
    except ImportError:
        raise MirrorError(
            "reading from object storage needs obstore: pip install 'rollscope[remote]'"
        ) from None
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
    plain = scheme.startswith("s3") and endpoint.startswith("http://")
    try:
        return from_url(url, client_options={"allow_http": True} if plain else None)
    except Exception as error:
        raise MirrorError(f"{url}: {error}") from None
