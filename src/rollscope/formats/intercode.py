"""InterCode's results: an agent that types commands, and what the shell or database answered.

Read from the source of princeton-nlp/intercode, commit c3e46d8: `experiments/eval_n_turn.py`,
`eval_react.py`, `eval_plan_solve.py`, `eval_ctf.py` (an object of episodes by their number, or the
same in `logs`), and `intercode/envs/ic_env.py` (`save_trajectory`: one episode a file).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..adapters._lines import TORN
from ..model import Error, Message, Part, Rollout
from ..model.problem import Problem
from . import _files

_USED = {"environment", "dataset", "task_id", "query_idx", "query", "gold", "reward",
         "turn_history", "trajectory"}  # fmt: skip
_TURNS = ("actions", "observations", "rewards", "valid_action", "steps", "thoughts")
_BLOCKED = "blocked"
"""Written in the place of an action if the policy gave none; no observation follows."""


def recognise(path: Path) -> bool:
    body = _files.first_object(path, ".json")
    inner = body["logs"] if _has_logs(body) else body
    return _is_episode(body) or _is_episode(next(iter(inner.values()), None))


def read(path: Path) -> Iterator[Rollout | Problem]:
    try:
        first = _files.first(path)
        if _is_episode(first):
            entries: Iterator[Any] = iter([(None, _files.whole(path))])
        else:
            entries = _files.entries(path, ["logs"] if _has_logs(first) else [])
        for name, body in entries:
            try:
                yield convert(body, _files.label(path))
            except _files.ODD as error:
                yield Problem(path, None, f"episode {name} is not InterCode's: {error!r}")
    except (ValueError, *TORN) as error:
        yield Problem(path, None, f"cannot be read further: {error}")


def convert(body: Mapping[str, Any], label: str) -> Rollout:
    """One episode. `label` tells its file from others: each is of another model or setting."""
    task = body.get("task_id", body.get("query_idx"))
    history = body.get("turn_history")
    messages = [Message(role="user", content=body["query"], sampled=False)]
    if history is None:
        for turn in body["trajectory"]:
            messages += _turn(turn["action"], turn.get("observation"))
    else:
        messages += _turns(history)
    summary = body.get("summary") or {}
    blocked = history is not None and _BLOCKED in history["actions"][-1:]
    return Rollout(
        messages=messages,
        task=task,
        group=f"{label}/{task}",
        dataset=body.get("dataset"),
        environment=body.get("environment"),
        reward=_files.number(summary.get("max_reward", body.get("reward"))),
        reference=body.get("gold"),
        error=Error(type=_BLOCKED, text="the policy gave no action") if blocked else None,
        meta={
            **{k: v for k, v in body.items() if k not in _USED and v is not None},
            **_unpaired(history or {}),
        },
    )


def _turns(history: Mapping[str, Any]) -> Iterator[Message]:
    """Each action and its observation: the lists begin together, and the later ones may end
    earlier."""
    actions, observations = history["actions"], history["observations"]
    if not len(observations) <= len(actions) <= len(observations) + 1:
        raise ValueError(f"{len(actions)} actions and {len(observations)} observations")
    columns = {name: history.get(name) or [] for name in _TURNS}
    for number, action in enumerate(actions):
        own = {name: values[number] for name, values in columns.items() if number < len(values)}
        yield from _turn(
            action,
            own.get("observations"),
            reward=own.get("rewards"),
            thought=own.get("thoughts"),
            meta={k: own[k] for k in ("valid_action", "steps") if own.get(k) is not None},
        )


def _turn(
    action: str,
    observation: Any,
    *,
    reward: float | None = None,
    thought: str | None = None,
    meta: Mapping[str, Any] | None = None,
) -> list[Message]:
    parts = [Part(type="reasoning", text=thought), Part(type="text", text=action)]
    said = Message(
        role="assistant",
        content=parts if thought else action,
        sampled=action != _BLOCKED,
        reward=_files.number(reward),
        meta=dict(meta or {}),
    )
    answered = observation is not None
    return [said, Message(role="tool", content=str(observation))] if answered else [said]


def _unpaired(history: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of a turn's history that nobody knows."""
    rest = {k: v for k, v in history.items() if k not in _TURNS and v}
    return {"turn_history": rest} if rest else {}


def _has_logs(body: Any) -> bool:
    return isinstance(body, dict) and "meta" in body and isinstance(body.get("logs"), dict)


def _is_episode(body: Any) -> bool:
    if not isinstance(body, dict) or not {"environment", "query"} <= body.keys():
        return False
    return isinstance(body.get("turn_history"), dict) or isinstance(body.get("trajectory"), list)
