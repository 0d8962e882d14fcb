"""Long replies: what the policy imitates is right, and what it writes is kept whole."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

import rollscope
import rollscope.demo
from rollscope.demo import division, policy, warmup
from rollscope.demo.agents import Episode
from rollscope.demo.chat import Chat
from rollscope.demo.division import LENGTH, Course, Pieces
from rollscope.demo.engine import Engine, Request
from rollscope.demo.grader import grade
from rollscope.demo.policy import Batch, Pass
from rollscope.model import Message
from rollscope.model.conversation import text as text_of


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(warmup.tokenizer(0))


def test_pieces_are_true_and_teach_nothing_that_cannot_be_known(chat: Chat) -> None:
    pieces, ends = Pieces(chat, 0), 0
    for _ in range(200):
        row = pieces.row()
        text = chat.tokenizer.decode(row.ids)[0]
        total = int(re.search(r"has (\d+)", text)[1])
        lines = [tuple(map(int, found)) for found in re.findall(r"(\d+)-(\d+)=(\d+)\.", text)]
        assert lines and all(a - b == c for a, b, c in lines)
        learned = chat.tokenizer.decode([i for i, m in zip(row.ids, row.mask, strict=True) if m])[0]
        begins = lines[0][0] == total
        assert learned.startswith(f"{total}-") == begins
        ends += learned.endswith(f"{lines[-1][2]} {text.split()[-1]}")
    assert 20 < ends < 100


def test_a_conversation_of_thousands_of_tokens_is_drawn_from_the_network(chat: Chat) -> None:
    weights = policy.init(len(chat.tokenizer), 0)
    engine = Engine(weights, stops=(), seed=0, slots=1, length=LENGTH)
    request = Request(chat.given("user", "947-3", True)[0], limit=1200)
    engine.submit(request)
    while not engine.tick():
        pass
    row = request.prompt + request.ids
    mask = [0] * len(request.prompt) + [1] * 1200
    expected = Pass(weights, Batch.of([row], [mask])).chosen
    assert np.allclose(request.logprobs, expected, atol=1e-4)


def test_an_exam_keeps_every_reply_whole(tmp_path: Path) -> None:
    course = Course("tiny", steps=40, exams=2, tasks=1, siblings=3)
    tallies = rollscope.demo.run(tmp_path, plans=[course], warm_steps=1, tasks=(4, 2))
    store = rollscope.open(tmp_path)
    found = [store.get(row.id) for row in store.rollouts("")]
    assert len(found) == tallies["tiny"].rollouts == 6
    assert {one.step for one in found} == {1, 2}
    for one in found:
        last = one.messages[-1]
        assert last.tokens.ends[-1] == len(text_of(last))
        assert len(last.tokens.logprob) == len(last.tokens.ids) <= 4000
        assert not one.truncated or len(last.tokens.ids) == 4000
        assert one.policy_version == one.step
    assert [step for step, _ in store.metrics("tiny", "demo")["correct"]] == [1, 2]
    store.close()


@pytest.mark.parametrize(
    ("lines", "slip"),
    [("11-4=7. 7-4=3.", None), ("11-4=7. 7-4=4. 4-4=0.", "7-4=4 (step 2)")],
)
def test_the_grader_names_the_first_slip(lines: str, slip: str | None, chat: Chat) -> None:
    asked = division.Problem("division", "t", "?", (("-", 11, 4), ("-", 7, 4)), 3, "eggs", "boxes")
    episode = Episode(asked, 1, "eval", "g", 0)
    episode.messages = [Message(role="assistant", content=lines, sampled=True)]
    encode, special = chat.tokenizer.encode, chat.special
    answer = "3 eggs." if slip is None else "0 eggs."
    episode.answer = chat.read(
        [special["<think>"], *encode(lines), special["<answer>"], *encode(answer), special["<end>"]]
    )
    told = grade(episode).texts["correct"]
    assert ("the first slip" in told) == (slip is not None)
    assert slip is None or told.endswith(slip)


def test_problems_are_the_same_for_the_same_seed() -> None:
    one, other = (division.problem(random.Random("x")) for _ in range(2))
    assert one == other
    assert one.steps[-1][1] - one.steps[-1][2] == one.answer
