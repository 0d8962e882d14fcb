"""SQL and Python say the same about late facts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_logs import LogFile

from rollscope.model import Fact, Message, Rollout, Tokens, fold, tags
from rollscope.model.facts import FATE_RANK
from rollscope.store.read.reader import Reader
from rollscope.store.runs import remove_run
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal

fates = st.sampled_from([*FATE_RANK, "my own word"])
values = {
    "reward": st.floats(allow_nan=False),
    "advantage": st.floats(allow_nan=False, allow_infinity=False),
    "trained_step": st.integers(0, 9),
    "stop_reason": st.text(st.characters(codec="utf-8"), max_size=3),
    "truncated": st.booleans(),
    "fate": fates,
    "fate_reason": st.sampled_from(["a", "b"]),
    "task": st.sampled_from(["q1", "q2"]),
    "rewards.style": st.floats(0, 1),
    "rewards.a.b": st.floats(0, 1),
    "reward_texts.style": st.sampled_from(["well", "no"]),
    "meta.k": st.sampled_from([1, "x", {"y": [1]}, [None]]),
    "meta.other": st.booleans(),
    "label.good": st.booleans(),
    "label.bad": st.booleans(),
    "flag.loop": st.sampled_from([True, False, {"at": 3}]),
    "note": st.just("words"),
    "tokens.advantage": st.lists(st.none() | st.integers(-3, 3).map(float), min_size=2, max_size=4),
}


@st.composite
def facts(draw: st.DrawFn) -> Fact:
    name = draw(st.sampled_from(sorted(values)))
    value = draw(st.none() | values[name])
    is_stream = name.startswith("tokens.")
    about = st.none() | st.integers(0, 1) if is_stream or name.startswith("label.") else st.none()
    return Fact(
        rollout=draw(st.sampled_from(["a", "b"])),
        name=name,
        value=None if is_stream else value,
        stream=value if is_stream else None,
        message=draw(about),
        time=draw(st.sampled_from([1.0, 2.0, 3.0])),
    )


_number = itertools.count()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with Reader(tmp_path_factory.mktemp("store")) as reader:
        yield reader


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    fate=st.none() | fates,
    early=st.lists(facts(), max_size=6),
    late=st.lists(facts(), max_size=10),
)
def test_facts_fold_alike_live_sealed_and_merged(
    reader: Reader, fate: str | None, early: list[Fact], late: list[Fact]
) -> None:
    messages = [
        Message(role="user", content="q", tokens=Tokens([1])),
        Message(role="assistant", content="a", tokens=Tokens([2, 3], advantage=[0.0, 0.0])),
    ]
    logged = [
        Rollout(id=id, reward=0.5, fate=fate, meta={"k": 0, "z": 1}, messages=messages)
        for id in ("a", "b")
    ]
    for n, fact in enumerate([*early, *late]):
        fact.n = n
    # A run of its own for each example: the engine keeps what files of a name have told.
    run = f"r{next(_number)}"
    home = LogFile(reader.root, run=run, writer="w1")
    other = LogFile(reader.root, run=run, writer="w2")
    home.log(*logged)
    home.facts(*early)
    other.facts(*late)
    said = [(f, "w1") for f in early] + [(f, "w2") for f in late]

    def check() -> None:
        reader.refresh()
        for rollout in logged:
            mine = [pair for pair in said if pair[0].rollout == rollout.id]
            want = fold(rollout, mine)
            want.project, want.run, want.launch, want.worker = "p", run, "launch", "worker-0"
            assert reader.get(rollout.id or "") == want
            sql = "SELECT labels, flags FROM rollouts WHERE id = ?"
            found = reader.connection.execute(sql, [rollout.id]).fetchall()
            assert found == [(tags(mine, "label"), tags(mine, "flag"))]

    try:
        check()
        seal(home.directory, home.name)
        check()
        seal(other.directory, other.name)
        check()
        compact(home.directory, grace=0)
        check()
    finally:
        remove_run(reader.root, "p", run)
        reader.refresh()
