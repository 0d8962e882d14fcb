"""Lengths are the trainer's: ids of the prompt, and ids that the policy wrote."""

from pathlib import Path
from types import SimpleNamespace

from bytetok import ByteTokenizer

import rollscope
from rollscope.adapters._messages import split
from rollscope.adapters._rows import TrainingRow, join
from rollscope.adapters.verifiers import convert as convert_trace
from rollscope.adapters.verl.convert import Job, convert
from rollscope.model import Message, Rollout

TOK = ByteTokenizer()
PROMPT = TOK.encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n")
ANSWER = TOK.encode("hm</think>ok<|im_end|>")
RESULT = TOK.encode("\n<|im_start|>tool\n5<|im_end|>\n<|im_start|>assistant\n")


def lengths(messages: list[Message], store: Path) -> tuple[int | None, int | None]:
    """As the store has them: prompt, response."""
    with rollscope.init(project="p", run="r", dir=store) as run:
        run.log(Rollout(messages=messages))
    (row,) = rollscope.open(store).rollouts()
    return row.prompt_tokens, row.response_tokens


def test_the_header_of_an_answer_is_a_part_of_the_prompt(tmp_path: Path) -> None:
    output = SimpleNamespace(
        prompt_ids=PROMPT,
        response_ids=ANSWER,
        response_mask=[1] * len(ANSWER),
        response_logprobs=None,
        reward_score=None,
        num_turns=2,
        metrics={},
        extra_fields={},
    )
    (rollout,) = convert([output], Job(), tokenizer=TOK)
    assert lengths(rollout.messages, tmp_path) == (len(PROMPT), len(ANSWER))


def test_what_tools_and_the_template_add_between_turns_is_not_the_policys(tmp_path: Path) -> None:
    ids = PROMPT + ANSWER + RESULT + ANSWER
    wrote = [0] * len(PROMPT) + [1] * len(ANSWER) + [0] * len(RESULT) + [1] * len(ANSWER)
    messages = split(ids, tokenizer=TOK, sampled=wrote)
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert lengths(messages, tmp_path) == (len(PROMPT), 2 * len(ANSWER))


def test_rows_whose_mask_cannot_tell_have_the_lengths_of_their_prompt(tmp_path: Path) -> None:
    joined = join([TrainingRow(PROMPT + ANSWER, len(PROMPT), None, {})], tokenizer=TOK)
    assert lengths(joined.messages, tmp_path) == (len(PROMPT), len(ANSWER))


def test_a_turn_without_a_tokenizer_has_the_same_lengths(tmp_path: Path) -> None:
    messages = split(PROMPT + ANSWER, sampled=[0] * len(PROMPT) + [1] * len(ANSWER))
    assert lengths(messages, tmp_path) == (len(PROMPT), len(ANSWER))


def test_a_node_of_verifiers_tells_which_of_its_tokens_the_policy_wrote(tmp_path: Path) -> None:
    said = {"role": "assistant", "content": "ok"}
    nodes = [
        {"message": {"role": "user", "content": "hi"}, "token_ids": [1, 2], "mask": [0, 0]},
        {"message": said, "sampled": True, "token_ids": [3, 4, 5, 6], "mask": [0, 1, 1, 1]},
    ]
    (rollout,) = convert_trace({"id": "t", "nodes": nodes})
    assert lengths(rollout.messages, tmp_path) == (3, 3)
