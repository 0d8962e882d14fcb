"""Imports and exports of any size: interrupted, continued, and in bounded memory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Message, Rollout
from rollscope.cli import main
from rollscope.formats import _export, parquet

TEXT = " ".join(f"word{n * n % 9973}" for n in range(200))


def record(count: int) -> None:
    with rollscope.init(project="p", run="r") as run:
        for n in range(count):
            run.log(
                Rollout(
                    key=f"k{n}", step=n // 8, group=f"g{n // 4}", index=n % 4, reward=float(n % 4),
                    messages=[
                        Message(role="user", content=f"{n // 4} {TEXT}"),
                        Message(role="assistant", content=f"{n} {TEXT}", sampled=True),
                    ],
                )
            )  # fmt: skip


class Killed(BaseException):
    """As if the process ended here."""


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    from rollscope.formats import _tables
    from rollscope.store.read import outgoing

    monkeypatch.setattr(_export, "SHARD", 10_000)
    monkeypatch.setattr(_tables, "SHARD", 10_000)
    monkeypatch.setattr(parquet, "_FIRST", 8)
    monkeypatch.setattr(parquet, "_MOST", 8)
    monkeypatch.setattr(parquet, "_SPOOLED", 10_000)
    monkeypatch.setattr(outgoing, "_MOST", 4)


def content(path: Path) -> Any:
    if path.is_file():
        return path.read_bytes()
    import duckdb

    return {
        str(file.relative_to(path)): (
            repr(duckdb.sql(f"SELECT * FROM '{file}'").fetchall())
            if file.suffix == ".parquet"
            else file.read_text()
        )
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


@pytest.mark.parametrize(
    "name",
    ["jsonl", "sft", "pairs", "parquet", "hf", "scout", "parquet --redact regex=word1\\b"],
)
def test_an_export_that_was_killed_goes_on_and_ends_as_if_it_never_was(
    name: str,
    tmp_path: Path,
    own_store: Path,
    small_shards: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record(48)
    whole, continued = tmp_path / "whole", tmp_path / "continued"
    words = ["export", *name.split(), "--out"]
    assert main([*words, str(whole)]) == 0

    saved = _export.Export._save
    saves = 0

    def save(self: _export.Export, state: _export.ExportState) -> None:
        nonlocal saves
        saves += 1
        if saves in (3, 4, 6):  # once before it counts, once right after
            raise Killed
        saved(self, state)

    monkeypatch.setattr(_export.Export, "_save", save)
    kills = 0
    while True:
        try:
            assert main([*words, str(continued)]) == 0
            break
        except Killed:
            kills += 1
            assert not continued.exists(), "nothing half done lies where the export will be"
    assert kills == 3
    assert content(continued) == content(whole)
    assert not (tmp_path / "continued.partial").exists()


def test_what_is_recorded_meanwhile_does_not_shift_a_continued_export(
    tmp_path: Path, own_store: Path, small_shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(32)
    out = tmp_path / "out.jsonl"
    saved = _export.Export._save

    def save(self: _export.Export, state: _export.ExportState) -> None:
        saved(self, state)
        if state.shards == 1:
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(_export.Export, "_save", save)
        main(["export", "jsonl", "--out", str(out)])
    with rollscope.init(project="p", run="another") as run:
        run.log(Rollout(step=-1, messages=[Message(role="user", content="early")]))
    assert main(["export", "jsonl", "--out", str(out)]) == 0
    keys = [json.loads(line)["key"] for line in out.read_text().splitlines()]
    assert sorted(keys) == sorted(f"k{n}" for n in range(32))


def test_an_interrupted_export_says_how_to_go_on(
    tmp_path: Path,
    own_store: Path,
    small_shards: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    record(16)
    out = tmp_path / "out.jsonl"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(_export.Lines, "finish", interrupted)
        assert main(["export", "jsonl", "--out", str(out)]) == 130
    assert f"lies in {out}.partial; the same command goes on" in capfd.readouterr().err
    assert main(["export", "jsonl", "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 16


def test_another_question_does_not_continue_an_export(
    tmp_path: Path, own_store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record(4)
    folder = tmp_path / "out.partial"
    folder.mkdir()
    plan = _export.ExportPlan("jsonl", str(own_store), "step:1", "step,group,index")
    (folder / "plan.json").write_bytes(_export.msgspec.json.encode(plan))
    assert main(["export", "jsonl", "step:0", "--out", str(tmp_path / "out")]) == 2
    said = capfd.readouterr().err
    assert "its query is 'step:1', not 'step:0'" in said
    assert "remove the folder" in said


def test_an_import_that_was_interrupted_goes_on(tmp_path: Path, own_store: Path) -> None:
    path = tmp_path / "in.jsonl"
    lines = [{"id": f"i{n}", "prompt": "a", "completion": f"{n} {TEXT}"} for n in range(3000)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [sys.executable, "-m", "rollscope", "import", str(path)]
    child = subprocess.Popen(words, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    logs = own_store / "imported" / "in" / "live"
    while not list(logs.glob("*")) and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert main(["import", str(path)]) == 0
    store = rollscope.open(own_store)
    assert store.rollouts().count() == 3000
    assert store.sql("SELECT count(*), count(DISTINCT key) FROM rollouts").fetchall() == [
        (3000, 3000)
    ]


def test_two_lines_with_one_name_are_two_rollouts(tmp_path: Path, own_store: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"id": "a", "prompt": "x", "completion": "y"}\n' * 2)
    for times in (1, 2):
        assert main(["import", str(path)]) == 0
        assert rollscope.open(own_store).rollouts().count() == 2
        assert len(list((own_store / "imported/in/writers").iterdir())) == times, "elsewhere"


# -- memory ------------------------------------------------------------------------------

MEASURED = """
import resource, sys
from rollscope.cli import main
code = main(sys.argv[1:])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def peak(program: Path, *words: str) -> int:
    """Bytes of memory that a command took at most, in a process of its own."""
    program.write_text(MEASURED)
    shown = subprocess.run(
        [sys.executable, str(program), *words], capture_output=True, text=True, check=True
    )
    code, size = shown.stdout.splitlines()[-1].split()
    assert code == "0", shown.stderr
    assert shown.stdout.count("\n") == 1, f"nothing else may be said there: {shown.stdout}"
    return int(size)


def large(path: Path, size: int) -> int:
    """A file of lines of 50 kB each; how many."""
    count = size // 50_000
    with path.open("w") as file:
        for n in range(count):
            text = " ".join(str((n * 7919 + m * 104729) % 10**7) for m in range(6000))
            messages = [
                {"role": "user", "content": f"{n // 4}"},
                {"role": "assistant", "content": text},
            ]
            line = {"reward": n % 4, "step": n // 64, "group": f"g{n // 4}", "messages": messages}
            file.write(json.dumps(line) + "\n")
    return count


def test_four_times_the_data_takes_no_more_memory(tmp_path: Path, own_store: Path) -> None:
    sizes = (32_000_000, 128_000_000)
    peaks: dict[str, list[int]] = {}
    program = tmp_path / "measured.py"
    for size in sizes:
        source, store = tmp_path / f"{size}.jsonl", tmp_path / f"store-{size}"
        large(source, size)
        where = ["--dir", str(store)]
        peaks.setdefault("import", []).append(peak(program, "import", str(source), *where))
        for name in ("jsonl", "hf", "parquet"):
            out = str(tmp_path / f"{name}-{size}")
            redact = ["--redact", "emails"] if name == "parquet" else []
            peaks.setdefault(name, []).append(
                peak(program, "export", name, "--out", out, *redact, *where)
            )
    for name, (small, four_times) in peaks.items():
        assert four_times < 1.5 * small + 60_000_000, (name, small, four_times)
