"""A field is declared once: with its type in `Rollout` and its `Column`, it is everywhere.

The test makes these two edits on a copy of the tree, generates what is made from the code, and
lets the copy do with the new field all that can be done with one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import rollscope
from rollscope import Message, Rollout
from rollscope.store.seal.compact import compact

ROOT = Path(__file__).parents[1]

FIELD = "    difficulty: float | None = None\n"
COLUMN = """\
    Column(
        "difficulty", "DOUBLE", "How hard the task is.", "number",
        late=True, listed=True, facet=20, histogram=3, aliases=("hardness",),
    ),
"""

LOGGED_AND_READ = """
import json, sys
from pathlib import Path
import duckdb, msgspec, rollscope
from rollscope import Message, Rollout
from rollscope.cli import main, render
from rollscope.formats.atif import trajectory
from rollscope.server import params as p, reading, selecting
from rollscope.server.bundle import bundle
from rollscope.server.desk import Desk
from rollscope.sinks import mlflow_trace, otlp_attributes, trackio, weave_calls
from rollscope.sinks.calls import calls
from rollscope.store.seal.compact import compact

store_dir, out = Path(sys.argv[1]), Path(sys.argv[2])
assert rollscope.__file__.startswith(sys.argv[3])
said = [Message(role="assistant", content="42")]

# Written the fast way; the slow way, because of NaN; without it; and with a later fact.
with rollscope.init(project="p", run="new") as run:
    run.log([
        Rollout(id="hard", reward=1.0, difficulty=0.9, messages=said),
        Rollout(id="slow", reward=1.0, difficulty=float("nan"), messages=said),
        Rollout(id="without", reward=1.0, messages=said),
        Rollout(id="late", reward=1.0, difficulty=0.1, messages=said),
    ])
    run.annotate("late", difficulty=0.7)
    run.annotate("old-1", difficulty=0.6)

def everywhere(when):
    store = rollscope.open(store_dir)
    def ids(q, order="id"):
        return [row.id for row in store.rollouts(q, order=order)]
    assert ids("difficulty:>0.5 run:new") == ["hard", "late"], (when, ids("difficulty:>0.5"))
    assert ids("hardness:0.9") == ["hard"]
    assert ids("has:difficulty run:new") == ["hard", "late", "slow"]
    assert ids("difficulty:nan") == ["slow"]
    assert ids("difficulty:none") == ["old-0", "without"]
    assert ids("difficulty:0.6") == ["old-1"]
    assert ids("run:new", "-difficulty") == ["hard", "late", "slow", "without"]
    assert [store.get(id).difficulty for id in ("hard", "late", "without", "old-0")] == [
        0.9, 0.7, None, None]
    assert store.get("slow").difficulty != store.get("slow").difficulty
    assert json.loads(msgspec.json.encode(store.get("hard")))["difficulty"] == 0.9
    (histogram,) = [h for h in store.histograms() if h.key == "difficulty"]
    assert (sum(histogram.counts), histogram.nan, histogram.missing) == (3, 1, 2)
    (facet,) = [f for f in store.facets() if f.key == "difficulty"]
    assert facet.missing == 2

    desk = Desk(store, can_label=False)
    page = selecting.rollouts(desk, p.PageOf(q="run:new", order="-difficulty"))
    rows = json.loads(msgspec.json.encode(page))["rows"]
    assert [row["difficulty"] for row in rows] == [0.9, 0.7, "NaN", None]
    asked = selecting.rollouts(desk, p.PageOf(q="id:hard", columns="difficulty"))
    assert json.loads(msgspec.json.encode(asked))["rows"] == [{"id": "hard", "difficulty": 0.9}]
    assert "difficulty" in {key.name for key in selecting.keys(desk, p.Nothing()).keys}
    assert reading.detail(desk, p.DetailOf(), "late").row.difficulty == 0.7
    store.close()

everywhere("live")
for run in ("new", "old"):
    compact(store_dir / "p" / run, grace=0)
everywhere("compacted")

store = rollscope.open(store_dir)
hard, late = store.get("hard"), store.get("late")
assert mlflow_trace.tags(late)["rollscope.difficulty"] == "0.7"
assert mlflow_trace.spans(late)[0].attributes["rollscope.difficulty"] == 0.7
assert trackio.metadata(late)["difficulty"] == 0.7
assert weave_calls.facts(late)["difficulty"] == 0.7
assert otlp_attributes.facts(late, has_content=False)["rollscope.difficulty"] == 0.7
assert trajectory(late)["extra"]["difficulty"] == 0.7
assert "difficulty" in late._repr_html_() and "difficulty 0.7" in render.header(late).plain

def exported(name, file):
    assert main(["export", name, "run:new", "--order", "id", "--out", str(out / name)]) == 0
    return duckdb.sql(f"SELECT difficulty FROM '{out / name / file}' ORDER BY 1").fetchall()

for name, file in (
    ("hf", "data/*.parquet"), ("scout", "*.parquet"), ("parquet", "rollouts/*.parquet"),
):
    assert [str(x) for (x,) in exported(name, file)] == ["0.7", "0.9", "nan", "None"], name
assert main(["export", "jsonl", "id:late", "--out", str(out / "late.jsonl")]) == 0
assert json.loads((out / "late.jsonl").read_text())["difficulty"] == 0.7
assert main(["import", str(out / "late.jsonl"), "--project", "p", "--run", "again"]) == 0
assert [row.difficulty for row in rollscope.open(store_dir).rollouts("run:again")] == [0.7]

page = out / "page"
page.mkdir()
(page / "index.html").write_text("<title></title>")
sys.modules["rollscope.server.bundle"].STATIC = page
assert bundle(store, "run:new", out / "site") == 4
rows = json.loads((out / "site" / "data" / "rows.json").read_bytes())["rows"]
assert {row["id"]: row["difficulty"] for row in rows} == {
    "hard": 0.9, "late": 0.7, "slow": "NaN", "without": None}
"""


def edited_copy(folder: Path) -> Path:
    """The tree with the two edits that a new field takes."""
    for part in ("src", "docs", "viewer/src/api"):
        shutil.copytree(
            ROOT / part,
            folder / part,
            ignore=shutil.ignore_patterns("__pycache__", "static", "images"),
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "tests" / "checks", folder / "tests" / "checks")  # the table of checks
    for name, before, new in (
        ("records", "    policy_version: int | None = None\n", FIELD),
        ("schema", '    Column("meta", "JSON", "Anything else.", "json", late=True),\n', COLUMN),
    ):
        path = folder / "src" / "rollscope" / "model" / f"{name}.py"
        text = path.read_text()
        assert text.count(before) == 1, name
        path.write_text(text.replace(before, new + before))
    return folder


def python(folder: Path, *arguments: str | Path) -> None:
    """Run the copy of the program."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_new_field_costs_two_edits_and_is_lost_nowhere(own_store: Path, tmp_path: Path) -> None:
    said = [Message(role="assistant", content="42")]
    for sealed in (True, False):  # written before there was such a column
        with rollscope.init(project="p", run="old") as run:
            run.log(Rollout(id=f"old-{1 - sealed:d}", step=1, reward=1.0, messages=said))
        if sealed:
            compact(own_store / "p" / "old", grace=0)
    copy = edited_copy(tmp_path / "copy")
    python(copy, copy / "docs" / "generate.py")
    for name in ("docs/format.md", "docs/query.md", "docs/openapi.json"):
        assert "How hard the task is." in (copy / name).read_text(), name
    columns = (copy / "viewer" / "src" / "api" / "columns.ts").read_text()
    assert '"name": "difficulty"' in columns and 'hardness: "difficulty"' in columns
    (tmp_path / "out").mkdir()
    python(copy, "-c", LOGGED_AND_READ, own_store, tmp_path / "out", copy / "src")
