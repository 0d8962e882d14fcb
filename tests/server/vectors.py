"""Writes vectors.json: rollouts, questions about them, and what Python answers.

A bundle has no server, so its page has a copy of the query language, of sorting and of counting.
`vectors.test.ts` asks that copy the same questions. A test of Python's says when the file is stale.
"""

from __future__ import annotations

import json
import math
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

import rollscope
from rollscope.model import Error, Message, Part, Rollout, Tokens, ToolCall
from rollscope.model.solved import KINDS
from rollscope.query import QueryError, Store
from rollscope.query.keys import ALIASES, KEYS
from rollscope.query.match import searched
from rollscope.server import params as p
from rollscope.server import reading, selecting
from rollscope.server.bundle import COLUMNS, BundledRow, bundled
from rollscope.server.desk import Desk

PATH = Path(__file__).parents[2] / "viewer" / "test" / "vectors.json"

# -- the rollouts --------------------------------------------------------------------------

TASKS = ["q-1", "q-2", "Q-1", "ä", "Z", "𝔘", "\ufb01", 'say "hi" \\ there', "a,b (c)", "none", "7"]
REWARDS = [0.0, 1.0, 0.5, None, math.nan, 1.0, -math.inf, 0.25, math.inf, 0.1, 0.75]
ALIKE = {1: [1.0, 1.0, 1.0], 4: [0.0, 0.0, None], 7: [1.0, 1.0, math.nan], 10: [None] * 3}
"""Rewards of some groups, by their place among twelve."""
FATES = ["trained", "dropped", "scored", "failed", None, "masked", "trained"]
REASONS = [
    None,
    "zero/variance (all 0)",
    "zero/variance (all 1.5)",
    "same",
    "tool: 30 s",
    "100% über [x]",
]
ERRORS = [
    None,
    Error(kind="tool", type="Timeout", text="after 30 s"),
    Error(text="only words\nin two lines"),
    Error(kind="limit", type="TokenLimit"),
    Error(type="KeyError", text="'x'"),
    Error(kind="environment"),
]


def messages(n: int) -> list[Message]:
    """Words in texts, in arguments of tools as JSON and as text that holds JSON, and in data."""
    code = f'print("hi {n % 3}")'
    arguments: list[Any] = [{"code": code}, json.dumps({"code": code}), "no JSON: " + code, None]
    said = [
        Message(role="user", content=f"What is {n} * 7?"),
        Message(
            role="assistant",
            content=["Let me see", None, "<think>Hmm</think> Forty-TWO", ""][n % 4],
            sampled=True,
            tool_calls=[ToolCall(name="python", arguments=arguments[n % 4])] if n % 2 else [],
            tokens=Tokens([1, 2], version=[n % 5, n % 5 + n % 2]) if n % 3 else None,
        ),
        Message(
            role="tool",
            name="python",
            content=[
                Part(type="text", text="line one\nline two"),
                Part(type="tool_result", data={"answer": ["deep", {"er": "Naïve"}]}),
            ],
        ),
    ]
    return said[: n % 4] if n % 7 else [*said, Message(role="critic")]


def rollouts() -> Iterator[Rollout]:
    """What differs between them changes at paces that share no factor, so that all combinations
    come up."""
    rng = random.Random(3)
    for n in range(84):
        step = None if n % 19 == 5 else n // 6 % 9
        task = TASKS[n % len(TASKS)] if n % 13 else None
        yield Rollout(
            id=f"r{n:02}",
            step=step,
            trained_step=step + n % 3 if step is not None and n % 4 else None,
            split=["train", "eval", "train", None][n // 12 % 4],
            dataset=["apples", "pears", None][n % len(TASKS) % 3] if n % 23 else "plums",
            environment=[None, "farm"][n // 5 % 2],
            task=task,
            group=f"g{n // 3}" if n // 3 % 3 else None,
            index=n % 3 if n % 17 else None,
            attempt=[None, 0, 1][n // 7 % 3],
            reward=same[n % 3] if (same := ALIKE.get(n // 3 % 12)) else rng.choice(REWARDS),
            rewards={"format": n % 4 / 4, "a.b": float(n % 2)} if n % 5 else {},
            advantage=[None, -1.5, 0.0, 2.0, 1e-7][n % 5],
            stop_reason=["stop", "length", None][n % 3],
            truncated=[True, False, None][n // 2 % 3],
            fate=FATES[n % len(FATES)],
            fate_reason=REASONS[n % len(REASONS)],
            error=ERRORS[n // 3 % len(ERRORS)],
            time=1_763_200_000.0 + 7_000 * n,
            start=1_000.0 + n if n % 6 else None,
            end=1_002.5 + 2 * n if n % 10 else None,
            policy_version=[None, 3, 4][n % 3],
            meta={"lang": "zh"},
            messages=messages(n),
        )


def record(directory: Path) -> None:
    """Three runs of two projects; some rollouts have labels and flags."""
    made = list(rollouts())
    runs = {("p", "one"): made[:45], ("p", "two"): made[45:69], ("other", "one"): made[69:]}
    for (project, run), mine in runs.items():
        with rollscope.init(project=project, run=run, dir=directory) as recording:
            recording.log(mine)
            for rollout in mine[::4]:
                said = {"label.good": True, "label.very good": True, "flag.loop": True}
                recording.annotate(rollout.id, **said)


# -- the questions -------------------------------------------------------------------------

NUMBERS = [
    "5", "0.5", "<1", "<=1", ">0", ">=0.5", "0..1", "..0.5", "0.5..", "-1.5", "+1", "1e-7", "inf",
    "-inf", ">-inf", "<inf", "nan", "none", "0,1", "none,>2", "1e3", "-1..1",
]  # fmt: skip
DATES = [
    "2025-11-15", ">2025-11-16", "<=2025-11-17T10:30", "2025-11-16T01:30..2025-11-18", "none",
    "2025-11-15T12:00:00Z", "2025-02-30", ">=2025-11-16,none", "1763200000", "..2025-11-16",
]  # fmt: skip
BOOLS = ["true", "false", "yes", "NO", "1", "0", "none", '"true"', "true,none"]
TEXTS = {
    "id": ["r01", "r01,r02", "/^r0/", "none"],
    "task": ["q-1", "Q-1", "q-1,Z", '"say \\"hi\\" \\\\ there"', '"a,b (c)"', '"none"', "none",
             "/^q/", "/^q/i", "/[^a-z]-\\d$/", '"a,b (c)",q-2,none', "7", "ä", "/Ä/i", "a,b"],
    "group": ["g1", "none", "/^g1/"],
    "run": ["one", "two", "one,two"],
    "split": ["train", "none", "train,none"],
    "fate": ["trained", "dropped,failed", "none"],
    "stop_reason": ["stop", "none"],
    "error_kind": ["tool", "limit,none"],
    "error_type": ["Timeout", "timeout", "none"],
    "dataset": ["apples"],
    "environment": ["farm", "none"],
    "project": ["p", "other"],
}  # fmt: skip
INSIDE = {
    "fate_reason": ["SAME", '"SAME"', "same", '"zero/variance"', "/^same$/", "/\\(all \\d\\)/",
                    "none", "100%", "/über/", "/ÜBER/i", "/^tool\\:\\ 30\\ s$/", "variance,tool"],
    "error_text": ["words", "WORDS", '"after 30"', "/words.in/", "/words\\sin/", "none"],
    "error": ["timeout", "tool", '"Tool"', "30", "/^only/", "none", "key,words"],
}  # fmt: skip
LISTS = {
    "tool": ["python", "none", "/py/", "Python"],
    "label": ["good", '"very good"', "none", "bad", "/^very/,bad"],
    "flag": ["loop", "none"],
}
WORDS = [
    "what", "WHAT", '"What"', "forty-two", '"forty-two"', "/fort[yi]/i", "/seven|42|\\* 7/",
    'text:"see"', "assistant:see", "user:see", "system:x", "role.tool:LINE", "role.critic:x",
    '"print(\\"hi"', "code", "deep", "naïve", "Naive", "role.tool:answer", "/line.one/",
    "/one.line/", "/one\\sline/", "/^What is \\d+ \\* 7\\?$/", "/no JSON/ user:what",
    "assistant:none", "has:assistant", "has:role.critic", "role.critic:none", "has:text",
    "has:system", "user:/[[]/", "/\\x{48}mm/", "/[]x]/",
]  # fmt: skip
MORE = [
    "", "  ", "rewards.format:0.5", "rewards.a.b:1", 'rewards."a.b":1', "rewards.nothing:1",
    "rewards.format:none", "has:rewards.format", "has:rewards", "has:reward", "has:tool",
    "has:error", "has:step,group", "has:version", "version:3", "version:<=2", "version:>3.5",
    "version:2..3", "version:1..0", "version:none", "version:nan", "staleness:0", "staleness:>=1",
    "staleness:none", "validate:true", "validate:false", "validate:none", "duration:>3",
    "duration:none", "superseded:false", "superseded:true", "step:3 split:train",
    "step:3 AND split:train", "step:3 OR split:train", "step:3 OR step:4 split:train",
    "(step:3 OR step:4) split:train", "-step:3", "NOT step:3", "--step:3",
    "-(step:3 OR has:reward)", "NOT NOT step:3", "-reward:>0.5", "-(reward:>0.5 step:1)",
    "step:1.5", "step:>1.5", "step:<1e1", "step:nan", "turns:1", "messages:3", "what -see",
    "(what OR deep) -step:1..3", "see OR step:0", "-what", "-(what see)", "time:>2025-11-16 what",
]  # fmt: skip
UNBUNDLED = [
    "worker:x", "key:x", "worker:none", "writer:none", "meta.lang:zh", "has:meta", "start:none",
    "end:>5", "sampling.temperature:1", "has:reference", "step:1 -meta.lang:zh",
]  # fmt: skip
WRONG = [
    "step:", "step:x", "reward:0.5.1", "truncated:maybe", "(step:1", "step:1)", "OR step:1",
    "step:1 OR", "-", "NOT", 'task:"x', "/x", "stpe:3", "reward:<", "fate:<5", "task:>x",
    'task:"x"y', "/x/y", "step:1 (", "()", "rewards:1", "role:x", "has:stpe", "has:has",
    "step:1,", "step:,1", "a ä:1 x:2", "time:yesterday", "(" * 101 + "x", "𝔘 stpe:1",
]  # fmt: skip
ORDERS = [
    "step", "-step", "reward", "-reward", "task", "-task", "time", "-time", "truncated", "-open",
    "fate_reason", "duration", "staleness", "-rewards.format", "step,-reward",
    "-step,group,task,index", "score,global_step", "validate,-index", "",
]  # fmt: skip
WRONG_ORDERS = ["tool", "meta.level", "text", "stpe", "step,version", "worker"]


def queries() -> list[str]:
    found = [*MORE, *WORDS]
    for key in KEYS.values():
        if set(key.columns) <= {*BundledRow.__struct_fields__, "start", "end"}:
            values = {"number": NUMBERS, "bool": BOOLS}.get(key.kind, ())
            found += [f"{key.name}:{value}" for value in values if not key.name.endswith(".*")]
    found += [f"time:{value}" for value in DATES]
    for named in (TEXTS, INSIDE, LISTS):
        found += [f"{key}:{value}" for key, values in named.items() for value in values]
    one = {"task": "q-1", "run": "two", "project": "other", "dataset": "pears", "group": "g1",
           "split": "eval", "environment": "farm", "stop_reason": "stop", "fate": "trained",
           "label": "good", "flag": "loop", "tool": "python"}  # fmt: skip
    found += [f"{word}:{one.get(key, '1')}" for word, key in ALIASES.items() if key != "launch"]
    rng = random.Random(7)
    simple = [q for q in found if q.strip()]
    for _ in range(60):
        a, b, c = (f"({q})" for q in rng.sample(simple, 3))
        joined = [f"{a} {b}", f"{a} OR {b}", f"-{a} {b}", f"{a} -{b} OR {c}", f"-({a} OR {b}) {c}",
                  f"{a} AND NOT {b}"]  # fmt: skip
        found.append(rng.choice(joined))
    return list(dict.fromkeys(found))


SELECTIONS = ["", "project:p", "split:train", "step:0..2", "task:none", "reward:nan", "step:99"]
TASK_ORDERS = [
    "-flips", "task", "-rollouts", "change", "-change", "-best_rate", "first_step", "kind",
]  # fmt: skip
MATRICES = [("step", "task"), ("split", "-rate"), ("reward", "-rollouts"), ("fate", "spread"),
            ("truncated", "-spread"), ("response_tokens", "-task")]  # fmt: skip


# -- the answers ---------------------------------------------------------------------------


def vectors() -> dict[str, Any]:
    """Everything that the file holds."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {"QUIET": "1", "SEAL": "off", "LAUNCH": "first"}
        with patch.dict(os.environ, {f"ROLLSCOPE_{name}": v for name, v in settings.items()}):
            record(Path(directory))
        store = Store(directory)
        try:
            desk = Desk(store, can_label=False)
            return {**about_rows(store), **about_selections(desk), **about_rollouts(desk)}
        finally:
            store.close()


def about_rows(store: Store) -> dict[str, Any]:
    rows = list(store.rollouts("", order=selecting.DEFAULT_ORDER, columns=COLUMNS))
    wholes = [store.get(row.id) for row in rows]
    said = [[[m.role, text] for m in whole.messages for text in [*searched(m)] or [None]]
            for whole in wholes]  # fmt: skip
    return {
        "rows": [bundled(row) for row in rows],
        "said": said,
        "found": [{"q": q, "ids": sorted(store.rollouts(q).ids())} for q in queries()],
        "refused": UNBUNDLED,
        "wrong": [wrong(store, q) for q in WRONG],
        "orders": [{"order": o, "ids": store.rollouts("", order=o).ids()} for o in ORDERS],
        "wrong_orders": WRONG_ORDERS,
    }


def wrong(store: Store, q: str) -> dict[str, Any]:
    try:
        store.rollouts(q)
    except QueryError as error:
        return {"q": q, "error": error.what, "start": error.start, "end": error.end}
    raise AssertionError(f"not wrong: {q}")


def about_selections(desk: Desk) -> dict[str, Any]:
    def asked(answerer: Callable[..., Any], *asks: Any) -> list[dict[str, Any]]:
        return [
            {**msgspec.to_builtins(ask), "answer": msgspec.to_builtins(answerer(desk, ask))}
            for ask in asks
        ]

    orders = asked(selecting.tasks, *(p.TasksOf(order=order) for order in TASK_ORDERS))
    tasks = asked(selecting.tasks, *(p.TasksOf(q=q) for q in SELECTIONS))
    tasks += asked(selecting.tasks, *(p.TasksOf(kind=kind) for kind in KINDS))
    for asking in tasks:
        for task in asking["answer"]["tasks"]:
            del task["preview"]  # that of any rollout
    crossed = [p.MatrixOf(q=q) for q in SELECTIONS]
    crossed += [p.MatrixOf(across=key, order=order) for key, order in MATRICES]
    pair = {"base": "run:one project:p", "other": "run:two project:p"}
    crossed += [p.MatrixOf(across="run", order=f"{way}difference", **pair) for way in ("", "-")]
    failures = asked(selecting.failures, *(p.SelectionOf(q=q) for q in SELECTIONS))
    for asking in failures:
        for failure in asking["answer"]["failures"]:
            failure["example"] = failure["example"]["id"]
    histories = [p.HistoryOf(task="q-1"), p.HistoryOf(task="q-1", dataset="pears", q="step:>1")]
    history = asked(selecting.history, *histories)
    for asking in history:
        asking["answer"] = [row["id"] for row in asking["answer"]["rows"]]
    histograms = [p.HistogramsOf(q=q, bins=bins) for q in SELECTIONS for bins in (40, 3)]
    completed = [("fate", ""), ("task", "Q"), ("tool", ""), ("step", ""), ("label", "ve")]
    return {
        "facets": asked(selecting.facets, *(p.FacetsOf(q=q, limit=5) for q in SELECTIONS)),
        "histograms": asked(selecting.histograms, *histograms),
        "ribbon": asked(selecting.ribbon, *(p.RibbonOf(q=q) for q in SELECTIONS)),
        "tasks": tasks,
        "task_orders": [
            {
                "order": asking["order"],
                "names": [[task["dataset"], task["task"]] for task in asking["answer"]["tasks"]],
            }
            for asking in orders
        ],
        "matrix": asked(selecting.matrix, *crossed),
        "history": history,
        "funnel": asked(selecting.funnel, *(p.SelectionOf(q=q) for q in SELECTIONS)),
        "failures": failures,
        "start": asked(selecting.start, *(p.SelectionOf(q=q) for q in SELECTIONS)),
        "values": asked(selecting.values, *(p.ValuesOf(key=k, prefix=b) for k, b in completed)),
    }


def about_rollouts(desk: Desk) -> dict[str, Any]:
    near = []
    for id in desk.store.rollouts("", order="id").ids():
        found = msgspec.to_builtins(reading.neighbours(desk, p.Nothing(), id))
        near.append({**found, "id": id, "siblings": [row["id"] for row in found["siblings"]]})
    return {"runs": selecting.runs(desk, p.Nothing()).runs, "neighbours": near}


def text() -> str:
    """The file: one answer a line, so that a change of it can be read."""
    parts = []
    for name, answers in vectors().items():
        lines = (json.dumps(_rounded(msgspec.to_builtins(a)), ensure_ascii=False) for a in answers)
        parts.append(f"{json.dumps(name)}: [\n" + ",\n".join(lines) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _rounded(value: Any) -> Any:
    """A mean's last digits depend on the order in which the engine's threads add."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return round(value, 12) if isinstance(value, float) else value


if __name__ == "__main__":
    PATH.write_text(text())
