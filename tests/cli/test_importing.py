"""Import hides nothing: names that meet, files that come twice, folders of everything, mistakes."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rollscope
from rollscope.cli import main


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`cli("import", ...)` in a folder of its own, as a person types it."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def run(*words: str) -> Said:
        capfd.readouterr()
        code = main(list(words))
        return Said(code, *capfd.readouterr())

    return run


def lines(path: str, *bodies: dict[str, Any]) -> Path:
    """A file of JSON lines."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    return file


def chat(answer: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]
    return {"messages": messages, **fields}


def slot(answer: str) -> dict[str, Any]:
    """All of these are in one slot: a later launch would supersede an earlier one's."""
    return chat(answer, step=1, task="t", index=0)


def answers(query: str = "") -> list[str]:
    with closing(rollscope.open()) as store:
        found = store.rollouts(query)
        return sorted(str(store.get(row.id).messages[-1].content) for row in found)


def runs() -> list[str]:
    with closing(rollscope.open()) as store:
        return sorted(run.run for run in store.runs())


# -- names that meet, files that come twice ----------------------------------------------------


def test_files_of_one_name_are_runs_of_their_own(cli: Any) -> None:
    for folder in ("a", "b", "x/b"):
        lines(f"{folder}/out.jsonl", slot(folder))
        said = cli("import", f"{folder}/out.jsonl")
        assert said.code == 0, said.err
    assert answers() == ["a", "b", "x/b"], "none is hidden"
    assert len(runs()) == 3
    assert runs()[0] != runs()[1]
    assert "b/out" in runs()
    cli("import", "b/out.jsonl")
    assert len(runs()) == 3, "a file that comes again goes to its own run"


def test_files_that_differ_only_in_their_ending_are_runs_of_their_own(cli: Any) -> None:
    lines("out.jsonl", slot("lines"))
    Path("out.json").write_text(json.dumps([slot("list")]))
    cli("import", "out.jsonl")
    cli("import", "out.json")
    assert len(runs()) == 2
    assert answers() == ["lines", "list"]


def test_two_imports_into_one_run_hide_nothing(cli: Any) -> None:
    lines("a/out.jsonl", slot("a"))
    lines("b/out.jsonl", slot("b"))
    cli("import", "a/out.jsonl", "--run", "r")
    cli("import", "b/out.jsonl", "--run", "r")
    assert answers("run:r") == ["a", "b"]


def test_an_import_into_a_run_that_was_trained_hides_nothing(cli: Any) -> None:
    with rollscope.init(project="p", run="r") as run:
        run.log(slot("trained"))
    lines("out.jsonl", slot("imported"))
    cli("import", "out.jsonl", "--project", "p", "--run", "r")
    assert answers("project:p run:r") == ["imported", "trained"]


def test_a_file_that_comes_twice_is_told_and_not_doubled(cli: Any) -> None:
    lines("out.jsonl", slot("a"), slot("b"), slot("b"))
    assert "imported 3 rollouts" in cli("import", "out.jsonl").err
    said = cli("import", "out.jsonl")
    assert said.code == 0
    assert "nothing new" in said.err
    assert "3 rollouts" in said.err
    assert answers() == ["a", "b", "b"]
    said = cli("import", "out.jsonl", "--json")
    assert json.loads(said.out)["already"] == 3


def test_a_file_that_has_grown_adds_what_is_new(cli: Any) -> None:
    lines("out.jsonl", slot("a"))
    cli("import", "out.jsonl")
    lines("out.jsonl", slot("new"), slot("a"))
    said = cli("import", "out.jsonl")
    assert "imported 1 rollout into" in said.err
    assert "1 already there" in said.err
    assert answers() == ["a", "new"]


def test_a_file_that_was_written_anew_hides_and_loses_nothing_and_says_so(cli: Any) -> None:
    lines("out.jsonl", slot("old"), slot("both"))
    cli("import", "out.jsonl")
    lines("out.jsonl", slot("new"), slot("both"))
    said = cli("import", "out.jsonl")
    assert answers() == ["both", "new", "old"]
    assert "keeps 1 rollout of an earlier import, no longer in out.jsonl" in said.err


def test_where_a_rollout_was_before_is_kept(cli: Any) -> None:
    body = chat("a", id="i1", project="math", run="grpo", launch="l", worker="w", key="k")
    lines("out.jsonl", body)
    cli("import", "out.jsonl")
    with closing(rollscope.open()) as store:
        (row,) = store.rollouts("")
        got = store.get(row.id)
    assert (got.project, got.run, got.key) == ("imported", "out", "k")
    assert got.meta["origin"] == {
        "id": "i1", "project": "math", "run": "grpo", "launch": "l", "worker": "w",
    }  # fmt: skip


# -- folders of everything ---------------------------------------------------------------------

TAU = [{"task_id": 0, "trial": 0, "reward": 1.0, "info": {}, "traj": chat("tau")["messages"]}]
ATIF = {
    "schema_version": "ATIF-v1.4",
    "agent": {"name": "terminus"},
    "steps": [{"step_id": 1, "source": "agent", "message": "atif"}],
}


def mixed() -> None:
    """A folder as people have it: three formats, a picture, notes."""
    lines("logs/a/out.jsonl", chat("chat"))
    Path("logs/b").mkdir()
    Path("logs/b/results.json").write_text(json.dumps(TAU, indent=2))
    Path("logs/b/trajectory.json").write_text(json.dumps(ATIF, indent=2))
    Path("logs/plot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    Path("logs/config.json").write_text('{"lr": 1e-6}')
    Path("logs/.hidden").mkdir()
    lines("logs/.hidden/x.jsonl", chat("hidden"))


def test_a_folder_of_several_formats_imports_each_file_by_its_own(cli: Any) -> None:
    mixed()
    said = cli("import", "logs")
    assert said.code == 0, said.err
    assert answers() == ["atif", "chat", "tau"]
    assert "imported 3 rollouts into imported/logs" in said.err
    for words in ("config.json", "plot.png", "no known format"):
        assert words in said.err
    for name in ("atif", "jsonl", "tau-bench"):
        assert name in said.err


def test_a_folder_of_one_named_format_says_what_it_left_out(cli: Any) -> None:
    mixed()
    said = cli("import", "atif", "logs")
    assert answers() == ["atif"]
    assert "results.json" in said.err
    assert "tau-bench" in said.err


def test_a_folder_of_json_logs_is_read(cli: Any) -> None:
    Path("logs").mkdir()
    Path("logs/1.json").write_text(json.dumps(TAU))
    assert cli("import", "logs").code == 0
    assert answers() == ["tau"]


def test_several_paths_are_several_runs(cli: Any) -> None:
    lines("a/out.jsonl", chat("a"))
    lines("b/out.jsonl", chat("b"))
    said = cli("import", "a/out.jsonl", "b/out.jsonl")
    assert said.code == 0
    assert (answers(), len(runs())) == (["a", "b"], 2)
    cli("import", "jsonl", "a", "b", "--run", "one")
    assert answers("run:one") == ["a", "b"]


def test_one_bad_path_of_several_costs_only_itself(cli: Any) -> None:
    lines("a/out.jsonl", chat("a"))
    lines("b/out.jsonl", {"messages": 7})
    lines("c/out.jsonl", chat("c"))
    said = cli("import", "a/out.jsonl", "b/out.jsonl", "c/out.jsonl")
    assert said.code == 1
    assert "nothing was imported from b/out.jsonl" in said.err
    assert answers() == ["a", "c"]


def test_a_file_that_comes_alone_and_in_its_folder_is_one_file(cli: Any) -> None:
    lines("a/out.jsonl", chat("a"))
    cli("import", "a/out.jsonl", "--run", "r")
    said = cli("import", "a", "--run", "r")
    assert "nothing new" in said.err
    assert answers() == ["a"]


def test_groups_of_files_that_number_their_tasks_are_not_mixed(cli: Any) -> None:
    for name in ("a", "b"):
        body = {
            "responses_create_params": {"input": name}, "reward": 1.0, "_ng_task_index": 0,
            "response": {"output": [{"type": "message", "role": "assistant", "content": name}]},
        }  # fmt: skip
        lines(f"gym/{name}/rollouts.jsonl", body)
    cli("import", "gym")
    with closing(rollscope.open()) as store:
        assert {row.dataset for row in store.rollouts("")} == {"a/rollouts", "b/rollouts"}


# -- mistakes ----------------------------------------------------------------------------------


def test_nothing_found_is_an_error_and_leaves_no_run(cli: Any) -> None:
    Path("empty").mkdir()
    Path("nothing.jsonl").touch()
    lines("bad.jsonl", {"messages": 7})
    Path("notes.txt").write_text("hello")
    Path("odd.json").write_text('{"a": 1}')
    for words in (
        ["empty"],
        ["nothing.jsonl"],
        ["jsonl", "nothing.jsonl"],
        ["bad.jsonl"],
        ["notes.txt"],
        ["odd.json"],
        ["verl", "odd.json"],
        ["columns", "odd.json", "--map", "each=a[] completion=x"],
        ["columns", "odd.json"],
        ["jsonl", "odd.json"],
    ):
        said = cli("import", *words)
        assert said.code in (1, 2), (words, said)
        assert words[-1] in said.err or words[-1][:9] in said.err, (words, said)
        assert "Traceback" not in said.err
    assert runs() == [], "no empty run stays behind"


def test_what_has_nothing_of_a_rollout_is_a_problem_and_no_blank_rollout(cli: Any) -> None:
    lines("some.jsonl", chat("a"), {"id": 7, "question": "2 + 2?", "grade": 1}, {"reward": 1.0})
    said = cli("import", "some.jsonl")
    assert said.code == 0
    assert "some.jsonl:2: nothing of a rollout in it; it has: question, grade" in said.err
    with closing(rollscope.open()) as store:
        assert sorted(row.reward for row in store.rollouts("has:reward")) == [1.0]
        assert store.rollouts("").count() == 2


def test_a_folder_of_unknown_json_says_what_to_type(cli: Any) -> None:
    Path("logs").mkdir()
    Path("logs/odd.json").write_text('{"results": [{"question": "2 + 2?"}]}')
    said = cli("import", "logs")
    assert said.code == 1
    assert "--map" in said.err and "rollscope docs formats" in said.err
    said = cli("import", "logs", "--map", "each=nosuch[] prompt=question")
    assert said.code == 2
    assert "each=nosuch[] leads to nothing" in said.err and "results" in said.err
    said = cli("import", "logs", "--map", "each=results[].samples[] prompt=question")
    assert "each=results[].samples[] leads to nothing" in said.err and "question" in said.err


def test_a_format_without_a_path_is_told_from_a_path(cli: Any) -> None:
    said = cli("import", "inspect")
    assert said.code == 2
    assert "inspect is a format" in said.err and "rollscope import inspect PATH" in said.err


def test_an_empty_file_is_called_empty(cli: Any) -> None:
    Path("nothing.jsonl").touch()
    said = cli("import", "nothing.jsonl")
    assert said.code == 2
    assert said.err == "rollscope import: nothing.jsonl is empty\n"


def test_a_file_of_another_format_is_not_read_as_the_one_that_was_named(cli: Any) -> None:
    body = {"version": 2, "eval": {"task": "t"}, "samples": [{"id": 1, "epoch": 1}]}
    Path("log.json").write_text(json.dumps(body))
    said = cli("import", "atif", "log.json")
    assert said.code == 2
    assert "log.json is inspect, not atif" in said.err
    assert runs() == []


def test_an_unknown_format_is_named_with_the_nearest_one(cli: Any) -> None:
    lines("out.jsonl", chat("a"))
    said = cli("import", "inspct", "out.jsonl")
    assert said.code == 2
    assert "inspect" in said.err
    said = cli("import", "no-such-file.jsonl")
    assert said.code == 2
    assert "no such file or folder: no-such-file.jsonl" in said.err


def test_a_dry_run_shows_the_first_rollouts_and_writes_nothing(cli: Any, own_store: Path) -> None:
    mixed()
    said = cli("import", "logs", "--dry-run")
    assert said.code == 0
    for words in ("imported/logs", "atif", "tau-bench", "config.json", "assistant"):
        assert words in said.out + said.err
    assert not own_store.exists()
    said = cli("import", "logs", "--dry-run", "--json")
    first = json.loads(said.out.splitlines()[0])
    assert [m["role"] for m in first["messages"]] == ["user", "assistant"]
    assert not own_store.exists()


def test_help_lists_every_format(cli: Any, capfd: pytest.CaptureFixture[str]) -> None:
    from rollscope.formats import READERS

    with pytest.raises(SystemExit):
        main(["import", "--help"])
    said = capfd.readouterr().out
    assert all(name in said for name in READERS)
    assert max(map(len, said.splitlines())) <= 80


def test_strict_stops_before_anything_of_the_bad_file_is_said_to_be_done(cli: Any) -> None:
    lines("out.jsonl", chat("a"), {"messages": 7}, chat("b"))
    said = cli("import", "out.jsonl", "--strict")
    assert said.code == 1
    assert "out.jsonl:2" in said.err
    assert "1 imported before it" in said.err
