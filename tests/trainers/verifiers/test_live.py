"""Agents and envs of verifiers against a local server: everything that it was asked and said is
what is stored, in the right branch; and a trace can be made again from what is stored."""

from __future__ import annotations

import asyncio
import copy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from checked import named_faults, silent
from restore import restore, said
from stored import Stored
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.envs.best_of_n import BestOfNEnv, BestOfNEnvConfig
from world import BRANCHED, Server, agent_config, serving, task, training_config, user

import rollscope
from rollscope.adapters import verifiers as adapter
from rollscope.adapters.verifiers import hook
from rollscope.model import Message, Rollout


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLSCOPE_STRICT", "1")


def run(tasks: list[Any], attached: bool = True, **changes: Any) -> tuple[list[Any], Server]:
    async def main() -> tuple[list[Any], Server]:
        async with serving() as server:
            agent = vf.make_agent(agent_config(server, **changes))
            if attached:
                adapter.attach(agent, project="p", run="r")
            async with agent:
                return list(await asyncio.gather(*[agent.run(t) for t in tasks])), server

    return asyncio.run(main())


def branch(rollout: Rollout, place: int) -> list[Message]:
    path: list[Message] = []
    while place >= 0:
        path.append(rollout.messages[place])
        parent = rollout.messages[place].parent
        place = place - 1 if parent is None else parent
    return path[::-1]


def compare(stored: Stored, server: Server) -> None:
    """Every exchange with the server is a branch of a rollout, and nothing else is."""
    found = Counter(
        str([_said(m) for m in branch(rollout, place)])
        for rollout in stored
        for place, message in enumerate(rollout.messages)
        if message.sampled
    )
    wanted = Counter(
        str([_asked(m) for m in (*messages, answer)]) for messages, answer in server.notes
    )
    assert found == wanted and wanted


def _said(message: Message) -> tuple[Any, ...]:
    calls = [(c.id, c.name, c.arguments) for c in message.tool_calls]
    return message.role, message.content, calls, message.tool_call_id


def _asked(message: dict[str, Any]) -> tuple[Any, ...]:
    content = message["content"]
    if isinstance(content, list):
        content = "".join(part["text"] for part in content)
    calls = [
        (c["id"], c["function"]["name"], c["function"]["arguments"])
        for c in message.get("tool_calls") or []
    ]
    return message["role"], content, calls, message.get("tool_call_id")


LOOKED = {"fate.contradiction", "reward.grader", "reward.unscored", "turns.missing"}
"""Checks of the record that find in a clean run what they need, and nothing wrong."""


def test_every_rollout_of_an_agent(own_store: Path, tmp_path: Path) -> None:
    traces, server = run([task(n // 2) for n in range(6)])
    stored = Stored(own_store)
    compare(stored, server)
    assert stored.projects == {("p", "r")}
    by_key = {r.key: r for r in stored}
    for trace in traces:
        rollout = by_key[trace.id]
        assert rollout.task == trace.task.key and rollout.reference == trace.task.data.answer
        assert rollout.reward == trace.reward
        assert rollout.rewards == {n: r.score for n, r in trace.rewards.items() if r}
        assert rollout.meta["reward_weights"] == {"exact": 2.0}
        assert rollout.meta["metrics"] == {"length": trace.metrics["length"]}
        assert rollout.stop_reason == trace.stop_condition and rollout.fate == "scored"
        assert rollout.sampling == {"temperature": 0.5, "max_tokens": 64}
    assert Counter(r.task for r in stored) == {traces[i].task.key: 2 for i in (0, 2, 4)}
    assert silent(own_store) >= LOOKED
    assert named_faults(own_store, tmp_path / "planted") >= LOOKED


def test_branches_and_sub_agents(own_store: Path) -> None:
    _, server = run([task(0, BRANCHED)])
    stored = Stored(own_store)
    compare(stored, server)
    (rollout,) = stored
    assert len(server.notes) == 5
    assert [m.parent for m in rollout.messages].count(-1) == 1
    assert {m.stop_reason for m in rollout.messages if m.sampled} == {"stop", "tool_calls"}


def test_nothing_of_a_trace_is_lost(own_store: Path) -> None:
    failing = task(3, [["...", user("now fail")]])
    traces, _ = run([task(0, BRANCHED), task(1), task(2, prompt="a long one"), failing])
    stored = {r.key: r for r in Stored(own_store)}
    for trace in traces:
        assert restore(stored[trace.id]) == said(trace.to_record(float_decimals=None))


def test_tokens_and_log_probabilities_of_a_training_engine(own_store: Path, tmp_path: Path) -> None:
    """Each node holds what it adds; along a branch that is exactly what the engine was given."""
    script = [
        ["...", user("go on")],
        ["start", user("in short: go on")],
        [{"role": "system", "content": "You are a helper."}, user("help")],
    ]

    async def main() -> Server:
        async with serving() as server:
            agent = vf.make_agent(training_config(server, tmp_path / "tok"))
            async with adapter.attach(agent, project="p", run="r") as attached:
                traces = await asyncio.gather(
                    *[attached.run(task(n, script, tools=False)) for n in range(2)]
                )
            assert all(trace.ok for trace in traces), traces[0].errors
            return server

    server = asyncio.run(main())
    stored = Stored(own_store)
    found = []
    for rollout in stored:
        for place, message in enumerate(rollout.messages):
            if message.sampled:
                tokens = [m.tokens for m in branch(rollout, place)]
                assert message.tokens is not None and all(t is not None for t in tokens)
                wrote = [v for v in message.tokens.logprob if v is not None]
                found.append(([i for t in tokens if t is not None for i in t.ids], wrote))
                assert sum(message.tokens.mask) == len(wrote)
    wanted = [(shown + ids, logprobs) for shown, ids, logprobs in server.samples]
    assert len(wanted) == 8
    for ids, logprobs in found:
        place = next(i for i, w in enumerate(wanted) if w[0] == ids)
        assert logprobs == pytest.approx(wanted.pop(place)[1], abs=1e-6)  # float32
    assert wanted == []


def test_calls_are_spans_with_their_usage(own_store: Path) -> None:
    (trace,), _ = run([task(0, BRANCHED)])
    (rollout,) = Stored(own_store)
    calls = [s for s in rollout.spans if s.name == "model"]
    assert len(calls) == len(trace.calls) == 5
    for span, call in zip(calls, trace.calls, strict=True):
        assert (span.start, span.end, span.message) == (call.time.start, call.time.end, call.node)
        assert span.outputs["usage"]["prompt_tokens"] == call.usage.prompt_tokens
        assert rollout.messages[span.message or 0].sampled
    assert {"setup", "agent", "scoring"} <= {s.name for s in rollout.spans}


def test_a_reply_cut_short_is_truncated(own_store: Path) -> None:
    run([task(0, prompt="a long one"), task(1)])
    assert sorted(bool(r.truncated) for r in Stored(own_store)) == [False, True]


def test_a_failing_model_is_recorded_with_what_was_said_before(own_store: Path) -> None:
    traces, server = run([task(0, [["...", user("now fail")]])])
    assert not traces[0].ok
    (rollout,) = Stored(own_store)
    assert rollout.fate == "failed" and rollout.error is not None
    assert rollout.error.type == traces[0].errors[-1].type
    assert rollout.error.text == traces[0].errors[-1].message
    assert [m.content for m in rollout.messages if m.sampled] == [server.notes[0][1]["content"]]
    assert rollout.meta["errors"][-1]["message"] == rollout.error.text


def test_an_episode_of_several_agents(own_store: Path) -> None:
    async def main() -> tuple[list[Any], Server]:
        async with serving() as server:
            config = BestOfNEnvConfig(
                id="best-of-n", taskset={"id": "echoes"}, agent=agent_config(server), n=3
            )
            env = adapter.attach(BestOfNEnv(config), project="p", run="r")
            client = EvalClientConfig(base_url=server.url, api_key_var="FAKE_KEY")
            context = ModelContext(model="fake", client=client)
            async with env.serving():
                slots = [slot for t in list(env.taskset)[:2] for slot in env.slots(t, 1)]
                return list(
                    await asyncio.gather(*[env.run_slot(slot, context) for slot in slots])
                ), server

    episodes, server = asyncio.run(main())
    stored = Stored(own_store)
    compare(stored, server)
    assert len(stored) == 6
    by_episode = Counter(r.meta["episode_id"] for r in stored)
    assert by_episode == {episode.id: 3 for episode in episodes}
    traces = {t.id: t for e in episodes for t in e.traces}
    for rollout in stored:
        assert rollout.meta["metrics"]["best"] == traces[str(rollout.key)].metrics["best"]
        assert rollout.environment == "best-of-n+echoes"
        assert restore(rollout) == said(traces[str(rollout.key)].to_record(float_decimals=None))


# -- it only looks ---------------------------------------------------------------------


def test_off_means_the_method_is_the_original(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")

    class Agent:
        async def run(self) -> None: ...

    agent = Agent()
    assert adapter.attach(agent) is agent and "run" not in vars(agent)
    assert not own_store.exists()


def test_the_trace_is_handed_on_unchanged(own_store: Path) -> None:
    (trace,), _ = run([task(0, BRANCHED)], attached=False)
    before = copy.deepcopy(trace)
    adapter.convert(trace)
    assert trace == before
    record = trace.to_record()
    kept = copy.deepcopy(record)
    adapter.convert(record)
    assert record == kept


@pytest.mark.parametrize("broken", ["convert", "_message", "_known", "_identity"])
def test_a_broken_adapter_leaves_the_run_as_it_is(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROLLSCOPE_STRICT")

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("sabotage")

    monkeypatch.setattr(
        hook if broken == "convert" else sys.modules[adapter.convert.__module__], broken, fail
    )
    traces, server = run([task(0, BRANCHED)])
    assert traces[0].ok and len(server.notes) == 5
    assert traces[0].rewards["polite"].score == 0.5


def test_names_that_were_given_are_a_run_beside_ones_own(own_store: Path) -> None:
    with rollscope.init(project="mine", run="all"):
        run([task(0, BRANCHED)])
        rollscope.finish()
    assert {(r.project, r.run) for r in Stored(own_store)} == {("p", "r")}


def test_something_else_is_told_loudly(caplog: pytest.LogCaptureFixture) -> None:
    assert adapter.attach(3) == 3
    assert "int has no run; nothing is recorded" in caplog.text
