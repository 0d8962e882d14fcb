"""What the server leaves to others: it asks `query` and knows nothing of tables and files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import rollscope.server

_SOURCES = sorted(Path(rollscope.server.__file__).parent.rglob("*.py"))
_SQL = re.compile(r"\b(SELECT|FROM|WHERE|GROUP BY|ORDER BY|INSERT|UPDATE|DELETE|WITH)\s")
_ENGINE = {"sql", "execute", "connection", "engine"}


@pytest.mark.parametrize("source", _SOURCES, ids=lambda path: path.name)
def test_the_server_holds_no_sql_and_does_not_reach_for_the_engine(source: Path) -> None:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not _SQL.search(node.value), f"{source.name}:{node.lineno}: {node.value!r}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in _ENGINE, f"{source.name}:{node.lineno}: .{node.attr}"
        if isinstance(node, ast.ImportFrom):
            assert "Sql" not in {name.name for name in node.names}, f"{source.name}:{node.lineno}"
