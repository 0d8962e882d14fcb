"""Keys of the user's own: found in the data, counted, sorted by, and told in rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import rollscope
from rollscope.model import Rollout
from rollscope.query import Store
from rollscope.query.keys import asked
from rollscope.query.named import named_value

DEEP = {"source": {"file": "a.jsonl", "lines": {"first": 3}}, "a.b": 1}
META = [
    {"lang": "en", "level": 1, "tags": ["x", "y"], "ok": True, **DEEP},
    {"lang": "de", "level": 2.5, "tags": [], "ok": False, "note": "z" * 300},
    {"lang": "none", "level": None, "tags": "x", 'odd "name", here': "v"},
    {},
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    directory = tmp_path_factory.mktemp("named")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        with rollscope.init(project="p", run="r", dir=directory) as run:
            for i in range(40):
                parts = {"correct": float(i % 2), "exact match": i / 40} if i % 4 else {}
                run.log(Rollout(index=i, rewards=parts, meta=META[i % 4], split="ab"[i // 20]))
    return rollscope.open(directory)


def test_which_keys_there_are_is_found_in_the_data(store: Store) -> None:
    found = {key.key: (key.kind, key.countable) for key in store.named_keys()}
    assert found == {
        "rewards.correct": ("number", True),
        'rewards."exact match"': ("number", True),
        "meta.lang": ("text", True),
        "meta.level": ("number", True),
        "meta.tags": ("text", True),
        "meta.ok": ("text", True),
        "meta.source.file": ("text", True),
        "meta.source.lines.first": ("number", True),
        "meta.a.b": ("number", True),
        "meta.note": ("text", False),
        'meta."odd \\"name\\", here"': ("text", True),
    }
    assert [key.share for key in store.named_keys("split:a") if key.key == "meta.lang"] == [0.75]
    assert store.named_keys("split:nowhere") == []


def test_a_key_that_was_found_can_be_asked_counted_and_sorted_by(store: Store) -> None:
    for key in (found.key for found in store.named_keys()):
        present = store.rollouts(f"-{key}:none").count()
        assert present in (10, 20, 30), key
        assert sum(v.count for v in store.values(key, limit=100)) >= present
        if "," not in key:
            first, *_ = store.rollouts(order=f"-{key}", limit=1)
            assert store.rollouts(f"id:{first.id} -{key}:none").count() == 1


def test_each_count_of_a_facet_is_what_its_term_finds(store: Store) -> None:
    keys = ["meta.lang", "meta.tags", "meta.ok"]
    for facet in store.facets(keys=keys):
        assert facet.values
        for value in facet.values:
            assert store.rollouts(f'{facet.key}:"{value.value}"').count() == value.count
        assert store.rollouts(f"{facet.key}:none").count() == facet.missing
    (level,) = store.histograms(keys=["meta.level"])
    assert (level.low, level.most, level.missing) == (1.0, 2.5, 20)


def test_a_row_tells_the_value_that_the_query_sees(store: Store) -> None:
    for key in ("meta.source.lines.first", "meta.a.b", "meta.tags.1", "rewards.correct"):
        for row in store.rollouts():
            value = named_value(row, asked(key))
            term = f"{key}:none" if value is None else f"{key}:{value}"
            assert store.rollouts(f"id:{row.id} {term}").count() == 1, (key, value)


def test_values_complete_what_is_typed(store: Store) -> None:
    assert [value.value for value in store.values("meta.lang", "D")] == ["de"]
    assert [value.value for value in store.values("meta.tags")] == ["x", "y"]


def test_a_long_store_is_sampled_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollscope.query.named.SAMPLE", 8)
    assert all(key.share * 8 == round(key.share * 8) for key in store.named_keys())


def test_the_store_is_not_needed_twice(tmp_path: Path) -> None:
    """Rows of an empty store have no keys."""
    assert rollscope.open(tmp_path).named_keys() == []
