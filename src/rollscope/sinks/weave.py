"""Weave (Weights & Biases): a call per rollout, with those of its turns and tools below it.

Completed calls go to the trace server, and we wait for the answer. Weave's own client would queue
them and, after a while, drop those that it cannot send, with a line in its log. Its worker threads
also import parts of it lazily, which can lock up. Here only the calling thread talks to it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ..model import Rollout
from . import weave_calls
from ._batches import NotTaken, Trace, send_in_batches
from ._loaded import loaded
from .base import Refused, Sink
from .calls import calls

_BATCH = 8_000_000
"""Characters of calls in one request, roughly; the server takes 32 MiB."""

_CODE = b"# Recorded by Rollscope; the code is not kept.\n"


class Weave(Sink):
    """Sends rollouts to a project of Weave."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "entity": "user or team (default: that of the trainer's project, else WANDB_ENTITY, else "
        "the account's own)",
        "project": "name of the project there (default: the trainer's, else the same as here)",
        "server": "address of a trace server of your own (default: W&B's, or WF_TRACE_SERVER_URL)",
    }

    @classmethod
    def hints(cls) -> Mapping[str, str]:
        """The project that the trainer initialised Weave with, and its run in W&B."""
        found: dict[str, str] = {}
        context = loaded("weave.trace.context.weave_client_context")
        client = getattr(context, "_global_weave_client", None)
        if client is not None:
            found |= {"entity": str(client.entity), "project": str(client.project)}
        run = getattr(loaded("wandb"), "run", None)
        if run is not None and isinstance(getattr(run, "path", None), str):
            found["wandb_run"] = run.path  # entity/project/id
        return found

    def open(self) -> str:
        try:
            from weave.trace import env
            from weave.trace_server_bindings.remote_http_trace_server import RemoteHTTPTraceServer
            from weave.wandb_interface.context import get_wandb_auth_context
        except ImportError as error:
            raise ImportError(f"{error}. Type: pip install weave") from error
        os.environ.setdefault("WEAVE_RETRY_MAX_ATTEMPTS", "1")  # the forwarder tries again itself
        own = self.options.get("server")
        credentials = get_wandb_auth_context()
        if credentials is None and own is None:
            raise PermissionError("weave: not logged in. Type: wandb login, or set WANDB_API_KEY")
        self._server = RemoteHTTPTraceServer(own or env.weave_trace_server_url())
        if credentials is not None:
            self._server.set_auth(credentials)
        entity, project = self._names()
        if own is None:
            project = self._server.ensure_project_exists(entity, project).project_name
        self._project = f"{entity}/{project}"
        self._ops: dict[str, str] = {}
        self._run_id = self._wandb_run()
        return f"{self._server.trace_server_url} {self._project}" if own else _page(entity, project)

    def send(self, rollouts: Sequence[Rollout]) -> None:
        traces = [(rollout, self._calls(rollout)) for rollout in rollouts]
        refused = send_in_batches(
            traces, self._send, size=lambda made: len(json.dumps(made)), most=_BATCH
        )
        if refused:
            raise Refused(refused, next(iter(refused.values())))

    def update(self, rollout: Rollout) -> bool:
        """A call that has ended stays as it is: later facts go as feedback on it, each state of
        them once."""
        facts = weave_calls.later(rollout)
        ref = f"weave:///{self._project}/call/{weave_calls.call_id(rollout)}"
        mark = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8)
        self._server.feedback_create(
            {
                "id": weave_calls.call_id(rollout, mark.hexdigest()),
                "project_id": self._project,
                "weave_ref": ref,
                "creator": "rollscope",
                "feedback_type": "rollscope.facts",
                "payload": facts,
            }
        )
        return True

    def holds(self, ids: Collection[str]) -> set[str]:
        """The calls of a rollout are sent in one request: where the root is, all are."""
        roots = {weave_calls.call_id(id): id for id in ids}
        found = self._server.calls_query(
            {
                "project_id": self._project,
                "filter": {"call_ids": list(roots)},
                "columns": ["id"],
                "limit": len(roots),
            }
        )
        return {roots[call.id] for call in found.calls if call.id in roots}

    def close(self) -> None:
        self._server._stainless_client.close()

    def _names(self) -> tuple[str, str]:
        from weave.trace.weave_init import get_entity_project_from_project_name

        hints = self.target.hints
        project = self.options.get("project") or hints.get("project") or self.target.project
        entity = self.options.get("entity") or hints.get("entity")
        if entity is not None:
            return entity, project
        found = get_entity_project_from_project_name(project)
        return str(found[0]), str(found[1])

    def _wandb_run(self) -> str | None:
        """The trainer's run in W&B, to which Weave links calls of the same project."""
        run = self.target.hints.get("wandb_run")
        return run if run is not None and run.startswith(f"{self._project}/") else None

    def _calls(self, rollout: Rollout) -> list[dict[str, Any]]:
        made = weave_calls.completed(rollout)
        for body, call in zip(made, calls(rollout), strict=True):
            body["project_id"] = self._project
            body["op_name"] = self._op(weave_calls.op_name(call))
            if self._run_id is not None:
                body["wb_run_id"] = self._run_id
            else:
                body.pop("wb_run_step", None)
        return made

    def _op(self, name: str) -> str:
        """The address of an operation, which is made known to the server once."""
        from weave.trace.weave_client import sanitize_object_name

        if name not in self._ops:
            project, object_id = self._project, sanitize_object_name(name)
            code = self._server.file_create({"project_id": project, "file": ("obj.py", _CODE)})
            value = {
                "_type": "CustomWeaveType",
                "weave_type": {"type": "Op"},
                "files": {"obj.py": code.digest},
            }
            made = self._server.obj_create(
                {"obj": {"project_id": project, "object_id": object_id, "val": value}}
            )
            self._ops[name] = f"weave:///{project}/op/{object_id}:{made.digest}"
        return self._ops[name]

    def _send(self, batch: Sequence[Trace[list[dict[str, Any]]]]) -> None:
        bodies = [body for _, made in batch for body in made]
        try:
            self._server.calls_complete({"batch": bodies})
        except Exception as error:
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status not in (400, 413, 422):
                raise
            raise NotTaken(f"{status}: {error}") from error


def _page(entity: str, project: str) -> str:
    from weave.trace.urls import project_weave_root_url

    return f"{project_weave_root_url(entity, project)}/traces"
