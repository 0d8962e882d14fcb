"""The same rollouts, through the loggers that people use today.

Each peer is used as its own documentation (and verl's trace backends) use it: one trace per
rollout, nested spans where it has them. All write to a folder on this machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rollscope.model import Rollout
from rollscope.model.chat import to_chat


class Trackio:
    name = "Trackio"

    def __init__(self, folder: Path) -> None:
        os.environ["TRACKIO_DIR"] = str(folder)
        import trackio

        self.trackio = trackio
        self.run = trackio.init(project="bench", name="run", embed=False)

    def log(self, rollout: Rollout) -> None:
        messages = [to_chat(m) for m in rollout.messages]
        trace = self.trackio.Trace(messages, metadata=_metadata(rollout))
        self.trackio.log({"rollouts": trace}, step=rollout.step)

    def finish(self) -> None:
        self.trackio.finish()

    def first_page(self) -> Any:
        from trackio.sqlite_storage import SQLiteStorage

        return SQLiteStorage.get_traces("bench", run="run", sort="step_desc", limit=50)

    def search(self, word: str) -> Any:
        from trackio.sqlite_storage import SQLiteStorage

        return SQLiteStorage.get_traces("bench", run="run", search=word, limit=50)


class MLflow:
    name = "MLflow"

    def __init__(self, folder: Path) -> None:
        os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "true"
        folder.mkdir(parents=True, exist_ok=True)
        import mlflow

        self.mlflow = mlflow
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        mlflow.create_experiment("bench", artifact_location=str(folder / "artifacts"))
        mlflow.set_experiment("bench")

    def log(self, rollout: Rollout) -> None:
        with self.mlflow.start_span("rollout") as root:
            root.set_inputs([to_chat(m) for m in rollout.messages[:1]])
            for span in rollout.spans[1:]:
                with self.mlflow.start_span(span.name) as inner:
                    inner.set_inputs(span.inputs)
            root.set_outputs([to_chat(m) for m in rollout.messages[1:]])
            root.set_attributes(_metadata(rollout))

    def finish(self) -> None:
        self.mlflow.flush_trace_async_logging()

    def first_page(self) -> Any:
        return self.mlflow.search_traces(max_results=50, return_type="list")


class Weave:
    """Against a receiver on this machine that takes everything: Weave keeps nothing locally."""

    name = "Weave"

    def __init__(self, folder: Path) -> None:
        import weave_receiver

        folder.mkdir(parents=True, exist_ok=True)
        self.client = weave_receiver.client(folder)

    def log(self, rollout: Rollout) -> None:
        call = self.client.create_call(
            "rollout",
            {"messages": [to_chat(m) for m in rollout.messages[:1]]},
            attributes=_metadata(rollout),
            use_stack=False,
        )
        for span in rollout.spans[1:]:
            inner = self.client.create_call(
                span.name, span.inputs or {}, parent=call, use_stack=False
            )
            self.client.finish_call(inner)
        self.client.finish_call(call, [to_chat(m) for m in rollout.messages[1:]])

    def finish(self) -> None:
        self.client.flush()


PEERS = {"trackio": Trackio, "mlflow": MLflow, "weave": Weave}


def _metadata(rollout: Rollout) -> dict[str, Any]:
    return {
        "step": rollout.step,
        "task": rollout.task,
        "index": rollout.index,
        "reward": rollout.reward,
        **rollout.rewards,
    }
