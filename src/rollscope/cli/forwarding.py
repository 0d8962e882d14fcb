"""`export trackio QUERY` and the like: stored rollouts, sent to another system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .output import Failed, progress, say

if TYPE_CHECKING:
    from .exporting import ExportRequest, ExportResult


def forward(asked: ExportRequest) -> ExportResult:
    """Send the rollouts that the query finds, except those sent before (unless `--again`)."""
    from .. import sinks
    from ..formats import EXPORTERS
    from ..model.cleaner import Cleaner
    from ..sinks.export import Busy, export
    from ..sinks.send import SinkFailed
    from .exporting import ExportResult

    try:
        (spec,) = sinks.parse(f"{asked.name}:{asked.options}" if asked.options else asked.name)
    except ValueError as error:
        raise Failed(f"{error}\nOr write a file: {', '.join(EXPORTERS)}", 2) from None

    ids = asked.store.rollouts(asked.query, order=asked.order).ids()
    try:
        with progress(f"sending to {spec.name}", len(ids)) as update:
            done = export(
                asked.store.reader,
                spec,
                ids,
                cleaner=None if asked.clean is None else Cleaner(asked.clean),
                again=asked.again,
                told=update,
                tell=say,
            )
    except (SinkFailed, Busy) as error:
        raise Failed(f"{error}\nNothing will be sent twice: the same command goes on.") from None
    notes = [
        f"{count:,} {what}"
        for count, what in (
            (done.before, "were there already (--again sends them again)"),
            (done.updated, "of them got later facts"),
            (done.not_updated, "of them have later facts that the other system cannot take"),
            (done.left_out, "left out by the cap"),
            (done.gave_up, "refused by the other system (see rollscope doctor)"),
        )
        if count
    ]
    return ExportResult(done.sent, tuple(notes), before=done.before)
