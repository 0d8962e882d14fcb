"""Which experiment and which run of MLflow the traces belong to.

They belong to the run that the trainer opened. If it opened none, we make one, which is found again
by its tag. If the trainer opens its run only then, the traces go over to it: those of the same
experiment are linked to both runs, and those of another experiment move, because MLflow shows a
trace only in its own experiment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..model import Rollout
from .base import Target
from .calls import verl_attributes
from .mlflow_trace import trace_id

_OURS = "rollscope.run"
"""The tag by which a run that we made is found again."""
_VERL_TAGS = verl_attributes(Rollout()).keys()


class Home:
    """Where traces go. Made when MLflow is opened."""

    def __init__(
        self, client: Any, tracing: Any, target: Target, options: Mapping[str, str]
    ) -> None:
        self._client = client
        self._tracing = tracing
        self._target = target
        self._options = options
        self._left: str | None = None
        """The experiment that the rollouts move out of."""
        run = self._trainers_run()
        self.is_ours = run is None
        self.experiment = self._find_experiment(run)
        if run is None:
            run = self._our_run()
        self.run_id = str(run.info.run_id)
        if not self.is_ours:
            self._leave_ours()

    def close(self) -> None:
        if self.is_ours:
            self._client.set_terminated(self.run_id, "FINISHED")

    # -- the trainer's run, or ours --------------------------------------------------------

    def _trainers_run(self) -> Any:
        """The run that was asked for or that the trainer has open; None if there is none."""
        from mlflow.exceptions import MlflowException

        asked = self._options.get("run_id")
        id = asked or self._target.hints.get("run_id")
        if not id:
            return None
        try:
            return self._client.get_run(id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            if asked:
                raise ValueError(f"mlflow: there is no run {asked!r} in this store") from error
            return None  # the trainer's is in another store

    @property
    def _name(self) -> str:
        """The experiment of a run that we make."""
        return self._options.get("experiment") or self._target.project

    def _find_experiment(self, run: Any) -> str:
        from mlflow.exceptions import MlflowException

        if run is not None and "experiment" not in self._options:
            return str(run.info.experiment_id)
        found = self._client.get_experiment_by_name(self._name)
        if found is None:
            try:
                return str(self._client.create_experiment(self._name))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = self._client.get_experiment_by_name(self._name)
        if found.lifecycle_stage != "active":
            raise ValueError(
                f"mlflow: the experiment {self._name!r} was deleted. Restore it (mlflow "
                f"experiments restore --experiment-id {found.experiment_id}) or name another: "
                "mlflow:experiment=..."
            )
        return str(found.experiment_id)

    def _our_run(self) -> Any:
        """A run of our name, made once and found again."""
        found = self._find_our_run(self.experiment)
        if found is not None:
            self._client.update_run(found.info.run_id, status="RUNNING")
            return found
        return self._client.create_run(
            self.experiment, run_name=self._target.run, tags={_OURS: self._run_mark()}
        )

    def _find_our_run(self, experiment: str) -> Any:
        query = f"tags.`{_OURS}` = '{self._run_mark()}'"
        found = self._client.search_runs([experiment], query, max_results=1)
        return found[0] if found else None

    def _run_mark(self) -> str:
        """Names may hold quotes, which MLflow's filters do not take."""
        name = f"{self._target.project}\0{self._target.run}".encode("utf-8", "replace")
        return hashlib.blake2b(name, digest_size=10).hexdigest()

    # -- from ours to the trainer's --------------------------------------------------------

    def _leave_ours(self) -> None:
        """End the run that we made before the trainer opened its own."""
        made_in = self._client.get_experiment_by_name(self._name)
        ours = made_in and self._find_our_run(str(made_in.experiment_id))
        if not ours or ours.info.run_id == self.run_id:
            return
        if ours.info.status == "RUNNING":
            self._client.set_terminated(ours.info.run_id, "FINISHED")
        note = f"The rollouts are in run {self.run_id}, which the trainer opened later."
        self._client.set_tag(ours.info.run_id, "mlflow.note.content", note)
        if made_in.experiment_id == self.experiment:
            self._link_all(ours.info.run_id)
        else:
            self._left = str(made_in.experiment_id)

    def _link_all(self, ours: str) -> None:
        token = None
        while True:
            page = self._client.search_traces(
                locations=[self.experiment], run_id=ours, max_results=100, page_token=token,
                include_spans=False,
            )  # fmt: skip
            if page:
                self._client.link_traces_to_run([t.info.trace_id for t in page], self.run_id)
            token = page.token
            if not token:
                return

    def have_moved(self, rollouts: Sequence[str]) -> None:
        """These are here now. Their traces in the experiment that we left are deleted, except those
        that somebody has written on."""
        if self._left is None:
            return
        old = [trace_id(self._left, rollout) for rollout in rollouts]
        gone = [id for id in old if _is_only_ours(trace_info(self._tracing, id))]
        if gone:
            self._client.delete_traces(self._left, trace_ids=gone)


def trace_info(tracing: Any, trace: str) -> Any:
    """What MLflow knows about a trace; None if it is not there."""
    from mlflow.exceptions import MlflowException

    try:
        return tracing.get_trace_info(trace)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise


def _is_only_ours(info: Any) -> bool:
    """Is this trace there, with nothing on it that others wrote?"""
    if info is None:
        return False
    foreign = [tag for tag in info.tags if not tag.startswith(("mlflow.", "rollscope."))]
    return set(foreign) <= _VERL_TAGS and all(
        found.source is not None and found.source.source_id == "rollscope"
        for found in info.assessments
    )
