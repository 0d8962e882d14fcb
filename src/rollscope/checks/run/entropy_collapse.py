"""The policy is nearly certain of everything it writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from ..check import Spot, check
from ..evidence import over_steps
from ..subject import Steps
from ..trend import onsets, recent, start


@check(
    "run.entropy_collapse",
    kind="run",
    subject="step",
    means="The entropy of the policy is a small share of what it was when the run began: it has "
    "stopped exploring. Where no entropy is recorded, the mean of -logprob at the tokens that were "
    "drawn stands for it.",
    source="arXiv 2505.22617 (94 % is gone after a third of training, so there is no absolute "
    "bound); NeMo-RL, `approx_entropy`; the share: ours",
    needs=[over_steps("entropy", 15)],
)
def entropy_collapse(
    run: Steps, *, share: Annotated[float, "of the entropy at the start; ours"] = 0.10
) -> Iterator[Spot]:
    series = run.series("entropy")
    early, _ = start(series)
    if early > 0:
        for now in onsets((w, w.value < share * early) for w in recent(series)):
            yield Spot(
                f"the mean entropy is {now.value:.3g}; when the run began it was {early:.3g}",
                step=now.step, value=now.value / early, query=now.steps,
            )  # fmt: skip
