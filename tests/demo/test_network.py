"""The network's gradients are right, and the engine draws from the same network."""

from __future__ import annotations

import numpy as np
import pytest

from rollscope.demo import policy, warmup
from rollscope.demo.chat import Chat
from rollscope.demo.corpus import Examples
from rollscope.demo.engine import Engine, Request
from rollscope.demo.policy import Batch, Pass


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(warmup.tokenizer(0))


def batch_of(chat: Chat, number: int = 3) -> Batch:
    rows = Examples(chat, 0).rows(number)
    return Batch.of([ids for ids, _ in rows], [learn for _, learn in rows])


@pytest.mark.parametrize("name", policy.init(16, 0))
def test_gradient_is_the_slope(chat: Chat, name: str) -> None:
    weights = {n: x.astype(np.float64) for n, x in policy.init(len(chat.tokenizer), 0).items()}
    batch = batch_of(chat)
    pull = np.random.default_rng(0).standard_normal(len(batch.target))
    gradient = Pass(weights, batch).backward(pull)[name]
    place = np.unravel_index(np.argmax(np.abs(gradient)), gradient.shape)
    ends = []
    for nudge in (1e-5, -2e-5):
        weights[name][place] += nudge
        ends.append((Pass(weights, batch).chosen * pull).sum())
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(gradient[place], rel=1e-4)


def test_engine_and_learner_agree_also_when_weights_change_in_the_middle(chat: Chat) -> None:
    vocabulary = len(chat.tokenizer)
    versions = [policy.init(vocabulary, seed) for seed in (0, 1)]
    engine = Engine(versions[0], stops=(), seed=0, slots=8)
    prompt = chat.given("user", "What is 12+30?", True)[0]
    requests = [Request(prompt[:-n] if n else prompt, limit=12) for n in (0, 0, 3)]
    for request in requests:
        engine.submit(request)
    for n in range(12):
        if n == 5:
            engine.load(versions[1], 1)
        finished = engine.tick()
    assert set(finished) == set(requests)
    for request in requests:
        assert request.versions == [0] * 5 + [1] * 7
        row = request.prompt + request.ids
        mask = [0] * len(request.prompt) + [1] * 12
        for version, weights in enumerate(versions):
            expected = Pass(weights, Batch.of([row], [mask])).chosen
            mine = [v == version for v in request.versions]
            assert np.allclose(np.array(request.logprobs)[mine], expected[mine], atol=1e-4)


def test_a_conversation_that_goes_on_needs_no_new_start(chat: Chat) -> None:
    weights = policy.init(len(chat.tokenizer), 0)
    engine = Engine(weights, stops=(), seed=0, slots=4)
    first = Request(chat.given("user", "12+30", True)[0], limit=4)
    engine.submit(first)
    while not engine.tick():
        pass
    reply = chat.given("tool", "42", True)[0]
    second = Request(first.prompt + first.ids + reply, limit=4, after=first)
    engine.submit(second)
    while not engine.tick():
        pass
    row = second.prompt + second.ids
    mask = [0] * len(second.prompt) + [1] * 4
    expected = Pass(weights, Batch.of([row], [mask])).chosen
    assert np.allclose(second.logprobs, expected, atol=1e-4)


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    from rollscope.demo.engine import _choose

    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(32) * 0.3).astype(np.float32)
    drawn = _choose(np.tile(probs, (40_000, 1)), rng.random(40_000, np.float32))
    counts = np.bincount(drawn, minlength=32) / 40_000
    assert np.abs(counts - probs).max() < 0.01
