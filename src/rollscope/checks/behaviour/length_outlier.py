"""Much longer or shorter than its siblings."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from statistics import median
from typing import Annotated

from ..check import Spot, check
from ..evidence import noted
from ..subject import OneGroup


@check(
    "length.outlier",
    version=2,
    kind="behaviour",
    subject="group",
    means="The rollout is many times longer or shorter than its siblings: it went astray, or gave "
    "up.",
    source="Iglewicz and Hoaglin's modified z-score above 3.5, on a scale of ratios; else ours",
    needs=[noted("chars", 4)],
)
def outlier(
    group: OneGroup,
    *,
    times: Annotated[float, "as long, or as short, as the median; ours"] = 5.0,
    spreads: Annotated[float, "median deviations from the median; Iglewicz, Hoaglin"] = 5.2,
    least: Annotated[int, "characters that the longer of the two must have; ours"] = 400,
) -> Iterator[Spot]:
    sizes = {m.id: m.digest["chars"] for m in group.members if m.digest.get("chars")}
    middle = median(log(size) for size in sizes.values())
    spread = median(abs(log(size) - middle) for size in sizes.values())
    for id, size in sizes.items():
        away = log(size) - middle
        if (
            abs(away) > max(log(times), spreads * spread)
            and max(size, 2.718281828**middle) >= least
        ):
            ratio = 2.718281828 ** abs(away)
            word = "longer" if away > 0 else "shorter"
            yield Spot(f"{size:,.0f} characters, {ratio:.1f} times {word} than its group's median",
                       rollout=id, value=away)  # fmt: skip
