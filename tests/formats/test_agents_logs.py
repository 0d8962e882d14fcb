"""Logs of agents and benchmarks that cannot run here. Each file is made by code shaped
like its writer's, whose repository and commit the reader's docstring names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollscope.formats import READERS, Problem, Source, detect, find, read
from rollscope.model import Rollout
from rollscope.model.conversation import text


def whole(path: Path) -> list[Rollout]:
    """All rollouts; a problem is a failure."""
    found = list(read(path))
    assert [str(item) for item in found if isinstance(item, Problem)] == []
    return [item for item in found if isinstance(item, Rollout)]


def lines(path: Path, *bodies: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return path


def said(rollout: Rollout) -> list[tuple[str, str]]:
    return [(m.role, text(m)) for m in rollout.messages]


# -- InterCode -----------------------------------------------------------------------------


def intercode_multiturn(
    path: Path, episodes: list[list[tuple[str, str, float]]], stop: int
) -> None:
    """As `eval_n_turn.py` logs: a policy that raises writes "blocked" and no observation."""
    log: dict[int, Any] = {}
    for number, turns in enumerate(episodes):
        history: dict[str, list[Any]] = {
            "actions": [], "observations": [], "rewards": [], "valid_action": [],
        }  # fmt: skip
        for turn, (action, observation, reward) in enumerate(turns):
            if (number, turn) == (1, stop):
                history["actions"].append("blocked")
                history["rewards"].append(0)
                break
            history["actions"].append(action)
            history["observations"].append(str(observation))
            history["rewards"].append(reward)
            history["valid_action"].append(True)
        best = max(history["rewards"])
        log[number] = {
            "environment": "ic_bash", "dataset": "./data/nl2bash.json", "task_id": number,
            "query": f"Do {number}.", "turn_history": history,
            "summary": {"max_reward": best, "turns_taken": len(turns), "turns_max": 10},
            "hardness": "easy",
        }  # fmt: skip
    path.write_text(json.dumps(log, indent=2))


def test_intercode(tmp_path: Path) -> None:
    path = tmp_path / "gpt-4" / "ic_bash_multiturn_gpt-4_10_turns.json"
    path.parent.mkdir()
    turns = [("ls", "a b", 0.0), ("wc -l a", "3", 1)]
    intercode_multiturn(path, [turns, turns], stop=1)
    assert detect(path) == "intercode"
    first, second = whole(path)
    assert said(first) == [
        ("user", "Do 0."), ("assistant", "ls"), ("tool", "a b"), ("assistant", "wc -l a"),
        ("tool", "3"),
    ]  # fmt: skip
    assert (first.task, first.reward, first.dataset) == (0, 1.0, "./data/nl2bash.json")
    assert [m.reward for m in first.messages] == [None, 0.0, None, 1.0, None]
    assert first.meta["hardness"] == "easy"
    assert said(second) == [
        ("user", "Do 1."), ("assistant", "ls"), ("tool", "a b"), ("assistant", "blocked"),
    ]  # fmt: skip
    assert [m.sampled for m in second.messages] == [False, True, None, False]
    assert second.error is not None
    assert second.error.type == "blocked"
    assert first.group != second.group


def test_intercode_plans_thoughts_and_single_episodes(tmp_path: Path) -> None:
    history = {"actions": ["ls"], "observations": ["a"], "rewards": [1.0], "steps": ["Look."],
               "thoughts": ["Hm."], "valid_action": [True]}  # fmt: skip
    episode = {"environment": "ic_sql", "task_id": 852, "query": "Which?", "turn_history": history,
               "info": {"eval_obs": "x"}, "summary": {"max_reward": 1.0}}  # fmt: skip
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"meta": {"env": "sql"}, "logs": {"852": episode}}, indent=2))
    (found,) = whole(plan)
    answer = found.messages[1]
    assert isinstance(answer.content, list)
    assert [(p.type, p.text) for p in answer.content] == [("reasoning", "Hm."), ("text", "ls")]
    assert answer.meta == {"valid_action": True, "steps": "Look."}
    single = tmp_path / "log_20240101.json"
    body = {"environment": "ic_sql", "query_idx": 3, "query": "Which?", "gold": "SELECT 1",
            "reward": 0.5, "trajectory": [{"action": "x", "observation": "y"}]}  # fmt: skip
    single.write_text(json.dumps(body, indent=2))
    (found,) = whole(single)
    assert (found.task, found.reward, found.reference) == (3, 0.5, "SELECT 1")
    assert said(found) == [("user", "Which?"), ("assistant", "x"), ("tool", "y")]


# -- tau2-bench ----------------------------------------------------------------------------


def tau2_simulation(trial: int, **fields: Any) -> dict[str, Any]:
    call = {"id": "c1", "name": "get_order", "arguments": {"id": "#1"}, "requestor": "assistant"}
    return {
        "id": f"s{trial}", "task_id": "40", "timestamp": "2026-06-30T11:46:16.709632",
        "start_time": "2026-06-30T11:40:23.773211", "end_time": "2026-06-30T11:46:16.709624",
        "duration": 352.87, "termination_reason": "user_stop", "agent_cost": 0.25, "trial": trial,
        "reward_info": {
            "reward": 1.0 - trial, "reward_basis": ["DB"], "reward_breakdown": {"DB": 1.0 - trial},
            "nl_assertions": [{"nl_assertion": "Be kind.", "met": True, "justification": "was"}],
        },
        "messages": [
            {"role": "assistant", "content": "Hi!", "tool_calls": None, "turn_idx": 0,
             "timestamp": "2026-06-30T11:40:24", "cost": 0.0, "is_audio": False},
            {"role": "user", "content": "My order?", "tool_calls": [
                {**call, "id": "u1", "name": "check_phone", "requestor": "user"}], "turn_idx": 1},
            {"id": "u1", "role": "tool", "content": "on", "requestor": "user", "error": False},
            {"role": "assistant", "content": None, "tool_calls": [call], "turn_idx": 3},
            {"id": "c1", "role": "tool", "content": '{"status": "sent"}', "requestor": "assistant",
             "error": False, "turn_idx": 4},
        ],
        **fields,
    }  # fmt: skip


TAU2_HEADER: dict[str, Any] = {
    "timestamp": "2026-06-30T11:40:00", "format_version": None,
    "info": {
        "git_commit": "abc", "num_trials": 2, "seed": 300,
        "user_info": {"implementation": "user_simulator", "llm": "gpt-u",
                      "global_simulation_guidelines": "long"},
        "agent_info": {"implementation": "llm_agent", "llm": "gpt-a",
                       "llm_args": {"temperature": 0.5}},
        "environment_info": {"domain_name": "retail", "policy": "long", "tool_defs": None},
    },
    "tasks": [{"id": "40", "description": {}, "evaluation_criteria": {"actions": []}}],
}  # fmt: skip


def test_tau2_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "gpt-a" / "results.json"
    path.parent.mkdir()
    body = {**TAU2_HEADER, "simulations": [tau2_simulation(0), tau2_simulation(1)]}
    path.write_text(json.dumps(body, indent=2))
    assert detect(path) == "tau2"
    good, bad = whole(path)
    assert said(good)[1:3] == [("user", "My order?"), ("tool", "on")]
    assert [m.sampled for m in good.messages] == [True, False, False, True, False]
    assert good.messages[2].meta["requestor"] == "user"
    assert good.messages[3].tool_calls[0].arguments == {"id": "#1"}
    assert good.messages[4].tool_call_id == "c1"
    assert (good.reward, bad.reward, good.rewards) == (1.0, 0.0, {"DB": 1.0})
    assert (good.dataset, good.task, good.index) == ("retail", "40", 0)
    assert good.group == bad.group
    assert good.reference == {"actions": []}
    assert good.sampling == {"temperature": 0.5}
    assert good.meta["model"] == "gpt-a"
    assert good.meta["grading"]["nl_assertions"][0]["justification"] == "was"
    assert "long" not in json.dumps(good.meta)
    assert good.end is not None
    assert good.end - (good.start or 0) == pytest.approx(352.936413)


def test_tau2_in_a_folder_with_a_file_each(tmp_path: Path) -> None:
    """As voice runs are saved: `results.json` without simulations, and one file each."""
    folder = tmp_path / "voice"
    (folder / "simulations").mkdir(parents=True)
    index = [{"id": "s0", "task_id": "40", "trial": 0}]
    (folder / "results.json").write_text(json.dumps({**TAU2_HEADER, "simulation_index": index}))
    chunk = {"role": "assistant", "contains_speech": True}
    ticks = [
        {"tick_id": 0, "agent_chunk": {**chunk, "content": "Hel"}, "user_chunk": None},
        {"tick_id": 1, "agent_chunk": {**chunk, "content": "lo."}, "user_chunk": None},
        {"tick_id": 2, "agent_chunk": None,
         "user_chunk": {**chunk, "role": "user", "content": "Hi."}},
        {"tick_id": 3, "agent_chunk": None, "user_chunk": None, "agent_tool_calls": [
            {"id": "c", "name": "f", "arguments": {}}],
         "agent_tool_results": [{"id": "c", "role": "tool", "content": "4"}]},
    ]  # fmt: skip
    one = tau2_simulation(0, messages=None, ticks=ticks, termination_reason="agent_error")
    (folder / "simulations" / "s0.json").write_text(json.dumps(one, indent=2))
    (source,) = list(find(tmp_path))
    assert isinstance(source, Source)
    assert (source.format, source.path) == ("tau2", folder), "the folder is one thing"
    (found,) = whole(tmp_path)
    assert said(found) == [
        ("assistant", "Hello."),
        ("user", "Hi."),
        ("assistant", ""),
        ("tool", "4"),
    ]
    assert found.error is not None
    assert (found.error.kind, found.stop_reason) == ("policy", "agent_error")
    (alone,) = whole(folder / "simulations" / "s0.json")
    assert said(alone) == said(found)
    (beside,) = whole(folder / "results.json")
    assert beside.reference == {"actions": []}


# -- OpenHands -----------------------------------------------------------------------------


def v0_action(id: int, action: str, response: Any = None, call: str = "c1", **args: Any) -> Any:
    """As `event_to_dict` writes an action."""
    event: dict[str, Any] = {
        "id": id, "timestamp": f"2025-04-30T16:32:{id:02}", "source": "agent", "action": action,
        "message": f"Running {action}", "args": args,
    }  # fmt: skip
    if response is not None:
        event["tool_call_metadata"] = {
            "function_name": "execute_bash", "tool_call_id": call, "model_response": response,
            "total_calls_in_response": len(response["choices"][0]["message"]["tool_calls"]),
        }  # fmt: skip
    return event


def v0_observation(id: int, cause: int, kind: str, content: str, call: str | None = "c1") -> Any:
    event: dict[str, Any] = {
        "id": id, "timestamp": f"2025-04-30T16:32:{id:02}", "source": "agent", "observation": kind,
        "message": "executed", "cause": cause, "content": content, "extras": {"exit_code": 0},
        "success": True,
    }  # fmt: skip
    if call:
        event["tool_call_metadata"] = {"function_name": "execute_bash", "tool_call_id": call}
    return event


def v0_response(id: str, *calls: str) -> dict[str, Any]:
    made = [{"id": c, "type": "function", "function": {"name": "execute_bash", "arguments": "{}"}}
            for c in calls]  # fmt: skip
    message = {"role": "assistant", "content": f"thinking of {id}", "tool_calls": made}
    return {"id": id, "model": "m", "usage": {"total_tokens": 9},
            "choices": [{"finish_reason": "stop", "index": 0, "message": message}]}  # fmt: skip


def v0_events() -> list[Any]:
    both = v0_response("r1", "c1", "c2")
    user = {"source": "user"}
    return [
        v0_action(0, "system", content="You are OpenHands.", tools=[{"type": "function"}]),
        v0_action(1, "message", content="Mend it.", image_urls=None) | user,
        v0_action(2, "recall", query="Mend it.", recall_type="workspace_context") | user,
        v0_observation(3, 2, "recall", "Added workspace context", None) | {"source": "environment"},
        v0_action(4, "run", both, "c1", command="ls", thought="thinking"),
        v0_action(5, "run", both, "c2", command="pwd"),
        v0_observation(6, 4, "run", "a b", "c1"),
        v0_observation(7, 5, "run", "/work", "c2"),
        {"id": 8, "timestamp": "2025-04-30T16:32:08", "source": "environment", "message": "",
         "observation": "agent_state_changed", "content": "", "extras": {"agent_state": "running"}},
        v0_action(9, "finish", v0_response("r2", "c3"), "c3", final_thought="Done."),
    ]  # fmt: skip


OPENHANDS_SAID = [
    ("system", "You are OpenHands."), ("user", "Mend it."),
    ("environment", "Added workspace context"), ("assistant", "thinking of r1"), ("tool", "a b"),
    ("tool", "/work"), ("assistant", "thinking of r2"),
]  # fmt: skip


def test_openhands_evaluations(tmp_path: Path) -> None:
    body = {
        "instance_id": "django__django-1", "test_result": {"report": {"resolved": True}},
        "instruction": "Mend it.", "error": None, "metrics": {"accumulated_cost": 0.5},
        "metadata": {"agent_class": "CodeActAgent", "dataset": "swe-bench", "max_iterations": 50,
                     "llm_config": {"model": "gpt", "temperature": 0.0, "api_key": "***"}},
        "history": v0_events(),
    }  # fmt: skip
    path = lines(tmp_path / "CodeActAgent" / "output.jsonl", body)
    assert detect(path) == "openhands"
    (found,) = whole(path)
    assert said(found) == OPENHANDS_SAID
    asked = found.messages[3]
    assert [call.id for call in asked.tool_calls] == ["c1", "c2"], "one answer, two calls"
    assert asked.sampled
    assert [m.tool_call_id for m in found.messages[4:6]] == ["c1", "c2"]
    assert (found.task, found.reward, found.stop_reason) == ("django__django-1", 1.0, "finish")
    assert found.sampling == {"temperature": 0.0}
    assert found.meta["tools"] == [{"type": "function"}]
    assert found.meta["model"] == "gpt"
    assert "instruction" not in found.meta, "it is the first message of the user"


def test_openhands_trajectories_pairs_and_agents_without_functions(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(v0_events(), indent=4))
    assert detect(path) == "openhands"
    (found,) = whole(path)
    assert said(found) == OPENHANDS_SAID
    plain = [
        v0_action(1, "message", content="Hi.") | {"source": "user"},
        v0_action(2, "run", command="ls", thought="Look."),
        v0_observation(3, 2, "run", "a", None),
        {"id": 4, "timestamp": "2025-04-30T16:32:04", "source": "agent", "observation": "error",
         "message": "stuck", "content": "AgentStuckInLoopError", "extras": {}},
    ]  # fmt: skip
    pairs = [[plain[0], {**plain[2], "observation": "null"}], [plain[1], plain[2]], [plain[3]]]
    for history in (plain, pairs):
        body = {"instance_id": "x", "history": history, "test_result": {}}
        (found,) = whole(lines(tmp_path / "old" / "output.jsonl", body))
        assert said(found)[:3] == [("user", "Hi."), ("assistant", "Look."), ("tool", "a")]
        assert found.messages[1].tool_calls[0].arguments == {"command": "ls"}
        assert found.messages[2].tool_call_id == found.messages[1].tool_calls[0].id
        assert found.error is not None
        assert found.error.text == "AgentStuckInLoopError"
        assert found.reward is None


def v1_events() -> list[Any]:
    """As events of the SDK are dumped by pydantic."""

    def event(kind: str, source: str, **fields: Any) -> Any:
        stamp = "2026-08-22T16:34:54.123456"
        return {"id": str(uuid.uuid4()), "timestamp": stamp, "source": source, "parent_id": None,
                **fields, "kind": kind}  # fmt: skip

    def words(said: str) -> Any:
        return {"cache_prompt": False, "type": "text", "text": said}

    def action(call: str, thought: list[Any], response: str) -> Any:
        made = {
            "id": call,
            "name": "terminal",
            "arguments": '{"command": "ls"}',
            "origin": "completion",
        }
        hm = "hm" if thought else None
        return event("ActionEvent", "agent", thought=thought, reasoning_content=hm,
                     thinking_blocks=[], action={"command": "ls", "kind": "TerminalAction"},
                     tool_name="terminal", tool_call_id=call, tool_call=made,
                     llm_response_id=response, security_risk="LOW", summary=None)  # fmt: skip

    def seen(call: str, said: str) -> Any:
        return event("ObservationEvent", "environment", tool_name="terminal", tool_call_id=call,
                     observation={"content": [words(said)], "is_error": False, "exit_code": 0,
                                  "kind": "TerminalObservation"}, action_id="a",
                     extended_content=[])  # fmt: skip

    user = {"role": "user", "content": [words("Mend it.")], "tool_calls": None}
    return [
        event("SystemPromptEvent", "agent", system_prompt=words("You are."), tools=[{"name": "t"}],
              dynamic_context=None),
        event("MessageEvent", "user", llm_message=user, activated_skills=[],
              extended_content=[words("Skill.")]),
        event("ConversationStateUpdateEvent", "environment", key="x", value="y"),
        action("c1", [words("Look.")], "r1"),
        action("c2", [], "r1"),
        seen("c1", "a b"),
        seen("c2", "c"),
        event("TokenEvent", "agent", prompt_token_ids=[1, 2], response_token_ids=[3, 4]),
        event("AgentErrorEvent", "agent", error="no such tool", tool_name="x", tool_call_id="c3"),
    ]  # fmt: skip


def test_openhands_event_stores_of_both_generations(tmp_path: Path) -> None:
    old, new = tmp_path / "sessions" / "sid1", tmp_path / "conversations" / "sid2"
    for folder in (old, new):
        (folder / "events").mkdir(parents=True)
    for number, event in enumerate(v0_events()):
        (old / "events" / f"{number}.json").write_text(json.dumps(event))
    (old / "metadata.json").write_text("{}")
    (old / "event_cache").mkdir()
    (old / "event_cache" / "0-25.json").write_text(json.dumps(v0_events()))
    for number, event in enumerate(v1_events()):
        (new / "events" / f"event-{number:05}-{event['id']}.json").write_text(json.dumps(event))
    (new / "base_state.json").write_text("{}")
    found = {r.key: r for r in whole(tmp_path)}
    assert found.keys() == {"sid1", "sid2"}
    assert said(found["sid1"]) == OPENHANDS_SAID
    late = found["sid2"]
    assert said(late) == [
        ("system", "You are."), ("user", "Mend it.\nSkill."), ("assistant", "hmLook."),
        ("tool", "a b"), ("tool", "c"), ("tool", "no such tool"),
    ]  # fmt: skip
    answer = late.messages[2]
    assert [call.id for call in answer.tool_calls] == ["c1", "c2"]
    assert answer.tokens is not None
    assert list(answer.tokens.ids) == [3, 4]
    assert late.messages[3].state == {"is_error": False, "exit_code": 0}
    body = {"instance_id": "x", "history": v1_events(), "test_result": {}}
    (evaluated,) = whole(lines(tmp_path / "eval" / "output.jsonl", body))
    assert said(evaluated) == said(late)


# -- all of them ---------------------------------------------------------------------------


def samples(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    intercode_multiturn(tmp_path / "intercode.json", [[("ls", "a", 1.0)]], stop=9)
    yield "intercode", tmp_path / "intercode.json"
    tau2 = tmp_path / "tau2.json"
    tau2.write_text(json.dumps({**TAU2_HEADER, "simulations": [tau2_simulation(0)]}))
    yield "tau2", tau2
    body = {"instance_id": "x", "history": v0_events(), "test_result": {}}
    yield "openhands", lines(tmp_path / "openhands.jsonl", body)


def test_each_is_told_from_all_others(tmp_path: Path) -> None:
    for name, path in samples(tmp_path):
        assert detect(path) == name
        for other in READERS:
            if other not in (name, "jsonl"):  # which takes any messages
                found = list(find(path, other))
                assert not any(isinstance(item, Source) for item in found), (name, other)


@pytest.mark.parametrize(
    "damage", [lambda d: d[: len(d) // 2], lambda d: d.replace(b":", b";", 40)]
)
def test_damaged_files_are_problems_and_never_raise(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    for name, path in samples(tmp_path):
        path.write_bytes(damage(path.read_bytes()))
        found = [item for source in find(path, name) if isinstance(source, Source)
                 for item in source.read()]  # fmt: skip
        assert any(isinstance(item, Problem) for item in found) or not found, name


# -- Inspect -------------------------------------------------------------------------------


def test_a_model_call_of_inspect_without_an_end_lasted_as_long_as_it_says(tmp_path: Path) -> None:
    at = "2025-12-19T13:23:12+00:00"
    events = [
        {"event": "model", "model": "m", "timestamp": at, "output": {"time": 48.5}},
        {"event": "model", "model": "m", "timestamp": at, "output": {}},
        {"event": "tool", "function": "f", "timestamp": at,
         "completed": "2025-12-19T13:23:14+00:00"},
    ]  # fmt: skip
    sample = {"id": 1, "epoch": 1, "messages": [], "scores": {}, "events": events}
    body = {"version": 2, "status": "success", "eval": {"eval_id": "e"}, "plan": {"steps": []}}
    path = tmp_path / "log.json"
    path.write_text(json.dumps({**body, "samples": [sample]}))
    (found,) = whole(path)
    lasted = [s.end - s.start if s.start and s.end else None for s in found.spans]
    assert lasted == [48.5, None, 2.0]
