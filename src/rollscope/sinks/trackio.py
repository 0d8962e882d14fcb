"""Trackio: a `trackio.Trace` for each rollout, in the run that the trainer opened there.

Rows go straight into Trackio's store, or to its server, through the calls that its own client uses.
These return when the rows are there and raise when they are not; `trackio.log` does
neither. A rollout's id is the id of its row, and Trackio takes each id once.
"""

from __future__ import annotations

import datetime
import os
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..model import Rollout
from ..model.chat import to_chat
from ..model.schema import scalars
from ._loaded import loaded
from ._plain import known, milliseconds, without_tokens
from .base import Sink
from .calls import TracedCall, calls

_KINDS = {"chat": "generation", "tool": "tool", "agent": "span", "step": "span"}


class Trackio(Sink):
    """Forwards to a local Trackio, to a Space, or to a server of one's own."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "project": "Trackio's project (default: the one the trainer opened, else the project)",
        "run": "Trackio's run (default: the one the trainer opened, else the run)",
        "key": "name of the traces in the run (default: rollouts)",
        "space_id": "a Space of the Hugging Face Hub: user/space (or TRACKIO_SPACE_ID)",
        "server_url": "a Trackio server of your own (or TRACKIO_SERVER_URL); TRACKIO_WRITE_TOKEN",
        "dir": "folder of the local store (or TRACKIO_DIR)",
    }

    @classmethod
    def hints(cls) -> Mapping[str, str]:
        """The run that the trainer opened. Trackio keeps it in a context variable, which other
        threads cannot see. But every open run has a thread of its own, and threads can be
        listed."""
        kind = getattr(loaded("trackio.run"), "Run", None)
        if kind is None:
            return {}
        owners = [
            getattr(getattr(thread, "_target", None), "__self__", None)
            for thread in threading.enumerate()
        ]
        runs = [owner for owner in owners if isinstance(owner, kind)]
        return _about(runs[-1]) if runs else {}

    def open(self) -> str:
        where = {name: self._find(name) for name in ("dir", "space_id", "server_url")}
        if where["dir"]:
            os.environ["TRACKIO_DIR"] = where["dir"]  # read when the module is loaded
        import trackio

        self._key = self.options.get("key") or "rollouts"
        self._project = self._find("project") or self.target.project
        self._run = self._find("run") or self.target.run
        self._client, place = self._connect(trackio, where["space_id"], where["server_url"])
        self._run_id, self._config = self._join(trackio)
        return f"{place}, project {self._project}, run {self._run}"

    def _find(self, name: str) -> str | None:
        """An option; else the environment; else what the trainer opened."""
        return (
            self.options.get(name)
            or os.environ.get(f"TRACKIO_{name.upper()}")
            or self.target.hints.get(name)
        )

    def _connect(
        self, trackio: Any, space: str | None, server: str | None
    ) -> tuple[Any | None, str]:
        """A client of the server, None for the local store; and where that is."""
        if space is not None:
            if "space_id" not in self.target.hints:  # nobody has prepared the Space yet
                quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
                trackio.init(self._project, self._run, space_id=space, resume="allow", **quiet)
            token = trackio.huggingface_hub.utils.get_token()
            return trackio.RemoteClient(space, hf_token=token, verbose=False), f"Space {space}"
        if server is not None:
            base, token = trackio.utils.parse_trackio_server_url(server)
            token = token or os.environ.get("TRACKIO_WRITE_TOKEN")
            if not token:
                raise ValueError(f"set TRACKIO_WRITE_TOKEN to write to {base}")
            return trackio.RemoteClient(base, write_token=token, verbose=False), base
        return None, str(trackio.utils.TRACKIO_DIR)

    def _join(self, trackio: Any) -> tuple[str, dict[str, Any] | None]:
        """The id of the run: the trainer's, or the last one of this name, or a new one.

        A new one comes with its settings; Trackio's page takes its time and group from there.
        """
        hints = self.target.hints
        if hints.get("project") == self._project and hints.get("run") == self._run:
            return hints["run_id"], None
        if self._client is not None:
            runs = self._client.predict(project=self._project, api_name="/get_runs_for_project")
            named = [run for run in runs or () if run["name"] == self._run]
            found = max(named, key=lambda run: run.get("created_at") or "", default=None)
        else:
            trackio.SQLiteStorage.validate_project_name(self._project)
            found = trackio.SQLiteStorage.get_latest_run_record_by_name(self._project, self._run)
        if found is not None:
            return found["id"], None
        now = datetime.datetime.now(datetime.UTC).isoformat()
        id = uuid.uuid5(uuid.NAMESPACE_URL, f"rollscope:{self._project}/{self._run}").hex
        return id, {"_Username": None, "_Created": now, "_Group": None}

    def send(self, rollouts: Sequence[Rollout]) -> None:
        rows = [self._row(rollout) for rollout in rollouts]
        rows[0]["config"], self._config = self._config, None
        if self._client is not None:
            import trackio

            token = trackio.huggingface_hub.utils.get_token()
            self._client.predict(api_name="/bulk_log", logs=rows, hf_token=token)
        else:
            self._store(rows)

    def _store(self, rows: list[dict[str, Any]]) -> None:
        """Into the local store, in the way that Trackio has chosen for its file system."""
        import trackio
        from trackio import fragments, utils

        if utils.get_storage_mode() == "jsonl":
            records = [fragments.metric_record(row) for row in rows]
            fragments.FragmentWriter().write_local(records)
            return
        trackio.SQLiteStorage.bulk_log(
            project=self._project,
            run=self._run,
            run_id=self._run_id,
            metrics_list=[row["metrics"] for row in rows],
            steps=[row["step"] for row in rows],
            timestamps=[row["timestamp"] for row in rows],
            config=rows[0]["config"],
            log_ids=[row["log_id"] for row in rows],
        )

    def _row(self, rollout: Rollout) -> dict[str, Any]:
        """One entry of Trackio's log, with the trace and nothing else."""
        import trackio

        step = rollout.step or 0  # Trackio has no rollout without a step
        trace = trackio.Trace(
            messages=[to_chat(message) for message in rollout.messages],
            metadata=metadata(rollout),
            spans=[_span(call) for call in calls(rollout) if call.span is not None],
        )
        return {
            "project": self._project,
            "run": self._run,
            "run_id": self._run_id,
            "metrics": {self._key: trace._to_dict(self._project, self._run, step)},
            "step": step,
            "timestamp": _iso(rollout.end or rollout.time or 0.0),
            "config": None,
            "log_id": f"rollscope-{rollout.id}",
        }


def metadata(rollout: Rollout) -> dict[str, Any]:
    """What Trackio shows beside the messages. Numbers stay numbers, absent is left out."""
    error = rollout.error
    about = {
        "rollout": rollout.id,
        **scalars(rollout, without=("id", "project", "run")),
        **{f"rewards.{name}": value for name, value in rollout.rewards.items()},
        **{f"reward_texts.{name}": text for name, text in rollout.reward_texts.items()},
        "status": "error" if error is not None else None,
        "error": None if error is None else f"{error.type or error.kind or 'error'}: {error.text}",
        "duration_ms": milliseconds(rollout.start, rollout.end),
        "reference": without_tokens(rollout.reference),
        "meta": without_tokens(rollout.meta) or None,
    }
    return known(about)


def _span(call: TracedCall) -> dict[str, Any]:
    """A recorded call as Trackio writes spans."""
    span = call.span
    assert span is not None
    about = {
        "id": call.id,
        "parent_id": None if call.parent == "rollout" else call.parent,
        "name": call.name,
        "kind": _KINDS[call.kind],
        "start_time": _iso(call.start),
        "end_time": _iso(call.end),
        "duration_ms": milliseconds(call.start, call.end),
        "input": without_tokens(span.inputs),
        "output": without_tokens(span.outputs),
        "status": "error" if span.error is not None else "ok",
        "error": None if span.error is None else f"{span.error.type}: {span.error.text}",
        "metadata": without_tokens(span.meta) or None,
    }
    return known(about)


def _iso(time: float | None) -> str | None:
    return None if time is None else datetime.datetime.fromtimestamp(time, datetime.UTC).isoformat()


def _about(run: Any) -> dict[str, str]:
    """What another process needs to write to this run. The write token is a secret, so
    it is not among them; TRACKIO_WRITE_TOKEN has it."""
    module: Any = sys.modules.get("trackio.utils")
    known = {
        "project": run.project,
        "run": run.name,
        "run_id": run.id,
        "space_id": run._space_id,
        "server_url": run._server_base_url,
        "dir": None
        if run._space_id or run._server_base_url
        else str(module.TRACKIO_DIR.absolute()),
    }
    return {name: str(value) for name, value in known.items() if value}
