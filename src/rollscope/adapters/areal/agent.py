"""Agents: classes with an `async def run(self, data, **kwargs)` that AReaL itself wraps.

AReaL runs an agent against a proxy that speaks OpenAI's API, and returns token rows without the
conversation. So `agent` does two things in each process that defines the class. It watches
AReaL's wrapper around agents. And it notes the chat requests that the agent makes through the
HTTP client it is given, by the id of their completion.
"""

from __future__ import annotations

import contextvars
import functools
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from ... import capture
from ...capture.settings import setting
from .._seam import Watching
from .hook import EpisodeWatch, seams

_Agent = TypeVar("_Agent", bound=type)

_watch: contextvars.ContextVar[EpisodeWatch | None] = contextvars.ContextVar(
    "rollscope_areal", default=None
)


def agent(cls: _Agent) -> _Agent:
    """Class decorator: record the episodes of this agent.

    @rollscope.adapters.areal.agent
    class MyAgent:
        async def run(self, data, **kwargs): ...
    """
    if setting("ROLLSCOPE") is False:
        return cls
    with capture.guard("adapter areal: agent"):
        from areal.experimental.openai import OpenAIProxyWorkflow

        seams().watch(OpenAIProxyWorkflow, {"arun_episode": _episode}, "no episode is recorded")
        seams().watch(cls, {"run": _run}, "conversations of this agent are not recorded")
    return cls


def _episode(engine: Any, data: Any, /) -> Watching:
    watch = EpisodeWatch(engine, data, _tokenizer(engine))
    _watch.set(watch)
    yield from watch.whole()


def _run(http_client: Any = None) -> Watching:
    watch = _watch.get()
    if watch is not None and watch.run is not None and http_client is not None:
        yield {"http_client": _noting(http_client, watch)}


@functools.lru_cache(maxsize=4)
def _load_tokenizer(path: str) -> Any:
    from areal.utils.hf_utils import load_hf_tokenizer

    return load_hf_tokenizer(path)


def _tokenizer(engine: Any) -> Any:
    path = getattr(getattr(engine, "config", None), "tokenizer_path", None)
    return _load_tokenizer(path) if path else None


def _noting(client: Any, watch: EpisodeWatch) -> Any:
    """A client of the same kind that sends through `client` and notes chat completions."""
    import httpx

    class Noting(httpx.AsyncBaseTransport):  # type: ignore[misc]
        async def handle_async_request(self, request: Any) -> Any:
            response = await client.send(request, stream=True)
            if "application/json" in response.headers.get("content-type", ""):
                await response.aread()
                with capture.guard("adapter areal: chat completion"):
                    _note(watch, request, response)
            return response

        async def aclose(self) -> None:
            """The client that we send through is AReaL's own, and stays open."""

    return httpx.AsyncClient(transport=Noting(), timeout=client.timeout)


def _note(watch: EpisodeWatch, request: Any, response: Any) -> None:
    asked = json.loads(request.content)
    made = json.loads(response.content)
    if isinstance(asked.get("messages"), list) and made.get("choices"):
        answer: Mapping[str, Any] = made["choices"][0]["message"]
        watch.chats[str(made["id"])] = [*asked["messages"], answer]
