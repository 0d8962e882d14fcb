"""One consistent view over live and sealed logs, kept fresh."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from store_logs import LogFile, rollouts

from rollscope.model import Fact, Message, Rollout, Span, Tokens, schema
from rollscope.store.read.bodies import BodyReader
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import connect, seal


def ids(reader: Reader, where: str = "true") -> list[str]:
    found = reader.connection.execute(f"SELECT id FROM rollouts WHERE {where} ORDER BY id")
    return [id for (id,) in found.fetchall()]


def row(reader: Reader, id: str, names: str) -> tuple[object, ...]:
    found = reader.connection.execute(f"SELECT {names} FROM rollouts WHERE id = ?", [id])
    rows = found.fetchall()
    assert len(rows) == 1, rows
    return tuple(rows[0])


def test_an_empty_store_has_all_views(tmp_path: Path) -> None:
    with Reader(tmp_path / "nothing") as reader:
        for table, columns in schema.TABLES.items():
            result = reader.connection.execute(f"SELECT * FROM {table}")
            extra = ["superseded"] if table == "rollouts" else []
            assert [c[0] for c in result.description] == [*(c.name for c in columns), *extra]
            assert result.fetchall() == []
        assert reader.get("nobody") is None


def test_columns_have_the_declared_types_live_and_sealed(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.log(*rollouts(3))
    log.metrics(1, {"loss": 0.5})
    log.facts(Fact(rollout="r0", name="reward", value=1.0, time=1.0))
    with Reader(tmp_path) as reader:
        for sealed in (False, True):
            if sealed:
                seal(log.directory, log.name)
                reader.refresh()
            for table, columns in schema.TABLES.items():
                described = reader.connection.execute(f"DESCRIBE {table}").fetchall()
                types = {name: type for name, type, *_ in described}
                types.pop("superseded", None)
                assert types == {c.name: c.type for c in columns}, (table, sealed)


def test_what_is_appended_is_seen_after_a_refresh(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    with Reader(tmp_path) as reader:
        for n, rollout in enumerate(rollouts(5), 1):
            log.log(rollout)
            assert reader.refresh()
            assert len(ids(reader)) == n
        assert not reader.refresh()


def test_a_rollout_that_grows_is_one_row_with_right_counts(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    rollout = Rollout(id="a", step=1, messages=[Message(role="user", content="hi")])
    log.log(rollout, is_open=True)
    counts = "messages, turns, prompt_tokens, response_tokens, preview, open"
    with Reader(tmp_path) as reader:
        assert row(reader, "a", counts) == (1, 0, None, None, None, True)
        for turn in range(1, 4):
            rollout.messages.append(
                Message(role="assistant", content=f"turn {turn}", tokens=Tokens([1, 2]))
            )
            log.more(rollout, turn)
            reader.refresh()
            assert row(reader, "a", counts) == (
                turn + 1,
                turn,
                None,
                2 * turn,
                f"turn {turn}",
                True,
            )
        log.log(Rollout(id="a", step=1, reward=0.5), is_open=False)
        reader.refresh()
        assert row(reader, "a", counts + ", reward") == (4, 3, None, 6, "turn 3", False, 0.5)
        seal(log.directory, log.name)
        reader.refresh()
        assert row(reader, "a", counts + ", reward") == (4, 3, None, 6, "turn 3", False, 0.5)
        whole = reader.get("a")
        assert whole is not None and len(whole.messages) == 4
        assert reader.messages("a", 2, 3)[0].content == "turn 2"


@pytest.mark.parametrize(
    ("content", "preview"),
    [
        (b'"<think>So, 2+2.</think>\\n\\nFour."', "Four."),
        (
            b'"S\xc3\xb6.Four.","parts":[{"type":"reasoning","end":3},{"type":"text","end":8}]',
            "Four.",
        ),
        (b'"Only a thought.","parts":[{"type":"reasoning","end":15}]', "Only a thought."),
        (b'"<think>It was cut"', "<think>It was cut"),
        (b'"Four."', "Four."),
    ],
)
def test_a_preview_is_what_was_said_after_thinking(
    tmp_path: Path, content: bytes, preview: str
) -> None:
    log = LogFile(tmp_path)
    asked = b'{"role":"user","content":"Think in <think></think> first. 2+2?"}'
    said = b'{"role":"assistant","content":' + content + b"}"
    log.append([b'{"rollout":{"id":"a","messages":[' + asked + b"," + said + b"]}}"])
    with Reader(tmp_path) as reader:
        want = ("Think in <think></think> first. 2+2?", preview)
        assert row(reader, "a", "prompt_preview, preview") == want


def test_thin_columns(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.append(
        [
            b'{"rollout":{"id":"a","messages":[{"role":"user","content":"Q","tokens":{"ids":[1]}},'
            b'{"role":"assistant","tool_calls":[{"name":"search"},{"name":"calc"}],'
            b'"tokens":{"ids":[1,2],"version":[4,5]}},{"role":"tool","content":"R"},'
            b'{"role":"assistant","content":"done","tokens":{"logprob":[-1],"version":[6]}}]}}'
        ]
    )
    names = "messages, turns, prompt_tokens, response_tokens, tools, version_min, version_max"
    want = (4, 2, 1, 3, ["calc", "search"], 4, 6)
    with Reader(tmp_path) as reader:
        assert row(reader, "a", names) == want
        assert row(reader, "a", "prompt_preview, preview, labels") == ("Q", "done", [])
        seal(log.directory, log.name)
        reader.refresh()
        assert row(reader, "a", names) == want


@pytest.mark.parametrize("sealed", ["nothing", "rollouts", "facts", "both"])
def test_late_facts_are_folded_wherever_they_lie(tmp_path: Path, sealed: str) -> None:
    log = LogFile(tmp_path, writer="w1")
    late = LogFile(tmp_path, writer="w2")
    message = Message(role="assistant", content="x", tokens=Tokens([7, 8]))
    log.log(Rollout(id="a", reward=0.0, fate="generated", meta={"k": {"x": 1}}, messages=[message]))
    log.log(Rollout(id="b", reward=0.0))
    late.facts(
        Fact(rollout="a", name="reward", value=1.0, time=5.0),
        Fact(rollout="a", name="reward", value=0.5, time=4.0),
        Fact(rollout="a", name="rewards.style", value=0.25, time=4.0),
        Fact(rollout="a", name="fate", value="trained", time=1.0),
        Fact(rollout="a", name="meta.k", value={"y": 2}, time=1.0),
        Fact(rollout="a", name="label.good", value=True, time=1.0),
        Fact(rollout="a", name="flag.loop", value="x", time=1.0),
        Fact(rollout="a", name="error", value={"kind": "tool", "text": "no"}, time=1.0),
        Fact(rollout="a", name="tokens.advantage", stream=[0.5, -0.5], time=1.0),
        Fact(rollout="nobody", name="reward", value=1.0, time=5.0),
    )
    names = "reward, rewards, fate, meta, labels, flags, error_kind, error_text, error_type"
    want = (
        1.0,
        {"style": 0.25},
        "trained",
        '{"k":{"y":2}}',
        ["good"],
        ["loop"],
        "tool",
        "no",
        None,
    )
    with Reader(tmp_path) as reader:
        if sealed in ("rollouts", "both"):
            seal(log.directory, log.name)
        if sealed in ("facts", "both"):
            seal(late.directory, late.name)
        reader.refresh()
        assert row(reader, "a", names) == want
        assert row(reader, "b", "reward, labels") == (0.0, [])
        whole = reader.get("a")
        assert whole is not None and whole.reward == 1.0
        assert whole.messages[0].tokens is not None
        assert whole.messages[0].tokens.advantage == [0.5, -0.5]


def test_spans_of_other_processes_join_by_id(tmp_path: Path) -> None:
    log, other = LogFile(tmp_path, writer="w1"), LogFile(tmp_path, writer="w2")
    log.log(Rollout(id="a", spans=[Span(name="mine", id="1")]))
    other.more(Rollout(id="a", spans=[Span(name="theirs", id="2")]), 0)
    with Reader(tmp_path) as reader:
        for sealed in (None, log, other):
            if sealed is not None:
                seal(sealed.directory, sealed.name)
                reader.refresh()
            whole = reader.get("a")
            assert whole is not None
            assert sorted(span.name for span in whole.spans) == ["mine", "theirs"]
            assert ids(reader) == ["a"]


def test_a_rollout_that_goes_on_in_the_next_log_is_one(tmp_path: Path) -> None:
    """A writer that was silent for long begins a new log; its open rollouts go on there."""
    first = LogFile(tmp_path, seq=0)
    rollout = Rollout(id="a", step=3, messages=[Message(role="user", content="q")])
    first.log(rollout, Rollout(id="b"), is_open=True)
    second = LogFile(tmp_path, seq=1)
    rollout.messages.append(Message(role="assistant", content="yes"))
    second.more(rollout, 1)
    with Reader(tmp_path) as reader:
        for sealed in (None, first, second):
            if sealed is not None:
                seal(sealed.directory, sealed.name)
                reader.refresh()
            assert ids(reader) == ["a", "b"]
            assert row(reader, "a", "step, messages, turns, preview") == (3, 2, 1, "yes")
            whole = reader.get("a")
            assert whole is not None and [m.content for m in whole.messages] == ["q", "yes"]
        third = LogFile(tmp_path, seq=2)
        third.log(Rollout(id="a", step=3, reward=1.0), is_open=False)
        for sealed in (None, third):
            if sealed is not None:
                seal(sealed.directory, sealed.name)
            reader.refresh()
            assert row(reader, "a", "reward, messages, turns, open") == (1.0, 2, 1, False)
        compact(first.directory, grace=0)
        reader.refresh()
        assert len(reader.files("rollouts")) == 1
        assert row(reader, "a", "reward, messages, turns, open") == (1.0, 2, 1, False)
        assert ids(reader) == ["a", "b"]


@pytest.mark.parametrize("name", ["step=5", "lr[1e-5]", "Qwen/x", "..", "a*b", "ü 🧠", "it's", ""])
def test_any_text_is_a_name_of_a_run(tmp_path: Path, name: str) -> None:
    log = LogFile(tmp_path, project=name, run=name)
    log.log(*rollouts(2))
    with Reader(tmp_path) as reader:
        assert [(r.project, r.run) for r in reader.runs()] == [(name, name)]
        assert row(reader, "r0", "project, run") == (name, name)
        seal(log.directory, log.name)
        reader.refresh()
        assert row(reader, "r0", "project, run, step") == (name, name, 0)


def test_a_rollout_is_read_that_is_sealed_while_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogFile(tmp_path)
    log.log(*rollouts(1))
    find = BodyReader.find
    with Reader(tmp_path) as reader:

        def find_and_seal(bodies: BodyReader, id: str) -> object:
            found = find(bodies, id)
            if log.path.exists():
                seal(log.directory, log.name)
                assert reader.refresh()
            return found

        monkeypatch.setattr(BodyReader, "find", find_and_seal)
        read = reader.get("r0")
    assert read is not None and len(read.messages) == 2


def test_the_engine_prints_nothing_where_programs_write_their_answers(tmp_path: Path) -> None:
    asked = "SELECT current_setting('enable_progress_bar')"
    with Reader(tmp_path) as reader, connect(tmp_path) as sealer:
        for engine in (reader.connection, reader.cursor(), sealer, sealer.cursor()):
            assert engine.execute(asked).fetchone() == (False,)


def test_temporary_directories_of_readers_that_were_killed_go_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    code = (
        "import sys; from rollscope.store.read.reader import Reader; reader = Reader(sys.argv[1])\n"
        "print(reader.temporary, flush=True); sys.stdin.read()"
    )

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "store")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    (killed, left), (lives, used) = start(), start()
    killed.kill()  # it stays a zombie until somebody asks: it has ended all the same
    os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
    foreign = temporary / "rollscope-notes"
    foreign.mkdir()
    assert left.is_dir()
    assert used.is_dir()
    with Reader(tmp_path / "store") as reader:
        assert set(temporary.iterdir()) == {used, foreign, reader.temporary}
    killed.communicate()
    lives.communicate("")
    assert list(temporary.iterdir()) == [foreign]
