"""docs/format.md: its tables are those of the schema, and its examples run.

`python tests/store/test_format_doc.py` writes the tables anew.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

from rollscope.model.schema import TABLES

DOC = Path(__file__).parents[2] / "docs" / "format.md"
TITLES = {
    "rollouts": "one row a rollout, thin",
    "messages": "one row a message; with the tokens that it adds",
    "spans": "one row a timed call inside a rollout",
    "facts": "what was learned about a rollout after it was written",
    "metrics": "the trainer's own numbers, one row a step and name",
}


def tables() -> str:
    out = []
    for name, columns in TABLES.items():
        out += [f"### `{name}.parquet`: {TITLES[name]}", "", "| column | type | |", "|---|---|---|"]
        out += [f"| `{c.name}` | {c.type} | {c.doc} |" for c in columns]
        out.append("")
    return "\n".join(out)


def with_tables(text: str) -> str:
    return re.sub(
        r"(<!-- tables: .*? -->\n).*(<!-- end of tables -->)",
        lambda found: f"{found[1]}\n{tables()}\n{found[2]}",
        text,
        flags=re.DOTALL,
    )


def test_the_tables_are_those_of_the_schema() -> None:
    text = DOC.read_text()
    assert text == with_tables(text), "run: python tests/store/test_format_doc.py"


def test_the_examples_run_without_rollscope(tmp_path: Path) -> None:
    from store_logs import LogFile, rollouts

    from rollscope.store.read.reader import Reader
    from rollscope.store.seal.compact import compact
    from rollscope.store.seal.segment import seal

    for seq in range(3):
        log = LogFile(tmp_path, run="step=5", seq=seq)
        log.log(*rollouts(4, f"{seq}-"))
        seal(log.directory, log.name)
        if seq == 1:
            compact(log.directory, grace=0)
    examples = re.findall(r"```python\n(.*?)```", DOC.read_text(), flags=re.DOTALL)
    assert len(examples) == 3
    names: dict[str, Any] = {"run": log.directory}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for example in examples:
            assert "rollscope" not in example
            exec(compile(example, "docs/format.md", "exec"), names)
    assert printed.getvalue().count("question 3") >= 4  # in Polars' table and in DuckDB's
    assert len(names["rollouts"]) == 12 and len(names["messages"]) == 24
    with Reader(tmp_path) as reader:
        assert names["sealed"](log.directory, "rollouts") == reader.files("rollouts")


if __name__ == "__main__":
    DOC.write_text(with_tables(DOC.read_text()))
