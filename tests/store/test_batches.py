"""A batch of whole rollouts is the same as each of them asked for alone."""

from __future__ import annotations

from pathlib import Path

from store_logs import LogFile, rollouts

import rollscope
from rollscope import Message, Rollout, Span, Tokens
from rollscope.store.read.reader import Reader
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal


def record(run_name: str, count: int) -> None:
    with rollscope.init(project="p", run=run_name) as run:
        for n in range(count):
            run.log(
                Rollout(
                    key=f"k{n}", step=n, reward=None if n % 2 else 1.0, meta={"n": n},
                    messages=[
                        Message(role="user", content="q", tokens=Tokens([1, 2])),
                        Message(role="assistant", content="a", tokens=Tokens([3]), sampled=True),
                    ],
                    spans=[Span(name="f", id="s", inputs={"x": n})],
                )
            )  # fmt: skip
        run.annotate(key="k1", reward=0.5, advantage=0.1, **{"label.odd": True})
        run.annotate(key="k2", streams={"advantage": [0.1, 0.2, 0.3]})
        with run.rollout(step=99) as live:
            live.message("user", "still going on")


def check(root: Path) -> None:
    with Reader(root) as reader:
        found = reader.connection.execute("SELECT id FROM rollouts ORDER BY id DESC").fetchall()
        ids = [id for (id,) in found]
        many = reader.get_many([*ids, "no such rollout"])
        assert [whole.rollout.id for whole in many] == ids, "in order; an unknown id is left out"
        for whole in many:
            alone = reader.get(str(whole.rollout.id))
            assert repr(whole.rollout) == repr(alone)
            assert alone is not None
            for mine, other in zip(whole.rollout.messages, alone.messages, strict=True):
                assert mine.tokens == other.tokens
        assert [w.labels for w in many if w.labels] == [["odd"]] * (len(ids) // 6)


def test_live_sealed_and_annotated_later(own_store: Path) -> None:
    record("a", 5)
    check(own_store)
    compact(own_store / "p" / "a")
    check(own_store)
    record("b", 5)
    check(own_store)
    with rollscope.init(project="p", run="a") as run:
        run.annotate(rollscope.open(own_store).rollouts("run:a step:3").ids()[0], reward=7.0)
    check(own_store)
    with Reader(own_store) as reader:
        ids = [id for (id,) in reader.connection.execute("SELECT id FROM rollouts").fetchall()]
        rewards = [whole.rollout.reward for whole in reader.get_many(ids)]
    assert 7.0 in rewards


def test_of_two_rollouts_under_one_key_the_same_one_speaks_everywhere(tmp_path: Path) -> None:
    (finished,) = rollouts(1, time=1.0, reward=0.5)
    (begun_again,) = rollouts(1, time=2.0, reward=0.25)
    first, second = LogFile(tmp_path, writer="a"), LogFile(tmp_path, writer="b")
    first.log(finished)
    second.log(begun_again, is_open=True)
    for log in (first, second):
        seal(log.directory, log.name)

    def rewards() -> list[float | None]:
        with Reader(tmp_path) as reader:
            alone = reader.get("r0")
            (stored,) = reader.get_many(["r0"])
        assert alone is not None
        return [alone.reward, stored.rollout.reward]

    assert rewards() == [0.5, 0.5]
    compact(first.directory, grace=0.0)
    assert rewards() == [0.5, 0.5]
