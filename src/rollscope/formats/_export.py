"""An export that can be interrupted and continued.

The finished part lies beside its final place, in `NAME.partial/`:

    plan.json    what was asked for: another question must not continue this one
    ids          the rollouts that were found when it began, an empty line between groups
    state.json   how much of that is safely written
    out          the file, or the folder of files

It is written in shards. After each shard, its bytes are synced and `state.json` is replaced.
Anything written after that is written again. The last act is one rename.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from ..model import Rollout
from ..model.cleaner import Cleaner
from ..model.grouping import Grouped, group_of
from ..model.known import known
from ..model.redact import Redactor
from ..store import disk

if TYPE_CHECKING:
    from ..store.read.bodies import StoredRollout

SHARD = 64 << 20
"""Bytes after which a shard of lines ends, at the next end of a group."""

IsFull = Callable[[], bool]
Read = Callable[[Iterable[str]], "Iterator[StoredRollout]"]
"""Reads whole rollouts as they are given away."""


class LineCount(NamedTuple):
    """How much a format's `write` has written."""

    lines: int
    left_out: Mapping[str, int] = MappingProxyType({})
    """How much was left out, by reason."""


def line_each(
    rollouts: Iterable[Rollout], out: IO[bytes], encode: Callable[[Rollout], bytes]
) -> LineCount:
    """Write every rollout as one line."""
    count = 0
    for rollout in rollouts:
        out.write(encode(rollout) + b"\n")
        count += 1
    return LineCount(count)


@known
class ExportPlan(msgspec.Struct, frozen=True):
    """What the export was asked for."""

    format: str
    store: str
    query: str
    order: str
    redact: tuple[str, ...] = ()


@known
class ExportState(msgspec.Struct):
    """How far the export is."""

    total: int
    secret: str
    """Key of the hashes that stand for redacted names."""
    rollouts: int = 0
    shards: int = 0
    bytes: int = 0
    lines: int = 0
    left_out: dict[str, int] = {}


class CannotExport(ValueError):
    """The export cannot be written there. The text says why and what to type."""


class ShardWriter(Protocol):
    """Writes an export, shard by shard."""

    def write(self, folder: Path, state: ExportState, shard: Shard) -> LineCount:
        """Write one shard into `folder` and sync it."""

    def finish(self, folder: Path, state: ExportState) -> Path:
        """Write what comes last. Returns the finished file or folder inside `folder`."""


class Export:
    """One export, from its first rollout or from where it stopped."""

    def __init__(self, out: Path, plan: ExportPlan, rows: Callable[[], Iterable[Grouped]]) -> None:
        """`rows` finds the rollouts, in order, with the fields that tell their groups."""
        self.out = out
        self.folder = out.with_name(out.name + ".partial")
        self._check(plan)
        if not (self.folder / "state.json").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            (self.folder / "plan.json").write_bytes(msgspec.json.encode(plan))
            total = self._choose(rows())
            self._save(ExportState(total=total, secret=secrets.token_hex(16)))
        data = (self.folder / "state.json").read_bytes()
        self.state = msgspec.json.decode(data, type=ExportState)

    def left(self) -> list[str]:
        """The ids that are not written yet, in order."""
        return [id for id, _ in islice(_read(self.folder / "ids"), self.state.rollouts, None)]

    def cleaner(self, clean: Redactor | None) -> Cleaner | None:
        """The redaction of this export. It hashes names as in the shards already written."""
        return None if clean is None else Cleaner(clean, bytes.fromhex(self.state.secret))

    def run(self, writer: ShardWriter, read: Read) -> ExportState:
        """Write all that is left and put it in its place."""
        chosen = _Chosen(self.folder / "ids", self.state.rollouts)
        while self.state.rollouts < self.state.total:
            shard = Shard(chosen, read)
            written = writer.write(self.folder, self.state, shard)
            self.state.rollouts += shard.taken
            self.state.shards += 1
            self.state.lines += written.lines
            self.state.left_out = dict(Counter(self.state.left_out) + Counter(written.left_out))
            self._save(self.state)
        made = writer.finish(self.folder, self.state)
        if self.out.is_dir():
            self.out.rmdir()  # `_check` saw that it is empty
        made.replace(self.out)
        shutil.rmtree(self.folder)
        return self.state

    def _check(self, plan: ExportPlan) -> None:
        if not self.out.parent.is_dir():
            raise CannotExport(f"--out {self.out}: there is no folder {self.out.parent}")
        if self.out.is_dir() and any(self.out.iterdir()):
            raise CannotExport(f"--out {self.out}: it is not empty; remove it or name another")
        try:
            begun = msgspec.json.decode((self.folder / "plan.json").read_bytes(), type=ExportPlan)
        except (FileNotFoundError, msgspec.MsgspecError):
            return
        if begun != plan:
            odd = [f for f in ExportPlan.__struct_fields__ if getattr(begun, f) != getattr(plan, f)]
            raise CannotExport(
                f"{self.folder} belongs to another export that was interrupted: its {odd[0]} is "
                f"{getattr(begun, odd[0])!r}, not {getattr(plan, odd[0])!r}. "
                f"Continue that one, remove the folder, or choose another --out"
            )

    def _choose(self, rows: Iterable[Grouped]) -> int:
        total, before = 0, None
        with (self.folder / "ids").open("w") as file:
            for row in rows:
                group = group_of(row)
                file.write(f"{row.id}\n" if group == before else f"\n{row.id}\n")
                before = group
                total += 1
        disk.sync(self.folder / "ids")
        return total

    def _save(self, state: ExportState) -> None:
        new = self.folder / "state.new"
        disk.write(new, msgspec.json.encode(state))
        new.replace(self.folder / "state.json")


class _Chosen:
    """The ids that are left, each with whether a group begins with it."""

    def __init__(self, path: Path, done: int) -> None:
        self._left = islice(_read(path), done, None)
        self._back: list[tuple[str, bool]] = []

    def next(self) -> tuple[str, bool] | None:
        return self._back.pop() if self._back else next(self._left, None)

    def put_back(self, taken: tuple[str, bool]) -> None:
        self._back.append(taken)


def _read(path: Path) -> Iterator[tuple[str, bool]]:
    with path.open() as file:
        is_new_group = False
        for line in file:
            id = line.strip()
            if id:
                yield id, is_new_group
            is_new_group = not id


def following(stream: Iterator[StoredRollout]) -> Read:
    """Reads what a stream gives that has begun with all that is left: those that are asked for, in
    the same order. What has gone by now is not in it."""
    waiting: StoredRollout | None = None

    def read(ids: Iterable[str]) -> Iterator[StoredRollout]:
        nonlocal waiting
        for id in ids:
            waiting = next(stream, None) if waiting is None else waiting
            if waiting is not None and waiting.rollout.id == id:
                found, waiting = waiting, None
                yield found

    return read


class Shard:
    """Where a shard takes its rollouts from. It asks at each end of a group whether it is full."""

    def __init__(self, chosen: _Chosen, read: Read) -> None:
        self._chosen = chosen
        self._read = read
        self.taken = 0

    def ids(self, is_full: IsFull) -> Iterator[str]:
        while (taken := self._chosen.next()) is not None:
            id, is_new_group = taken
            if is_new_group and self.taken and is_full():
                self._chosen.put_back(taken)
                return
            self.taken += 1
            yield id

    def rollouts(self, is_full: IsFull) -> Iterator[StoredRollout]:
        return self._read(self.ids(is_full))


class Lines:
    """Writes text lines: one file that grows."""

    def __init__(self, write: Callable[[Iterable[Rollout], IO[bytes]], LineCount]) -> None:
        self._write = write

    def write(self, folder: Path, state: ExportState, shard: Shard) -> LineCount:
        path = folder / "out"
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(state.bytes)  # what an interrupted shard left
            file.seek(state.bytes)
            taken = shard.rollouts(lambda: file.tell() - state.bytes > SHARD)
            written = self._write((stored.rollout for stored in taken), file)
            file.flush()
            os.fsync(file.fileno())
            state.bytes = file.tell()
        return written

    def finish(self, folder: Path, state: ExportState) -> Path:
        (folder / "out").touch()
        return folder / "out"
