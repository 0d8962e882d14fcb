"""Foreign, half-copied and unreadable files cost only themselves, and are named."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_logs import LogFile, rollouts

from rollscope.checks.doctor import examine
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal
from rollscope.store.writers import WriterInfo, write_info


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    """A look that never ends becomes an error."""
    signal.alarm(600)
    yield
    signal.alarm(0)


def make_store(root: Path) -> Path:
    """A run with rollouts in a part, in a segment and in a live log; and another run."""
    LogFile(root, run="other").log(*rollouts(1, "o"))
    for seq, stage in enumerate(("merged", "sealed", "live")):
        log = LogFile(root, seq=seq)
        log.log(*rollouts(2, stage))
        if stage != "live":
            seal(log.directory, log.name)
        if stage == "merged":
            extra = LogFile(root, writer="x")
            extra.log(*rollouts(1, "extra"))
            seal(extra.directory, extra.name)
            assert compact(log.directory, grace=0).merged == 2
    info = WriterInfo(
        writer="w",
        project="p",
        run="r",
        launch="launch",
        host="h",
        pid=1,
        place="",
        started=1.0,
        ends={log.name: log.path.stat().st_size},
    )
    write_info(log.directory, info)
    return log.directory


def seen(root: Path) -> tuple[set[str], str]:
    """The ids that can be read one by one, and everything that the doctor says."""
    with Reader(root) as reader:
        db = reader.connection
        ids = [id for (id,) in db.execute("SELECT id FROM rollouts").fetchall()]
        assert len(ids) == len(set(ids))
        assert all(reader.get(id) is not None for id in ids)
        said = "\n".join(finding.text for finding in examine(reader, deep=True))
    return set(ids), said


ALL = {"o0", "merged0", "merged1", "extra0", "sealed0", "sealed1", "live0", "live1"}
MERGED = {"merged0", "merged1", "extra0"}


def fifo(path: str) -> Callable[[Path], None]:
    def put(run: Path) -> None:
        (run / path).unlink(missing_ok=True)
        os.mkfifo(run / path)

    return put


def link(path: str, to: str) -> Callable[[Path], None]:
    return lambda run: (run / path).symlink_to(to)


def replace_live(run: Path) -> None:
    shutil.rmtree(run / "live")
    (run / "live").write_text("not a directory")


def part(run: Path) -> Path:
    return next(path for path in (run / "merged" / "1").iterdir() if path.is_dir())


FOREIGN: dict[str, tuple[Callable[[Path], object], set[str], str]] = {
    "a part that is being copied": (
        lambda run: part(run).rename(run.parent.parent / "aside"), MERGED, "is it being copied"),
    "a merged directory that is being copied": (
        lambda run: (run / "merged" / "2").mkdir(), set(), "merged/2/covers.json"),
    "a number with zeros": (lambda run: (run / "merged" / "007").mkdir(), set(), "merged/007"),
    "a pipe for a log": (fifo("live/w9-1.jsonl.zst"), set(), "w9-1"),
    "a pipe for covers": (fifo("merged/1/covers.json"), set(), "not a regular file"),
    "a pipe for a segment's word": (fifo("segments/w-1/segment.json"), set(), "segment.json"),
    "a pipe for a table": (
        fifo("segments/w-1/rollouts.parquet"), {"sealed0", "sealed1"}, "rollouts.parquet"),
    "a pipe for a writer": (fifo("writers/w.json"), set(), "writers/w.json"),
    "a pipe for the names": (fifo("run.json"), set(), "run.json"),
    "a link in a circle": (link("live/w8-1.jsonl.zst", "w8-1.jsonl.zst"), set(), "w8-1"),
    "a circle of segments": (link("segments/w8-1", "w8-1"), set(), "w8-1"),
    "a circle of runs": (link("../r2", "r2"), set(), ""),
    "a link to a run": (link("../r2", "r"), set(), "another run of this store"),
    "a link to a project": (link("../../p2", "p"), set(), "another run of this store"),
    "a link to a segment": (link("segments/w8-1", "w-1"), set(), "a copy of another segment"),
    "an editor's lock": (link("live/w-9.jsonl.zst", "me@host.123"), set(), "leads nowhere"),
    "a file for live": (replace_live, {"live0", "live1"}, "Not a directory"),
    "a file in the way": (lambda run: (run / "merged" / "2").write_text(""), set(), "merged/2"),
    "findings half copied": (
        lambda run: (run / "derived" / "x-0").mkdir(parents=True), set(), "derived/x-0"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_what_does_not_belong_there_costs_only_itself(tmp_path: Path, name: str) -> None:
    root = tmp_path / "store"
    run = make_store(root)
    put, costs, words = FOREIGN[name]
    put(run)
    ids, said = seen(root)
    assert ids == ALL - costs and words in said
    for directory in (run, root / "p" / "other"):
        compact(directory, grace=0)
    assert seen(root)[0] >= ALL - costs


def test_an_open_reader_sees_what_comes_beside_an_editors_lock(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.log(*rollouts(1))
    link("live/w-9.jsonl.zst", "me@host.123")(log.directory)
    for part in ("live", "segments", "merged"):
        os.utime(log.directory / part, (1.0, 1.0))  # nothing has changed for a long time
    with Reader(tmp_path) as reader:
        log.log(*rollouts(2, "more"))
        assert reader.refresh()
        assert reader.get("more1") is not None


def test_a_copy_that_is_completed_is_whole(tmp_path: Path) -> None:
    root = tmp_path / "store"
    run = make_store(root)
    missing = part(run)
    missing.rename(tmp_path / "aside")
    done = compact(run, grace=0)
    assert not done.merged and "is it being copied" in done.refused[0]
    (tmp_path / "aside").rename(missing)
    assert seen(root)[0] == ALL
    later = LogFile(root, writer="later")
    later.log(*rollouts(1, "later"))
    seal(later.directory, later.name)
    assert compact(run, grace=0).merged
    assert seen(root)[0] == ALL | {"later0"}


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may look into; pytest's own is only ours."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def as_nobody(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For a while we are a user who is not root."""
    temporary.mkdir()
    temporary.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


LOCKED = {
    "live/w-2.jsonl.zst": {"live0", "live1"},
    "live": {"live0", "live1"},
    "segments": {"sealed0", "sealed1"},
    "segments/w-1": {"sealed0", "sealed1"},
    "segments/w-1/segment.json": set(),
    "segments/w-1/messages.parquet": set(),
    "merged": MERGED,
    "merged/1/covers.json": set(),
    "writers": set(),
    "run.json": set(),
    ".": ALL - {"o0"},
    "..": ALL,
}


@pytest.mark.parametrize("path", LOCKED)
def test_what_this_user_may_not_read_costs_only_itself(
    public: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = public / "store"
    run = make_store(root)
    for inside in (root, *root.rglob("*")):
        inside.chmod(0o755)
    locked = (run / path).resolve()
    locked.chmod(0)
    try:
        with as_nobody(public / "temporary", monkeypatch):
            ids, said = seen(root)
    finally:
        locked.chmod(0o755)
    assert ids == ALL - LOCKED[path]
    assert str(locked) in said
