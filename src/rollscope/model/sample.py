"""Which rollouts are kept if there is a cap.

The choice is a hash of (seed, step, task): the same on every worker without talking, the
same when the run is repeated, and the same for all rollouts of a task, so groups stay whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence

import msgspec

from .grouping import name_of
from .known import known
from .records import Rollout


@known
class Sample(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Caps on what is recorded, per step and split. None is all, 0 is none.

    >>> Sample(groups_per_step=4)           # four groups a step, with all their rollouts
    Sample(groups_per_step=4, rollouts_per_step=None, fraction=None, seed=0)

    A fraction is exact everywhere. A count is exact if a whole step is logged at once (the lowest
    hashes win), even by several workers, if they know each other's groups. If rollouts come one by
    one, each worker counts for itself. Groups stay whole, even if the count of rollouts is then not
    exact. Failed rollouts of a batch are kept in addition, unless a cap is 0.
    """

    groups_per_step: int | None = None
    rollouts_per_step: int | None = None
    fraction: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("groups_per_step", "rollouts_per_step"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or int(value) != value or value < 0):
                raise ValueError(
                    f"Sample({name}={value!r}): expected a whole number from 0, or None"
                )
        if self.fraction is not None and not 0 <= self.fraction <= 1:
            raise ValueError(f"Sample(fraction={self.fraction!r}): expected 0 to 1, or None")

    @classmethod
    def parse(cls, text: str) -> Sample:
        """From `name=value,...`, as the environment has it."""
        items = [item.partition("=") for item in text.split(",")]
        fields = {name.strip(): value.strip() for name, _, value in items}
        try:
            return msgspec.convert(fields, cls, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error

    @property
    def counts(self) -> bool:
        """Is a count capped? Then the choice needs the whole step."""
        return self.groups_per_step is not None or self.rollouts_per_step is not None

    def has_room(self, number: float, groups: int, rollouts: int) -> bool:
        """May one more group come, for which `number` was drawn, after so many?"""
        return (
            (self.fraction is None or number < self.fraction)
            and (self.groups_per_step is None or groups < self.groups_per_step)
            and (self.rollouts_per_step is None or rollouts < self.rollouts_per_step)
        )

    def __str__(self) -> str:
        return ",".join(
            f"{name}={getattr(self, name)}"
            for name in self.__struct_fields__
            if getattr(self, name) is not None
        )


def draw(seed: int, step: int | None, task: str) -> float:
    """A number from 0 to 1 (exclusive) that every process draws alike."""
    data = f"{seed}\0{step}\0{task}".encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") / 2**64


def is_failed(rollout: Rollout) -> bool:
    return rollout.fate == "failed" or rollout.error is not None


_Slot = tuple[int | None, str | None]  # step, split
_REMEMBERED = 64  # (step, split) pairs whose chosen groups are kept in mind


class Sampler:
    """Applies a `Sample` to what one process logs, and remembers the groups it chose."""

    def __init__(self, sample: Sample) -> None:
        self.sample = sample
        self._chosen: dict[_Slot, dict[Hashable, bool]] = {}
        self._kept: dict[_Slot, int] = {}

    def keep(
        self,
        rollouts: Sequence[Rollout],
        *,
        is_batch: bool,
        groups: Mapping[str, int] | None = None,
    ) -> list[bool]:
        """Which of these to keep.

        `groups` are all groups of a batch that several processes log together, with their
        sizes: each process then counts them all, in the same order, and so chooses alike.
        """
        s = self.sample
        nothing = 0 in (s.groups_per_step, s.rollouts_per_step, s.fraction)
        if nothing:
            return [False] * len(rollouts)
        if groups is not None and s.counts:
            return [
                self._is_shared(rollout, groups) or (is_batch and is_failed(rollout))
                for rollout in rollouts
            ]
        order = sorted(
            range(len(rollouts)),
            key=lambda i: draw(s.seed, rollouts[i].step, drawn_by(rollouts[i])),
        )
        kept = [False] * len(rollouts)
        for i in order:
            rollout = rollouts[i]
            kept[i] = self._wanted(rollout) or (is_batch and is_failed(rollout))
        return kept

    def admits(self, rollout: Rollout, is_chosen: bool | None = None) -> bool:
        """Is this single rollout kept? `is_chosen`: the caller has counted it already."""
        if is_chosen is None:
            return self.keep([rollout], is_batch=False)[0]
        s = self.sample
        return is_chosen and (
            s.fraction is None or draw(s.seed, rollout.step, drawn_by(rollout)) < s.fraction
        )

    def _wanted(self, rollout: Rollout) -> bool:
        slot = (rollout.step, rollout.split)
        is_wanted = self._choose(slot, name_of(rollout), drawn_by(rollout))
        if is_wanted:
            self._kept[slot] = self._kept.get(slot, 0) + 1
        return is_wanted

    def _is_shared(self, rollout: Rollout, groups: Mapping[str, int]) -> bool:
        """Is its group among those of the whole batch that are kept?"""
        slot = (rollout.step, rollout.split)
        if not self._chosen.get(slot, {}).keys() >= groups.keys():
            for name in sorted(groups, key=lambda g: draw(self.sample.seed, slot[0], g)):
                if self._choose(slot, name, name):
                    self._kept[slot] = self._kept.get(slot, 0) + groups[name]
        return self._choose(slot, str(rollout.group), str(rollout.group))

    def _choose(self, slot: _Slot, group: Hashable, drawn: str) -> bool:
        """Is there room for this group? The first answer holds for all its rollouts."""
        chosen = self._chosen.get(slot)
        if chosen is None:
            chosen = self._chosen[slot] = {}
            self._forget()
        if group not in chosen:
            number = draw(self.sample.seed, slot[0], drawn)
            counted, kept = sum(chosen.values()), self._kept.get(slot, 0)
            chosen[group] = self.sample.has_room(number, counted, kept)
        return chosen[group]

    def _forget(self) -> None:
        while len(self._chosen) > _REMEMBERED:
            oldest = next(iter(self._chosen))
            del self._chosen[oldest]
            self._kept.pop(oldest, None)


def drawn_by(rollout: Rollout) -> str:
    """A number is drawn for each task, because a task stays the same when a run is repeated. Groups
    are counted, but their names may be new each time."""
    if rollout.task is not None:
        return str(rollout.task)
    return str(rollout.group or rollout.key or rollout.id)


DRAWN_BY = """coalesce(r."task", nullif(r."group", ''), nullif(r."key", ''), r."id")"""
