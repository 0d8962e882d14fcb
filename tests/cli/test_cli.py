"""The command, as a person or a script uses it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope.cli import main
from rollscope.model import Error, Message, Rollout, Span, Tokens, ToolCall
from server import many


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with one small run: two tasks, two steps, four siblings each."""
    store = tmp_path / "store"
    with rollscope.init(project="math", run="grpo", dir=store) as run:
        for step in range(2):
            for task in ("q-1", "q-2"):
                run.log([_rollout(step, task, index) for index in range(4)])
        run.metrics(0, {"loss": 0.5})
    return store


def _rollout(step: int, task: str, index: int) -> Rollout:
    good = (step + index) % 2 == 0
    answer = "It is 4." if good else "It is 5, \x1b[31mprobably\x1b[0m."
    return Rollout(
        step=step,
        task=task,
        index=index,
        group=f"{step}/{task}",
        split="train",
        reward=float(good),
        rewards={"correct": float(good)},
        fate="trained",
        messages=[
            Message(role="user", content=f"What is 2 + 2? ({task})"),
            Message(
                role="assistant",
                content=answer,
                sampled=True,
                tool_calls=[ToolCall(id="c", name="calculator", arguments={"x": "2 + 2"})],
                tokens=Tokens([1, 2], ends=[5, len(answer)], logprob=[-0.1, -2.5]),
            ),
        ],
        spans=[Span(name="generate", id="s", start=1.0, end=2.5)],
    )


class Said:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> Any:
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str) -> Said:
        capfd.readouterr()
        try:
            code = main([*words, "--dir", str(folder)])
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return run


def first(cli: Any, query: str) -> str:
    return str(cli("ls", "--json", query).rows[0]["id"])


def test_ls_lists_runs_and_fits_80_columns(cli: Any) -> None:
    said = cli("ls")
    assert said.code == 0
    assert "math" in said.out
    assert "grpo" in said.out
    assert "0–1" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


def test_ls_with_a_query_lists_rollouts(cli: Any) -> None:
    rows = cli("ls", "--json", "reward:1 step:0 task:q-1").rows
    assert {row["index"] for row in rows} == {0, 2}


def test_a_term_may_begin_with_a_minus_and_stand_behind_options(cli: Any) -> None:
    assert len(cli("ls", "--json", "step:0", "-reward:1").rows) == 4


def test_what_to_sort_by_may_begin_with_a_minus(cli: Any) -> None:
    rows = cli("ls", "--order", "-step,index", "--json", "task:q-1").rows
    assert [row["step"] for row in rows] == [1] * 4 + [0] * 4


def test_grep_shows_the_words_that_it_found(cli: Any) -> None:
    said = cli("grep", '"It is 5"')
    assert said.code == 0
    assert "It is 5" in said.out
    assert "8 of 8 found, of 16 in all" in said.err


def test_grep_finding_nothing_says_so_by_its_exit_code(cli: Any) -> None:
    assert cli("grep", "zebra").code == 1


def test_an_unknown_key_names_the_nearest(cli: Any) -> None:
    said = cli("ls", "rewrad:1")
    assert said.code == 2
    assert "reward" in said.err


def test_show_reads_like_a_conversation_and_obeys_no_escape(cli: Any) -> None:
    said = cli("show", first(cli, "reward:0"))
    assert said.code == 0
    assert "What is 2 + 2?" in said.out
    assert "calculator" in said.out
    assert "generate" in said.out
    assert "\x1b[31m" not in said.out
    assert "␛" in said.out


def test_show_takes_the_beginning_of_an_id(cli: Any) -> None:
    id = first(cli, "step:0 task:q-1 index:0")
    assert cli("show", id[:-1] if len(id) > 1 else id, "--json").code in (0, 1)
    assert cli("show", "nobody").code == 1


def test_show_json_is_the_whole_rollout(cli: Any) -> None:
    (row,) = cli("show", first(cli, "reward:1"), "--json").rows
    assert row["messages"][1]["tokens"]["logprob"][1] == -2.5


def test_show_tokens_names_the_streams_there_are(cli: Any) -> None:
    assert cli("show", first(cli, "reward:1"), "--tokens", "logprob").code == 0
    said = cli("show", first(cli, "reward:1"), "--tokens", "entropy")
    assert "it has: logprob" in said.err


def test_tasks_stand_against_runs_steps_and_keys_of_ones_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("ROLLSCOPE_SEAL", "off")
    many.models(tmp_path, models=12, tasks=30)
    capfd.readouterr()
    words = ["tasks", "project:models", "--dir", str(tmp_path), "--limit", "3"]
    assert main(words) == 0
    out, said = capfd.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert "model-11" in out and "100 pp" in out
    assert "3 of 30 tasks" in said and "7 columns not shown" in said
    assert main([*words, "--compare", "model-11", "model-00", "--json"]) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [row["difference"] for row in rows] == sorted(
        [row["difference"] for row in rows], reverse=True
    )
    assert rows[0]["cells"]['run:"model-11"']["rollouts"] == 1
    assert main([*words, "--compare", "model-11", "nobody"]) == 2
    assert "no column is called 'nobody'" in capfd.readouterr().err
    assert main([*words, "run:nobody"]) == 1


def test_group_and_task_and_diff(cli: Any) -> None:
    good, bad = first(cli, "reward:1 step:0 task:q-1"), first(cli, "reward:0 step:0 task:q-1")
    assert len(cli("group", good, "--json").rows) == 4
    assert "correct" in cli("group", good).out
    assert len(cli("task", "q-1", "--json").rows) == 8
    assert "q-1" not in cli("task", "q-9").out
    said = cli("diff", good, bad)
    assert said.code == 1
    assert "first divergence" in said.out
    assert cli("diff", good, good).code == 0


def test_diff_says_without_colours_which_words_are_whose(cli: Any) -> None:
    good, bad = first(cli, "reward:1 step:0 task:q-1"), first(cli, "reward:0 step:0 task:q-1")
    assert "It is [-4-]{+5, " in cli("diff", good, bad).out


def test_tail_once_prints_the_newest(cli: Any) -> None:
    assert len(cli("tail", "--once", "--json", "--limit", "3").rows) == 3


def test_export_and_import_keep_everything(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    assert cli("export", "jsonl", "step:1", "--out", str(path)).code == 0
    assert len(path.read_text().splitlines()) == 8
    said = cli("import", str(path), "--project", "back")
    assert said.code == 0
    assert "imported 8 rollouts into back/out" in said.err
    assert len(cli("ls", "--json", "project:back").rows) == 8
    cli("import", str(path), "--project", "back")
    assert len(cli("ls", "--json", "project:back").rows) == 8, "importing twice changes nothing"


def test_exported_parquet_opens_in_plain_polars(cli: Any, tmp_path: Path) -> None:
    import polars

    assert cli("export", "parquet", "reward:1", "--out", str(tmp_path / "p")).code == 0
    rollouts = polars.read_parquet(tmp_path / "p" / "rollouts" / "*.parquet")
    messages = polars.read_parquet(tmp_path / "p" / "messages" / "*.parquet")
    assert len(rollouts) == 8
    assert len(messages.join(rollouts, left_on="rollout", right_on="id")) == 16


def test_import_names_bad_lines_and_goes_on(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"prompt": "a", "completion": "b"}\noops\n')
    said = cli("import", "jsonl", str(path))
    assert f"{path}:2:" in said.err
    assert "imported 1 rollout into" in said.err
    assert cli("import", "jsonl", str(path), "--strict").code == 1


def test_compact_doctor_and_rm(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("compact").code == 0
    said = cli("doctor")
    assert said.code == 0
    assert "16 rollouts readable; 0 errors" in said.err
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert cli("rm", "math/grpo").code == 2, "without a terminal it wants --yes"
    assert cli("rm", "math/grpo", "--yes").code == 0
    assert cli("rm", "math/grpo", "--yes").code == 1


def test_with_nothing_recorded_ls_shows_the_line_to_type(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLSCOPE_DIR", str(tmp_path / "empty"))
    assert main(["ls"]) == 1
    assert "rollscope.adapters.trl.attach" in capfd.readouterr().err


def test_what_the_screens_count_is_counted_in_the_terminal_too(cli: Any) -> None:
    stages = [row for row in cli("fate", "step:1", "--json").rows if "stage" in row]
    assert {row["stage"]: row["count"] for row in stages} == {
        "generated": 8, "scored": 8, "kept": 8, "trained": 8,
    }  # fmt: skip
    shown = cli("fate")
    assert (shown.code, "no fate was recorded" in shown.err) == (0, False)
    assert max(map(len, shown.out.splitlines())) <= 80
    none = cli("failures")
    assert (none.code, none.out, "0 failed" in none.err) == (0, "", True)


def test_where_nobody_recorded_a_fate_that_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        run.log([Rollout(step=1, reward=1.0, error=Error(kind="tool", text="gone"))])
    capfd.readouterr()
    assert main(["fate", "--dir", str(tmp_path)]) == 0
    out, err = capfd.readouterr()
    assert ("no fate was recorded" in err, "trained" in out) == (True, False)
    assert main(["failures", "--dir", str(tmp_path)]) == 0
    assert "gone" in capfd.readouterr().out
