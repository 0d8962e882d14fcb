"""A store on object storage, read where it lies.

    far = Far("s3://bucket/rollouts")
    Reader(far=far)

The descriptions of what is sealed, and live logs, come here (`Mirror(whole=False)`). Tables are
files of a file system of the engine, which asks for ranges: the end of a table, then the columns
and row groups that a question needs. What came is kept in pieces, at most so many bytes of them,
for the next question and the next command.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .. import paths
from ..paths import PRIVATE
from ..units import FileSum
from .bucket import Bucket, BucketError, Remote
from .mirror import Mirror, cache_of

try:
    from fsspec import AbstractFileSystem
except ImportError:
    raise BucketError(
        "reading from object storage needs fsspec: pip install 'rollscope[remote]'"
    ) from None

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PIECE = 32 << 10
"""Bytes. Neighbours are asked for in one go."""
LARGEST = 16 << 20
"""Bytes that are asked for at once, at most."""
KEPT = 2 << 30
"""Bytes of pieces that are kept; `ROLLSCOPE_CACHE_BYTES` says otherwise."""
_EVERY = 5.0
"""Seconds between two looks at the bucket, at least."""


class Listing(msgspec.Struct):
    """What a look saw, for the commands that come right after."""

    time: float
    """When it was, Unix seconds."""
    took: float
    files: dict[str, Remote]


def _rest(took: float) -> float:
    """Seconds between two looks: looking takes a twentieth of the time at most."""
    return max(_EVERY, 20 * took)


class Far:
    """One store on object storage. Any thread may ask."""

    prefix = "rollscope://store/"
    """What the engine calls the store."""

    def __init__(self, url: str, *, keep: int | None = None) -> None:
        self.url = url
        self._mirror = Mirror(url, whole=False)
        self.folder = self._mirror.folder
        said = os.environ.get("ROLLSCOPE_CACHE_BYTES", "")
        limit = keep if keep is not None else int(said) if said.isdecimal() else KEPT
        self._pieces = Pieces(cache_of(url) / "pieces", limit)
        self._looking: threading.Thread | None = None
        self._next = 0.0
        self._lock = threading.Lock()
        self._trouble: BucketError | None = None
        self.silent: str | None = None
        """Why the last look at the bucket failed. What came before can still be read."""
        self._listed = cache_of(url) / "listing.json"
        if not self._is_listed():
            self._look()
        if self.silent is not None:
            raise BucketError(self.silent)

    def close(self) -> None:
        looking = self._looking
        if looking is not None:
            looking.join(30)
        self._mirror.close()

    # -- what lies there -------------------------------------------------------------------

    def look(self, *, now: bool = False) -> None:
        """See what is new in the bucket: beside the caller, or `now`."""
        with self._lock:
            if self._looking is not None and self._looking.is_alive():
                looking = self._looking
            elif now or time.monotonic() >= self._next:
                looking = threading.Thread(target=self._look, name="rollscope-far", daemon=True)
                self._looking = looking
                looking.start()
            else:
                return
        if now:
            looking.join()

    def _look(self) -> None:
        began = time.monotonic()
        try:
            self._mirror.sync()
            self.silent = None
        except (BucketError, OSError) as error:
            self.silent = str(error)
        took = time.monotonic() - began
        self._next = time.monotonic() + _rest(took)
        if self.silent is None:
            listing = Listing(time=time.time(), took=took, files=self._mirror.sealed)
            with contextlib.suppress(OSError):  # the next command lists again
                paths.replace_file(self._listed, msgspec.json.encode(listing))

    def _is_listed(self) -> bool:
        """Has another command just looked? Then this one takes what it saw."""
        try:
            listing = msgspec.json.decode(self._listed.read_bytes(), type=Listing)
        except (OSError, ValueError):
            return False
        left = listing.time + _rest(listing.took) - time.time()
        if not 0 < left <= _rest(listing.took):
            return False
        self._mirror.sealed = listing.files
        self._next = time.monotonic() + left
        return True

    def name(self, path: Path | str) -> str:
        """What the engine calls a sealed file."""
        return f"{self.prefix}{os.path.relpath(path, self.folder)}"

    def address(self, path: Path) -> str:
        """Where a sealed file lies, for other programs."""
        return f"{self.url.rstrip('/')}/{os.path.relpath(path, self.folder)}"

    def remote(self, name: str) -> tuple[str, Remote]:
        """A file by the engine's name. Nothing but sealed files of the store can be named."""
        path = name.removeprefix(self.prefix)
        found = self._mirror.sealed.get(path)
        if found is None:
            raise FileNotFoundError(path)
        return path, found

    def trouble(self, path: Path, said: FileSum | None = None) -> str | None:
        """What is wrong with a table at first sight; None: nothing. It is not opened."""
        found = self._mirror.sealed.get(os.path.relpath(path, self.folder))
        if found is None:
            return "missing"
        return None if said is None or said.size == found.size else "cut off"

    # -- what stands in it -----------------------------------------------------------------

    def attach(self, db: DuckDBPyConnection) -> None:
        """The engine can read the tables from now on."""
        db.register_filesystem(_Tables(self))

    def read(self, name: str, start: int, end: int) -> bytes:
        """Bytes of a table. The engine wraps what is raised here: `told` unwraps it."""
        path, remote = self.remote(name)
        try:
            return self._pieces.read(self._mirror.bucket, path, remote, start, end)
        except BucketError as error:
            self._trouble = error
            raise
        except FileNotFoundError:
            self._next = 0.0  # it has gone: there is something new
            raise

    def told(self, error: Exception) -> None:
        """Raise what the storage said, if that is why a question failed."""
        if self._trouble is not None and BucketError.__name__ in str(error):
            raise self._trouble from None


class Pieces:
    """Parts of files, kept on this machine. Any number of threads and processes share them."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._size: int | None = None
        self._lock = threading.Lock()

    def read(self, bucket: Bucket, path: str, remote: Remote, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`; what is not here is fetched, neighbours in one go."""
        end = min(end, remote.size)
        if start >= end:
            return b""
        key = hashlib.blake2b(repr((path, remote)).encode(), digest_size=12).hexdigest()
        first, last = start // PIECE, (end - 1) // PIECE
        have: dict[int, bytes] = {}
        missing: list[list[int]] = []
        for n in range(first, last + 1):
            piece = self._load(key, n, min(PIECE, remote.size - n * PIECE))
            if piece is not None:
                have[n] = piece
            elif missing and missing[-1][-1] == n - 1 and len(missing[-1]) < LARGEST // PIECE:
                missing[-1].append(n)
            else:
                missing.append([n])
        for run in missing:
            begin, stop = run[0] * PIECE, min((run[-1] + 1) * PIECE, remote.size)
            found = bucket.read(path, begin, stop)
            if len(found) != stop - begin:
                raise FileNotFoundError(path)  # another file lies there by now
            for n in run:
                have[n] = found[(n - run[0]) * PIECE :][:PIECE]
                self._keep(key, n, have[n])
        whole = b"".join(have[n] for n in range(first, last + 1))
        return whole[start - first * PIECE : end - first * PIECE]

    def _load(self, key: str, n: int, size: int) -> bytes | None:
        place = self._folder / key[:2] / f"{key}-{n}"
        try:
            found = place.read_bytes()
            os.utime(place)  # those that nobody asks for go first
        except OSError:
            return None
        return found if len(found) == size else None

    def _keep(self, key: str, n: int, piece: bytes) -> None:
        place = self._folder / key[:2] / f"{key}-{n}"
        with contextlib.suppress(OSError):  # a full disk: the next question fetches it again
            place.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                file.write(piece)
            Path(file.name).replace(place)
            self._added(len(piece))

    def _added(self, size: int) -> None:
        with self._lock:
            if self._size is None:
                self._size = sum(about.st_size for _, about in self._all())
            else:
                self._size += size
            if self._size <= self._limit:
                return
            found = sorted(self._all(), key=lambda one: one[1].st_mtime)
            self._size = sum(about.st_size for _, about in found)
            for place, about in found:
                if self._size <= self._limit * 4 // 5:
                    break
                Path(place).unlink(missing_ok=True)
                self._size -= about.st_size

    def _all(self) -> list[tuple[str, os.stat_result]]:
        found = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                with contextlib.suppress(OSError):
                    place = f"{folder}/{name}"
                    found.append((place, os.stat(place)))  # noqa: PTH116
        return found


class _Tables(AbstractFileSystem):  # type: ignore[misc]
    """The sealed files of a store, as the engine sees them: to be read, nothing else."""

    protocol = "rollscope"
    cachable = False

    def __init__(self, far: Far) -> None:
        super().__init__()
        self._far = far

    def glob(self, path: str, **_: Any) -> list[str]:
        return [path]  # names are no patterns

    def exists(self, path: str, **_: Any) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return bool(self._far.remote(path))
        return False

    isfile = exists

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": self._far.remote(path)[1].size, "type": "file"}

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._far.remote(path)[1].time, UTC)

    def open(self, path: str, mode: str = "rb", **_: Any) -> _Table:
        if mode != "rb":
            raise PermissionError(f"{path} can only be read")
        return _Table(self._far, path)


class _Table(io.RawIOBase):
    def __init__(self, far: Far, name: str) -> None:
        self._far, self._name, self._at = far, name, 0
        self._size = far.remote(name)[1].size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size is None or size < 0 else self._at + size
        found = self._far.read(self._name, self._at, end)
        self._at += len(found)
        return found
