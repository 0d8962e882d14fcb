"""docs/engines.md: its examples give the same rows, which are those that Rollscope itself gives."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
SECTIONS = {
    name: code
    for name, body in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for code in re.findall(r"```python\n(.*?)```", body, re.DOTALL)
}


def lines(run: int) -> list[dict[str, Any]]:
    """The first run has a reward everywhere; in the second, some are missing."""
    return [
        {
            "id": f"r{run}-{n}", "step": n // 4, "task": f"q{n % 4}", "index": run,
            "split": "eval" if n == 7 else "train", "meta": {"model": "tiny"},
            **({"reward": float(n % 2)} if run == 0 or n % 4 else {}),
            "messages": [
                {"role": "user", "content": "Why?"},
                *([{"role": "assistant", "content": "ü" * (n + 1)}] if n != 2 else []),
            ],
        }
        for n in range(8)
    ]  # fmt: skip


# Step 0: of each run n = 0..3, without n = 0 of the second for the reward; n = 2 wrote nothing.
# Step 1: n = 4, 5, 6 of each; n = 7 is eval.
ANSWER = [(0, 8, 7, 4 / 7, (1 + 2 + 4) / 3), (1, 6, 5, 2 / 5, (5 + 6 + 7) / 3)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, rollscope: Callable[..., str]) -> Path:
    """A folder with the lists of files of two runs with odd names."""
    folder = tmp_path_factory.mktemp("engines")
    for run in range(2):
        (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(run)))
        name = ("lr=1e-5 [a]", "b")[run]
        rollscope("import", str(folder / "in.jsonl"), "--run", name, "--dir", str(folder / "store"))
    rollscope("compact", "--dir", str(folder / "store"))
    for table in ("rollouts", "messages"):
        listed = rollscope("files", table, "--dir", str(folder / "store"))
        assert len(listed.splitlines()) == 2
        (folder / f"{table}.txt").write_text(listed)
    return folder


@pytest.fixture(scope="module")
def export(place: Path, rollscope: Callable[..., str]) -> Path:
    """The same, over what `rollscope export parquet` wrote."""
    folder = place / "copy"
    folder.mkdir()
    out = folder / "out"
    rollscope("export", "parquet", "split:train", "--out", str(out), "--dir", str(place / "store"))
    for table in ("rollouts", "messages"):
        files = "\n".join(str(file) for file in sorted((out / table).glob("*.parquet")))
        (folder / f"{table}.txt").write_text(files)
    return folder


def answers(example: str, folder: Path, printed: str) -> list[tuple[Any, ...]]:
    """What an example of the page prints when it runs in this folder."""
    here = Path.cwd()
    os.chdir(folder)
    names: dict[str, Any] = {"print": lambda found: names.__setitem__("printed", found)}
    try:
        exec(compile(SECTIONS["The question"], "docs/engines.md", "exec"), names)
        exec(compile(SECTIONS[example], "docs/engines.md", "exec"), names)
    finally:
        os.chdir(here)
    found = names["printed"]
    if printed == "lines":
        found = [json.loads(line) for line in str(found).splitlines()]
    return [tuple(row) for row in found]


def check(example: str, *folders: Path, printed: str = "rows") -> None:
    for folder in folders:
        found = answers(example, folder, printed)
        assert len(found) == len(ANSWER)
        for row, wanted in zip(found, ANSWER, strict=True):
            assert row == pytest.approx(wanted)


def test_duckdb(place: Path, export: Path) -> None:
    check("DuckDB", place, export)


def test_polars(place: Path, export: Path) -> None:
    pytest.importorskip("polars")
    check("Polars", place, export)


def test_clickhouse(place: Path, export: Path) -> None:
    pytest.importorskip("chdb")
    check("ClickHouse", place, export, printed="lines")


def test_spark(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    if subprocess.run(["java", "-version"], capture_output=True, timeout=60).returncode:
        pytest.skip("the java of this machine does not start")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    try:
        check("Spark", place)
    finally:
        SparkSession.builder.getOrCreate().stop()
