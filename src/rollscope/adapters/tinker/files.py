"""What tinker-cookbook writes to `log_path`: the metric log, `metrics.jsonl`, and below
`iteration_NNNNNN/`:

| file | holds |
|---|---|
| `*_rollout_summaries.jsonl` | a line for each rollout: rewards, lengths, logs; the text of each \
step if the trainer's `RolloutTrace` is on (`steps[].trace`) |
| `capture.sqlite` | what its own `capture/` has kept: see `captured` |
| `*_logtree.json` | the report of the first groups: text, and rewards rounded for display |

A report does not say which trajectory a text belongs to. So its rollouts are never joined with
the summaries: they are read only where there is no summary, and marked as unmatched.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...model import Message, Rollout, prompt_task
from ...model.chat import from_chat
from ...model.problem import Problem
from .._lines import first_record, numbers, records
from . import captured
from .convert import REFERENCES

_ITERATION = re.compile(r"iteration_(\d+)")
_SUMMARIES = "_rollout_summaries.jsonl"
_LOGTREE = "_logtree.json"


def recognise(path: str | Path) -> bool:
    """Is this a file of summaries, a report, or a directory that holds some?"""
    with contextlib.suppress(Exception):
        if captured.database(Path(path)) is not None:
            return True
        files = _files(Path(path))
        if not files:
            return False
        if files[0].name.endswith(_LOGTREE) or files[0].suffix == ".json":
            report = json.loads(files[0].read_bytes())
            return isinstance(report.get("root"), dict) and "started_at" in report
        first = first_record(files[0])
        return {"group_idx", "traj_idx", "steps", "total_reward"} <= first.keys()
    return False


def read(path: str | Path) -> Iterator[Rollout | Problem]:
    """The rollouts in the file or below the directory, in order of iteration."""
    database = captured.database(Path(path))
    if database is not None:
        yield from captured.read(database)
    for file in _files(Path(path)):
        try:
            if file.suffix == ".json":
                yield from _report(file)
            else:
                for record in records(file):
                    yield record if isinstance(record, Problem) else _summary(record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            yield Problem(file, None, f"not as tinker-cookbook writes it: {error!r}")


def read_metrics(path: str | Path) -> Iterator[tuple[int | None, dict[str, float]]]:
    """The metric log of a `log_path`, as (step, values)."""
    yield from numbers(Path(path) / "metrics.jsonl")


def files(folder: Path) -> list[Path]:
    """The files of a `log_path` that are read, all together."""
    database = captured.database(folder)
    own = [] if database is None else [database]
    return [*own, *_files(folder), *_below(folder, _LOGTREE)]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [] if path.name == captured.NAME else [path]
    summaries = _below(path, _SUMMARIES)
    told = {str(f).removesuffix(_SUMMARIES) for f in summaries}
    reports = [f for f in _below(path, _LOGTREE) if str(f).removesuffix(_LOGTREE) not in told]
    return sorted([*summaries, *reports])


def _below(path: Path, ending: str) -> list[Path]:
    """Files of a `log_path`, or of one of its iterations."""
    return sorted([*path.glob(f"*{ending}"), *path.glob(f"iteration_*/*{ending}")])


# -- summaries -------------------------------------------------------------------------


def _summary(record: Mapping[str, Any]) -> Rollout:
    steps = record.get("steps") or []
    split, _, label = str(record.get("split") or "train").partition("/")
    tags = record.get("tags") or []
    iteration, group, index = (record.get(k) for k in ("iteration", "group_idx", "traj_idx"))
    place = f"{record.get('split')}/{iteration}/{group}"
    stop = record.get("stop_reason") or (steps[-1].get("stop_reason") if steps else None)
    stop = stop or next((s for step in steps[-1:] for s in _stops(step)), None)
    rollout = Rollout(
        key=f"{place}/{index}",
        step=iteration,
        split=split,
        dataset=label or (tags[0] if tags else None),
        group=place,
        index=index,
        policy_version=record.get("sampling_client_step"),
        reward=record.get("total_reward"),
        stop_reason=stop,
        fate="scored",
        meta={
            k: v
            for k, v in record.items()
            if k in ("tags", "final_reward", "trajectory_metrics", "final_ob_len") and v
        },
    )
    for step in steps:
        trace = step.get("trace") or {}
        _add_prompt(rollout, _conversation(trace.get("prompt")))
        _add_response(rollout, step, trace)
        _add_rewards(rollout, trace)
    prompt = "".join(str(m.content) for m in rollout.messages[: _first_answer(rollout)])
    rollout.task = prompt_task(prompt) if prompt else None
    return rollout


def _stops(step: Mapping[str, Any]) -> list[str]:
    return [k[5:] for k in step.get("metrics") or {} if k.startswith("stop/")]


def _first_answer(rollout: Rollout) -> int:
    return next((i for i, m in enumerate(rollout.messages) if m.sampled), 0)


def _conversation(data: Any) -> list[Mapping[str, Any]]:
    """The messages of a formatter's data, or a bare list of messages."""
    found = data.get("messages") if isinstance(data, Mapping) else data
    return [m for m in found or () if isinstance(m, Mapping)]


def _add_prompt(rollout: Rollout, prompt: list[Mapping[str, Any]]) -> None:
    """Add what this step's prompt adds. Traces repeat the whole history in each step.

    One that does not repeat it begins a branch.
    """
    known = [(m.role, m.content) for m in rollout.messages]
    given = [from_chat(m) for m in prompt]
    says = [(m.role, m.content) for m in given]
    new = given[len(known) :] if says[: len(known)] == known else given
    if known and new is given and given:
        given[0].parent = -1
    for message in new:
        message.sampled = False
    rollout.messages += new


def _add_response(rollout: Rollout, step: Mapping[str, Any], trace: Mapping[str, Any]) -> None:
    said = _conversation(trace.get("policy_response"))
    message = from_chat(said[0]) if said else Message(role="assistant")
    message.sampled = True
    message.reward = step.get("reward")
    message.stop_reason = step.get("stop_reason")
    message.state = trace.get("env_state") or step.get("logs") or None
    kept = {k: step.get(k) for k in ("metrics", "ob_len", "ac_len")}
    kept |= {k: trace.get(k) for k in ("reward_data", "extra")}
    if trace.get("env_state"):
        kept["logs"] = step.get("logs")
    message.meta |= {k: v for k, v in kept.items() if v not in (None, {})}
    rollout.messages.append(message)


def _add_rewards(rollout: Rollout, trace: Mapping[str, Any]) -> None:
    """Parts of the reward as numbers; the traces write some of them as texts, and beside them the
    answer that was wanted."""
    for name, value in (trace.get("reward_data") or {}).items():
        number = _number(value)
        if name in REFERENCES:
            rollout.reference = value
        elif number is not None and name not in ("reward", "total_reward", "format_coef"):
            rollout.rewards[name] = number
    for i, grade in enumerate((trace.get("extra") or {}).get("rubric_grades") or (), 1):
        score = _number(grade.get("score"))
        if score is not None:
            rollout.rewards[f"rubric {i}"] = score
        text = grade.get("grader_response") or grade.get("grader_text") or grade.get("response")
        if text:
            rollout.reward_texts[f"rubric {i}"] = str(text)
        rollout.meta.setdefault("criteria", {})[f"rubric {i}"] = grade.get("criterion")


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, str) and value in ("", "nan") else float(value)
    except (TypeError, ValueError):
        return {"True": 1.0, "False": 0.0}.get(value) if isinstance(value, str) else None


# -- the report ------------------------------------------------------------------------


def _report(file: Path) -> Iterator[Rollout]:
    report = json.loads(file.read_bytes())
    name = file.name.removesuffix(_LOGTREE).removesuffix(".json")
    found = _ITERATION.search(str(file)) or re.search(r"(\d+)\s*$", str(report.get("title") or ""))
    step = int(found.group(1)) if found else None
    groups = [body for title, body in _sections(report["root"]) if title == "Group Rollout"]
    for g, group in enumerate(groups):
        for n, (prompt, answer, table) in enumerate(_attempts(group)):
            place = f"{name}/{step}/{g}"
            given = [from_chat(m) for m in prompt]
            said = [from_chat(m) for m in answer]
            for message in (*given, *said):
                message.sampled = message in said
            rollout = Rollout(
                key=f"{place}/report/{n}",
                step=step,
                split="eval" if name.startswith("eval") else "train",
                group=place,
                task=prompt_task("".join(str(m.content) for m in given)) if given else None,
                messages=[*given, *said],
                reward=_number(next((table[k] for k in _TOTALS if k in table), None)),
                reference=table.get("reference_answer"),
                meta={"unmatched": "a report does not say which trajectory this is", **table},
            )
            rollout.rewards = {
                k: v
                for k in ("correct", "format_valid")
                if (v := _number(table.get(k))) is not None
            }
            yield rollout


_TOTALS = ("total_reward", "reward")


class Attempt(NamedTuple):
    prompt: list[Mapping[str, Any]]
    answer: list[Mapping[str, Any]]
    table: dict[str, str]


def _attempts(group: Mapping[str, Any]) -> Iterator[Attempt]:
    """Prompt, answer and table of each attempt: sections that follow one another.

    If two prompts follow one another, attempts ran at the same time. Then nobody can tell which
    answer belongs to which, and they are left out.
    """
    prompt: list[Mapping[str, Any]] | None = None
    found: Attempt | None = None
    for title, body in _sections(group):
        is_answer = title == "Policy Response" or title.startswith("Completion ")
        if title == "Prompt" or (is_answer and prompt is not None):
            if found is not None:
                yield found
            found = None
        if title == "Prompt":
            prompt = _said(body)
        elif is_answer and prompt is not None:
            found = Attempt(prompt, _said(body), {})
            prompt = prompt if title.startswith("Completion ") else None
        elif found is not None and title in ("Reward", "Reward Terms"):
            found.table.update(_table(body))
    if found is not None:
        yield found


def _sections(node: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The sections directly below a node, with their titles."""
    for child in node.get("children") or () if isinstance(node, Mapping) else ():
        if not isinstance(child, Mapping):
            continue
        if child.get("tag") == "section":
            titles = [c for c in child["children"] if re.fullmatch(r"h\d", str(c.get("tag")))]
            yield "".join(map(str, titles[0]["children"])) if titles else "", child
        else:
            yield from _sections(child)


def _said(node: Any) -> list[Mapping[str, Any]]:
    """The messages of the first conversation below a node."""
    if not isinstance(node, Mapping):
        return []
    if (node.get("data") or {}).get("type") == "conversation":
        return _conversation(node["data"])
    return next((found for c in node.get("children") or () if (found := _said(c))), [])


def _table(node: Any) -> dict[str, str]:
    """The rows of the tables below a node, as key and value."""
    if not isinstance(node, Mapping):
        return {}
    children: list[Any] = node.get("children") or []
    if node.get("tag") == "tr":
        cells = ["".join(map(str, c.get("children") or ())) for c in children]
        is_row = len(cells) == 2 and children[0].get("tag") == "td"
        return {cells[0]: cells[1]} if is_row else {}
    return {k: v for child in children for k, v in _table(child).items()}
