"""What was logged is read back: live, sealed and compacted, over the whole model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_logs import LogFile

from rollscope.model import Error, Message, Part, Rollout, Span, Tokens, ToolCall, normalise
from rollscope.store.read.reader import Reader
from rollscope.store.runs import remove_run
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal

# Every code point: lone surrogates, NUL and 4-byte characters too.
texts = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(
    ["", "\x00", "\ud83d", "\udc00x", "🧠𝕏", "a\nb", '"', "\\", "NaN", "null", " ", "\ufeff"]
)
names = texts
floats = st.floats() | st.integers(-(2**70), 2**70).map(float)
wholes = st.integers(-(2**63), 2**63 - 1)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | wholes | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


errors = st.builds(Error, kind=maybe(texts), type=maybe(texts), text=maybe(texts))
calls = st.builds(ToolCall, id=maybe(texts), name=maybe(texts), arguments=json_values)
parts = st.builds(
    Part,
    type=texts,
    text=maybe(texts),
    image=maybe(texts),
    call=maybe(calls),
    id=maybe(texts),
    data=json_values,
)


@st.composite
def tokens(draw: st.DrawFn) -> Tokens:
    length = draw(st.integers(0, 5))
    whole = st.lists(maybe(st.integers(-(2**31), 2**31 - 1)), min_size=length, max_size=length)
    real = st.lists(maybe(st.floats(width=32) | st.floats()), min_size=length, max_size=length)
    return Tokens(
        draw(maybe(whole)),
        draw(maybe(whole)),
        draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "logprob": real,
                    "advantage": real,
                    "mask": whole,
                    "version": whole,
                    "kl": real,
                    "odd name.é": real,
                },
            )
        ),
    )


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    count = draw(st.integers(0, 5))
    return [
        draw(
            st.builds(
                Message,
                role=texts,
                content=maybe(texts | st.lists(parts, max_size=3)),
                parent=maybe(st.integers(-1, max(n - 1, -1))),
                name=maybe(texts),
                tool_calls=st.lists(calls, max_size=2),
                tool_call_id=maybe(texts),
                sampled=maybe(st.booleans()),
                tokens=maybe(tokens()),
                stop_reason=maybe(texts),
                reward=maybe(floats),
                state=json_values,
                start=maybe(floats),
                end=maybe(floats),
                meta=objects,
            )
        )
        for n in range(count)
    ]


spans = st.builds(
    Span,
    name=texts,
    id=maybe(texts),
    parent=maybe(texts),
    inputs=json_values,
    outputs=json_values,
    error=maybe(errors),
    start=maybe(floats),
    end=maybe(floats),
    message=maybe(st.integers(0, 2**31 - 1)),
    meta=objects,
)

any_rollouts = st.builds(
    Rollout,
    key=maybe(texts),
    step=maybe(wholes),
    trained_step=maybe(wholes),
    split=maybe(texts),
    dataset=maybe(texts),
    task=maybe(texts | wholes),
    group=maybe(texts),
    index=maybe(wholes),
    attempt=maybe(wholes),
    worker=maybe(texts),
    messages=messages(),
    spans=st.lists(spans, max_size=3),
    reward=maybe(floats),
    rewards=st.dictionaries(texts, floats, max_size=3),
    reward_texts=st.dictionaries(texts, texts, max_size=3),
    advantage=maybe(floats),
    stop_reason=maybe(texts),
    truncated=maybe(st.booleans()),
    fate=maybe(texts),
    fate_reason=maybe(texts),
    error=maybe(errors),
    time=maybe(floats),
    start=maybe(floats),
    end=maybe(floats),
    sampling=objects,
    policy_version=maybe(wholes),
    reference=json_values,
    environment=maybe(texts),
    meta=objects,
)


def difference(a: Any, b: Any, where: str = "") -> str | None:
    """The first place where two values differ (NaN equals itself); None: nowhere."""
    if isinstance(a, msgspec.Struct) and type(a) is type(b):
        pairs = [(f".{name}", getattr(a, name), getattr(b, name)) for name in a.__struct_fields__]
    elif isinstance(a, Tokens) and isinstance(b, Tokens):
        return difference(dict(a.arrays()), dict(b.arrays()), where)
    elif isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        pairs = [(f"[{key!r}]", a[key], b[key]) for key in a]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = [(f"[{n}]", x, y) for n, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
        same = nan or (a == b and isinstance(a, bool) == isinstance(b, bool))
        return None if same else f"{where}: read {a!r}, logged {b!r}"
    return next((d for name, x, y in pairs if (d := difference(x, y, where + name))), None)


def expected(rollout: Rollout, run: str) -> Rollout:
    """What reading must give for what was logged through `LogFile`."""
    clean = normalise(rollout)
    clean.project, clean.run = "p", run
    clean.launch = "launch" if clean.launch is None else clean.launch
    clean.worker = "worker-0" if clean.worker is None else clean.worker
    return clean


def assert_reads(reader: Reader, logged: list[Rollout], run: str = "r") -> None:
    assert reader.problems() == []
    for rollout in logged:
        assert rollout.id is not None
        assert difference(reader.get(rollout.id), expected(rollout, run)) is None


QUICK = settings(
    settings.default,
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


_number = itertools.count()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with Reader(tmp_path_factory.mktemp("store")) as reader:
        yield reader


@QUICK
@given(st.lists(any_rollouts, min_size=1, max_size=6))
def test_any_rollout_is_read_back_live_sealed_and_merged(
    reader: Reader, logged: list[Rollout]
) -> None:
    for number, rollout in enumerate(logged):
        rollout.id = f"id-{number}"
    # A run of its own for each example: the engine keeps what files of a name have told.
    run = f"r{next(_number)}"
    logs = [LogFile(reader.root, run=run, seq=seq) for seq in range(2)]
    try:
        for number, rollout in enumerate(logged):
            logs[number % 2].log(rollout)
        reader.refresh()
        assert_reads(reader, logged, run)
        for log in logs:
            assert seal(log.directory, log.name)
        assert reader.refresh()
        assert_reads(reader, logged, run)
        compact(logs[0].directory, grace=0)
        assert reader.refresh()
        assert len(reader.files("rollouts")) == 1
        assert_reads(reader, logged, run)
    finally:
        assert remove_run(reader.root, "p", run)
        reader.refresh()


def test_a_tree_of_100_turns_grows_message_by_message(tmp_path: Path) -> None:
    """Branches and sub-conversations; read in the middle, at the end, sealed, and in windows."""
    rollout = Rollout(id="tree", step=1, task="t", index=0, messages=[], spans=[])
    log = LogFile(tmp_path)
    log.log(rollout, is_open=True)
    with Reader(tmp_path) as reader:
        for n in range(200):
            parent = {0: None, 1: -1, 2: n // 2}.get(n % 7) if n else None
            tokens = Tokens([n, n + 1], logprob=[-0.5, None], version=[n // 50, n // 50])
            rollout.messages.append(
                Message(
                    role="assistant" if n % 2 else "user",
                    content=f"turn {n} 🧠",
                    parent=parent,
                    sampled=bool(n % 2),
                    tokens=tokens,
                )
            )
            log.more(rollout, n)
            if n % 50 == 10:
                reader.refresh()
                assert_reads(reader, [rollout])
        log.log(Rollout(id="tree", step=1, task="t", index=0, reward=1.0), is_open=False)
        rollout.reward = 1.0
        for sealed in (False, True):
            if sealed:
                seal(log.directory, log.name)
            reader.refresh()
            assert_reads(reader, [rollout])
            window = reader.messages("tree", 90, 95)
            assert [m.content for m in window] == [f"turn {n} 🧠" for n in range(90, 95)]
            found = reader.connection.execute(
                "SELECT messages, turns, response_tokens, version_min, version_max FROM rollouts"
            )
            assert found.fetchall() == [(200, 100, 200, 0, 3)]


def test_nothing_at_all_is_read_back(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.log(Rollout(id="empty"), Rollout(id="one", messages=[Message(role="user")]))
    with Reader(tmp_path) as reader:
        assert_reads(reader, [Rollout(id="empty")])
        assert_reads(reader, [Rollout(id="one", messages=[Message(role="user")])])


def test_a_very_large_message_and_very_many(tmp_path: Path) -> None:
    large = Rollout(id="large", messages=[Message(role="tool", content="x\n" * 10_000_000)])
    many = Rollout(
        id="many", messages=[Message(role="user", content=f"{n}") for n in range(10_000)]
    )
    log = LogFile(tmp_path)
    log.log(large, many)
    with Reader(tmp_path) as reader:
        for sealed in (False, True):
            if sealed:
                seal(log.directory, log.name)
                reader.refresh()
            assert_reads(reader, [large, many])
            assert [m.content for m in reader.messages("many", 9_000, 9_002)] == ["9000", "9001"]
