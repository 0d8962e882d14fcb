"""docs/format.md: its examples run."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

DOC = Path(__file__).parents[2] / "docs" / "format.md"


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
