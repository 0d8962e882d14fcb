"""A harness that runs in this process and talks as its task says: a plugin of verifiers.

`script` is a list of conversations to hold: each is a list of messages, after which the model is
asked; "..." stands for all that was said so far in the conversation before.
"""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI, omit
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult

__all__ = ["Talk"]

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look around.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
    },
}


class TalkConfig(HarnessConfig):
    id: str = "talk"


class Talk(Harness[TalkConfig]):
    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = False
    SUPPORTS_RESUME = False
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def setup(self, runtime: Any) -> None:
        pass

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
    ) -> ProgramResult:
        system, prompt = self.resolve_prompt(data)
        start: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        start.append({"role": "user", "content": prompt})
        said: list[dict[str, Any]] = []
        async with AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0) as client:
            for conversation in [["start"], *data.script]:
                messages: list[dict[str, Any]] = []
                for piece in conversation:
                    messages += (
                        {"start": start, "...": said}.get(piece, [piece])
                        if isinstance(piece, str)
                        else [piece]
                    )
                answer = await client.chat.completions.create(
                    model=ctx.model, messages=messages, tools=[TOOL] if data.tools else omit
                )
                reply = answer.choices[0].message.model_dump(exclude_none=True)
                said = [*messages, {k: v for k, v in reply.items() if k != "annotations"}]
        return ProgramResult(exit_code=0, stdout="", stderr="")
