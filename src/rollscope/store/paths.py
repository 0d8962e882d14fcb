"""Where things lie.

    <root>/<project>/<run>/{live,segments,merged,writers}/ and run.json

Names of projects and runs may be anything (`step=5`, `lr[1e-5]`, `Qwen/x`, `..`). On disk
they are percent-encoded to [A-Za-z0-9._-], so that no engine takes them for a glob, a
partition or another directory; `run.json` holds the true ones.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from ..model.known import known
from ..model.normalise import text
from ..model.schema import VERSION
from . import small

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_LONGEST = 200  # file systems allow 255 bytes; leave room for temporary names


def root() -> Path:
    """The store: `$ROLLSCOPE_DIR`, else `~/.rollscope` (workers have other working dirs)."""
    return Path(os.environ.get("ROLLSCOPE_DIR") or "~/.rollscope").expanduser().absolute()


def encode_name(name: str) -> str:
    """`name` as one safe directory name. Different names never share one."""
    data = str(text(name)).encode()
    out = "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in data)
    if out.startswith("."):  # also `.` and `..`
        out = "%2E" + out[1:]
    if len(out) > _LONGEST:
        out = out[:_LONGEST] + "%" + hashlib.blake2b(data, digest_size=8).hexdigest()
    return out or "%"


def run_dir(root: Path, project: str, run: str) -> Path:
    """The directory of a run."""
    return root / encode_name(project) / encode_name(run)


@known
class RunFile(msgspec.Struct, kw_only=True):
    """`run.json`: the true names of a run."""

    project: str
    run: str
    version: int = VERSION


PRIVATE = 0o700
"""Permissions of the directories of a store: prompts and answers are nobody else's business."""


def ensure_run(directory: Path, project: str, run: str, mode: int = PRIVATE) -> None:
    """Make the directories of a run and its run.json. Any number of writers may do so at once.

    New directories get these permissions, whatever the umask says. Existing ones stay as they are.
    """
    root = directory.parent.parent
    root.parent.mkdir(parents=True, exist_ok=True)
    parts = (directory / part for part in ("live", "segments", "merged", "writers"))
    for made in (root, directory.parent, directory, *parts):
        try:
            made.mkdir(PRIVATE)
        except FileExistsError:
            if not made.is_dir():
                raise
        else:
            if mode != PRIVATE:
                made.chmod(mode)
    path = directory / "run.json"
    if not path.exists():
        names = RunFile(project=str(text(project)), run=str(text(run)))
        replace_file(path, small.pack(names))


def read_run(directory: Path) -> RunFile | None:
    """The true names of the run in `directory`; None if it is no run's directory."""
    try:
        return small.load(directory / "run.json", RunFile)
    except (OSError, ValueError):
        return None


def entries(
    directory: str | os.PathLike[str], problems: dict[str, str] | None = None
) -> list[os.DirEntry[str]]:
    """What lies in a directory, by name, without unfinished work.

    Why it cannot be listed is told in `problems`.
    """
    try:
        with os.scandir(directory) as found:
            finished = [entry for entry in found if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        if problems is not None:
            problems[os.fspath(directory)] = f"cannot be listed ({error.strerror}); ignored"
        return []
    return sorted(finished, key=lambda entry: entry.name)


def is_dir(path: Path | os.DirEntry[str]) -> bool:
    """Is it a directory? A link that leads nowhere, or where we may not go, is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_gone(path: Path) -> bool:
    """Is nothing there (any more)? What we may not look at is there."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def numbered(directory: Path, problems: dict[str, str] | None = None) -> list[int]:
    """The numbers that directories here have as names."""
    numbers = []
    for entry in entries(directory, problems):
        if entry.name.isdecimal() and str(int(entry.name)) == entry.name and is_dir(entry):
            numbers.append(int(entry.name))
        elif problems is not None:
            problems[entry.path] = "not a merged directory of Rollscope; ignored"
    return numbers


def log_name(writer: str, seq: int) -> str:
    """The name of a log, without its ending: also the name of its segment."""
    return f"{writer}-{seq}"


def split_log_name(name: str) -> tuple[str, int] | None:
    """Writer and number of a log or segment; None for a foreign file."""
    writer, dash, seq = name.removesuffix(LOG_ENDING).rpartition("-")
    return (writer, int(seq)) if dash and seq.isdecimal() else None


LOG_ENDING = ".jsonl.zst"


def log_path(directory: Path, writer: str, seq: int) -> Path:
    return directory / "live" / (log_name(writer, seq) + LOG_ENDING)


def live_writers(directory: Path) -> int:
    """How many writers have live logs in a run; at least 1."""
    try:
        names = [split_log_name(path.name) for path in (directory / "live").iterdir()]
    except OSError:
        return 1
    return len({name[0] for name in names if name is not None}) or 1


def writer_path(directory: Path, writer: str) -> Path:
    return directory / "writers" / f"{writer}.json"


def replace_file(path: Path, data: bytes) -> None:
    """Write a small file so that readers see the old one or the new one, never a half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
