"""Every episode of AReaL's real executor, against the record of the engine."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import areal_world as world
import pytest
import torch
import uvicorn
from areal_world import ANSWERS, EPISODES, GCONFIG, RLVR, TOK, TRACED, Rollouts, answer_of, branch
from stored import Stored, flat, written

from rollscope import capture
from rollscope.adapters import areal
from rollscope.adapters.areal import hook
from rollscope.capture.problems import problems
from rollscope.model import Rollout


def check_tokens(rollout: Rollout) -> None:
    """The row is what the engine got and gave in its last call, to the token."""
    last = answer_of(rollout)
    assert flat(rollout) == last["prompt"] + last["ids"]
    made = len(last["ids"])
    assert flat(rollout, "version")[-made:] == last["versions"]
    assert flat(rollout, "logprob")[-made:] == torch.tensor(last["logprobs"]).tolist()
    assert rollout.policy_version == 4
    assert rollout.step == 4


def check_group(found: Stored, size: int) -> None:
    groups: dict[Any, list[Any]] = {}
    for rollout in found:
        groups.setdefault(rollout.group, []).append(rollout)
    for members in groups.values():
        assert sorted(m.index for m in members) == list(range(size))
        assert len({m.task for m in members}) == 1


def test_rlvr_in_groups(rollouts: Rollouts, own_store: Path) -> None:
    rollouts.run(TRACED, RLVR)
    found = Stored(own_store)
    assert Counter(written(r)[0] for r in found) == Counter(a["text"] for a in ANSWERS)
    assert len(found) == 6
    check_group(found, 3)
    for rollout in found:
        check_tokens(rollout)
        assert rollout.split == "train" and rollout.fate == "scored"
        number = str(rollout.task).removeprefix("puzzle-")
        assert rollout.messages[0].content == f"puzzle {number} ñ"
        assert rollout.reference == number
        assert rollout.meta["data"] == {"level": int(number)}
        assert rollout.reward == world.earned(answer_of(rollout)["text"] + "<|im_end|>")
        assert rollout.stop_reason == "stop" and rollout.truncated is False
        assert rollout.sampling["temperature"] == 0.5
        assert [span.name for span in rollout.spans] == ["generate"]
    assert found.projects == {("puzzles", "trial 1")}


def test_several_turns_and_evaluation(rollouts: Rollouts, own_store: Path) -> None:
    kwargs = {
        "inner": "areal.workflow.multi_turn.MultiTurnWorkflow",
        "reward_fn": world.reward_fn,
        "gconfig": GCONFIG,
        "tokenizer": TOK,
        "max_turns": 3,
        "turn_discount": 0.5,
    }
    results = rollouts.run(TRACED, kwargs, is_eval=True)
    found = Stored(own_store)
    assert len(found) == 6
    assert Counter(text for r in found for text in written(r)) == Counter(
        a["text"] for a in ANSWERS
    )
    check_group(found, 3)
    for rollout in found:
        check_tokens(rollout)
        assert rollout.split == "eval"
        turns = len(written(rollout))
        earned = world.earned(written(rollout)[-1] + "<|im_end|>")
        assert rollout.reward == earned * 0.5 ** (turns - 1)
        assert len(rollout.spans) == turns
        roles = [m.role for m in rollout.messages]
        assert roles == ["user", "assistant"] * turns
    assert sorted(float(x) for group in results for x in group["rewards"]) == sorted(
        r.reward for r in found if r.reward is not None
    )
    assert max(len(written(r)) for r in found) > 1


def test_rejected_members_are_recorded_with_what_they_said(
    rollouts: Rollouts, own_store: Path
) -> None:
    results = rollouts.run(TRACED, {"inner": "areal_world.OneTurn", "behaviour": "rejects"})
    assert [len(group["rewards"]) for group in results] == [2, 2]
    found = Stored(own_store)
    check_group(found, 3)
    assert Counter((r.index, r.fate) for r in found) == {
        (0, "scored"): 2,
        (1, "rejected"): 2,
        (2, "scored"): 2,
    }
    by_ids = {tuple(e["ids"]): e["member"] for e in EPISODES}
    for rollout in found:
        check_tokens(rollout)
        assert by_ids[tuple(answer_of(rollout)["ids"])] == rollout.index
        assert rollout.reward == (None if rollout.fate == "rejected" else 0.25 * rollout.index)


def test_failed_episodes_are_recorded_and_rejected_by_areal_as_before(
    rollouts: Rollouts, own_store: Path
) -> None:
    rollouts.run(TRACED, {"inner": "areal_world.OneTurn", "behaviour": "fails"}, expect=0)
    found = Stored(own_store)
    assert found.rollouts and {r.fate for r in found} == {"failed"}
    for rollout in found:
        check_tokens(rollout)
        assert rollout.error is not None
        assert (rollout.error.type, rollout.error.text) == (
            "ValueError",
            "the grader does not answer",
        )


def test_groups_that_should_accept_fn_refuses_are_rejected_with_the_reason(
    rollouts: Rollouts, own_store: Path
) -> None:
    """AReaL asks it after the workflow: what it refuses is never seen again."""

    def accept(group: dict[str, Any]) -> bool:
        return "puzzle 1" in TOK.decode(group["input_ids"][0])

    kwargs = {"inner": "areal_world.OneTurn", "behaviour": "rejects"}
    results = rollouts.run(TRACED, kwargs, accept=accept)
    assert [len(group["rewards"]) for group in results if group is not None] == [2]
    found = Stored(own_store)
    check_group(found, 3)
    refused = ("rejected", "refused by should_accept_fn")
    none = ("rejected", "the workflow returned None")
    fates = {(r.task, r.index): (r.fate, r.fate_reason) for r in found}
    assert [fates["puzzle-0", i] for i in range(3)] == [refused, none, refused]
    assert [fates["puzzle-1", i] for i in range(3)] == [("scored", None), none, ("scored", None)]
    for rollout in found:
        check_tokens(rollout)


def test_the_others_of_a_group_that_failed_are_dropped(rollouts: Rollouts, own_store: Path) -> None:
    """One member fails and AReaL loses the group, also members that end after it."""
    kwargs = {"inner": "areal_world.OneTurn", "behaviour": "one fails"}
    rollouts.run(TRACED, kwargs, expect=0)
    wait_until(lambda: active().counters.recorded == 6)
    found = Stored(own_store)
    check_group(found, 3)
    assert Counter((r.index, r.fate) for r in found) == {
        (0, "dropped"): 2,
        (1, "failed"): 2,
        (2, "dropped"): 2,
    }
    reasons = {r.fate_reason for r in found if r.fate == "dropped"}
    assert reasons == {"given up by AReaL: an error in its group"}


def active() -> capture.Run:
    run = capture.active()
    assert run is not None
    return run


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(6000):
        if is_so():
            return
        time.sleep(0.05)
    raise TimeoutError("it never came to be")


def test_a_row_that_ends_in_a_tools_answer(rollouts: Rollouts, own_store: Path) -> None:
    rollouts.run(TRACED, {"inner": "areal_world.OneTurn", "behaviour": "tool"})
    found = Stored(own_store)
    assert len(found) == 6
    for rollout in found:
        assert [m.role for m in rollout.messages] == ["user", "assistant", "tool"]
        assert rollout.messages[-1].content == "42"
        assert rollout.messages[-1].sampled is False
        assert answer_of(rollout)["text"] == rollout.messages[1].content


def test_raw_and_normalised_rewards(rollouts: Rollouts, own_store: Path) -> None:
    rollouts.run(TRACED, {"inner": "areal_world.OneTurn", "behaviour": "normalised"})
    for rollout in Stored(own_store):
        assert rollout.reward == rollout.index
        assert rollout.rewards == {"normalised": 0.25 * rollout.index}


def test_a_reward_that_its_group_normalises_later_stays_raw(
    rollouts: Rollouts, own_store: Path
) -> None:
    """It is written into the interactions after the episode, while we convert them."""
    inner = areal.TracedWorkflow(inner=world.InProcess())
    rollouts.run(world.InOneGroup(inner), None, group=1, asks="tool?")
    found = Stored(own_store)
    check_group(found, 3)
    for rollout in found:
        assert rollout.reward == 1.0
        assert {m.reward for m in rollout.messages if m.sampled} == {1.0}
        assert rollout.index is not None
        assert rollout.rewards == {"normalised": rollout.index - 1.0}


def test_siblings_of_an_incomplete_group_that_is_given_up_are_dropped(
    rollouts: Rollouts, own_store: Path
) -> None:
    inner = areal.TracedWorkflow(inner=world.OneTurn("rejects"))
    rollouts.run(world.InOneGroup(inner), None, group=1, expect=0)
    found = Stored(own_store)
    given_up = ("dropped", "given up by AReaL: its group is incomplete")
    assert Counter((r.index, r.fate, r.fate_reason) for r in found) == {
        (0, *given_up): 2,
        (1, "rejected", "the workflow returned None"): 2,
        (2, *given_up): 2,
    }


def test_an_image_of_the_dataset_is_stored_once_per_group(
    rollouts: Rollouts, own_store: Path
) -> None:
    image = "data:image/png;base64," + "iVBORw0KGgo" * 2000
    prose = "a word and another. " * 1000
    more = {"chat": [{"image_url": {"url": image}}], "story": prose}
    rollouts.run(TRACED, {"inner": "areal_world.OneTurn"}, more=more)
    found = Stored(own_store)
    urls = [r.meta["data"]["chat"][0]["image_url"]["url"] for r in found]
    assert Counter(url == image for url in urls) == {True: 2, False: 4}
    assert all(len(url) < 200 and "sibling" in url for url in urls if url != image)
    assert all(r.meta["data"]["story"] == prose for r in found)


def test_rows_are_remembered_only_where_they_are_asked_for_and_until_they_are_given_up(
    rollouts: Rollouts, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollout worker never hears that a row was trained on."""
    rows = hook.MadeRows()
    monkeypatch.setattr(hook, "rows", rows)
    agent = {"inner": "areal_world.InProcess"}
    rollouts.run(TRACED, agent, asks="tool?", group=2)
    drain()
    assert (rows._rows, rows._names) == ({}, {})
    rows.is_asked = True  # by a trainer in this process
    rollouts.run(TRACED, {"inner": "areal_world.OneTurn"})  # its keys are the rows' digests
    drain()
    assert (rows._rows, rows._names) == ({}, {})
    rollouts.run(TRACED, agent, asks="tool?", group=2)
    drain()
    known = [one for same in rows._rows.values() for one in same]
    assert len(known) == 8 and len(rows._names) == 4
    assert all(len(one.places) <= 2 < sum(map(len, one.places)) for one in known)
    refused = len(rows._rows)
    rollouts.run(TRACED, agent, asks="tool?", group=2, accept=lambda _: False, expect=0)
    drain()
    assert len(rows._rows) == refused
    monkeypatch.setattr(hook, "_KEPT", 3)
    rollouts.run(TRACED, agent, asks="tool?", group=2, tasks=1)

    def told() -> list[int]:
        return [p.count for p in problems.list({}) if "rows wait to be trained on" in p.text]

    wait_until(lambda: told() == [8 + 4 - 3])
    assert len(rows._rows) == sum(map(len, rows._names.values())) == 3


def drain() -> None:
    hook.Later.of("areal", active()).drain()


def test_messages_that_a_workflow_carries_name_its_tool_calls(
    rollouts: Rollouts, own_store: Path
) -> None:
    rollouts.run(TRACED, {"inner": "areal_world.OneTurn", "behaviour": "messages"})
    for rollout in Stored(own_store):
        assert [c.name for c in rollout.messages[-1].tool_calls] == ["add"]
        check_tokens(rollout)


def check_agent(found: Stored, size: int) -> None:
    """Two calls, a tool between them: one rollout with both, whatever AReaL trains on."""
    assert len(found) == len(EPISODES) == 2 * size
    check_group(found, size)
    for rollout in found:
        asked = next(e for e in EPISODES if e["call"]["id"] == rollout.messages[1].tool_calls[0].id)
        calls = [m for m in rollout.messages if m.sampled]
        assert [m.meta["interaction"] for m in calls] == asked["ids"]
        first = next(a for a in ANSWERS if a["text"] == calls[0].content)
        second = next(a for a in ANSWERS if a["text"] == calls[1].content)
        assert calls[0].tool_calls[0].arguments == asked["call"]["function"]["arguments"]
        tool = next(m for m in rollout.messages if m.role == "tool")
        assert (tool.content, tool.tool_call_id) == ("it is 42 ✓", asked["call"]["id"])
        assert rollout.reward == 1.0
        assert rollout.task == asked["task"]
        # Each branch, root to leaf, is exactly what the model saw and said.
        assert branch(rollout, calls[0]) == first["prompt"] + first["ids"]
        assert branch(rollout, calls[1]) == second["prompt"] + second["ids"]


def test_an_agent_on_areals_own_client(rollouts: Rollouts, own_store: Path) -> None:
    results = rollouts.run(TRACED, {"inner": "areal_world.InProcess"}, asks="tool?", group=2)
    assert [len(group["rewards"]) for group in results] == [4, 4]
    found = Stored(own_store)
    check_agent(found, 2)
    for rollout in found:
        last = rollout.messages[-1]
        assert last.meta["parent_interaction"] == rollout.messages[1].meta["interaction"]


@pytest.fixture
def proxy(rollouts: Rollouts) -> Iterator[str]:
    """AReaL's real proxy server in a thread of this process."""
    from areal.experimental.openai.proxy import proxy_rollout_server as server

    line = socket.create_server(("127.0.0.1", 0))
    server._engine = rollouts.engine
    server._server_host = "127.0.0.1"
    server._setup_openai_client()
    web = uvicorn.Server(uvicorn.Config(server.app, log_level="error"))
    thread = threading.Thread(target=web.run, kwargs={"sockets": [line]})
    thread.start()
    wait_until(lambda: web.started or not thread.is_alive())
    yield f"http://127.0.0.1:{line.getsockname()[1]}"
    web.should_exit = True
    thread.join()
    line.close()
    server._engine = None


def test_an_agent_behind_areals_proxy(rollouts: Rollouts, own_store: Path, proxy: str) -> None:
    results = rollouts.run("areal_world.ThroughProxy", None, asks="tool?", group=2, proxy=proxy)
    assert [len(group["rewards"]) for group in results] == [4, 4]
    check_agent(Stored(own_store), 2)


def test_an_agent_that_nobody_marked_is_recorded_by_its_path(
    rollouts: Rollouts, own_store: Path, proxy: str
) -> None:
    """As AReaL's own examples are: a class that AReaL or a library ships."""
    given = areal.traced("areal_world.Unmarked")
    assert given["workflow"] == "rollscope.adapters.areal.TracedAgent"
    rollouts.run(given["workflow"], given["workflow_kwargs"], asks="tool?", group=2, proxy=proxy)
    check_agent(Stored(own_store), 2)


def test_what_an_agent_said_before_it_failed_is_there(
    rollouts: Rollouts, own_store: Path, proxy: str
) -> None:
    kwargs = {"asks": "tool? fails", "group": 1, "proxy": proxy, "expect": 0}
    rollouts.run("areal_world.ThroughProxy", None, **kwargs)
    found = Stored(own_store)
    assert len(found) == 2
    for rollout in found:
        assert rollout.fate == "failed" and rollout.error is not None
        assert rollout.error.text == "the grader does not answer"
        roles = [m.role for m in rollout.messages]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert [m.role for m in rollout.messages if m.sampled] == ["assistant", "assistant"]
        assert rollout.messages[1].tool_calls


def test_off_leaves_agents_and_their_http_client_alone(
    rollouts: Rollouts, own_store: Path, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kwargs = {"asks": "tool?", "group": 1, "proxy": proxy, "tasks": 1}
    rollouts.run("areal_world.ThroughProxy", None, **kwargs)
    assert world.TRANSPORTS == ["Noting"]
    active().finish()
    monkeypatch.setenv("ROLLSCOPE", "off")
    world.TRANSPORTS.clear()
    rollouts.run("areal_world.ThroughProxy", None, **kwargs)
    assert world.TRANSPORTS == ["AsyncHTTPTransport"]

    class Other:
        async def run(self, data: Any, **kwargs: Any) -> float:
            return 1.0

    run = Other.run
    assert areal.agent(Other).run is run


def test_cancelled_episodes_stay_cancelled(rollouts: Rollouts, own_store: Path) -> None:
    workflow = areal.TracedWorkflow(inner=world.OneTurn())
    data = {"messages": [{"role": "user", "content": "q"}]}

    async def cancel() -> None:
        task = asyncio.ensure_future(workflow.arun_episode(rollouts.engine, data))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    (rollout,) = Stored(own_store)
    assert rollout.fate == "failed"
    assert rollout.error is not None and rollout.error.type == "CancelledError"
