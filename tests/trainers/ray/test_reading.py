"""Ray Data reads a store: the same rollouts as on one machine, whatever state they are in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

import rollscope
from conftest import World
from rollscope import Message, Rollout
from rollscope.checks import scan
from rollscope.cli import main
from rollscope.query import on_ray as questions
from rollscope.store.read import on_ray
from rollscope.store.seal.compact import compact

STEPS = 12
MARK = "quetzalcoatl"

QUERIES = (
    "",
    "reward:>=0.5",
    "step:none",
    "run:r step:2..5 OR reward:0.25",
    "launch:first",
    "label:good",
    MARK,
    f"-{MARK}",
    f"{MARK} OR step:3",
    "project:nowhere",
)


def steps(first: int, last: int, word: str) -> list[Rollout]:
    return [
        Rollout(
            key=f"{word}/{step}/{task}/{n}",
            step=step,
            task=f"q{task}",
            index=n,
            group=f"{step}/{task}",
            split="train",
            reward=(n + task) / 8,
            rewards={"correct": float(n % 2)},
            messages=[
                Message(role="user", content=f"question {task}"),
                Message(
                    role="assistant",
                    content=f"{word} answer {n} {MARK if n == step % 4 else ''}" + " again" * n,
                    sampled=True,
                ),
            ],
        )
        for step in range(first, last)
        for task in range(2)
        for n in range(4)
    ]


@pytest.fixture(scope="module")
def store(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[rollscope.Store]:
    """Rollouts in parts, in segments and in a log, some of them made again by a restart, some with
    facts that came later; without a step; and in a second run. Beside it, a driver of a cluster."""
    root = tmp_path_factory.mktemp("read") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        patch.setattr(questions, "PIECE", 20)
        patch.setattr(on_ray, "_BATCH", 16)
        patch.setenv("ROLLSCOPE_LAUNCH", "first")
        with rollscope.init(project="p", run="r", dir=root) as run:
            run.log(steps(0, STEPS // 2, "first"))
        compact(run.directory, grace=0.0)
        with rollscope.init(project="p", run="r", dir=root) as run:
            run.log(steps(STEPS // 2, STEPS, "first"))
            run.log(Rollout(key="aside", messages=[Message(role="assistant", content=MARK)]))
        patch.setenv("ROLLSCOPE_LAUNCH", "second")
        with rollscope.init(project="p", run="r", dir=root) as run:
            run.log(steps(STEPS - 2, STEPS + 2, "second"))
        compact(run.directory, grace=0.0)
        with rollscope.init(project="p", run="r", dir=root) as run:
            run.log(steps(STEPS + 2, STEPS + 4, "second"))
            for n in range(4):
                run.annotate(key=f"second/{STEPS}/0/{n}", reward=0.25, **{"label.good": True})
        with rollscope.init(project="p", run="other run", dir=root) as run:
            run.log(steps(0, 2, "other"))
        found = rollscope.open(root)
        assert found.rollouts().counts().superseded == 16
        assert found.reader.units, "something is sealed"
        assert any((root / "p" / "r" / "live").iterdir()), "something is not"
        ray.init(address=world.cluster.address, log_to_driver=False)
        yield found
        ray.shutdown()
        found.close()


@pytest.mark.parametrize("query", QUERIES)
def test_a_ray_dataset_has_the_rows_of_the_selection(store: rollscope.Store, query: str) -> None:
    here = store.rollouts(query).to_arrow().to_pylist()
    there = list(store.to_ray(query).iter_rows())
    by_id = {row["id"]: row for row in there}
    assert len(by_id) == len(there) == len(here)
    assert [by_id[row["id"]] for row in here] == here


def test_only_columns_that_are_asked_for_are_read(store: rollscope.Store) -> None:
    few = store.to_ray("step:3", columns=["id", "reward"])
    assert few.schema().names == ["id", "reward"]
    later = store.to_ray("step:3").select_columns(["reward"])
    here = sorted(row.reward for row in store.rollouts("step:3"))
    assert sorted(row["reward"] for row in later.iter_rows()) == here
    mean = store.to_ray("run:r", columns=["step", "reward"]).groupby("step").mean("reward")
    sql = "SELECT step, avg(reward) FROM rollouts WHERE run = 'r' AND NOT superseded GROUP BY step"
    by_step = {row["step"]: row["mean(reward)"] for row in mean.iter_rows()}
    assert by_step == pytest.approx(dict(store.sql(sql).fetchall()))


def both(store: rollscope.Store, capfd: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints on one machine; on Ray it prints the same."""
    capfd.readouterr()
    said: list[str] = []
    for more in ([], ["--on", "ray"]):
        assert main([*words, "--dir", str(store.reader.root), *more]) == 0
        said += capfd.readouterr()
    assert said[:2] == said[2:]
    return said[0]


@pytest.mark.parametrize("query", [MARK, "reward:0.25", "run:r launch:first"])
def test_grep_on_ray_prints_the_same(
    store: rollscope.Store, capfd: pytest.CaptureFixture[str], query: str
) -> None:
    assert len(both(store, capfd, "grep", query, "--json", "--limit", "7").splitlines()) == 7
    assert both(store, capfd, "grep", query, "--order", "-reward,step")


@pytest.mark.parametrize(
    "words",
    [
        ("jsonl",),
        ("jsonl", "launch:first", "--redact", "regex=quetzal.*"),
        ("sft", "reward:>=0.5"),
        ("pairs",),
        ("atif", "--order", "-time"),
    ],
    ids=" ".join,
)
def test_lines_that_ray_exports_are_the_same(
    store: rollscope.Store,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    command = ["export", *words, "--dir", str(store.reader.root)]
    assert main([*command, "--out", str(tmp_path / "here")]) == 0
    assert main([*command, "--out", str(tmp_path / "there"), "--on", "ray"]) == 0
    here = (tmp_path / "here").read_bytes()
    assert here.count(b"\n") > 3
    assert here == (tmp_path / "there").read_bytes()
    assert both(store, capfd, "export", *words).encode() == here


def test_folders_that_ray_exports_are_the_same(store: rollscope.Store, tmp_path: Path) -> None:
    for words in (["parquet"], ["parquet", "--redact", "emails"]):
        command = ["export", *words, "--dir", str(store.reader.root)]
        for name in ("here", "there"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        assert main([*command, "--out", str(tmp_path / "here")]) == 0
        assert main([*command, "--out", str(tmp_path / "there"), "--on", "ray"]) == 0
        for table in ("rollouts", "messages", "facts"):
            rows = [_rows(tmp_path / name / table) for name in ("here", "there")]
            assert len(rows[0]) > 3 and rows[0] == rows[1], (words, table)


def _rows(folder: Path) -> list[str]:
    import pyarrow.parquet

    own = ("project", "run", "launch", "worker", "writer")  # redaction hashes these with a new key
    made = pyarrow.parquet.read_table(folder).to_pylist()
    return [json.dumps({k: v for k, v in row.items() if k not in own}, default=str) for row in made]


def test_what_ray_scans_is_what_one_process_finds(store: rollscope.Store, tmp_path: Path) -> None:
    shutil.copytree(store.reader.root, tmp_path / "copy")
    beside = rollscope.open(tmp_path / "copy")
    here, there = scan(beside), scan(store, on_ray=True)
    assert (here.rollouts, here.groups, here.findings) == (
        there.rollouts,
        there.groups,
        there.findings,
    )
    assert here.rollouts > 100 and here.findings and not there.broken and not there.skipped
    for table in ("checked", "findings"):
        sql = f"SELECT * FROM {table} ORDER BY ALL"
        assert list(_plain(store, sql)) == list(_plain(beside, sql))
    assert scan(store, on_ray=True).rollouts == 0


def _plain(store: rollscope.Store, sql: str) -> list[tuple[object, ...]]:
    return store.reader.connection.execute(sql).fetchall()


def test_a_node_that_does_not_see_the_store_is_named(
    store: rollscope.Store, tmp_path: Path
) -> None:
    other = tmp_path / "other"  # what lies under that path on a node with a disk of its own
    other.mkdir()
    here = on_ray.place(store.reader)
    assert here.known
    files = tuple(path.replace(here.root, str(other)) for path in here.known)
    for place in (
        on_ray.StorePlace(str(tmp_path / "none"), ()),
        on_ray.StorePlace(str(other), files),
    ):
        with pytest.raises(on_ray.NotThere, match=f"does not see the store {place.root}:"):
            list(on_ray.mapped(questions._matched, [(place, "", "-time", 1)]))
