"""Every group that open-instruct's real data preparation takes, against what the engine sent."""

from __future__ import annotations

import copy
import itertools
import pickle
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import oi_world as world
import pytest
import torch
from checked import named_faults, silent
from oi_world import DATASET, TOK, N, data_loader, grpo_utils, make_actor, result, run
from stored import Stored, complaints, flat

from rollscope import capture
from rollscope.adapters import open_instruct
from rollscope.adapters._seam import is_ours, original
from rollscope.adapters.open_instruct import hook
from rollscope.model import Rollout


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    """The seams are put in place, and taken away again."""
    kept = {name: getattr(data_loader, name) for name in (*hook.SEAMS, "DataPreparationActor")}
    others = [
        (world.model_utils, "print_rich_single_line_metrics"),
        (grpo_utils, "maybe_evaluate"),
    ]
    originals = [(module, name, getattr(module, name)) for module, name in others]
    hook.recorder.__init__()  # type: ignore[misc]
    open_instruct.install()
    yield
    if (active := capture.active()) is not None:
        active.finish()
    for name, value in kept.items():
        setattr(data_loader, name, value)
    for module, name, value in originals:
        setattr(module, name, value)


def check(found: Stored, sent: list[Any], split: str = "train") -> None:
    """Every sample is there once: prompt, tokens, mask, log probabilities, reward, tools."""
    assert found.orphans == []
    expected = {f"{r.prompt_id}/{j}": (r, j) for r in sent for j in range(N)}
    stored = {str(r.key).removeprefix(f"open-instruct/{split}/"): r for r in found}
    assert stored.keys() == expected.keys()
    for name, rollout in stored.items():
        sent_group, j = expected[name]
        example = DATASET[sent_group.index]
        prompt = example["input_ids_prompt"]
        response = sent_group.responses[j]
        assert flat(rollout) == prompt + response
        assert flat(rollout, "mask")[len(prompt) :] == sent_group.masks[j]
        assert flat(rollout, "logprob")[len(prompt) :] == (
            torch.tensor(sent_group.logprobs[j]).tolist()
        )
        assert rollout.messages[0].content == f"sum {sent_group.index} ñ"
        assert "".join(
            m.meta.get("before", "") + str(m.content) + m.meta.get("after", "")
            for m in rollout.messages
        ) == TOK.decode(prompt + response)
        assert rollout.reward == sent_group.reward_scores[j]
        assert rollout.stop_reason == sent_group.finish_reasons[j]
        assert rollout.index == j
        assert rollout.group == f"{split}/{sent_group.prompt_id}"
        assert str(rollout.task).removeprefix("eval:") == str(sent_group.index)
        assert rollout.dataset == "gsm8k"
        assert rollout.reference == [str(sent_group.index)]
        assert rollout.policy_version == sent_group.model_step
        assert rollout.meta["raw_query"] == example["prompt"]
        output = sent_group.request_info.tool_outputs[j]
        assert rollout.meta["request_info"].get("tool_outputs", "") == output


def advantages(rewards: list[float]) -> list[float]:
    """open-instruct's default: centred in what it takes for a group, trained on as float32."""
    scores = np.array(rewards)
    return [float(value) for value in np.float32(scores - scores.mean())]


LOOKED = {
    "fate.contradiction",
    "fate.unfinished",
    "group.slot",
    "logprob.missing",
    "logprob.odd",
    "mask.empty",
    "mask.foreign",
    "prompt.prefix",
    "reward.grader",
    "tokens.ends",
    "turns.missing",
}
"""Checks of the record that find in a clean run what they need, and nothing wrong."""


def test_trained_groups_and_dropped_ones(own_store: Path, tmp_path: Path) -> None:
    sent = [
        result(0),
        result(5, scores=[10.0] * N),
        result(1, model_step=0),
        result(2, tools=False, model_step=1),
    ]
    run(make_actor(sent))
    found = Stored(own_store)
    check(found, sent)
    by_task = {t: [r for r in found if r.task == t] for t in ("0", "5", "1", "2")}
    assert {(r.fate, r.fate_reason) for r in by_task["5"]} == {("dropped", hook.ZERO_STD)}
    assert {(r.fate, r.trained_step) for r in by_task["0"]} == {("trained", 1)}
    assert {(r.fate, r.trained_step) for r in by_task["1"]} == {("trained", 2)}
    assert {r.step for r in by_task["1"]} == {1} and {r.step for r in by_task["2"]} == {2}
    for task in ("0", "1", "2"):
        members = sorted(by_task[task], key=lambda r: r.index or 0)
        expected = advantages([m.reward or 0.0 for m in members])
        assert [m.advantage for m in members] == expected
    assert silent(own_store) >= LOOKED
    assert named_faults(own_store, tmp_path / "planted") >= LOOKED


def test_tools_are_told_by_the_mask(own_store: Path) -> None:
    sent = [result(1), result(2)]
    run(make_actor(sent))
    for rollout in Stored(own_store):
        assert [m.role for m in rollout.messages] == ["user", "assistant", "tool", "assistant"]
        assert [m.sampled for m in rollout.messages] == [False, True, False, True]
        tool = rollout.messages[2]
        assert (tool.content, tool.name) == (f"<tool>{rollout.index}</tool>", "search")
        assert [span.name for span in rollout.spans] == ["search"]
        assert (rollout.spans[0].error is not None) == (rollout.index == 1)
        assert rollout.meta.get("active_tools") == (["search"] if rollout.task == "1" else None)
        if rollout.index == 1:
            assert rollout.error is not None and rollout.error.text == "no such page"


def test_masks_that_do_not_mark_tools_are_not_believed(own_store: Path) -> None:
    sent = [result(1, is_masked=False), result(2, is_masked=False)]
    run(make_actor(sent))
    found = Stored(own_store)
    check(found, sent)
    for rollout in found:
        assert rollout.messages[-1].sampled is None
        assert "not marked" in rollout.meta["tool_spans"]


def test_rows_taken_out_do_not_shift_the_others(own_store: Path) -> None:
    # 3 rows of prompt 0 and 1 row of prompt 1 are left: open-instruct takes them for one group.
    sent = [result(0, truncated=(1,)), result(1, truncated=(0, 2, 3))]
    run(make_actor(sent, mask_truncated=True))
    found = Stored(own_store)
    check(found, sent)
    kept = [(0, 0), (0, 2), (0, 3), (1, 1)]
    together = advantages([sent[g].reward_scores[j] for g, j in kept])
    for rollout in found:
        place = (int(str(rollout.task)), rollout.index)
        if place in kept:
            assert rollout.fate == "trained"
            assert rollout.advantage == together[kept.index(place)]  # what it really used
            assert rollout.truncated is False
        else:
            assert (rollout.fate, rollout.fate_reason) == ("dropped", hook.TRUNCATED)
            assert rollout.advantage is None and rollout.truncated is True


def test_stale_results_are_recorded_as_dropped(own_store: Path) -> None:
    sent = [result(3, model_step=1), result(0, model_step=9), result(1, model_step=10)]
    run(make_actor(sent, first_step=10))
    found = Stored(own_store)
    check(found, sent)
    stale = [r for r in found if r.task == "3"]
    assert {(r.fate, r.fate_reason) for r in stale} == {
        ("dropped", "stale: weights of step 1 at step 10")
    }
    late = {str(r.task): (r.trained_step or 0) - (r.step or 0) for r in found if r.trained_step}
    assert late == {"0": 1, "1": 0}


def test_sequences_that_no_rank_gets_are_dropped(own_store: Path) -> None:
    sent = [result(0), result(1)]
    actor = run(make_actor(sent, world=3, pack_length=160))
    found = Stored(own_store)
    check(found, sent)
    trained = {t for rank in actor.prepared_data[0] for t in _documents(rank)}
    for rollout in found:
        assert (tuple(flat(rollout)) in trained) == (rollout.fate == "trained")
    left = [r for r in found if r.fate == "dropped"]
    assert left and all("left over" in str(r.fate_reason) for r in left)


def _documents(rank: Any) -> list[tuple[int, ...]]:
    """The rows in a rank's packed micro-batches, told apart by where positions begin anew."""
    found = []
    for ids, positions in zip(rank.query_responses, rank.position_ids, strict=True):
        for row, place in zip(ids.tolist(), positions.tolist(), strict=True):
            begins = [i for i, p in enumerate(place) if p == 0] + [len(row)]
            found += [tuple(row[a:b]) for a, b in itertools.pairwise(begins)]
    return [tuple(t for t in row if t != TOK.pad_token_id) for row in found]


def test_evaluation_is_recorded_once_however_often_it_is_asked_for(own_store: Path) -> None:
    sent = [result(i, epoch=6, model_step=5, is_eval=True) for i in range(3)]
    queue = world.Engine(sent[:2])
    # From its last step on, open-instruct waits for what is missing.
    args = types.SimpleNamespace(num_training_steps=6, with_tracking=False)

    def evaluate(step: int) -> bool:
        return bool(
            grpo_utils.maybe_evaluate(
                args,
                step,
                queue,
                TOK,
                0,
                DATASET[:3],
                types.SimpleNamespace(n=N),
                None,
                world.data_types.EnvConfig(),
                10.0,
            )
        )

    assert evaluate(6) is False  # two of three are there: it puts them back
    queue.put(sent[2])
    assert evaluate(7) is True
    found = Stored(own_store)
    check(found, sent, split="eval")
    assert {r.split for r in found} == {"eval"}
    assert {r.step for r in found} == {7}
    assert {r.task for r in found} == {"eval:0", "eval:1", "eval:2"}
    assert found.metrics[7]["eval/scores"] == 5.0


def test_metrics_stand_at_the_trainers_own_step(own_store: Path) -> None:
    metrics = {"training_step": 12, "loss/total_avg": 0.5, "note": "x", "episode": 96}
    world.model_utils.print_rich_single_line_metrics(
        {k: v for k, v in metrics.items() if k != "note"}
    )
    expected = {"training_step": 12.0, "loss/total_avg": 0.5, "episode": 96.0}
    assert Stored(own_store).metrics == {12: expected}


def test_a_loop_that_breaks_has_recorded_what_came_before(own_store: Path) -> None:
    sent = [result(0), result(1), result(2), result(3)]
    broken = copy.deepcopy(sent[3])
    broken.responses = broken.responses[:-1]  # open-instruct asserts that all samples are there
    with pytest.raises(AssertionError, match="Mismatch"):
        run(make_actor([*sent[:3], broken]))
    found = Stored(own_store)
    assert Counter(r.fate for r in found) == {"trained": 8, "scored": 4, "failed": 3}
    failed = [r for r in found if r.fate == "failed"]
    assert {r.task for r in failed} == {"3"}
    assert all(r.error is not None and r.error.type == "AssertionError" for r in failed)


def test_lists_of_differing_length_are_missing_and_counted() -> None:
    sent = [result(0), result(1)]
    groups = [
        data_loader.process_group(
            result=r,
            generation_config=types.SimpleNamespace(n=N),
            tokenizer=TOK,
            dataset=DATASET,
            max_possible_score=10.0,
            no_resampling_pass_rate=None,
            iter_dataloader=None,
            filter_zero_std_samples=True,
            replenish_prompts=False,
            param_prompt_Q=None,
            base_env_config=None,
        )
        for r in sent
    ]
    merged, batch, _, _ = data_loader.make_batch_from_groups(
        groups, types.SimpleNamespace(n=N), training_step=3
    )
    whole = open_instruct.convert(batch, merged, np.arange(8.0), samples=N, tokenizer=TOK, step=3)
    assert [(r.task, r.index, r.advantage) for r in whole] == [
        (str(i // N), i % N, float(i)) for i in range(8)
    ]
    for name in ("indices", "model_steps", "raw_queries", "decoded_responses"):
        short = copy.copy(batch)
        setattr(short, name, getattr(batch, name)[:-1])
        problems: list[str] = []
        found = open_instruct.convert(
            short, merged, samples=N, tokenizer=TOK, step=3, problems=problems
        )
        assert [p for p in problems if name in p] == [
            f"batch.{name}: expected 8 values, found 7; left out"
        ]
        assert len(found) == 8
        assert [flat(r) for r in found] == [flat(r) for r in whole]
        if name == "indices":
            assert {(r.group, r.index) for r in found} == {(None, None)}
            assert {r.meta["unmatched"] for r in found} == {"no dataset index"}
        if name == "model_steps":
            assert {r.policy_version for r in found} == {None}
    shifted = copy.copy(merged)
    shifted.responses, shifted.masks = merged.responses[1:], merged.masks[1:]
    problems = []
    found = open_instruct.convert(batch, shifted, samples=N, tokenizer=TOK, problems=problems)
    assert len(found) == 7 and {r.task for r in found} == {None}
    assert {r.reward for r in found} == {None}


def test_a_trained_row_that_nobody_sent_is_counted_and_left_alone(own_store: Path) -> None:
    packed = data_loader.pack_sequences

    def foreign(*args: Any, **kwargs: Any) -> Any:
        kwargs["responses"] = [list(kwargs["responses"][0]), *kwargs["responses"][1:]]
        return packed(*args, **kwargs)

    data_loader.pack_sequences = foreign
    run(make_actor([result(0), result(1)]))
    found = Stored(own_store)
    assert Counter(r.fate for r in found) == {"trained": 7, "scored": 1}
    texts = complaints()
    assert any("1 of 8 trained rows match no rollout" in text for text in texts)


def prepared(actor: Any) -> list[Any]:
    return [
        [getattr(rank, name) for name in ("query_responses", "advantages", "vllm_logprobs")]
        for step in sorted(actor.prepared_data)
        for rank in actor.prepared_data[step]
    ]


def test_a_sabotaged_adapter_changes_nothing(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent() -> list[Any]:
        return [result(0), result(5, scores=[1.0] * N), result(1), result(2)]

    for name in hook.SEAMS:
        monkeypatch.setattr(data_loader, name, original(getattr(data_loader, name)))
    plain = prepared(run(make_actor(sent())))
    monkeypatch.undo()
    monkeypatch.setenv("ROLLSCOPE_DIR", str(own_store))
    open_instruct.install()

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("sabotage")

    for name in ("convert_group", "on_host", "numbers", "_example", "_end", "_Arrived"):
        monkeypatch.setattr(hook, name, broken)
    for name in ("joined", "_arrived", "_take", "_record", "_trained", "_annotate"):
        monkeypatch.setattr(hook.DataRecorder, name, broken)
    watched = prepared(run(make_actor(sent())))
    assert len(plain) == len(watched) == 2
    for one, other in zip(plain, watched, strict=True):
        for a, b in zip(one, other, strict=True):
            assert all(
                torch.equal(x.nan_to_num(9), y.nan_to_num(9)) for x, y in zip(a, b, strict=True)
            )


def test_what_the_engine_sent_is_not_changed(own_store: Path) -> None:
    sent = [result(0), result(1)]
    before = copy.deepcopy(sent)
    run(make_actor(sent))
    Stored(own_store)
    assert sent == before


def test_off_means_untouched(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in hook.SEAMS:
        monkeypatch.setattr(data_loader, name, original(getattr(data_loader, name)))
    monkeypatch.setenv("ROLLSCOPE", "off")
    open_instruct.install()
    assert not any(is_ours(getattr(data_loader, name)) for name in hook.SEAMS)


def test_a_seam_travels_by_name_to_rays_actors() -> None:
    cloudpickle = pytest.importorskip("ray.cloudpickle")
    seam = data_loader.accumulate_inference_batches
    assert pickle.loads(cloudpickle.dumps(seam)) is seam


def test_missing_seams_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(data_loader, "pack_sequences")
    open_instruct.install()
    texts = complaints()
    assert any("has no pack_sequences" in text for text in texts)


def test_what_save_traces_wrote_is_read_back(own_store: Path, tmp_path: Path) -> None:
    sent = [result(0, tools=False), result(1, tools=False), result(2), result(3)]
    sent[0].logprobs[1][0] = float("nan")
    run(make_actor(sent, traces=tmp_path / "traces"))
    world.finish_writing()
    live = {(str(r.task), r.index): r for r in Stored(own_store)}
    assert open_instruct.recognise(tmp_path / "traces")
    found = [r for r in open_instruct.read(tmp_path / "traces", TOK) if isinstance(r, Rollout)]
    assert len(found) == 16 == len({r.key for r in found})
    by_tokens = {tuple(flat(r)): r for r in live.values()}
    for rollout in found:
        same = by_tokens[tuple(flat(rollout))]
        assert rollout.reward == same.reward
        assert rollout.advantage == pytest.approx(same.advantage)
        assert rollout.trained_step == same.trained_step
        assert rollout.index == same.index
        assert rollout.run == "grpo__1"
        assert rollout.messages[0].content == same.messages[0].content
        if same.task in ("0", "1"):
            assert [m.content for m in rollout.messages] == [m.content for m in same.messages]
        assert len(rollout.spans) == len(same.spans)
    assert len({r.group for r in found}) == 4


def test_groups_that_the_file_mixes_up_are_put_right(own_store: Path, tmp_path: Path) -> None:
    sent = [result(0, truncated=(1,)), result(1, truncated=(0, 2, 3))]
    run(make_actor(sent, mask_truncated=True, traces=tmp_path / "traces"))
    world.finish_writing()
    found = [r for r in open_instruct.read(tmp_path / "traces", TOK) if isinstance(r, Rollout)]
    assert sorted(Counter(r.group for r in found).values()) == [1, 3]
    assert {r.index for r in found} == {None}
    assert {r.meta["request_info"] for r in found} == {"left out: rows were taken out of this step"}
    assert all(not r.spans for r in found)


def test_without_the_tokenizer_ids_are_kept_and_the_lack_is_told(
    own_store: Path, tmp_path: Path
) -> None:
    run(make_actor([result(0), result(1)], traces=tmp_path / "traces"))
    world.finish_writing()
    found = list(open_instruct.read(tmp_path / "traces"))
    assert "the tokenizer of tiny is not on this machine" in str(found[0])
    assert len(found) == 9
    assert all(flat(r) for r in found[1:] if isinstance(r, Rollout))
