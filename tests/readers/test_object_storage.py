"""A store in a bucket is read where it lies: what comes from it is what a question needs.

The server is moto's S3 on loopback; Rollscope is called in its own environment.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto")

from storage import BUCKET, KEYS, Storage

from conftest import ROLLSCOPE

RUNS, ROLLOUTS = 3, 40
URL = f"s3://{BUCKET}"


def lines(run: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"r{run}-{n}", "step": n // 4, "task": f"q{n % 4}", "index": run, "reward": n % 2,
            "messages": [
                {"role": "user", "content": "Why?"},
                {"role": "assistant", "content": "".join(f"{n} {k * n}," for k in range(4000))},
            ],
        }
        for n in range(ROLLOUTS)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def storage(
    tmp_path_factory: pytest.TempPathFactory, rollscope: Callable[..., str]
) -> Iterator[Storage]:
    folder = tmp_path_factory.mktemp("storage")
    for run in range(RUNS):
        (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(run)))
        where = ("--run", f"r{run}", "--dir", str(folder / "store"))
        rollscope("import", str(folder / "in.jsonl"), *where)
    rollscope("compact", "--dir", str(folder / "store"))
    made = Storage()
    made.put(folder / "store")
    made.folder = folder / "store"  # type: ignore[attr-defined]
    yield made
    made.close()


class Said:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr


@pytest.fixture
def asked(storage: Storage, tmp_path: Path) -> Callable[..., Said]:
    """`asked("ls", ...)`: what a command says about the bucket. The cache is the test's own."""

    def run(*words: str, url: str = URL, **variables: str) -> Said:
        return _run([str(ROLLSCOPE), *words, "--dir", url], storage, tmp_path, **variables)

    return run


def _run(command: list[str], storage: Storage, home: Path, **variables: str) -> Said:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ROLLSCOPE", "AWS"))}
    env = {k: v for k, v in env.items() if not k.lower().endswith("_proxy")}
    env |= {"AWS_ENDPOINT_URL": storage.url, "AWS_REGION": "us-east-1", **KEYS}
    env |= {"XDG_CACHE_HOME": str(home / "cache"), "HOME": str(home), **variables}
    return Said(subprocess.run(command, env=env, capture_output=True, text=True, timeout=300))


def size(storage: Storage, table: str) -> int:
    return sum(f.stat().st_size for f in storage.folder.rglob(f"{table}.parquet"))  # type: ignore


def first_id(asked: Callable[..., Said], query: str) -> str:
    return str(json.loads(asked("ls", query, "--json").out.splitlines()[0])["id"])


def test_commands_answer_as_they_do_over_the_folder(
    storage: Storage, asked: Callable[..., Said]
) -> None:
    folder = str(storage.folder)
    id = first_id(asked, "task:q3 run:r1 step:1")
    for words in (
        ["ls", "reward:1", "--json"],
        ["grep", '"7 7,"', "--json"],
        ["show", id, "--full"],
        ["export", "jsonl", "run:r2"],
    ):
        assert asked(*words).out == asked(*words, url=folder).out, words
    done = asked("files", "messages").out.splitlines()
    assert len(done) == RUNS and all(name.startswith(f"{URL}/imported/r") for name in done)


def test_text_stays_in_the_bucket_until_it_is_asked_for(
    storage: Storage, asked: Callable[..., Said]
) -> None:
    storage.reset()
    assert asked("ls", "reward:1").code == 0
    ends = [path for path in storage.requests if "messages.parquet" in path]
    assert len(ends) <= 1, "the columns of one file"
    id = first_id(asked, "run:r1 step:1")
    storage.reset()
    assert asked("show", id).code == 0
    assert 0 < storage.sent < size(storage, "messages") / 2
    assert {path.split("/")[3] for path in storage.requests if "parquet" in path} == {"r1"}
    storage.reset()
    assert asked("show", id).code == 0
    assert not any("parquet" in path for path in storage.requests), "it lies in the cache"


def test_the_newest_come_from_the_newest_files(
    storage: Storage, asked: Callable[..., Said], tmp_path: Path
) -> None:
    """The first page, its counts and a rollout of it need no other file than that of its run."""
    program = f"""
import json, rollscope
from rollscope.store import scans
from rollscope.store.read import reader
reader._FIRST_FILES = scans._FIRST = 1
for place in ({URL!r}, {str(storage.folder)!r}):
    store = rollscope.open(place)
    newest = store.rollouts()
    rows = [row.asdict() for row in newest[:8]]
    print(json.dumps([rows, newest.count(), len(store.get(rows[0]["id"]).messages)]))
    print(json.dumps([row.asdict() for row in newest[:100]]))
"""
    storage.reset()
    said = _run([str(ROLLSCOPE.with_name("python")), "-c", program], storage, tmp_path)
    assert said.code == 0, said.err
    near, all_near, far, all_far = said.out.splitlines()
    assert (near, all_near) == (far, all_far)
    assert json.loads(near)[1:] == [RUNS * ROLLOUTS, 2]
    tables = [path.split("?")[0] for path in storage.requests if "/segments/" in path]
    assert len({path for path in tables if "rollouts.parquet" in path}) == RUNS, "for 100 rows"

    one = program.replace("print(json.dumps([row.asdict() for row in newest[:100]]))", "")
    storage.reset()
    said = _run([str(ROLLSCOPE.with_name("python")), "-c", one], storage, tmp_path / "other")
    assert said.code == 0, said.err
    tables = [path.split("?")[0] for path in storage.requests if "/segments/" in path]
    assert len({path for path in tables if "rollouts.parquet" in path}) == 1


def test_a_command_takes_what_another_has_just_listed(
    storage: Storage, asked: Callable[..., Said], tmp_path: Path
) -> None:
    id = first_id(asked, "run:r1 step:1")
    wanted = asked("show", id).out
    (listing,) = tmp_path.rglob("listing.json")
    listing.write_text(json.dumps({**json.loads(listing.read_text()), "took": 1000.0}))
    storage.reset()
    assert asked("show", id).out == wanted
    assert storage.requests == []
    listing.write_text("{")
    assert asked("show", id).out == wanted


def test_the_cache_is_bounded(storage: Storage, asked: Callable[..., Said], tmp_path: Path) -> None:
    limit = 200_000
    assert asked("export", "jsonl", "", ROLLSCOPE_CACHE_BYTES=str(limit)).out.count("\n") == 120
    (pieces,) = tmp_path.rglob("pieces")
    kept = sum(file.stat().st_size for file in pieces.rglob("*") if file.is_file())
    assert 0 < kept <= limit < size(storage, "messages")


@pytest.mark.parametrize("fault", ["500 InternalError", "503 SlowDown", "stall"])
def test_what_fails_for_a_moment_is_asked_again(
    storage: Storage, asked: Callable[..., Said], fault: str
) -> None:
    wanted = asked("export", "jsonl", "", url=str(storage.folder)).out

    def failing(number: int, path: str) -> str | None:
        return fault if number % 4 == 0 and number < (5 if fault == "stall" else 20) else None

    with storage.failing(failing):
        said = asked("export", "jsonl", "", ROLLSCOPE_STORAGE_TIMEOUT="2")
        assert len(storage.requests) > 5
    assert (said.code, said.out) == (0, wanted), said.err


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("403 InvalidAccessKeyId", "access is denied"),
        ("403 SignatureDoesNotMatch", "access is denied"),
        ("404 NoSuchBucket", "no such bucket"),
        ("400 ExpiredToken", "access is denied"),
    ],
)
def test_what_is_refused_is_one_clear_line_without_keys(
    storage: Storage, asked: Callable[..., Said], fault: str, told: str
) -> None:
    with storage.failing(lambda number, path: fault):
        said = asked("ls")
    assert said.code == 2 and said.out == ""
    assert told in said.err and URL in said.err and said.err.count("\n") == 1
    for secret in KEYS.values():
        assert secret not in said.err


def test_access_that_ends_in_the_middle_is_said_too(
    storage: Storage, asked: Callable[..., Said]
) -> None:
    assert asked("ls", "reward:1").code == 0
    with storage.failing(lambda _, path: "403 AccessDenied" if "messages" in path else None):
        said = asked("export", "jsonl", "")
    assert said.code == 2 and "access is denied" in said.err and "Traceback" not in said.err


def test_a_hostile_bucket_writes_nothing_outside_the_cache(
    storage: Storage, asked: Callable[..., Said], tmp_path: Path
) -> None:
    odd = [
        "/imported/r9/run.json", "imported/.../run.json", "imported/r0/writers/.bashrc",
        "imported/r0/live/a b", f"imported/{'x' * 300}/run.json", "imported/%2E%2E/%2E%2E/x.json",
    ]  # fmt: skip
    leading_out = [
        "../../../outside/run.json", "imported/r0/../../../../x.json", "imported/r0/live/../../../x"
    ]  # fmt: skip
    before = {str(path) for path in tmp_path.rglob("*")}
    try:
        for keys in (odd, leading_out):
            for key in keys:
                storage.client.put_object(Bucket=BUCKET, Key=key, Body=b"{}")
            for listing in tmp_path.rglob("listing.json"):
                listing.unlink()
            said = asked("ls", "reward:1")
            assert "of 120 in all" in said.err if keys == odd else "is no path" in said.err
    finally:
        for key in odd + leading_out:
            storage.client.delete_object(Bucket=BUCKET, Key=key)
    cache = str(tmp_path / "cache")
    written = {str(path) for path in tmp_path.rglob("*")} - before
    assert written and all(path.startswith(cache) for path in written)
    (home,) = (tmp_path / "cache" / "rollscope").iterdir()
    assert {path.name for path in home.iterdir()} <= {"descriptions", "pieces", "listing.json"}
    assert {path.name for path in (home / "descriptions").iterdir()} == {"imported"}


def test_python_opens_an_address(storage: Storage, tmp_path: Path) -> None:
    """`rollscope.open("s3://...")`, with SQL that reads nothing but the store."""
    program = f"""
import rollscope
store = rollscope.open({URL!r})
row = store.rollouts("run:r1 step:1")[0]
print(len(store.get(row.id).messages), store)
for name in ("rollscope://store/../../../etc/passwd", "/etc/passwd"):
    try:
        store.sql(f"SELECT * FROM read_text('{{name}}')").fetchall()
    except Exception as error:
        print(type(error).__name__)
"""
    said = _run([str(ROLLSCOPE.with_name("python")), "-c", program], storage, tmp_path)
    assert said.code == 0, said.err
    assert said.out.splitlines()[0] == f"2 Store({URL})"
    assert len(said.out.splitlines()) == 3
    assert "leaked" not in said.err
