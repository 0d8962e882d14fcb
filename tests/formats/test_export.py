"""What is exported is what was recorded, in the shape that others read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest

import rollscope
from rollscope import Message, Rollout, Span, Tokens
from rollscope.cli import main
from rollscope.formats import read
from rollscope.model import Part, ToolCall

Export = Callable[..., list[dict[str, Any]]]


def conversation(answer: str = "It is 4.", *, ask: str = "What is 2 + 2?") -> list[Message]:
    return [
        Message(role="system", content="Be brief."),
        Message(role="user", content=ask),
        Message(
            role="assistant",
            content=[Part(type="reasoning", text="Let me add."), Part(type="text", text="Adding.")],
            tool_calls=[ToolCall(id="c1", name="add", arguments='{"a": 2, "b": 2}')],
            tokens=Tokens([1, 2], ends=[3, 18], logprob=[-0.1, -0.2]),
            sampled=True,
        ),
        Message(role="tool", name="add", content="4", tool_call_id="c1"),
        Message(role="assistant", content=answer, sampled=True),
    ]


TOOLS = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]


def record(*rollouts: Rollout) -> None:
    with rollscope.init(project="p", run="r") as run:
        run.log(list(rollouts))


@pytest.fixture
def export(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    """`export(format, query, ...)`: the lines that were written, and what was said in `.said`."""

    def run(name: str, *words: str, code: int = 0) -> list[dict[str, Any]]:
        out = tmp_path / f"out-{name}"
        out.unlink(missing_ok=True)
        assert main(["export", name, *words, "--out", str(out)]) == code
        run.said = capfd.readouterr().err  # type: ignore[attr-defined]
        return [json.loads(line) for line in out.read_text().splitlines()]

    return run


def test_sft_lines_are_conversations_as_trl_takes_them(export: Any) -> None:
    record(Rollout(key="a", messages=conversation(), reward=1.0, meta={"tools": TOOLS}))
    (line,) = export("sft")
    assert [m["role"] for m in line["messages"]] == [
        "system", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    call = line["messages"][2]
    assert call["reasoning_content"] == "Let me add."
    assert call["content"] == "Adding."
    function = {"name": "add", "arguments": {"a": 2, "b": 2}}
    assert call["tool_calls"] == [{"id": "c1", "type": "function", "function": function}]
    assert line["messages"][3]["tool_call_id"] == "c1"
    parameters = {"name": "add", "parameters": {"type": "object"}}
    assert line["tools"] == [{"type": "function", "function": parameters}]
    assert line["reward"] == 1.0


def test_sft_has_a_line_for_every_branch_and_says_what_has_none(export: Any) -> None:
    tree = [
        Message(role="user", content="q"),
        Message(role="assistant", content="first", sampled=True),
        Message(role="assistant", content="second", parent=0, sampled=True),
    ]
    record(
        Rollout(key="tree", messages=tree), Rollout(key="silent", messages=[Message(role="user")])
    )
    answers = [[m["content"] for m in line["messages"]] for line in export("sft")]
    assert answers == [["q", "first"], ["q", "second"]]
    assert "left out: 1 rollouts without an answer of the policy" in export.said


def test_a_pair_is_the_best_and_the_worst_of_a_group(export: Any) -> None:
    rewards = (0.5, 1.0, None, 0.0, math.nan)
    record(
        *(
            Rollout(step=1, group="g", index=n, reward=reward, messages=conversation(f"answer {n}"))
            for n, reward in enumerate(rewards)
        )
    )
    (pair,) = export("pairs")
    assert [m["role"] for m in pair["prompt"]] == ["system", "user"]
    assert pair["chosen"][-1]["content"] == "answer 1"
    assert pair["rejected"][-1]["content"] == "answer 3", "a missing reward is not the worst one"
    assert (pair["score_chosen"], pair["score_rejected"]) == (1.0, 0.0)


def test_groups_without_a_pair_are_counted_with_the_reason(export: Any) -> None:
    def group(name: str, *rewards: float | None, ask: str = "What?") -> list[Rollout]:
        return [
            Rollout(step=1, group=name, index=n, reward=reward, messages=conversation(ask=ask))
            for n, reward in enumerate(rewards)
        ]

    other = group("d", 0.0)[0]
    other.index, other.messages = 1, conversation(ask="Something else?")
    record(
        *group("a", 1.0, 1.0),
        *group("b", 1.0, None),
        *group("c", None, None),
        *group("d", 1.0), other,
    )  # fmt: skip
    assert export("pairs", code=1) == []
    for reason, count in (
        ("all rewards are equal", 1),
        ("fewer than two rollouts with a reward", 2),
        ("the prompts differ", 1),
    ):
        assert f"{count} groups without a pair: {reason}" in export.said


def test_siblings_of_two_runs_are_never_paired(export: Any) -> None:
    for run, reward in (("a", 0.0), ("b", 1.0)):
        with rollscope.init(project="p", run=run) as opened:
            opened.log(Rollout(step=1, group="g", index=0, reward=reward, messages=conversation()))
    assert export("pairs", code=1) == []


def test_a_task_of_two_datasets_is_two_pairs(export: Any) -> None:
    record(
        *(
            Rollout(step=1, task=7, dataset=dataset, environment=environment, index=n, reward=n,
                    messages=conversation(f"answer {n}", ask=f"{dataset} {environment}?"))
            for n in range(2)
            for dataset in ("math", "code", None)
            for environment in ("easy", "hard")
        )
    )  # fmt: skip
    pairs = export("pairs")
    assert sorted(pair["prompt"][-1]["content"] for pair in pairs) == [
        "None easy?", "None hard?", "code easy?", "code hard?", "math easy?", "math hard?",
    ]  # fmt: skip
    assert all(pair["chosen"][-1]["content"] == "answer 1" for pair in pairs)


def test_labels_and_flags_travel_with_every_line(export: Any, own_store: Path) -> None:
    with rollscope.init(project="p", run="r") as run:
        run.log(Rollout(key="a", messages=conversation()))
        run.annotate(key="a", **{"label.odd one": True, "flag.loop": 1})
    (line,) = export("jsonl")
    assert (line["meta"]["labels"], line["meta"]["flags"]) == (["odd one"], ["loop"])


def test_atif_comes_back(export: Any, tmp_path: Path) -> None:
    record(Rollout(key="a", task="t", messages=conversation(), reward=0.5))
    export("atif")
    path = tmp_path / "back.jsonl"
    (tmp_path / "out-atif").rename(path)
    (back,) = read(path)
    assert isinstance(back, Rollout)
    assert (back.task, back.reward) == ("t", 0.5)
    assert [m.role for m in back.messages] == [m.role for m in conversation()]
    assert back.messages[2].tool_calls[0].arguments == {"a": 2, "b": 2}
    assert list(back.messages[2].tokens.ids) == [1, 2]  # type: ignore[union-attr]


def test_parquet_is_the_five_tables_of_the_selection(tmp_path: Path, own_store: Path) -> None:
    with rollscope.init(project="p", run="r") as run:
        for step in range(3):
            run.log(
                Rollout(
                    key=f"k{step}", step=step, messages=conversation(), reward=float(step),
                    spans=[Span(name="f", id="s", inputs={"x": step})],
                )
            )  # fmt: skip
        run.annotate(key="k1", **{"label.good": True})
        run.metrics(1, {"loss": 0.5})
    out = tmp_path / "p"
    assert main(["export", "parquet", "step:1..2", "--out", str(out)]) == 0
    tables = {
        name: polars.read_parquet(out / name / "*.parquet")
        for name in ("rollouts", "messages", "spans", "facts", "metrics")
    }
    sizes = {name: len(table) for name, table in tables.items()}
    assert sizes == {"rollouts": 2, "messages": 10, "spans": 2, "facts": 1, "metrics": 1}
    assert tables["rollouts"]["reward"].to_list() == [1.0, 2.0]
    assert tables["rollouts"]["labels"].to_list() == [["good"], []]


def test_redacted_parquet_differs_only_where_something_was_found(
    tmp_path: Path, own_store: Path
) -> None:
    with rollscope.init(project="p", run="r") as run:
        run.log(
            Rollout(
                key="k", step=1, group="g", reward=1.0, rewards={"a": 1.0}, fate="trained",
                messages=conversation("Ask bob@example.com."), meta={"n": [1, 2, 3], "x": None},
                spans=[Span(name="f", id="s", inputs={"x": 1}, start=1.0)], sampling={"top_p": 1.0},
            )
        )  # fmt: skip
        run.annotate(key="k", advantage=0.25, **{"label.good": True})
        run.metrics(1, {"loss": 0.5})
    plain, clean = tmp_path / "plain", tmp_path / "clean"
    assert main(["export", "parquet", "--out", str(plain)]) == 0
    assert main(["export", "parquet", "--redact", "emails", "--out", str(clean)]) == 0
    for table in ("rollouts", "messages", "spans", "facts", "metrics"):
        (was, now) = (
            polars.read_parquet(folder / table / "*.parquet") for folder in (plain, clean)
        )
        assert was.columns == now.columns
        for name in was.columns:
            if (table, name) in (("rollouts", "preview"), ("messages", "text")):
                assert "[email]" in str(now[name].to_list())
            elif name != "folded":
                assert was[name].to_list() == now[name].to_list(), (table, name)


def test_an_export_says_what_is_wrong_and_what_to_type(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], own_store: Path
) -> None:
    record(Rollout(key="a", messages=conversation()))
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").touch()
    for words, said in (
        (["nonsense"], "Or write a file: jsonl, sft, pairs, atif, parquet, hf, scout"),
        (["hf"], "--out FOLDER"),
        (["hf", "--out", str(full)], "remove it or name another"),
        (["jsonl", "--out", str(tmp_path / "no" / "x")], f"there is no folder {tmp_path / 'no'}"),
        (["jsonl", "--redact", "regex=("], "is not a regular expression"),
        (["jsonl", "--redact", "mails"], "'mails' is not known"),
        (["jsonl:x=1", "--out", str(tmp_path / "x")], "takes no options, but got 'x=1'"),
    ):
        assert main(["export", *words]) == 2
        assert said in capfd.readouterr().err


def test_numbers_that_are_none_stay_what_they_are_in_tables(tmp_path: Path) -> None:
    odd = Message(
        role="assistant",
        content="x",
        sampled=True,
        tokens=Tokens([1, 2, 3], logprob=[-0.5, math.nan, None]),
    )
    record(
        Rollout(key="a", step=1, reward=math.nan, messages=[odd]),
        Rollout(key="b", step=2, reward=-math.inf, rewards={"x": math.inf}, messages=[]),
        Rollout(key="c", step=3, messages=[Message(role="user")]),
    )
    for name, files in (("hf", "data/*.parquet"), ("scout", "*.parquet")):
        out = tmp_path / name
        assert main(["export", name, "--out", str(out)]) == 0
        table = polars.read_parquet(out / files).sort("step")
        first, second, third = table["reward"].to_list()
        assert math.isnan(first)
        assert (second, third) == (-math.inf, None)
        if name == "hf":
            logprobs = table["messages"].to_list()[0][0]["logprob"]
            assert (logprobs[0], logprobs[2]) == (-0.5, None)
            assert math.isnan(logprobs[1])
        else:
            assert table["score"].to_list() == [None, None, None]


def test_an_export_of_nothing_is_empty_and_says_so(tmp_path: Path, own_store: Path) -> None:
    record(Rollout(key="a", messages=conversation()))
    for name in ("jsonl", "hf", "scout", "parquet"):
        assert main(["export", name, "step:99", "--out", str(tmp_path / name)]) == 1
        assert (tmp_path / name).exists()


def test_what_checks_found_goes_into_parquet_too(export: Any, own_store: Path) -> None:
    import duckdb

    from rollscope.checks import scan

    with rollscope.init(project="p", run="r") as run:
        loop = [Message(role="assistant", content="mail a@b.example " * 5000)]
        run.log([Rollout(id="loops", messages=loop), Rollout(id="fine")])
    scan(rollscope.open())
    for words in ((), ("--redact", "emails")):
        out = own_store.parent / f"out{len(words)}"
        assert main(["export", "parquet", "id:loops", "--out", str(out), *words]) == 0
        found = duckdb.sql(f"SELECT rollout, \"check\" FROM '{out}/findings/*.parquet'").fetchall()
        assert ("loops", "reply.loop") in found
        checked = duckdb.sql(f"SELECT DISTINCT rollout FROM '{out}/checked/*.parquet'").fetchall()
        assert checked == [("loops",)]
        starts = duckdb.sql(f"SELECT start FROM '{out}/findings/*.parquet'").fetchall()
        assert all(start is None for (start,) in starts) is bool(words)
