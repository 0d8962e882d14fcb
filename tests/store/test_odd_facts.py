"""Whatever facts say, and whatever they are about: a store stays readable, and what cannot be
folded is left out, counted and named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_logs import LogFile

import rollscope
from rollscope.checks.doctor import examine
from rollscope.model import Fact, Message, Rollout, Tokens, fold
from rollscope.store.fold import fold as fold_sql
from rollscope.store.header import Header
from rollscope.store.lines import Spool
from rollscope.store.read.reader import Reader
from rollscope.store.read.records import to_facts, to_rollout
from rollscope.store.seal.compact import compact
from rollscope.store.seal.segment import seal
from rollscope.store.tables import rows, stage, thin

METAS = ['{"k": 0, "z": {"y": null}}', "{}", '{"k": 1, "1": 2, "k": [3]}', "[1, 2]", '"text"', "7",
         "[]", '""', "null", None]  # fmt: skip

NAMES = ["reward", "trained_step", "truncated", "stop_reason", "fate", "error", "reference", "end",
         "rewards.a", "rewards.", "reward_texts.a", "meta.k", "meta.1", "meta.", "label.good",
         "flag.x", "note", "something.new", "something"]  # fmt: skip

VALUES = [0, 1, -3, 3.5, 4.0, 2**62, 2**64, -1.5, True, False, None, "", "0.5", " 1", "abc", "true",
          "NaN", "-Infinity", "scored", "trained", [], [1], {}, {"kind": "tool", "text": 5},
          {"a": 1}, {"kind": None}]  # fmt: skip

facts = st.fixed_dictionaries(
    {"rollout": st.just("a"), "name": st.sampled_from(NAMES), "value": st.sampled_from(VALUES)},
    optional={
        "message": st.integers(0, 2),
        "time": st.sampled_from([1.0, 2.0]),
    },
)


class Folder:
    """Folds lines as they are sealed, without files."""

    def __init__(self, directory: Path) -> None:
        self._db = duckdb.connect()
        self._spool = directory / "lines"

    def rollouts(self, lines: list[bytes]) -> tuple[Rollout, Rollout, list[tuple[Fact, str]]]:
        """The rollout as it was logged, as its thin row says it is, and its facts."""
        db, spool = self._db, Spool(self._spool)
        spool.add(0, 0, lines)
        assert spool.load(db).total() == 0
        stage(db, {0: Header(writer="w")})
        plain = thin("staged_heads", "staged_messages")
        db.execute(f"CREATE OR REPLACE TEMP TABLE plain AS {plain}")
        (own,) = rows(db, "SELECT * FROM plain")
        (folded,) = rows(db, fold_sql("plain", "staged_facts"))
        said = to_facts(rows(db, "SELECT * FROM staged_facts"))
        return to_rollout(own, [], []), to_rollout(folded, [], []), said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("folder"))


@settings(max_examples=300)
@given(
    meta=st.sampled_from(METAS),
    fate=st.sampled_from([None, "generated", "dropped"]),
    said=st.lists(facts, max_size=8),
)
def test_odd_facts_fold_alike_in_sql_and_python(
    folder: Folder, meta: str | None, fate: str | None, said: list[dict[str, Any]]
) -> None:
    own = {"id": "a", "reward": 0.25, "rewards": {"a": 1.0}} | ({"fate": fate} if fate else {})
    head = json.dumps({"rollout": own})
    if meta is not None:
        head = head.removesuffix("}}") + f', "meta": {meta}}}}}'
    numbered = [fact | {"n": n} for n, fact in enumerate(said)]
    lines = [head.encode(), json.dumps({"facts": numbered}).encode()]
    before, folded, kept = folder.rollouts(lines)
    assert before.meta == ({} if meta in (None, "null") else json.loads(meta or ""))
    assert repr(folded) == repr(_in_order(fold(before, kept), folded))


def _in_order(rollout: Rollout, like: Rollout) -> Rollout:
    """The same with entries in the order of another: `repr` tells, and NaN is like NaN there."""
    for name in ("rewards", "reward_texts", "meta"):
        entries, order = getattr(rollout, name), getattr(like, name)
        if isinstance(entries, dict) and entries.keys() == order.keys():
            setattr(rollout, name, {key: entries[key] for key in order})
    return rollout


def said(reader: Reader) -> str:
    return "\n".join(finding.text for finding in examine(reader))


def states(root: Path, directory: Path) -> Iterator[Reader]:
    """The store read live, sealed and merged, each by a reader that sees nothing else."""
    with Reader(root) as reader:
        yield reader
    for log in sorted((directory / "live").iterdir()):
        seal(directory, log.name.removesuffix(".jsonl.zst"))
    with Reader(root) as reader:
        yield reader
    compact(directory, grace=0)
    with Reader(root) as reader:
        yield reader


def test_facts_of_messages_are_facts_of_these_messages(tmp_path: Path) -> None:
    turns = [Message(role="user", content="q"), Message(role="assistant", content="a")]
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        (id,) = run.log(Rollout(messages=[*turns, *turns], reward=0.5, rewards={"all": 1.0}))
        run.annotate(id, message=1, rewards={"turn": 1.0}, reward=0.75, meta={"k": 1})
        run.annotate(id, message=3, rewards={"turn": 0.0}, meta={"k": 2}, fate="masked")
        run.annotate(id, message=3, label="good", note="well done", stop_reason="length")
        run.annotate(id, rewards={"late": 2.0}, meta={"own": "x"})
    for reader in states(tmp_path, run.directory):
        got = reader.get(id)
        assert got is not None
        assert (got.reward, got.rewards, got.meta) == (0.5, {"all": 1.0, "late": 2.0}, {"own": "x"})
        assert (got.fate, got.stop_reason) == (None, None)
        assert [m.reward for m in got.messages] == [None, 0.75, None, None]
        assert got.messages[1].meta == {"k": 1, "rewards.turn": 1.0}
        assert got.messages[3].meta == {"k": 2, "rewards.turn": 0.0, "fate": "masked"}
        assert got.messages[3].stop_reason == "length"
        (stored,) = reader.get_many([id])
        assert stored.rollout == got and stored.labels == ["good"]
        assert reader.messages(id, 1, 2) == got.messages[1:2]
        assert [sketch.reward for sketch in reader.outline(id)] == [None, 0.75, None, None]
        assert "not shown" not in said(reader)


def test_what_cannot_be_folded_is_kept_counted_and_named(tmp_path: Path) -> None:
    log = LogFile(tmp_path)
    log.append(
        b'{"rollout":{"id":"%b","meta":%b,"reward":0.5,"messages":[{"role":"user","tokens":'
        b'{"ids":[1,2]}}]}}' % pair
        for pair in ((b"list", b"[1]"), (b"text", b'"t"'), (b"twice", b'{"1":1,"1":2}'))
    )
    for id in ("list", "text", "twice"):
        log.facts(Fact(rollout=id, name="meta.k", value=1, time=1.0))
        log.facts(Fact(rollout=id, name="tokens.mask", stream=[float("nan")] * 2, time=1.0))
    log.facts(Fact(rollout="list", name="reward", value=1.0, message=7, time=1.0))
    log.facts(Fact(rollout="list", name="tokens.advantage", stream=[1.0] * 5, time=1.0))
    log.append([b'{"facts":[{"rollout":"text","name":"reward","value":"much","time":1.0},'
                b'{"rollout":"text","name":"mood","value":"good","time":1.0}]}'])  # fmt: skip
    for reader in states(tmp_path, log.directory):
        metas = {id: reader.get(id).meta for id in ("list", "text", "twice")}  # type: ignore[union-attr]
        assert metas == {"list": [1], "text": "t", "twice": {"1": 2, "k": 1}}
        assert all(reader.get(id).reward == 0.5 for id in metas)  # type: ignore[union-attr]
        told = said(reader)
        for words in (
            "2 meta facts about entries of what is a list or a text",
            "1 reward fact about messages that are not there",
            "1 reward fact with values that the field cannot hold",
            "1 tokens fact of another length",
            "3 tokens facts with values",
            "1 mood fact of a kind that this version does not know",
        ):
            assert words in told
        assert reader.connection.execute("SELECT count(*) FROM facts").fetchone() == (10,)


def test_what_a_field_cannot_hold_is_told_where_it_is_handed_over(tmp_path: Path) -> None:
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        (id,) = run.log(Rollout(meta={1: "a", "1": "b"}, rewards={2: 1.0, "2": 3.0}))
        run.annotate(id, trained_step=3.7, policy_version="x", reward="much", truncated="no")
        run.annotate(id, trained_step=4.0, policy_version=True, reward="0.5", truncated=1)
        run.annotate(id, message="first", note="n")
        run.annotate(id, message=2**31, note="n")
    with Reader(tmp_path) as reader:
        got = reader.get(id)
        assert got is not None and (got.trained_step, got.policy_version) == (4, 1)
        assert (got.reward, got.truncated) == (0.5, True)
        assert (got.meta, got.rewards) == ({"1": "b"}, {"2": 3.0})
        told = said(reader)
        for words in (
            "trained_step: expected a whole number, found 3.7",
            "reward: expected a number",
            "truncated: expected true or false",
            "keys are the same as text",
            "the number of a message, from 0, not 'first'",
            "2 facts, metrics",
        ):
            assert words in told


def test_streams_may_have_any_name(tmp_path: Path) -> None:
    tokens = Tokens([1], streams={7: [0.5]})  # type: ignore[dict-item]
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        (id,) = run.log(Rollout(messages=[Message(role="user", tokens=tokens)]))
    with Reader(tmp_path) as reader:
        got = reader.get(id)
        assert got is not None and got.messages[0].tokens == Tokens([1], streams={"7": [0.5]})
