"""docs/query.md says what the code does: its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rollscope
from rollscope import Message, Rollout
from rollscope.model.schema import ROLLOUTS
from rollscope.query import Store, keys

from .tables import Tables

DOC = Path(__file__).parents[2] / "docs" / "query.md"


def examples() -> list[str]:
    """Every query of the doc: the first block, and what stands in the table's code marks."""
    text = DOC.read_text()
    found = text.split("```text\n")[1].split("```")[0].splitlines()
    for row in re.findall(r"^\| (?!to say|---).*\| (.*) \|$", text.split("## What")[0], re.M):
        found += re.findall(r"`([^`]+)`", row)
    return [query for query in found if query not in ("AND", "NOT")]


@pytest.mark.parametrize("query", examples())
def test_every_example_is_a_query(query: str) -> None:
    assert Store(reader=Tables()).rollouts(query).count() == 0


def test_every_scalar_of_the_schema_is_a_key() -> None:
    names = {name.removesuffix(".*") for name in keys.KEYS} | set(keys.ALIASES)
    assert {column.name for column in ROLLOUTS if column.match is not None} <= names


def test_every_alias_means_a_key_and_hides_none() -> None:
    assert set(keys.ALIASES.values()) <= set(keys.KEYS)
    assert not set(keys.ALIASES) & set(keys.KEYS)


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with rollscope.init(project="docs", run="mine") as run:
        said = [Message(role="assistant", content="sys.exit(0)")]
        run.log([Rollout(id="3f9a01", step=1, split="eval", task="t", reward=0.1, messages=said)])
    block = DOC.read_text().split("```python\n")[1].split("```")[0]
    exec(compile(block, "docs/query.md", "exec"), {})
    assert "3f9a01 1 0.1" in capsys.readouterr().out
