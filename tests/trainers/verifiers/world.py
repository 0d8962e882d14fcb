"""A small world for verifiers: tasks, and a server that answers as OpenAI's does and keeps a
record of what it was asked and what it said. It knows nothing of Rollscope."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import verifiers.v1 as vf
from aiohttp import web
from pydantic import Field
from talk import TalkConfig
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.runtimes import SubprocessConfig


class Data(vf.TaskData):
    answer: str
    script: list[Any] = Field(default_factory=list)


class Echo(vf.Task[Data]):
    @vf.reward(weight=2.0)
    async def exact(self, trace: vf.Trace) -> float:
        return 1.0 if trace.last_reply == self.data.answer else 0.25

    @vf.reward(weight=1.0)
    async def polite(self, trace: vf.Trace) -> float:
        return 0.5

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))


class Server:
    """Says the last message back, or calls a tool, or fails, as the last message asks."""

    def __init__(self) -> None:
        self.notes: list[tuple[list[dict[str, Any]], dict[str, Any]]] = []
        self.url = ""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        last = body["messages"][-1]["content"]
        text = last if isinstance(last, str) else last[-1]["text"]
        n = len(self.notes)
        if "fail" in text:
            return web.json_response({"error": {"message": "out of order"}}, status=500)
        message: dict[str, Any] = {"role": "assistant", "content": f"{text} / {n} ✓ 😀"}
        finish = "length" if "long" in text else "stop"
        if "tool" in text:
            call = {"name": "look", "arguments": '{"where":  "there"}'}
            message = {"role": "assistant", "content": "I look."}
            message["tool_calls"] = [{"id": f"c{n}", "type": "function", "function": call}]
            finish = "tool_calls"
        self.notes.append((body["messages"], message))
        await asyncio.sleep(0.003 * ((n * 7) % 3))
        return await self._reply(request, body, message, finish, n)

    async def _reply(
        self, request: web.Request, body: Any, message: Any, finish: str, n: int
    ) -> web.StreamResponse:
        usage = {"prompt_tokens": 11 + n, "completion_tokens": 7, "total_tokens": 18 + n}
        base = {"id": f"c{n}", "created": int(time.time()), "model": body["model"]}
        if not body.get("stream"):
            choice = {"index": 0, "finish_reason": finish, "message": message}
            whole = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
            return web.json_response(whole)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        delta = dict(message)
        if "tool_calls" in delta:
            delta["tool_calls"] = [{"index": 0, **delta["tool_calls"][0]}]
        for choice in (
            {"index": 0, "delta": delta, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": finish},
        ):
            await self._event(response, {**base, "choices": [choice]})
        await self._event(response, {**base, "choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _event(self, response: web.StreamResponse, data: dict[str, Any]) -> None:
        line = json.dumps({"object": "chat.completion.chunk", **data})
        await response.write(b"data: " + line.encode() + b"\n\n")


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    server.url = f"http://127.0.0.1:{port}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


def agent_config(server: Server, **changes: Any) -> vf.AgentConfig:
    return vf.AgentConfig(
        model="fake",
        harness=TalkConfig(),
        client=EvalClientConfig(base_url=server.url, api_key_var="FAKE_KEY"),
        runtime=SubprocessConfig(),
        sampling={"temperature": 0.5, "max_tokens": 64},
        **changes,
    )


def task(n: int, script: list[Any] | None = None, prompt: str | None = None) -> Echo:
    return Echo(
        Data(
            idx=n,
            prompt=prompt or f"hello {n}",
            system_prompt="Echo.",
            answer=f"hello {n} / {n} ✓ 😀",
            script=script or [],
        )
    )


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


BRANCHED: list[Any] = [
    ["...", user("use a tool")],
    ["...", {"role": "tool", "tool_call_id": "c1", "content": "a cat"}, user("and now?")],
    # the context is rewritten: same beginning, other history
    ["start", user("in short: a tool was used, a cat was seen. go on")],
    # a sub-agent with a context of its own
    [{"role": "system", "content": "You are a helper."}, user("help")],
]
