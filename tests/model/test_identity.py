"""Ids: computable by every process that knows the key, unique without asking."""

from __future__ import annotations

from rollscope.model import id_maker, keyed_id


def test_the_same_key_gives_the_same_id_anywhere() -> None:
    assert keyed_id("p", "r", "launch-1", "7/q-3/0") == keyed_id("p", "r", "launch-1", "7/q-3/0")
    assert len(keyed_id("p", "r", "launch-1", "7/q-3/0")) == 20


def test_names_and_key_cannot_be_confused() -> None:
    assert keyed_id("p", "r", "a", "bc") != keyed_id("p", "r", "ab", "c")
    assert keyed_id("p", "r", "l", "k") != keyed_id("p", "r2", "l", "k"), "two runs of one program"


def test_new_ids_differ_within_and_between_makers() -> None:
    one, two = id_maker(), id_maker()
    ids = [make() for make in (one, two) for _ in range(1000)]
    assert len(set(ids)) == 2000
    assert {len(i) for i in ids} == {20}
