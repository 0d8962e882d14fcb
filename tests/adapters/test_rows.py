from bytetok import ByteTokenizer

from rollscope.adapters._rows import TrainingRow, join
from rollscope.model import Message

TOK = ByteTokenizer()


def row(
    prompt: str, response: str, wrote: int | None = None, **streams: list[float]
) -> TrainingRow:
    """A row whose response begins with `wrote` characters of the policy (None: all of it)."""
    before, after = TOK.encode(prompt), TOK.encode(response)
    first = len(after) if wrote is None else len(TOK.encode(response[:wrote]))
    return TrainingRow(
        before + after, len(before), [1] * first + [0] * (len(after) - first), dict(streams)
    )


def tokens(messages: list[Message]) -> list[int]:
    return [i for m in messages if m.tokens is not None for i in m.tokens.ids]


ASK = "<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\n"
TOLD = "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n"


def test_rows_that_continue_each_other_are_one_conversation() -> None:
    first = row(ASK, "so" + TOLD, wrote=2)
    second = row(ASK + "so" + TOLD, "yes<|im_end|>")
    joined = join([first, second], tokenizer=TOK)
    assert [(m.role, m.content) for m in joined.messages] == [
        ("user", "why?"),
        ("assistant", "so"),
        ("user", "more"),
        ("assistant", "yes"),
    ]
    assert tokens(joined.messages) == second.ids
    assert joined.total == len(second.ids)
    assert joined.responses == [
        (first.prompt, len(first.ids) - first.prompt),
        (second.prompt, len(second.ids) - second.prompt),
    ]
    assert joined.last == [1, 3]


def test_a_rewritten_history_branches_off_after_what_is_shared() -> None:
    first = row(ASK, "<think>hm</think>so<|im_end|>")
    second = row(ASK + "so" + TOLD, "yes<|im_end|>")
    joined = join([first, second], tokenizer=TOK)
    assert [(m.parent, m.content) for m in joined.messages] == [
        (None, "why?"),
        (None, "<think>hm</think>so"),
        (0, "so"),
        (None, "more"),
        (None, "yes"),
    ]
    assert [m.sampled for m in joined.messages] == [False, True, False, False, True]
    for n, given in zip(joined.last, (first, second), strict=True):
        way = [n]
        while way[0] > 0:
            parent = joined.messages[way[0]].parent
            way.insert(0, way[0] - 1 if parent is None else parent)
        assert tokens([joined.messages[i] for i in way]) == given.ids
    flat = tokens(joined.messages)
    for (begin, length), given in zip(joined.responses, (first, second), strict=True):
        assert flat[begin : begin + length] == given.ids[given.prompt :]


def test_a_row_that_shares_nothing_begins_a_conversation_of_its_own() -> None:
    joined = join([row(ASK, "so<|im_end|>"), row("other: ", "yes")], tokenizer=TOK)
    assert [m.parent for m in joined.messages] == [None, None, -1, None]


def test_a_mask_of_zeros_leaves_it_to_the_template_to_say_who_wrote() -> None:
    given = row(ASK, "so<|im_end|>")._replace(wrote=None)
    (joined, _, _, last) = join([given], tokenizer=TOK)
    assert [(m.role, m.sampled) for m in joined] == [("user", False), ("assistant", True)]
    assert last == [1]


def test_a_stream_of_another_length_is_left_out_and_told() -> None:
    problems: list[str] = []
    given = row(ASK, "so", logprob=[-1.0])
    joined = join([given], tokenizer=TOK, problems=problems)
    assert all(m.tokens is not None and m.tokens.logprob is None for m in joined.messages)
    assert problems == ["logprob: expected 2 values, found 1; left out"]
