"""What AReaL's real executor dumps, read back."""

from __future__ import annotations

from pathlib import Path

import areal_world as world
from areal_world import ANSWERS, GCONFIG, RLVR, TOK, Rollouts

from rollscope.adapters import areal
from rollscope.model import Rollout


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
