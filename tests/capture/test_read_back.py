"""What is recorded is what is read: capture and the reading side together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import rollscope
from rollscope import Message, Rollout, Tokens, ToolCall
from rollscope.model.records import Part
from rollscope.store import writers
from rollscope.store.seal.segment import seal

from . import children
from .reading import wait_for


@pytest.fixture
def run(own_store: Path) -> Iterator[rollscope.Run]:
    with rollscope.init(project="p", run="r") as run:
        yield run


@pytest.mark.parametrize("redact", [None, ["email"]])
def test_numbers_where_names_belong_lose_no_rollout(
    own_store: Path, redact: list[str] | None
) -> None:
    odd: Any = 7
    with rollscope.init(project="p", run="r", redact=redact) as run:
        for place, message in enumerate(
            (
                Message(role=odd, name=odd, content="x"),
                Message(role="assistant", content="x", meta=cast(Any, None)),
                Message(role="assistant", content="x", tool_calls=[ToolCall(id=odd, name=odd)]),
                Message(
                    role="assistant",
                    content=[
                        Part(type="text", text="x"),
                        Part(type="call", call=ToolCall(name=odd)),
                    ],
                ),
            )
        ):
            run.log(Rollout(step=place, messages=[message]))
    store = rollscope.open()
    role, _, called, inside = (
        store.get(row.id).messages[0] for row in store.rollouts(order="step")
    )
    assert (role.role, role.name) == ("7", "7")
    assert (called.tool_calls[0].id, called.tool_calls[0].name) == ("7", "7")
    assert isinstance(inside.content, list)
    assert inside.content[1].call == ToolCall(name="7")


def test_a_logged_rollout_is_seen_by_a_reader_at_once(run: rollscope.Run) -> None:
    run.log(Rollout(task="first", step=1))
    run.flush()
    store = rollscope.open()
    assert store.rollouts("task:first").count() == 1
    run.log(Rollout(task="second", step=1))
    wait_for(lambda: store.rollouts("task:second").count() == 1)


def test_a_live_rollout_is_read_while_it_goes_on_and_after(run: rollscope.Run) -> None:
    @rollscope.op
    def generate(messages: list[dict[str, str]]) -> str:
        return "x"

    store = rollscope.open()
    history = [{"role": "user", "content": str(n)} for n in range(6)]
    with run.rollout(step=1, task="live") as r:
        r.extend(history)
        generate(history)
        run.flush()
        assert r.id is not None
        going_on = store.get(r.id)
        assert len(going_on.messages) == 6
        assert [row.open for row in store.rollouts("task:live")] == [True]
        history.append({"role": "assistant", "content": "x"})
        generate(history)
        r.message("assistant", "x", tokens=Tokens([1, 2], logprob=[-0.5, -0.25]), sampled=True)
        r.reward(1.0, format=0.5)
    run.annotate(r.id, advantage=0.25, streams={"advantage": [1.0, 2.0]})
    run.finish()
    done = store.get(r.id)
    assert (done.reward, done.rewards, done.advantage) == (1.0, {"format": 0.5}, 0.25)
    assert done.messages[6].tokens == Tokens([1, 2], logprob=[-0.5, -0.25], advantage=[1.0, 2.0])
    assert [span.inputs["messages"] for span in done.spans] == [history[:6], history]
    (row,) = store.rollouts("task:live")
    assert (row.open or False, row.messages, row.turns) == (False, 7, 1)


def test_one_process_logs_and_another_annotates_by_key(run: rollscope.Run, own_store: Path) -> None:
    (id,) = run.log(Rollout(key="k", task="t"))
    code = """
        run = rollscope.init(project="p", run="r")
        run.annotate(key="k", reward=0.75, fate="trained")
    """
    children.told(children.start(code))
    run.flush()
    got = rollscope.open().get(id)
    assert (got.reward, got.fate) == (0.75, "trained")


def test_finished_logs_are_sealed_by_a_process_of_their_own(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_SEAL", "on")
    with rollscope.init(project="p", run="r") as run:
        run.log(
            [Rollout(task=str(n), messages=[Message(role="user", content="x")]) for n in range(9)]
        )
    wait_for(lambda: list(own_store.rglob("segments/*/rollouts.parquet")))
    wait_for(lambda: not list(own_store.rglob("live/*.zst")))
    store = rollscope.open()
    assert store.rollouts("").count() == 9
    assert len(store.files("rollouts")) == 1


def test_the_last_writer_to_finish_merges_many_segments(own_store: Path) -> None:
    code = """
        from rollscope.store.seal import __main__ as sealing, compact
        compact.MANY = 3
        for n in range(5):
            with rollscope.init(project="p", run="r") as run:
                run.log(Rollout(task=str(n)))
            (log,) = store.rglob("live/*.zst")
            sealing.main([str(run.directory), log.name.removesuffix(".jsonl.zst")])
            tell(merged=len(list(store.glob("*/*/merged/*"))))
    """
    merged = [told["merged"] for told in children.told(children.start(code))]
    assert merged[:4] == [0, 0, 0, 1]
    assert rollscope.open().rollouts("").count() == 5


SLOT = """
    run = rollscope.init(project="p", run="r")
    for step in range(int(sys.argv[1]), int(sys.argv[2])):
        run.log(Rollout(step=step, split="train", task="q", index=0))
"""


def test_a_restart_that_repeats_steps_shows_each_step_once_from_the_later_launch(
    own_store: Path,
) -> None:
    children.told(children.start(SLOT, "0", "57", SLURM_JOB_ID="7"))
    children.told(children.start(SLOT, "50", "60", SLURM_JOB_ID="7", SLURM_RESTART_COUNT="1"))
    store = rollscope.open()
    rows = list(store.rollouts("", order="step"))
    assert [row.step for row in rows] == list(range(60))
    assert {row.launch for row in rows if row.step >= 50} == {"slurm-7-1"}
    assert store.rollouts("launch:slurm-7-0").count() == 57


def test_processes_without_a_common_launch_that_run_at_once_never_hide_each_other(
    own_store: Path, tmp_path: Path
) -> None:
    code = (
        SLOT
        + """
    tell(ready=True)
    until(Path(sys.argv[3]).exists)
    run.log(Rollout(step=99, task="end"))
    """
    )
    go = tmp_path / "go"
    processes = [children.start(code, "0", "5", str(go)) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    go.touch()
    for process in processes:
        children.told(process)
    assert rollscope.open().rollouts("step:0..4").count() == 4 * 5


def test_a_stopped_writer_whose_log_was_sealed_loses_and_doubles_nothing(
    own_store: Path, tmp_path: Path
) -> None:
    code = """
        run = reading.quick_run(beat=0.1, silent=0.5)
        with run.rollout(task="open") as r:
            r.message("user", "before")
            run.log([Rollout(task=f"before-{n}") for n in range(20)])
            run.flush()
            tell(ready=True)
            until(Path(sys.argv[1]).exists)
            run.log([Rollout(task=f"after-{n}") for n in range(20)])
            r.message("assistant", "after")
        run.finish()
    """
    go = tmp_path / "go"
    process = children.start(code, str(go))
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(1.0)  # longer than it may be silent
    logs = list(own_store.rglob("live/*"))  # on a busy machine it may have begun a second one
    for log in logs:  # as somebody who thinks it dead
        seal(log.parents[1], log.name.removesuffix(".jsonl.zst"))
    go.touch()
    os.kill(process.pid, signal.SIGCONT)
    children.told(process)
    store = rollscope.open()
    expected = [f"{when}-{n}" for when in ("before", "after") for n in range(20)]
    assert sorted(row.task for row in store.rollouts("")) == sorted(["open", *expected])
    (row,) = store.rollouts("task:open")
    whole = store.get(row.id)
    assert [m.content for m in whole.messages] == ["before", "after"]


def test_a_killed_writer_is_known_to_be_dead_and_its_rollouts_are_there(own_store: Path) -> None:
    code = """
        run = rollscope.init(project="p", run="r")
        run.log([Rollout(task=str(n)) for n in range(50)])
        run.flush()
        tell(ready=True)
        time.sleep(60)
    """
    process = children.start(code)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate()
    store = rollscope.open()
    assert store.rollouts("").count() == 50
    (info,) = store.reader.writers()
    assert info.finished is None
    assert writers.is_gone(info)
