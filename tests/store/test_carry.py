"""What lies on another node comes home: frame by frame, whatever breaks, every rollout once.

The two sides are real, each with a directory of its own; only Ray is not between them. That it
carries the calls is tested on a cluster: tests/trainers/ray.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Message, Rollout
from rollscope.checks.doctor import examine
from rollscope.sinks.follower import Follower
from rollscope.store import frames, lock, writers
from rollscope.store.carry import home, source, state
from rollscope.store.carry.home import Note, Task
from rollscope.store.carry.node import Node
from rollscope.store.carry.source import Shared, Source
from rollscope.store.read.reader import Reader
from rollscope.store.seal.segment import CannotSeal, seal
from rollscope.store.write.log import Entry, Limits, LogWriter


class Pair:
    """A run of a node, marked as one that is fetched from home, and home's own directory."""

    def __init__(self, there: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(source, "WAIT", 0.0)
        monkeypatch.setattr(source, "PAUSE", 0.0)
        self.there, self.here = there / "p" / "r", here / "p" / "r"
        self.root = here
        here.mkdir(exist_ok=True)
        monkeypatch.setenv("ROLLSCOPE_DIR", str(there))
        self.link = Node()
        self.link.begin(str(self.there), "t")

    def mark(self) -> None:
        (self.there / "carry").mkdir(parents=True)
        home.mark_away(self.there)

    def source(self) -> Source:
        task = Task(root=str(self.root), token="t", address="a", job="j", seal=False)
        names = {"project": "p", "run": "r", "root": str(self.root)}
        return Source(task, Note(node="n" * 56, host="h", directory=str(self.there), **names))

    def logs(self, side: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (side / "live").glob("*.zst")}

    def seen(self) -> list[str]:
        """The tasks of all rollouts at home."""
        with Reader(self.root) as reader:
            rows = reader.cursor().execute("SELECT task FROM rollouts ORDER BY task").fetchall()
        return [task for (task,) in rows]

    def said(self) -> list[str]:
        with Reader(self.root) as reader:
            return [f"{f.level}: {f.text}" for f in examine(reader) if f.text.startswith("node ")]


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    made = Pair(tmp_path / "there", tmp_path / "here", monkeypatch)
    made.mark()
    return made


def begin() -> rollscope.Run:
    return rollscope.init(project="p", run="r")


def record(run: rollscope.Run, *tasks: str) -> None:
    run.log([Rollout(task=task, messages=[Message(role="user", content=task)]) for task in tasks])
    assert run.flush()


def come(source: Source, link: Any, times: int = 4) -> None:
    for _ in range(times):
        source.step(link)


def test_a_log_comes_home_as_it_grows_whole_frames_only(pair: Pair) -> None:
    source = pair.source()
    with begin() as run:
        for n in range(3):
            record(run, f"{n}")
            come(source, pair.link)
            assert pair.logs(pair.here) == pair.logs(pair.there)
            assert pair.seen() == [str(i) for i in range(n + 1)]
        (name,) = pair.logs(pair.there)
        whole = pair.logs(pair.there)[name]
        frame = frames.pack([b"{}"])
        with (pair.there / "live" / name).open("ab") as file:
            file.write(frame[:9])
            file.flush()
            come(source, pair.link)
            assert pair.logs(pair.here)[name] == whole  # it may be cut back yet
            file.write(frame[9:])
        come(source, pair.link)
        assert pair.logs(pair.here)[name] == whole + frame
        assert pair.logs(pair.there), "its writer has not ended it"


def test_what_has_ended_is_removed_from_the_node_once_it_is_home(pair: Pair) -> None:
    source = pair.source()
    with begin() as run:
        record(run, "a", "b")
    before = pair.logs(pair.there)
    (log,) = before
    with pytest.raises(CannotSeal, match="carried"):
        seal(pair.there, log.removesuffix(".jsonl.zst"))
    come(source, pair.link)
    assert pair.logs(pair.here) == before
    assert pair.logs(pair.there) == {}
    assert source.is_over
    assert seal(pair.here, log.removesuffix(".jsonl.zst"))
    assert pair.seen() == ["a", "b"]
    again = pair.source()
    come(again, pair.link)
    assert again.is_over
    assert pair.logs(pair.here) == {}


class Broken:
    """A link that breaks: at call number `at`, before it or when the other side has done it."""

    def __init__(self, link: Node, at: int, after: bool) -> None:
        self.link, self.left, self.after = link, at, after

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self.after:
                raise ConnectionError("broken")
            answer = getattr(self.link, name)(*args)
            if self.left == 0:
                raise ConnectionError("broken")
            return answer

        return call


@pytest.mark.parametrize("after", [False, True])
def test_whatever_call_breaks_everything_is_home_once(pair: Pair, after: bool) -> None:
    with begin() as run:
        for n in range(4):
            record(run, f"{n}")
    wanted = pair.logs(pair.there)
    (name,) = wanted
    for at in range(1, 5):
        with pytest.raises(ConnectionError):
            come(pair.source(), Broken(pair.link, at, after), 9)
        if (pair.here / "live" / name).exists():  # killed while it wrote, too
            os.truncate(pair.here / "live" / name, len(wanted[name]) - at)
            (pair.there / "live" / name).write_bytes(wanted[name])
    come(pair.source(), pair.link)
    assert pair.logs(pair.here) == wanted
    assert pair.seen() == ["0", "1", "2", "3"]


def test_a_frame_larger_than_an_answer_comes_too(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BUDGET", 100)
    with begin() as run:
        record(run, os.urandom(2000).hex(), "after")
    come(pair.source(), pair.link, 20)
    assert len(pair.seen()) == 2


def test_damage_comes_home_as_it_is(pair: Pair) -> None:
    with begin() as run:
        for task in "abc":
            record(run, task)
    ((name, data),) = pair.logs(pair.there).items()
    hurt = bytearray(data)
    second = list(frames.scan(pair.there / "live" / name))[2]
    hurt[second.offset + 20] ^= 1
    (pair.there / "live" / name).write_bytes(bytes(hurt) + b"torn")
    come(pair.source(), pair.link)
    assert pair.logs(pair.here) == {name: bytes(hurt) + b"torn"}


def test_a_log_that_was_sealed_at_home_too_early_is_shown_once_with_what_came_later(
    pair: Pair,
) -> None:
    with begin() as run:
        record(run, "a")
        come(pair.source(), pair.link)
        (name,) = pair.logs(pair.here)
        assert seal(pair.here, name.removesuffix(".jsonl.zst"))
        record(run, "b")
        later = pair.source()
        come(later, pair.link)
        assert pair.seen() == ["a", "b"]
    come(later, pair.link)
    assert pair.logs(pair.there) == {}
    assert pair.seen() == ["a", "b"]


@pytest.mark.parametrize("token", ["t", "of another job"])
def test_a_directory_that_proves_to_be_the_same_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """By home's file, or because both sides name the same file."""
    (tmp_path / "here" / ".carry").mkdir(parents=True)
    (tmp_path / "here" / ".carry" / token).touch()
    (tmp_path / "there").symlink_to(tmp_path / "here")
    pair = Pair(tmp_path / "there", tmp_path / "here", monkeypatch)
    pair.mark()
    with begin() as run:
        record(run, "a", "b")
    before = pair.logs(pair.there)
    with pytest.raises(Shared):
        come(pair.source(), pair.link)
    assert pair.logs(pair.there) == before
    assert pair.seen() == ["a", "b"]


def test_a_writer_that_sees_home_after_all_is_fetched_from_no_more(pair: Pair) -> None:
    source = pair.source()
    with begin() as run:
        record(run, "a")
        come(source, pair.link)
        home.away_path(pair.there).unlink()
        run._background.log.beat()
        come(source, pair.link)
    come(source, pair.link)
    (log,) = pair.logs(pair.there)
    assert seal(pair.there, log.removesuffix(".jsonl.zst"))


def test_what_had_its_home_on_the_node_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path / "there", tmp_path / "here", monkeypatch)
    with begin() as run:
        record(run, "before")
    before = pair.logs(pair.there)
    pair.mark()
    with begin() as run:
        record(run, "a")
    come(pair.source(), pair.link)
    assert pair.seen() == ["a"]
    assert pair.logs(pair.there) == before
    (log,) = before
    assert seal(pair.there, log.removesuffix(".jsonl.zst"))


def test_finished_logs_of_a_living_writer_go_home_too(pair: Pair) -> None:
    info = writers.WriterInfo(
        writer="w-1-x", project="p", run="r", launch="l", host="h", pid=os.getpid(),
        place=writers.place(), started=1.0,
    )  # fmt: skip
    log = LogWriter(pair.there, info, Limits(max_raw=1))
    log.beat()
    line = rollscope.model.wire.rollout_line(Rollout(id="1", task="a"))
    log.write([Entry(line, "rollouts", "1", "whole")])
    assert info.done == ["w-1-x-0"]
    source = pair.source()
    come(source, pair.link)
    assert pair.logs(pair.there) == {}
    assert pair.seen() == ["a"]
    assert not source.is_over
    log.beat()
    assert info.done == []


def test_what_a_node_took_along_is_counted(pair: Pair) -> None:
    source = pair.source()
    with begin() as run:
        record(run, "a", "b")
        come(source, pair.link)
        record(run, "c")
        run.counters  # noqa: B018  the next heartbeat has them
        run._background.log.beat()
        (name,) = pair.logs(pair.there)
        there, here = (len(pair.logs(side)[name]) for side in (pair.there, pair.here))
        come(source, _Without(pair.link))
        source.state.gone = 1.0
        source.write_state()
        (said,) = pair.said()
        assert f"{there - here:,} bytes" in said
        assert "1 of the rollouts" in said
        assert "its 1 processes" in said
        assert said.startswith("error")


class _Without:
    """A node that goes away after it has told of a frame, and before it has sent it."""

    def __init__(self, link: Node) -> None:
        self.link = link

    def more(self, *args: Any) -> Any:
        infos, sizes, _ = self.link.more(*args)
        return infos, sizes, []


def test_a_node_that_nobody_carries_from_is_told(pair: Pair) -> None:
    source = pair.source()
    source.state.problem = "no way"
    source.write_state()
    assert pair.said() == ["warning: node nnnnnnnn (h): nothing has come from there yet: no way"]
    with begin() as run:
        record(run, "a")
        come(source, pair.link)
        assert pair.said() == ["ok: node nnnnnnnn (h): carried here by Ray"]
        record(run, "b")
        come(source, _Without(pair.link))
        source.write_state()
        assert "on their way" in pair.said()[0]
        told = state.read_all(pair.here)[0]
        told.heard = 1.0
        state.write(pair.here, told)
        assert "warning" in pair.said()[0]
        assert "nobody carries them" in pair.said()[0]


def test_sinks_are_left_to_home(pair: Pair) -> None:
    with begin() as run:
        info = run._background.log.info
        follower = Follower(pair.there, ["otlp"])
        assert follower.beat(info) == []
        assert not lock.is_held(pair.there / "sinks" / "otlp.lock")
        assert not (pair.there / "sinks").exists()
        assert "driver's store" in follower.finish(0.0)
