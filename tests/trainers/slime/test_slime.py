"""slime's real `Sample` and its real log functions, calling ours through its own hooks."""

import copy
import inspect
import json
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from checked import named_faults, silent
from slime.observability import rollout_metrics
from slime.observability.rollout_data_utils import save_debug_rollout_data
from slime.observability.trace_utils import trace_span
from slime.rollout import on_policy_distillation
from slime.utils.misc import load_function
from slime.utils.types import Sample
from transformers import AutoTokenizer
from world import flat, lines, make_model, stored

from rollscope import capture
from rollscope.adapters import slime as adapter
from rollscope.model import Rollout
from rollscope.model.problem import Problem


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def args(model: Path, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    monkeypatch.setattr(rollout_metrics.logging_utils, "log", lambda *a, **k: None)
    for name in ("compute_metrics_from_samples", "compute_perf_metrics_from_samples"):
        monkeypatch.setattr(rollout_metrics, name, lambda *a, **k: {})
    return Namespace(
        custom_rollout_log_function_path="rollscope.adapters.slime.log",
        custom_eval_rollout_log_function_path="rollscope.adapters.slime.log_eval",
        hf_checkpoint=str(model),
        n_samples_per_prompt=2,
        n_samples_per_eval_prompt=2,
        reward_key=None,
        wandb_project="maths",
        wandb_group="tiny",
        wandb_always_use_train_step=False,
        load_debug_rollout_data=None,
        log_passrate=False,
        rollout_temperature=0.7,
    )


class Engine:
    """The edge to SGLang: makes samples through slime's own methods, and remembers them."""

    def __init__(self, model: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(model)

    def sample(self, number: int, text: str = "It is 5. 🙂", **fields: Any) -> Sample:
        chat = [{"role": "user", "content": f"What is 2+3? ({number // 2}) 你好"}]
        prompt = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=True
        )
        made = Sample(index=number, group_index=number // 2, prompt=prompt, label="5", **fields)
        made.tokens = self.tokenizer.encode(prompt, add_special_tokens=False)
        with trace_span(made, "sglang_generate"):
            self.say(made, text)
        return made

    def say(self, sample: Sample, text: str, version: str = "3", finish: str = "stop") -> None:
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        sample.append_response_tokens(
            Namespace(),
            tokens=ids,
            log_probs=[-0.5 - i / 32 for i in range(len(ids))],
            meta_info={"finish_reason": {"type": finish}, "weight_version": version},
            text=text,
        )

    def hear(self, sample: Sample, text: str) -> None:
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        sample.append_response_tokens(tokens=ids, trainable=False, text=text)


def logged(own_store: Path) -> list[Rollout]:
    capture.active().finish()
    return stored(own_store)


LOOKED = {
    "fate.contradiction",
    "group.size",
    "group.slot",
    "logprob.missing",
    "logprob.odd",
    "mask.empty",
    "mask.foreign",
    "prompt.prefix",
    "reward.grader",
    "tokens.ends",
    "turns.missing",
    "version.backwards",
}
"""Checks of the record that find in a clean run what they need, and nothing wrong."""


def test_every_sample_is_stored_as_it_was_generated(
    args, model: Path, own_store: Path, tmp_path: Path
) -> None:
    engine = Engine(model)
    samples = [engine.sample(n, f"It is {n}. 🙂<|im_end|>", reward=n / 4) for n in range(4)]
    for sample in samples[2:]:
        engine.hear(sample, "\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n")
        engine.say(sample, "Yes.<|im_end|>")
    kept = copy.deepcopy(samples)
    rollout_metrics.log_rollout_data(7, args, samples, {"rollout/dropped": 2}, 1.5)
    assert samples == kept
    found = {r.key: r for r in logged(own_store)}
    assert set(found) == {f"train/{n}" for n in range(4)}
    for n, sample in enumerate(samples):
        rollout = found[f"train/{n}"]
        assert flat(rollout) == sample.tokens
        text = engine.tokenizer.decode(sample.tokens)
        assert text == "".join(
            m.meta.get("before", "") + m.content + m.meta.get("after", "") for m in rollout.messages
        )
        mask = flat(rollout, "mask")[-sample.response_length :]
        assert mask == sample.loss_mask
        logprobs = flat(rollout, "logprob")[-sample.response_length :]
        pairs = zip(logprobs, sample.rollout_log_probs, mask, strict=True)
        assert all(a == (b if m else None) for a, b, m in pairs)
        assert (rollout.reward, rollout.step, rollout.reference) == (n / 4, 7, "5")
        assert (rollout.group, rollout.index) == (f"train/{n // 2}", n % 2)
        assert (rollout.fate, rollout.stop_reason) == ("scored", "completed")
        assert {v for v in flat(rollout, "version") if v is not None} == {3}
        assert rollout.spans[0].name == "sglang_generate" and rollout.spans[0].end is not None
        assert rollout.sampling == {"temperature": 0.7}
    assert [m.role for m in found["train/2"].messages] == ["user", "assistant", "user", "assistant"]
    (directory,) = own_store.glob("*/*")
    assert (directory.parent.name, directory.name) == ("maths", "tiny")
    (metrics,) = [line["metrics"] for _, line in lines(own_store) if "metrics" in line]
    assert metrics["values"] == {"rollout/dropped": 2, "perf/rollout_time": 1.5}
    assert silent(own_store) >= LOOKED
    assert named_faults(own_store, tmp_path / "planted") >= LOOKED


def test_partial_and_aborted_samples_say_so(args, model: Path, own_store: Path) -> None:
    engine = Engine(model)
    partial = engine.sample(0, "First", reward=1.0)
    partial.metadata["start_rollout_id"] = 5
    partial.loss_mask = [0] * partial.response_length  # as slime masks what older weights wrote
    engine.say(partial, " and then.", version="4", finish="length")
    aborted = engine.sample(1, "cut")
    aborted.status = Sample.Status.ABORTED
    failed = engine.sample(2, "oh")
    failed.status = Sample.Status.FAILED
    masked = engine.sample(3, "no", reward=0.0, remove_sample=True)
    args.mask_offpolicy_in_partial_rollout = True
    rollout_metrics.log_rollout_data(7, args, [[partial, aborted], [failed, masked]], None, 1.0)
    found = {r.key: r for r in logged(own_store)}
    first = found["train/0"]
    assert (first.step, first.trained_step, first.truncated) == (5, 7, True)
    assert [m.content for m in first.messages if m.sampled] == ["First and then."]
    assert flat(first, "mask")[-len(" and then.") :] == [1] * len(" and then.")
    assert first.meta["weight_versions"] == ["3", "4"] and first.policy_version == 3
    assert all(v is None for v in flat(first, "version"))
    fates = [found[f"train/{n}"].fate for n in range(4)]
    assert fates == ["scored", "dropped", "failed", "masked"]
    assert [found[f"train/{n}"].trained_step for n in range(4)] == [7, None, None, None]


def test_samples_of_one_execution_are_one_rollout(args, model: Path, own_store: Path) -> None:
    engine = Engine(model)
    parts = [engine.sample(0, f"part {i}", reward=1.0, rollout_id=40) for i in range(2)]
    rollout_metrics.log_rollout_data(7, args, parts, None, 1.0)
    (rollout,) = logged(own_store)
    assert rollout.key == "train/40"
    assert [m.content for m in rollout.messages if m.sampled] == ["part 0", "part 1"]
    assert [m.parent for m in rollout.messages] == [None, None, -1, None]


def test_evaluation_and_reward_parts(args, model: Path, own_store: Path) -> None:
    engine = Engine(model)
    args.reward_key = "acc"
    samples = [engine.sample(n, reward={"acc": 1.0, "len": 0.25, "why": "ok"}) for n in range(4)]
    for sample in samples:
        sample.group_index = None  # as slime's evaluation leaves it
    data = {"gsm8k": {"rewards": [1.0] * 4, "samples": samples}}
    rollout_metrics.log_eval_rollout_data(7, args, data)
    found = logged(own_store)
    assert {(r.split, r.dataset, r.reward) for r in found} == {("eval", "gsm8k", 1.0)}
    assert found[0].rewards == {"acc": 1.0, "len": 0.25}
    assert len({r.group for r in found}) == 2 and {r.index for r in found} == {0, 1}


def test_the_teachers_log_probabilities_are_there_before_slime_takes_them_out(
    args, model: Path, own_store: Path
) -> None:
    """slime does that after it has logged the batch."""
    engine = Engine(model)
    samples = [engine.sample(n, f"It is {n}.<|im_end|>") for n in range(3)]
    for n, sample in enumerate(samples[:2]):
        given = [[-n - i / 64, id, None] for i, id in enumerate(sample.tokens)]
        sample.reward = {"meta_info": {"input_token_logprobs": given}}
    rollout_metrics.log_rollout_data(7, args, samples, None, 1.0)
    on_policy_distillation.post_process_rewards(args, samples[:2])
    again = engine.sample(5, "It is 5.<|im_end|>")
    again.teacher_log_probs = samples[0].teacher_log_probs
    rollout_metrics.log_rollout_data(8, args, [again], None, 1.0)
    found = {r.key: r for r in logged(own_store)}
    for n, sample in ((0, samples[0]), (1, samples[1]), (5, again)):
        stream = flat(found[f"train/{n}"], "teacher_logprob")
        assert stream[-sample.response_length :] == sample.teacher_log_probs.tolist()
        assert set(stream[: -sample.response_length]) == {None}
        assert found[f"train/{n}"].reward is None
    assert set(flat(found["train/2"], "teacher_logprob")) == {None}


def test_misaligned_values_are_missing_and_counted(args, model: Path, own_store: Path) -> None:
    engine = Engine(model)
    sample = engine.sample(0, reward=1.0)
    sample.rollout_log_probs = sample.rollout_log_probs[:-1]
    odd = engine.sample(5, reward=0.0)
    odd.group_index = 9  # its number does not belong to this group
    rollout_metrics.log_rollout_data(7, args, [sample, odd], None, 1.0)
    found = {r.key: r for r in logged(own_store)}
    assert all(p is None for p in flat(found["train/0"], "logprob"))
    assert found["train/5"].index is None
    infos = [json.loads(p.read_text()) for p in own_store.glob("*/*/writers/*.json")]
    assert any("rollout_log_probs" in p["text"] for info in infos for p in info["problems"])


def test_what_is_generated_and_not_trained_on_is_recorded_as_dropped(
    args, model: Path, own_store: Path
) -> None:
    """As slime's rollout function calls its hooks: all samples first, then the batch."""
    engine = Engine(model)
    groups = [[engine.sample(2 * g + i, reward=float(g)) for i in range(2)] for g in range(3)]
    groups[2][1].status = Sample.Status.FAILED
    kept = copy.deepcopy(groups)
    process = load_function("rollscope.adapters.slime.log_all")
    assert process(args, groups, None) is None
    rollout_metrics.log_rollout_data(7, args, groups[:1], None, 1.0)
    assert groups == kept
    rollout_metrics.log_rollout_data(8, args, [[engine.sample(6), engine.sample(7)]], None, 1.0)
    found = {r.key: r for r in logged(own_store)}
    fates = {n: (found[f"train/{n}"].fate, found[f"train/{n}"].trained_step) for n in range(8)}
    assert fates == {
        0: ("scored", 7), 1: ("scored", 7), 2: ("dropped", None), 3: ("dropped", None),
        4: ("dropped", None), 5: ("failed", None), 6: ("generated", 8), 7: ("generated", 8),
    }  # fmt: skip
    assert {found[f"train/{n}"].step for n in range(6)} == {7}
    assert (found["train/3"].group, found["train/3"].index) == ("train/1", 1)
    assert "dynamic sampling filter" in str(found["train/2"].fate_reason)


def test_a_sample_that_goes_on_at_a_later_step_is_one_rollout(
    args, model: Path, own_store: Path
) -> None:
    """Partial rollouts: aborted when a batch was full, kept by slime, and ended two steps on."""
    engine = Engine(model)
    sample = engine.sample(0, "First")
    sample.metadata["start_rollout_id"] = 5
    sample.status = Sample.Status.ABORTED
    rollout_metrics.log_rollout_data(5, args, [sample], None, 1.0)
    sample.status = Sample.Status.COMPLETED
    sample.reward = 1.0
    engine.say(sample, " and then.<|im_end|>", version="4")
    rollout_metrics.log_rollout_data(7, args, [sample], None, 1.0)
    (rollout,) = logged(own_store)
    assert (rollout.step, rollout.trained_step, rollout.fate) == (5, 7, "scored")
    assert [m.content for m in rollout.messages if m.sampled] == ["First and then."]


def test_a_broken_adapter_does_not_reach_slime(args, model: Path, own_store, monkeypatch) -> None:
    """Every function of the adapter raises, apart from the hooks themselves."""
    from rollscope.adapters.slime import convert, hook

    calls: list[str] = []

    def broken(name: str) -> Any:
        def raises(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            raise RuntimeError(f"sabotage: {name}")

        return raises

    engine = Engine(model)
    samples = [[engine.sample(0), engine.sample(1)]]
    evals = {"gsm8k": {"rewards": [1.0, 1.0], "samples": samples[0]}}
    kept = copy.deepcopy(samples)

    def all_hooks() -> list[Any]:
        return [
            adapter.log_all(args, samples),
            rollout_metrics.log_rollout_data(1, args, samples, None, 1.0),
            rollout_metrics.log_eval_rollout_data(1, args, evals),
            adapter.log(1, args, samples, None, 1.0),
            adapter.log_eval(1, args, evals),
        ]

    before = all_hooks()
    capture.active().finish()
    for module in (convert, hook):
        for name, found in inspect.getmembers(module, inspect.isfunction):
            if found.__module__ == module.__name__ and not name.startswith("log"):
                monkeypatch.setattr(module, name, broken(name))
    assert all_hooks() == before and before[3:] == [False, False]
    assert samples == kept
    assert calls


def test_a_slime_that_is_not_as_expected_is_told_once_and_in_doctor(
    args, model: Path, own_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another version's samples, which have no weight versions: slime goes on, `doctor` tells."""
    engine = Engine(model)
    for step in (1, 2):
        sample = engine.sample(step)
        del sample.weight_versions
        rollout_metrics.log_rollout_data(step, args, [sample], None, 1.0)
    found = logged(own_store)
    assert len(found) == 2 and all(r.policy_version is None and r.messages for r in found)
    told = [r for r in caplog.records if "weight_versions" in r.getMessage()]
    assert len(told) == 1
    (info,) = own_store.glob("*/*/writers/*.json")
    problems = json.loads(info.read_text())["problems"]
    (problem,) = [p for p in problems if "weight_versions" in p["text"]]
    assert "slime" in problem["text"] and problem["count"] == 2


def test_a_pickle_is_refused_with_what_to_type_and_its_json_is_read(
    model: Path, tmp_path: Path
) -> None:
    engine = Engine(model)
    samples = [engine.sample(n, reward=n / 4) for n in range(2)]
    save_debug_rollout_data(
        str(tmp_path / "{rollout_id}.pt"), samples, rollout_id=7, evaluation=False
    )
    file = tmp_path / "7.pt"
    assert adapter.recognise(file) and adapter.recognise(tmp_path)
    (problem,) = adapter.read(file)
    assert isinstance(problem, Problem) and "pickle" in problem.text
    command = problem.text.partition("type: ")[2].replace("python", __import__("sys").executable, 1)
    subprocess.run(command, shell=True, check=True, timeout=300)
    converted = tmp_path / "7.jsonl"
    assert adapter.recognise(converted)
    found = list(adapter.read(converted))
    assert [r.reward for r in found] == [0.0, 0.25]
    assert [r.messages[-1].content for r in found] == [s.response for s in samples]
    assert found[0].messages[-1].tokens.ids == samples[0].tokens[-samples[0].response_length :]
    other = tmp_path / "other.pt"
    torch.save({"weights": torch.zeros(2)}, other)
    assert not adapter.recognise(other)
