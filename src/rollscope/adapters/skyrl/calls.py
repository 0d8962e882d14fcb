"""Which rollout a row of SkyRL is: what `generate` has made, until it is known what became of it.

A row carries no id in SkyRL's default mode. We know it by its list object, which SkyRL passes on
through filtering and concatenation. A generator may use one list for several rows; then group and
prompt tell them apart. Where rows are copied (merged turns, replaced samples), we know them by
trajectory id and tokens. If nothing finds a row, it is counted and left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .convert import Trajectory


class GenerateCall:
    """One `generate` call of training, until it is known what became of all its rollouts."""

    def __init__(self, given: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        self.responses = list(made["response_ids"])  # keeps the objects, and so their ids, alive
        self.prompts = list(made["prompt_token_ids"])
        self.uids = _uids(given, made)
        self.found: list[Trajectory] = []
        self.of_row: dict[int, Trajectory] = {}
        self.open: set[int] = set()
        """Ids of the trajectories in `found` whose end is not known yet."""
        self.age = 0
        """How many batches were trained on since it was made."""

    def hold(self, found: list[Trajectory]) -> None:
        self.found = found
        self.of_row = {row: trajectory for trajectory in found for row in trajectory.rows}
        self.open = {id(trajectory) for trajectory in found}


class MadeRow(NamedTuple):
    """A row as `generate` made it: its call, and its number there."""

    call: GenerateCall
    number: int


class TrainedRow(NamedTuple):
    made: MadeRow | None
    uid: str
    tid: Any
    prompt: list[int]
    response: list[int]
    mask: list[int]


class MadeRows:
    """All calls whose end is not known. Rows are asked for in the trainer's thread, and let go in
    ours."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[GenerateCall] = []
        self._rows: dict[int, list[MadeRow]] = {}

    def add(self, given: Mapping[str, Any], made: Mapping[str, Any]) -> GenerateCall:
        call = GenerateCall(given, made)
        with self._lock:
            self._calls.append(call)
            for number, response in enumerate(call.responses):
                self._rows.setdefault(id(response), []).append(MadeRow(call, number))
        return call

    def named(self, output: Mapping[str, Any], uids: Sequence[Any]) -> list[MadeRow | None]:
        """For each row of an output of SkyRL, the row that `generate` made."""
        taken: set[tuple[int, int]] = set()
        found = []
        with self._lock:
            for i, response in enumerate(output["response_ids"]):
                prompt = output["prompt_token_ids"][i]
                row = self._own(response, prompt, _at(uids, i), taken)
                if row is not None:
                    taken.add((id(row.call), row.number))
                found.append(row)
        return found

    def _own(self, response: Any, prompt: Any, uid: Any, taken: Any) -> MadeRow | None:
        def distance(row: MadeRow) -> tuple[bool, bool, bool]:
            call, number = row
            is_other = None not in (uid, call.uids[number]) and call.uids[number] != str(uid)
            return is_other, (id(call), number) in taken, call.prompts[number] is not prompt

        return min(self._rows.get(id(response), ()), key=distance, default=None)

    def open_calls(self) -> list[GenerateCall]:
        with self._lock:
            return list(self._calls)

    # -- in the background -------------------------------------------------------------

    def place(self, row: TrainedRow) -> tuple[Trajectory, int] | None:
        """The rollout of a trained row, and where its response begins among its tokens."""
        if row.made is not None:
            trajectory = row.made.call.of_row.get(row.made.number)
            if trajectory is None:
                return None
            begin, length = trajectory.joined.responses[trajectory.rows.index(row.made.number)]
            return (trajectory, begin) if length == len(row.response) else None
        for call in self.open_calls():
            for trajectory in call.found:
                at = _begin(trajectory, row) if _is_named(trajectory, row) else None
                if at is not None:
                    return trajectory, at
        return None

    def close(self, ended: Iterable[Trajectory]) -> None:
        """Let go of rollouts whose end is known, and of calls without any rollouts left."""
        ids = {id(trajectory) for trajectory in ended}
        calls = self.open_calls()
        for call in calls:
            call.open -= ids
        self._let_go([call for call in calls if call.found and not call.open])

    def grow_older(self, patience: int, calls: Collection[GenerateCall]) -> int:
        """A batch was trained on, when these calls had been made. Let go of those that waited for
        their end for more than `patience` batches, and return how many rollouts these were."""
        for call in calls:
            call.age += 1
        old = [call for call in self.open_calls() if call.age > patience]
        self._let_go(old)
        return sum(len(call.open) for call in old)

    def _let_go(self, calls: Collection[GenerateCall]) -> None:
        with self._lock:
            self._calls = [call for call in self._calls if call not in calls]
            for call in calls:
                for response in call.responses:
                    rest = [r for r in self._rows.pop(id(response), ()) if r.call is not call]
                    if rest:
                        self._rows[id(response)] = rest


def _uids(given: Mapping[str, Any], made: Mapping[str, Any]) -> list[str | None]:
    """The group of each row, as far as it is told."""
    n = len(made["response_ids"])
    names = made.get("trajectory_ids") or given.get("trajectory_ids") or ()
    each, rest = divmod(n, len(names)) if names else (0, 1)
    if rest or not each:
        return [None] * n
    return [str(names[i // each].instance_id) for i in range(n)]


def _at(values: Sequence[Any], i: int) -> Any:
    return values[i] if i < len(values) else None


def _is_named(trajectory: Trajectory, row: TrainedRow) -> bool:
    rollout = trajectory.rollout
    if rollout.group is None or rollout.group.partition("#")[0].rpartition("/")[2] != row.uid:
        return False
    return row.tid is None or rollout.index == row.tid.repetition_id


def _begin(trajectory: Trajectory, row: TrainedRow) -> int | None:
    """Where exactly these tokens lie, at the beginning of a response of the rollout."""
    ids = [i for m in trajectory.rollout.messages if m.tokens is not None for i in m.tokens.ids]
    for begin, _ in trajectory.joined.responses:
        if ids[begin : begin + len(row.response)] == row.response:
            return begin
    return None
