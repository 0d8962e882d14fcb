"""Files of other programs, written by these programs themselves, are imported as they are.

Runs in `.venv-readers`, beside what opens our exports: `test_readers.py`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Rollscope = Callable[..., str]


def imported(rollscope: Rollscope, path: Path, store: Path) -> list[dict[str, Any]]:
    """Every rollout, whole, as `rollscope export jsonl` tells it."""
    rollscope("import", str(path), "--dir", str(store))
    lines = rollscope("export", "jsonl", "--order", "task,index", "--dir", str(store)).splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("kind", ["eval", "json"])
def test_a_log_of_inspect(kind: Any, rollscope: Rollscope, tmp_path: Path) -> None:
    """The model is left out: it would fetch a tokenizer. Log, samples, scores and epochs are
    Inspect's own."""
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageAssistant, get_model
    from inspect_ai.scorer import Score, Target, accuracy, includes, scorer
    from inspect_ai.solver import Generate, Solver, TaskState, solver

    @solver
    def answers() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            said = "4" if state.epoch == 1 else "five"
            state.messages.append(ChatMessageAssistant(content=said * (1 + 500 * state.epoch)))
            state.output.completion = said
            return state

        return solve

    @scorer(metrics=[accuracy()])
    def length() -> Any:
        async def score(state: TaskState, target: Target) -> Score:
            return Score(value=len(state.output.completion), explanation="counted")

        return score

    task = Task(
        dataset=[Sample(input=f"{n} + 1?", target="4", id=f"q{n}") for n in range(2)],
        solver=[answers()],
        scorer=[includes(), length()],
        epochs=2,
        name="sums",
    )
    logs = tmp_path / "logs"
    evaluate(
        task, model=get_model("mockllm/model"), log_dir=str(logs), log_format=kind, display="none"
    )
    (log,) = logs.iterdir()
    if kind == "eval":
        with zipfile.ZipFile(log) as members:
            methods = {m.compress_type for m in members.infolist()}
        assert 93 in methods, "Zstandard, which Python reads by itself from 3.14 on"
    found = imported(rollscope, logs, tmp_path / "store")
    assert [(r["task"], r["index"], r["reward"]) for r in found] == [
        ("q0", 1, 1.0), ("q0", 2, 0.0), ("q1", 1, 1.0), ("q1", 2, 0.0),
    ]  # fmt: skip
    assert found[1]["rewards"] == {"includes": 0.0, "length": 4.0}
    assert found[1]["reward_texts"]["length"] == "counted"
    assert [m["role"] for m in found[0]["messages"]] == ["user", "assistant"]
    assert found[0]["messages"][1]["content"] == "4" * 501, "no reference to an attachment"
    assert found[0]["group"] == found[1]["group"] != found[2]["group"]


def test_the_page_of_atropos(rollscope: Rollscope, tmp_path: Path) -> None:
    from atroposlib.frontend.jsonl2html import generate_html

    def chat(ask: str, answer: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]

    hard = "<think>\nhm & so\n</think>\n\n```\nif a < b:\n    print('<b>')\n```\n\n**Bold** `x`"
    both = [chat("Which?", hard), chat("Which?", "<script>x</script>")]
    marked = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
    groups = [{"messages": both, "scores": [1.0, -0.5]}, {"messages": [marked], "scores": [0]}]
    lines = tmp_path / "groups.jsonl"
    lines.write_text("".join(json.dumps(group) + "\n" for group in groups))
    page = tmp_path / "page" / "groups.html"
    generate_html(str(lines), str(page))
    found = imported(rollscope, page.parent, tmp_path / "store")
    told = {(r["group"].rpartition("/")[2], r["index"]): r for r in found}
    assert {place: r["reward"] for place, r in told.items()} == {
        ("0", 0): 1.0, ("0", 1): -0.5, ("1", 0): 0.0,
    }  # fmt: skip
    asked, answered = told["0", 0]["messages"]
    assert (asked["role"], asked["content"]) == ("user", "Which?")
    assert answered["content"] == hard
    assert told["0", 1]["messages"][1]["content"] == "<script>x</script>"
    assert [m["role"] for m in told["1", 0]["messages"]] == ["user", "assistant"]
