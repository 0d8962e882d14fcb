"""What a command cannot do is told in one line, never as a traceback."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope.cli import main
from rollscope.model import Rollout

TOLD = "Let me think about it for a while. " * 9


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long texts, and characters that not every terminal has."""
    folder = tmp_path_factory.mktemp("kept") / "store"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ROLLSCOPE_SEAL", "off")  # so that `compact` has something to do
        run = rollscope.init(project="math", run="grpo", dir=folder)
        for index in range(40):
            said = f"{TOLD}The answer is {index}. {TOLD} π → 四"
            run.log(
                Rollout(
                    key=str(index), step=1, task="q", index=index, reward=0.5,
                    messages=[{"role": "user", "content": "算 2 + 2"},
                              {"role": "assistant", "content": said}],
                )
            )  # fmt: skip
        run.finish()
    return folder


def as_anybody() -> None:
    """In a child: permissions hold even if the tests run as root."""
    override, search, owner = 1, 2, 3
    for capability in (override, search, owner):
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def command(
    *words: object, out: Any = subprocess.PIPE, anybody: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "80", **variables}
    return subprocess.run(
        [sys.executable, "-m", "rollscope", *map(str, words)],
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        timeout=300,
        preexec_fn=as_anybody if anybody else None,
    )


@pytest.mark.parametrize(
    "words",
    [
        ["ls", "--limit", "-1"],
        ["grep", "answer", "--limit", "-1"],
        ["tail", "--limit", "-1"],
        ["findings", "--limit", "-1"],
        ["scan", "--processes", "0"],
        ["view", "--port", "65536"],
        ["demo", "--seed", "-1"],
    ],
)
def test_a_number_that_cannot_be_is_refused(
    words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2
    assert f"argument {words[-2]}: {words[-1]} is not " in capsys.readouterr().err


def test_a_limit_below_zero_is_refused(store: Path) -> None:
    for ask in (rollscope.open(store).rollouts, rollscope.open(store).search):
        with pytest.raises(ValueError, match="limit is -1: it is at least 0"):
            ask("", limit=-1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    "words", [["ls"], ["ls", "step:1", "--json"], ["export", "sft"], ["--version"]]
)
def test_a_full_disk_is_told(store: Path, words: list[str]) -> None:
    where = [] if words == ["--version"] else ["--dir", store]
    with Path("/dev/full").open("w") as full:
        said = command(*words, *where, out=full)
    assert said.returncode == 1
    last = said.stderr.splitlines()[-1]
    assert last == f"rollscope {words[0]}: No space left on device"
    assert "Traceback" not in said.stderr
    assert "Exception ignored" not in said.stderr


@pytest.mark.parametrize("words", [["ls", "--limit", "99"], ["ls", "step:1", "--json"], ["doctor"]])
def test_who_has_read_enough_of_it_is_no_failure(store: Path, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        said = command(*words, "--dir", store, out=writing)
    finally:
        os.close(writing)
    assert said.returncode == 0
    assert "Traceback" not in said.stderr
    assert "Exception ignored" not in said.stderr


@pytest.mark.parametrize("words", [["ls"], ["ls", "step:1", "--json"], ["export", "sft"]])
def test_an_output_that_is_closed_is_told(store: Path, words: list[str]) -> None:
    shell = ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "rollscope"]
    said = subprocess.run(
        [*shell, *words, "--dir", store], stderr=subprocess.PIPE, text=True, timeout=300
    )
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1] == f"rollscope {words[0]}: Bad file descriptor"
    assert "Traceback" not in said.stderr


def test_who_says_nothing_on_a_closed_output_does_its_work(store: Path, tmp_path: Path) -> None:
    words = ["export", "jsonl", "step:1", "--dir", store, "--out", tmp_path / "out.jsonl"]
    shell = ["sh", "-c", '"$@" >&- 2>&-', "sh", sys.executable, "-m", "rollscope"]
    assert subprocess.run([*shell, *words], timeout=300).returncode == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 40


@pytest.mark.parametrize(
    "words", [["ls"], ["ls", "step:1"], ["grep", "answer"], ["task", "q"], ["show"], ["group"]]
)
def test_a_terminal_that_knows_only_ascii_gets_everything(store: Path, words: list[str]) -> None:
    if words[0] in ("show", "group"):
        words = [*words, next(iter(rollscope.open(store).rollouts())).id]
    said = command(*words, "--dir", store, PYTHONIOENCODING="ascii")
    assert said.returncode == 0, said.stderr
    assert said.stdout.isascii()
    if words[0] == "show":
        assert r"\u7b97 2 + 2" in said.stdout


@pytest.fixture
def closed(store: Path, tmp_path: Path) -> Iterator[Path]:
    """A store that belongs to somebody else: it can be read, nothing more."""
    subprocess.run(["cp", "-r", store, tmp_path / "closed"], check=True)
    subprocess.run(["chmod", "-R", "a-w", tmp_path / "closed"], check=True)
    yield tmp_path / "closed"
    subprocess.run(["chmod", "-R", "u+rwx", tmp_path / "closed"], check=True)


@pytest.mark.parametrize(
    "words",
    [
        ["rm", "math/grpo", "--yes"],
        ["compact"],
        ["export", "parquet", "--out", "{store}/new"],
        ["export", "sft", "--out", "{store}/new.jsonl"],
        ["bundle", "step:1", "--out", "{store}/new"],
        ["import", "{lines}"],
        ["demo", "--no-view"],
    ],
    ids=lambda words: words[0],
)
def test_what_is_not_permitted_is_told(closed: Path, tmp_path: Path, words: list[str]) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"prompt": "a", "completion": "b"}\n')
    filled = [word.format(store=closed, lines=lines) for word in words]
    said = command(*filled, "--dir", closed, anybody=True)
    assert said.returncode in (1, 2)
    assert "Traceback" not in said.stderr
    assert "ermi" in said.stderr.splitlines()[-1], said.stderr
    assert str(closed) in said.stderr


def test_a_store_that_nobody_may_read_is_not_an_empty_one(closed: Path) -> None:
    closed.chmod(0)
    said = command("ls", "--dir", closed, anybody=True)
    assert said.returncode == 2
    assert said.stderr == f"rollscope ls: {closed}: reading is not permitted to you\n"


def test_a_file_that_nobody_may_read_is_not_an_unknown_one(tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"prompt": "a", "completion": "b"}\n')
    lines.chmod(0)
    said = command("import", lines, "--dir", tmp_path / "new", anybody=True)
    assert said.returncode == 2
    assert "reading is not permitted" in said.stderr


def test_at_80_columns_grep_shows_the_words_that_it_found(store: Path) -> None:
    said = command("grep", '"answer is 7."', "--dir", store)
    assert "answer is 7." in said.stdout
    assert "Let me think" in said.stdout, "and what stands around them"
    assert max(map(len, said.stdout.splitlines())) <= 80


def test_without_ray_the_line_says_what_to_type(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "rollscope.store.read.on_ray", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    for words in (["scan"], ["grep", "think"], ["export", "jsonl"]):
        assert main([*words, "--on", "ray", "--dir", str(store)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        (line,) = said.err.strip().splitlines()
        assert "pip install 'rollscope[ray]'" in line
    with pytest.raises(ImportError, match=r"rollscope\[ray\]"):
        rollscope.open(store).to_ray()
