"""verl's converter is pure: it needs neither verl nor a model, and guesses nothing."""

from types import SimpleNamespace
from typing import Any

from bytetok import ByteTokenizer

from rollscope.adapters.verl.convert import Generation, Job, convert, note_generation, places

TOK = ByteTokenizer()
PROMPT = TOK.encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
ANSWER = TOK.encode("ok<|im_end|>")


def output(**fields: Any) -> Any:
    known = {
        "prompt_ids": PROMPT,
        "response_ids": ANSWER,
        "response_mask": [1] * len(ANSWER),
        "response_logprobs": [-0.5] * len(ANSWER),
        "reward_score": 0.5,
        "num_turns": 2,
        "metrics": {"generate_sequences": 0.1, "num_preempted": -1},
        "extra_fields": {},
    }
    return SimpleNamespace(**{**known, **fields})


def one(outputs: Any, problems: list[str] | None = None, **job: Any) -> Any:
    (rollout,) = convert(outputs, Job(**job), tokenizer=TOK, problems=problems)
    return rollout


def test_a_mask_of_another_length_is_missing_not_shifted() -> None:
    problems: list[str] = []
    rollout = one([output(response_mask=[1])], problems)
    assert all(m.tokens.mask is None for m in rollout.messages)
    assert len(problems) == 1 and "response_mask" in problems[0]
    assert [i for m in rollout.messages for i in m.tokens.ids] == PROMPT + ANSWER


def test_logprobs_of_another_length_are_missing_not_shifted() -> None:
    problems: list[str] = []
    rollout = one([output(response_logprobs=[-0.5])], problems)
    assert all(m.tokens.logprob is None for m in rollout.messages)
    assert len(problems) == 1 and "logprob" in problems[0]


def test_weights_versions_are_kept_only_if_they_account_for_every_token() -> None:
    half = len(ANSWER) // 2
    whole = Generation(span="a", given=PROMPT, ids=ANSWER, version=None)
    pieces = [
        Generation(span="b", parent="a", given=PROMPT, ids=ANSWER[:half], version=7),
        Generation(span="c", parent="a", given=PROMPT, ids=ANSWER[half:], version=8),
    ]
    rollout = one([output()], generations=[*pieces, whole])
    assert rollout.messages[-1].tokens.version[-len(ANSWER) :] == [7] * half + [8] * (
        len(ANSWER) - half
    )
    other = one([output()], generations=pieces[:1])
    assert other.messages[-1].tokens.version is None


def test_a_call_keeps_only_what_is_new_of_its_prompt() -> None:
    """The engine gets the whole conversation at each turn."""
    job, prompt = Job(), list(PROMPT)
    more = TOK.encode("\n<|im_start|>tool\n5<|im_end|>\n<|im_start|>assistant\n")
    for turn in range(65):
        note_generation(job, prompt, Generation(span=str(turn), ids=ANSWER, version=turn))
        prompt = prompt + ANSWER + more
    held = sum(len(call.given) + len(call.ids) for call in job.generations)
    assert held == len(prompt) - len(more) == len(job.newest)
    # What is kept is enough to tell what the model saw and wrote until it failed.
    job.error = RuntimeError("down")
    (rollout,) = convert(None, job, tokenizer=TOK)
    assert [i for m in rollout.messages for i in m.tokens.ids] == job.newest
    assert [m.sampled for m in rollout.messages] == [False] + [True, False] * 64 + [True]


def test_each_output_of_a_loop_has_the_versions_of_the_calls_that_wrote_it() -> None:
    job = Job()
    other = TOK.encode("<|im_start|>user\nin short<|im_end|>\n<|im_start|>assistant\n")
    for version, prompt in ((3, PROMPT), (4, other), (5, PROMPT)):
        call = Generation(span=f"s{version}", ids=ANSWER, version=version)
        note_generation(job, prompt, call)
    first, second = output(), output(prompt_ids=other)
    (rollout,) = convert([second], job, tokenizer=TOK)
    assert rollout.messages[-1].tokens.version[-1] == 4
    del job.generations[2]
    (rollout,) = convert([first, second], job, tokenizer=TOK)
    made = [m.tokens.version[-len(ANSWER) :] for m in rollout.messages if m.sampled]
    assert made == [[3] * len(ANSWER), [4] * len(ANSWER)]


def test_calls_that_contradict_each_other_tell_no_version() -> None:
    job = Job()
    for version in (3, 4):
        note_generation(job, PROMPT, Generation(span=f"s{version}", ids=ANSWER, version=version))
    (rollout,) = convert([output()], job, tokenizer=TOK)
    assert rollout.messages[-1].tokens.version is None


def test_the_baseline_of_remax_is_marked_and_not_trained_on() -> None:
    rollout = one([output()], is_baseline=True)
    assert (rollout.fate, rollout.meta["baseline"]) == ("dropped", "REMAX")
    assert "baseline" in rollout.fate_reason
    failed = one(None, is_baseline=True, error=RuntimeError("down"))
    assert failed.fate == "failed"


def test_the_index_that_verl_makes_up_is_not_a_task() -> None:
    chat = [{"role": "user", "content": "hi"}]
    made_up = {"index": 0, "extra_info": {}, "raw_prompt": chat}
    assert one([output()], fields=made_up).task.startswith("prompt-")
    assert one([output()], fields={**made_up, "extra_info": {"index": 0}}).task == 0
    assert one([output()], fields={**made_up, "index": "u-1", "extra_info": None}).task == "u-1"


def test_rows_of_whole_groups_have_places_and_cut_groups_have_none() -> None:
    assert places(["a", "a", "b", "b"], None, 2) == [0, 1, 0, 1]
    assert places(["a", "b", "b"], None, 2) == [None, 0, 1]
    assert places(["a", "a", "a"], None, 2) == [None, None, None]


def test_row_numbers_give_places_also_in_cut_groups_unless_they_contradict() -> None:
    assert places(["a", "b", "b"], [1, 2, 3], 2) == [1, 0, 1]
    assert places(["a", "b", "a"], [0, 1, 2], 2) == [None, None, None]


def test_several_outputs_are_conversations_of_one_rollout() -> None:
    rollout = one([output(), output(reward_score=1.0)])
    assert [m.role for m in rollout.messages] == ["user", "assistant", "user", "assistant"]
    assert [m.parent for m in rollout.messages] == [None, None, -1, None]
    assert rollout.reward == 1.0 and rollout.meta["outputs"] == 2


def test_a_failed_loop_keeps_what_the_engine_had_written() -> None:
    done = Generation(span="a", given=PROMPT, ids=ANSWER, stop_reason="stop", version=3)
    rollout = one(None, generations=[done], error=RuntimeError("down"))
    assert rollout.fate == "failed" and rollout.error.text == "down"
    assert [(m.role, m.content) for m in rollout.messages] == [("user", "hi"), ("assistant", "ok")]
    early = one(None, fields={"raw_prompt": [{"role": "user", "content": "q"}]}, error=ValueError())
    assert [m.content for m in early.messages] == ["q"]


def test_a_loop_that_gives_nothing_back_is_rejected() -> None:
    assert one([]).fate == "rejected"


def test_zeros_that_stand_for_unknown_are_not_stored() -> None:
    mask = [1] * (len(ANSWER) - 1) + [0]
    rollout = one([output(response_mask=mask, response_logprobs=[-0.5] * len(mask))])
    assert rollout.messages[-1].tokens.logprob[-1] is None
    assert "num_preempted" not in rollout.meta["metrics"]
