"""A small world for verifiers: tasks, and a server that answers as OpenAI's does and keeps a
record of what it was asked and what it said. It knows nothing of Rollscope."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import tinytok
import verifiers.v1 as vf
from aiohttp import web
from pydantic import Field
from talk import TalkConfig
from verifiers.v1.configs.client import EvalClientConfig, TrainClientConfig
from verifiers.v1.runtimes import SubprocessConfig

TOK = tinytok.make()


class Data(vf.TaskData):
    answer: str
    script: list[Any] = Field(default_factory=list)
    tools: bool = True


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
        self.samples: list[tuple[list[int], list[int], list[float]]] = []
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

    async def generate(self, request: web.Request) -> web.Response:
        """vLLM's endpoint for training: tokens in, tokens and log probabilities out."""
        shown = (await request.json())["token_ids"]
        n = len(self.samples)
        ids = [*TOK.encode(f"answer {n} ✓ 😀"), TOK.eos_token_id]
        logprobs = [-0.123456789 * (k % 5 + 1) for k in range(len(ids))]
        self.samples.append((shown, ids, logprobs))
        content = [
            {"token": f"token_id:{i}", "logprob": v} for i, v in zip(ids, logprobs, strict=True)
        ]
        choice: dict[str, Any] = {"index": 0, "token_ids": ids, "finish_reason": "stop"}
        choice["logprobs"] = {"content": content}
        return web.json_response({"request_id": f"r{n}", "choices": [choice]})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "fake", "object": "model"}]})

    async def _event(self, response: web.StreamResponse, data: dict[str, Any]) -> None:
        line = json.dumps({"object": "chat.completion.chunk", **data})
        await response.write(b"data: " + line.encode() + b"\n\n")


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_post("/inference/v1/generate", server.generate)
    app.router.add_get("/v1/models", server.models)
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
    client = EvalClientConfig(base_url=server.url, api_key_var="FAKE_KEY")
    return vf.AgentConfig(
        model="fake",
        harness=TalkConfig(),
        client=changes.pop("client", client),
        runtime=SubprocessConfig(),
        sampling={"temperature": 0.5, "max_tokens": 64},
        **changes,
    )


def training_config(server: Server, tokenizer: Path) -> vf.AgentConfig:
    """As prime-rl has it: the prompt is tokenized here, tokens and log probabilities come back."""
    TOK.save_pretrained(tokenizer)
    client = TrainClientConfig(
        base_url=server.url,
        api_key_var="FAKE_KEY",
        renderer={"name": "default"},
        renderer_model_name=str(tokenizer),
    )
    return agent_config(server, client=client)


def task(
    n: int, script: list[Any] | None = None, prompt: str | None = None, tools: bool = True
) -> Echo:
    return Echo(
        Data(
            idx=n,
            prompt=prompt or f"hello {n}",
            system_prompt="Echo.",
            answer=f"hello {n} / {n} ✓ 😀",
            script=script or [],
            tools=tools,
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
