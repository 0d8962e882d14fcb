"""Logs of trainers that cannot run here. Each file is made by code shaped
like its writer's, whose repository and commit the reader's docstring names."""

from __future__ import annotations

import copy
import json
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


# -- Atropos -------------------------------------------------------------------------------

MASKED = -100


def atropos_group(*items: tuple[list[Any], list[int], list[int], float], **fields: Any) -> Any:
    """As `handle_send_to_api` writes a group: (messages, tokens, masks, score) each."""
    return {
        "tokens": [tokens for _, tokens, _, _ in items],
        "masks": [masks for _, _, masks, _ in items],
        "scores": [score for *_, score in items],
        "messages": [messages for messages, *_ in items],
        "ref_logprobs": None, "overrides": None, "group_overrides": None,
        "distill_token_ids": None, "distill_logprobs": None, **fields,
    }  # fmt: skip


def turns(*roles: str) -> list[Any]:
    return [{"role": role, "content": f"{role} {n}"} for n, role in enumerate(roles)]


def test_atropos_groups(tmp_path: Path) -> None:
    chat = turns("system", "user", "assistant")
    many = turns("user", "assistant", "tool", "assistant")
    row, mask = [1, 2, 3, 4, 5], [MASKED, MASKED, MASKED, 4, 5]
    several = [MASKED, 2, MASKED, 4, MASKED]  # every turn, and the template's end
    logprobs = [[1.0, 1.0, 1.0, -0.4, -0.5], [1.0, -0.2, 1.0, -0.4, 1.0]]
    path = lines(
        tmp_path / "env" / "groups.jsonl",
        atropos_group(
            (chat, row, mask, 1.0), (many, row, several, -1.0), inference_logprobs=logprobs,
            token_scores=[[0.0] * 5, [0.5] * 5], seed=7, generation_params={"temperature": 1.0},
        ),
    )  # fmt: skip
    assert detect(path) == "atropos"
    first, second = whole(path)
    assert (first.reward, second.reward) == (1.0, -1.0)
    assert first.group == second.group
    assert (first.index, second.index) == (0, 1)
    assert first.sampling == {"temperature": 1.0}
    assert first.meta == {"seed": 7}
    tokens = [None if m.tokens is None else list(m.tokens.ids) for m in first.messages]
    assert tokens == [[1, 2, 3], None, [4, 5]]
    assert first.messages[0].meta["tokens_of"] == [0, 1], "whose they are of the two is not known"
    answer = first.messages[2].tokens
    assert answer is not None
    assert (answer.logprob, answer.mask) == ([-0.4, -0.5], [1, 1])
    assert answer.streams["token_scores"] == [0.0, 0.0]
    tokens = [None if m.tokens is None else list(m.tokens.ids) for m in second.messages]
    assert tokens == [[1], [2], [3], [4, 5]]
    last = second.messages[3].tokens
    assert last is not None
    assert (last.mask, last.logprob) == ([1, 0], [-0.4, None]), "the mark behind it is not its own"


def test_atropos_masks_that_do_not_fit_give_no_tokens_and_say_so(tmp_path: Path) -> None:
    chat = turns("user", "assistant", "user", "assistant", "user", "assistant")
    mask = [MASKED, 2, MASKED, 4, MASKED]  # two answers for three
    path = lines(tmp_path / "g.jsonl", atropos_group((chat, [1, 2, 3, 4, 5], mask, 1.0)))
    told, found = read(path)
    assert isinstance(told, Problem)
    assert "2 answers" in told.text
    assert isinstance(found, Rollout)
    assert len(found.messages) == 6
    assert all(message.tokens is None for message in found.messages)


def test_atropos_without_messages(tmp_path: Path) -> None:
    group = atropos_group(([], [1, 2, 3], [MASKED, 2, 3], 0.5))
    group["messages"] = None
    (found,) = whole(lines(tmp_path / "g.jsonl", group))
    assert [(m.sampled, list(m.tokens.ids)) for m in found.messages] == [  # type: ignore[union-attr]
        (False, [1]), (True, [2, 3]),
    ]  # fmt: skip


# -- NeMo-RL -------------------------------------------------------------------------------


def nemo_rl(path: Path, batch: dict[str, list[Any]]) -> Path:
    """As `log_batched_dict_as_jsonl` writes: slices of one row, so every value is a list of one."""
    size = len(next(iter(batch.values())))
    rows = [{**{k: v[i : i + 1] for k, v in batch.items()}, "idx": i} for i in range(size)]
    return lines(path, *copy.deepcopy(rows))


def nemo_rl_batch() -> dict[str, list[Any]]:
    return {
        "content": [["Two?", "It is 2."], ["Two?", "3", "Wrong.", "2"]],
        "rewards": [1.0, 0.5], "input_lengths": [3, 6],
        "token_ids": [[7, 8, 9, 0, 0, 0], [7, 8, 5, 6, 9, 4]],
        "token_loss_mask": [[0, 1, 1, 0, 0, 0], [0, 1, 0, 0, 1, 1]],
        "sample_loss_mask": [1.0, 0.0],
        "advantages": [[0.5] * 6, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]],
        "generation_logprobs": [[0.0, -0.1, -0.2, 0, 0, 0], [0.0, -0.1, 0.0, 0.0, -0.4, -0.5]],
        "prev_logprobs": [[0.0, -0.3, -0.4, 0, 0, 0], [0.0, -0.2, 0.0, 0.0, -0.6, -0.7]],
    }  # fmt: skip


def test_nemo_rl_training_rows(tmp_path: Path) -> None:
    path = nemo_rl(tmp_path / "train_data_step12.jsonl", nemo_rl_batch())
    assert detect(path) == "nemo-rl"
    first, second = whole(path)
    assert (first.step, first.split, first.trained_step) == (12, "train", 12)
    assert (first.reward, first.fate, second.fate) == (1.0, "trained", "masked")
    assert said(first) == [("unknown", "Two?"), ("assistant", "It is 2.")]
    assert first.advantage == 0.5, "the same for every token"
    answer = first.messages[1].tokens
    assert answer is not None
    assert (list(answer.ids), answer.logprob, answer.train_logprob, answer.mask) == (
        [8, 9], [-0.1, -0.2], [-0.3, -0.4], [1, 1],
    )  # fmt: skip
    assert first.messages[0].tokens is not None
    assert first.messages[0].tokens.streams == {"mask": [0]}, "padding is no logprob"
    assert [list(m.tokens.ids) for m in second.messages] == [[7], [8], [5, 6], [9, 4]]  # type: ignore[union-attr]
    assert [m.role for m in second.messages] == ["unknown", "assistant", "unknown", "assistant"]
    late = second.messages[3].tokens
    assert late is not None
    assert (second.advantage, late.advantage) == (None, [0.5, 0.6])
    assert first.group == second.group, "they were asked the same at the same step"
    assert (first.index, second.index) == (0, 1)


def test_nemo_rl_with_dynamic_sampling(tmp_path: Path) -> None:
    """`rewards` are those of all that was generated, cut to the length of what was kept."""
    batch = nemo_rl_batch()
    batch["filtered_rewards"], batch["rewards"] = batch["rewards"], [0.0, 0.0]
    batch["agent_ref"] = [{"name": "math"}, {"name": "math"}]
    found = whole(nemo_rl(tmp_path / "train_data_step1.jsonl", batch))
    assert [r.reward for r in found] == [1.0, 0.5]
    assert found[0].environment == "math"


def test_nemo_rl_texts_that_do_not_fit_the_mask(tmp_path: Path) -> None:
    batch = nemo_rl_batch()
    batch["content"][1] = ["only one"]
    items = list(read(nemo_rl(tmp_path / "train_data_step1.jsonl", batch)))
    assert [type(item) for item in items] == [Rollout, Problem, Rollout]
    odd = items[2]
    assert isinstance(odd, Rollout)
    assert odd.meta["content"] == ["only one"]
    assert [list(m.tokens.ids) for m in odd.messages] == [[7], [8], [5, 6], [9, 4]]  # type: ignore[union-attr]


def test_nemo_rl_validation_and_distillation(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "2"}]
    (found,) = whole(
        nemo_rl(tmp_path / "val_data_step5.jsonl", {"content": [chat], "rewards": [1.0]})
    )
    assert (found.split, found.step, found.reward) == ("eval", 5, 1.0)
    assert said(found) == [("user", "2?"), ("assistant", "2")]
    batch = {"content": [["2?", "2"]], "input_lengths": [4]}
    (found,) = whole(nemo_rl(tmp_path / "d" / "train_data_step5.jsonl", batch))
    assert said(found) == [("unknown", "2?"), ("unknown", "2")]


# -- ROLL ----------------------------------------------------------------------------------


def test_roll_answers(tmp_path: Path) -> None:
    """As `dump_rollout_to_specific_path` writes: a line a step, a list a column."""
    asked = json.dumps([{"role": "user", "content": "2?"}])
    settings = json.dumps({"generation_config": {"temperature": 0.9, "top_p": 1.0}, "step": 3})
    path = lines(
        tmp_path / "rollout_dump_data.step_3.jsonl",
        {
            "id": ["a", "a", "b"], "tag": ["math", "math", "code"],
            "domain": ["math_rule", "math_rule", "code_sandbox"], "difficulty": ["1", "1", "2"],
            "prompt": ["x", "x", "y"], "messages": [asked, asked, asked],
            "ground_truth": ["2", "2", "z"], "responses": ["2", "3", "z"],
            "scores": [1.0, 0.0, 0.5], "sampling_params": [settings] * 3, "global_step": [3] * 3,
        },
    )  # fmt: skip
    assert detect(path) == "roll"
    first, second, third = whole(path)
    assert said(first) == [("user", "2?"), ("assistant", "2")]
    assert [m.sampled for m in first.messages] == [False, True]
    assert (first.step, first.reward, first.task, first.reference) == (3, 1.0, "a", "2")
    assert (first.group, first.index, second.index) == (second.group, 0, 1)
    assert third.group != first.group
    assert (third.environment, third.dataset) == ("code_sandbox", "code")
    assert first.sampling == {"temperature": 0.9, "top_p": 1.0}
    assert first.meta["difficulty"] == "1"
    lines(path, {"responses": ["a"], "scores": [1.0, 2.0], "global_step": [1]})
    (problem,) = read(path)
    assert isinstance(problem, Problem)
    assert "different lengths" in problem.text


def test_roll_trajectories(tmp_path: Path) -> None:
    """As `dump_rollout_trajectories` writes those of `agent_native_env_manager.py`."""
    chat = [{"role": "user", "content": "Mend."}, {"role": "assistant", "content": "ls"},
            {"role": "tool", "content": "a"}, {"role": "assistant", "content": "done"}]  # fmt: skip
    fresh = [{"role": "user", "content": "Summary."}, {"role": "assistant", "content": "end"}]
    data = {
        "trajectory_id": "swe_1_1_0_3", "timestamp": "20260819_153611_000000", "current_step": 1,
        "env_info": {"env_id": 3, "group_id": 0, "tag": "swe", "seed": 11, "episode_id": 2,
                     "mode": "train"},
        "timing_info": {"traj_time_reset": 0.5}, "length_info": {"truncated": True},
        "reward_info": {"episode_reward": 1.5, "step_rewards": [0.0, 0.5, 1.0]},
        "failure_info": {"stop_reason": "MAX_STEPS", "has_failure": True, "failure_mode": "timeout",
                         "error_messages": ["too long"]},
        "metrics": {"env/swe/num_actions": 3}, "last_observation": [],
    }  # fmt: skip
    path = lines(
        tmp_path / "rollout_dump_data.step_1.jsonl",
        {
            "trajectory_data": [json.dumps(data)], "messages": [json.dumps([chat, fresh])],
            "tools": [json.dumps([{"name": "bash"}])], "exp_name": ["swe-rl"], "global_step": [1],
        },
    )  # fmt: skip
    assert detect(path) == "roll"
    (found,) = whole(path)
    assert [m.role for m in found.messages] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert [m.parent for m in found.messages] == [None] * 4 + [-1, None]
    assert [m.reward for m in found.messages if m.sampled] == [0.0, 0.5, 1.0]
    assert (found.reward, found.split, found.truncated) == (1.5, "train", True)
    assert (found.task, found.environment, found.stop_reason) == ("swe/11", "swe", "MAX_STEPS")
    assert found.error is not None
    assert (found.error.type, "too long" in str(found.error.text)) == ("timeout", True)
    assert found.meta["tools"] == [{"name": "bash"}]
    assert found.meta["exp_name"] == "swe-rl"


# -- all of them ---------------------------------------------------------------------------


def samples(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    group = atropos_group((turns("user", "assistant"), [1, 2], [MASKED, 2], 1.0))
    yield "atropos", lines(tmp_path / "atropos.jsonl", group)
    yield "nemo-rl", nemo_rl(tmp_path / "train_data_step1.jsonl", nemo_rl_batch())
    step = {"responses": ["a"], "scores": [1.0], "prompt": ["p"], "global_step": [1]}
    yield "roll", lines(tmp_path / "roll.jsonl", step)


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
