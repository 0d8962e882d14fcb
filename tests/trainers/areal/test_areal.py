"""Every episode of AReaL's real executor, against the record of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import areal_world as world
import pytest
import swanlab
import torch
import uvicorn
from areal.api import FinetuneSpec
from areal.api.cli_args import BaseExperimentConfig, PPOActorConfig, StatsLoggerConfig
from areal.trainer.ppo.actor import PPOActor
from areal.utils.stats_logger import StatsLogger
from areal_world import ANSWERS, EPISODES, GCONFIG, TOK, Rollouts
from stored import Stored, complaints, flat, written

from rollscope import capture
from rollscope.adapters import areal
from rollscope.adapters.areal import hook, trainer
from rollscope.model import Rollout

TRACED = "rollscope.adapters.areal.TracedWorkflow"
RLVR = {
    "inner": "areal.workflow.rlvr.RLVRWorkflow",
    "reward_fn": "areal_world.reward_fn",
    "gconfig": GCONFIG,
    "tokenizer": TOK,
}


@pytest.fixture
def rollouts(tmp_path: Path, own_store: Path) -> Iterator[Rollouts]:
    made = Rollouts(tmp_path)
    yield made
    made.close()
    if (run := capture.active()) is not None:
        run.finish()


def answer_of(rollout: Rollout) -> dict[str, Any]:
    return next(a for a in ANSWERS if a["text"] == written(rollout)[-1])


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


def branch(rollout: Rollout, leaf: Any) -> list[int]:
    n = rollout.messages.index(leaf)
    ids: list[int] = []
    while n >= 0:
        message = rollout.messages[n]
        ids = list(message.tokens.ids if message.tokens is not None else ()) + ids
        n = n - 1 if message.parent is None else message.parent
    return ids


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

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server._engine = rollouts.engine
    server._server_host = "127.0.0.1"
    server._setup_openai_client()
    web = uvicorn.Server(uvicorn.Config(server.app, port=port, log_level="error"))
    thread = threading.Thread(target=web.run)
    thread.start()
    while not web.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    web.should_exit = True
    thread.join()
    server._engine = None


def test_an_agent_behind_areals_proxy(rollouts: Rollouts, own_store: Path, proxy: str) -> None:
    results = rollouts.run("areal_world.ThroughProxy", None, asks="tool?", group=2, proxy=proxy)
    assert [len(group["rewards"]) for group in results] == [4, 4]
    check_agent(Stored(own_store), 2)


# -- the trainer -----------------------------------------------------------------------


def make_trainer(optimise: Callable[[Any], None] = lambda batch: None) -> Any:
    config = PPOActorConfig(
        experiment_name="puzzles",
        trial_name="trial 1",
        backend="fsdp:d1",
        kl_ctl=0.0,
        path="x",
        reward_scaling=2.0,
        reward_bias=-0.5,
    )
    config.use_decoupled_loss = False
    config.recompute_logprob = False
    actor = PPOActor(config, None)
    actor.ppo_update = optimise
    settings = StatsLoggerConfig(
        experiment_name="puzzles",
        trial_name="trial 1",
        fileroot=str(Path(os.environ["ROLLSCOPE_DIR"]).parent),
    )
    whole = BaseExperimentConfig(
        experiment_name="puzzles", trial_name="trial 1", stats_logger=settings
    )
    spec = FinetuneSpec(total_train_epochs=1, dataset_size=8, train_batch_size=2)
    stats = NotingStats(whole, spec)
    return SimpleNamespace(config=whole, actor=actor, stats_logger=stats, committed=stats.committed)


class NotingStats(StatsLogger):
    """AReaL's own logger, with every service off; what it is given is noted."""

    def __init__(self, config: Any, spec: Any) -> None:
        with contextlib.suppress(RuntimeError):  # swanlab has one run a process
            swanlab.finish()
        super().__init__(config, spec)
        self.committed: list[Any] = []

    def commit(self, epoch: int, step: int, global_step: int, data: Any) -> None:
        self.committed.append((global_step, data))
        super().commit(epoch, step, global_step, data)


def step(made: Any, batch: list[dict[str, Any]], global_step: int) -> list[dict[str, Any]]:
    """One step, as AReaL's PPOTrainer.train makes it."""
    result: list[dict[str, Any]] = made.actor.compute_advantages(batch)
    made.actor.ppo_update(result)
    made.stats_logger.commit(0, global_step, global_step, {"loss": 0.5, "n__count": 3})
    return result


def expected_advantages(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> dict[tuple[int, ...], list[Any]]:
    """By a row's tokens: the advantage of each token, from the trainer's shifted tensors."""
    found = {}
    for raw, done in zip(before, after, strict=True):
        for i in range(len(raw["input_ids"])):
            length = int(raw["attention_mask"][i].sum())
            mask = raw["loss_mask"][i, :length].tolist()
            shifted = [None, *done["advantages"][i, : length - 1].tolist()]
            found[tuple(raw["input_ids"][i, :length].tolist())] = [
                a if m else None for a, m in zip(shifted, mask, strict=True)
            ]
    return found


def test_advantages_find_their_tokens(rollouts: Rollouts, own_store: Path) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.OneTurn"})
    before = copy.deepcopy(batch)
    made = areal.attach(make_trainer())
    after = step(made, batch, global_step=7)
    found = Stored(own_store)
    assert found.orphans == []
    expected = expected_advantages(before, after)
    assert len(found) == len(expected) == 6
    for rollout in found:
        stream = flat(rollout, "advantage")
        assert stream == expected[tuple(flat(rollout))]
        values = [v for v in stream if v is not None]
        assert len(values) == len(answer_of(rollout)["ids"])
        assert rollout.advantage == pytest.approx(values[0])
        assert (rollout.fate, rollout.trained_step) == ("trained", 7)
        assert rollout.rewards["normalised"] == (0.25 * rollout.index - 0.5) * 2
        assert rollout.reward == 0.25 * rollout.index
    assert found.metrics == {7: {"loss": 0.5}}
    assert made.committed == [(7, {"loss": 0.5, "n__count": 3})]
    for raw, old in zip(batch, before, strict=True):
        assert all(torch.equal(raw[name], old[name]) for name in old)


def test_rows_of_an_agent_are_put_together_again(rollouts: Rollouts, own_store: Path) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.InProcess"}, asks="tool?", group=2)
    before = copy.deepcopy(batch)
    after = step(areal.attach(make_trainer()), batch, global_step=3)
    found = Stored(own_store)
    assert found.orphans == []
    expected = expected_advantages(before, after)
    assert len(expected) == 2 * len(found) == 8
    for rollout in found:
        assert (rollout.fate, rollout.trained_step) == ("trained", 3)
        for message in rollout.messages:
            if message.sampled and message.tokens is not None:
                row = expected[tuple(branch(rollout, message))]
                assert message.tokens.advantage == row[-len(message.tokens.ids) :]


def test_a_trainer_in_another_process_finds_rows_by_their_digest(
    rollouts: Rollouts, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.OneTurn"})
    before = copy.deepcopy(batch)
    monkeypatch.setattr(trainer, "rows", hook.Rows())  # it has seen no episode
    after = step(areal.attach(make_trainer()), batch, global_step=2)
    found = Stored(own_store)
    assert found.orphans == []
    expected = expected_advantages(before, after)
    for rollout in found:
        assert flat(rollout, "advantage") == expected[tuple(flat(rollout))]
        assert rollout.trained_step == 2


def test_an_agents_rows_in_another_process_are_told_never_guessed(
    rollouts: Rollouts, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.InProcess"}, asks="tool?", group=2)
    monkeypatch.setattr(trainer, "rows", hook.Rows())
    step(areal.attach(make_trainer()), batch, global_step=2)
    found = Stored(own_store)
    assert {r.advantage for r in found} == {None}
    assert len({rollout for rollout, _ in found.orphans}) == 8


def test_a_batch_that_was_not_trained_on_is_not_called_trained(
    rollouts: Rollouts, own_store: Path
) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.OneTurn"})

    def broken(batch: Any) -> None:
        raise RuntimeError("out of memory")

    made = areal.attach(make_trainer(broken))
    with pytest.raises(RuntimeError, match="out of memory"):
        step(made, batch, global_step=7)
    assert {r.fate for r in Stored(own_store)} == {"scored"}


def test_misaligned_batches_are_unmatched_never_guessed(
    rollouts: Rollouts, own_store: Path
) -> None:
    batch = rollouts.run(TRACED, {"inner": "areal_world.OneTurn"})
    made = make_trainer()
    compute = made.actor.compute_advantages
    made.actor.compute_advantages = lambda data: compute(data)[:-1]
    areal.attach(made)
    step(made, batch, global_step=1)
    # Rows that no episode made: one token differs.
    foreign = [{k: v.clone() for k, v in batch[0].items()}]
    foreign[0]["input_ids"][:, 0] = 5
    made.actor.compute_advantages = compute
    made._rollscope = None
    areal.attach(made)
    step(made, foreign, global_step=2)
    found = Stored(own_store)
    assert {r.advantage for r in found} == {None}
    assert {r.trained_step for r in found} == {None}
    assert len({rollout for rollout, _ in found.orphans}) == 3
    texts = complaints()
    assert any("2 groups went in, 1 came out" in text for text in texts)


def test_lists_of_the_wrong_length_are_missing_and_told() -> None:
    ids = torch.tensor([TOK.encode("ab"), TOK.encode("cd")])
    result = {
        "input_ids": ids,
        "loss_mask": torch.tensor([[0, 1], [0, 1]]),
        "attention_mask": torch.ones_like(ids),
        "rewards": torch.tensor([1.0]),
        "messages": ["[]"],
    }
    problems: list[str] = []
    found = areal.convert(result, tokenizer=TOK, problems=problems)
    assert [r.reward for r in found] == [None, None]
    assert [written(r) for r in found] == [["b"], ["d"]]
    assert any("messages" in text for text in problems)


def test_a_sabotaged_adapter_changes_nothing(
    rollouts: Rollouts, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = rollouts.calls
    plain = rollouts.run("areal_world.OneTurn", {}, tasks=1)

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("sabotage")

    for name in ("episodes", "join"):
        monkeypatch.setattr(hook, name, broken)
    for name in ("__init__", "end", "_record"):
        monkeypatch.setattr(hook.Watch, name, broken)
    for name in ("rows_of", "digest", "number", "_copied", "_local", "later"):
        monkeypatch.setattr(trainer, name, broken)
    rollouts.calls = began
    traced = rollouts.run(TRACED, {"inner": "areal_world.OneTurn"}, tasks=1)
    assert all(torch.equal(plain[0][name], traced[0][name]) for name in plain[0])
    bare, watched = make_trainer(), make_trainer()
    assert capture.join("puzzles", "trial 1", adapter="areal", asked=True) is not None
    watched._rollscope = trainer.Trainer(watched, capture.active())  # type: ignore[arg-type]
    watched._rollscope.install()
    without = step(bare, copy.deepcopy(plain), 1)
    with_it = step(watched, copy.deepcopy(plain), 1)
    assert all(torch.equal(without[0][name], with_it[0][name]) for name in without[0])
    assert watched.committed == bare.committed


def test_off_means_untouched(
    rollouts: Rollouts, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE", "off")
    made = make_trainer()
    compute = made.actor.compute_advantages
    areal.attach(made)
    assert made.actor.compute_advantages == compute
    rollouts.run(TRACED, {"inner": "areal_world.OneTurn"}, tasks=1)
    assert not own_store.exists()


def test_an_agent_given_as_a_workflow_is_refused_with_what_to_type() -> None:
    with pytest.raises(TypeError, match=r"mark its class with @rollscope.adapters.areal.agent"):
        areal.TracedWorkflow(inner="areal_world.ThroughProxy")


def test_settings_travel_with_the_workflow(own_store: Path, tmp_path: Path) -> None:
    with capture.init(project="p", run="r"):
        made = areal.traced("areal_world.OneTurn", behaviour="tool")
    assert made["workflow"] == TRACED
    assert made["workflow_kwargs"]["inner"] == "areal_world.OneTurn"
    assert made["workflow_kwargs"]["settings"]["ROLLSCOPE_DIR"] == str(own_store)
    assert "ROLLSCOPE_LAUNCH" in made["workflow_kwargs"]["settings"]


def test_a_trainer_without_the_seams_says_so(own_store: Path) -> None:
    areal.attach(SimpleNamespace())
    texts = complaints()
    assert any("AReaL 1.0.4" in t and "has no actor.compute_advantages" in t for t in texts)


# -- files -----------------------------------------------------------------------------


def test_a_dump_directory_is_read_back(tmp_path: Path, own_store: Path) -> None:
    made = Rollouts(tmp_path, dump=True)
    made.run("areal.workflow.rlvr.RLVRWorkflow", {k: v for k, v in RLVR.items() if k != "inner"})
    kwargs = {
        "reward_fn": world.reward_fn,
        "gconfig": GCONFIG,
        "tokenizer": TOK,
        "max_turns": 3,
        "turn_discount": 0.5,
    }
    made.run("areal.workflow.multi_turn.MultiTurnWorkflow", kwargs, is_eval=True)
    made.close()
    logs = tmp_path / "logs"
    assert areal.recognise(logs)
    found = [r for r in areal.read(logs) if isinstance(r, Rollout)]
    train = [r for r in found if r.split == "train"]
    assert len(train) == 6 and len(found) == 12
    texts = {a["text"]: a for a in ANSWERS}
    for rollout in train:
        assert [m.role for m in rollout.messages] == ["user", "assistant"]
        assert str(rollout.messages[0].content).startswith("puzzle ")
        answer = str(rollout.messages[1].content)
        assert rollout.reward == world.earned(answer + "<|im_end|>")
        assert texts[answer]
        assert (rollout.project, rollout.run) == ("puzzles", "trial 1")
        assert rollout.step == 5 and rollout.policy_version == 5  # the newest token's
    for rollout in found:
        if rollout.split == "eval":
            answers = [m.content for m in rollout.messages if m.role == "assistant"]
            assert all(answer in texts for answer in answers)
            assert [m.role for m in rollout.messages] == ["user", "assistant"] * len(answers)
    assert len({r.key for r in found}) == 12


def test_segments_of_later_areal_say_who_wrote_what(tmp_path: Path) -> None:
    file = tmp_path / "rollout" / "9" / "3.jsonl"
    file.parent.mkdir(parents=True)
    row = (
        '{"task_id": 3, "sample_idx": 1, "seqlen": 9, "prompt_len": 3, "head_version": 8,'
        ' "tail_version": 9, "version_rle": [[8, 2], [9, 4]], "reward": -0.5,'
        ' "original_reward": 1.0, "prompt": "<|im_start|>user\\nq<|im_end|>\\n<|im_start|>assista'
        'nt\\n", "completion": "a", "segments": ['
        '{"role": "prompt", "len": 3, "text": "<|im_start|>user\\nq<|im_end|>\\n<|im_start|>assis'
        'tant\\n"}, {"role": "gen", "len": 2, "text": "first<|im_end|>"},'
        ' {"role": "context", "len": 2, "text": "<|im_start|>tool\\n42<|im_end|>\\n<|im_start|>as'
        'sistant\\n"}, {"role": "gen", "len": 2, "text": "second<|im_end|>"}]}\n'
    )
    file.write_text(row + "no json\n" + '{"other": 1}\n')
    found = list(areal.read(tmp_path))
    rollout = found[0]
    assert isinstance(rollout, Rollout)
    assert [(m.role, m.content, m.sampled) for m in rollout.messages] == [
        ("user", "q", False),
        ("assistant", "first", True),
        ("tool", "42", False),
        ("assistant", "second", True),
    ]
    assert rollout.reward == 1.0 and rollout.rewards == {"normalised": -0.5}
    assert rollout.policy_version == 8
    assert [str(p).partition("3.jsonl")[2][:3] for p in found[1:]] == [":2:", ":3:"]
    assert not areal.recognise(tmp_path / "nothing")


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
