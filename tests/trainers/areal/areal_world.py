"""A small world for AReaL: an engine that keeps a record, and workflows of a user's own.

Every answer of the engine is a text that occurs once. AReaL's workers import this module by
its name, as they do a user's.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
import zlib
from pathlib import Path
from typing import Any

import tinytok
import torch
from areal.api import ModelRequest, ModelResponse, RolloutWorkflow
from areal.api.cli_args import AgentConfig, GenerationHyperparameters, InferenceEngineConfig
from areal.experimental.openai import ArealOpenAI
from areal.experimental.openai import client as client_module
from areal.infra import workflow_context
from areal.infra.remote_inf_engine import GroupedRolloutWorkflow, RemoteInfEngine
from areal.infra.workflow_executor import WorkflowExecutor
from areal.utils.data import concat_padded_tensors
from openai import AsyncOpenAI
from openai.types.chat.chat_completion_message_function_tool_call import (
    ChatCompletionMessageFunctionToolCall,
    Function,
)
from stored import written

from rollscope.adapters import areal
from rollscope.model import Rollout

TOK = tinytok.make()
GCONFIG = GenerationHyperparameters(max_new_tokens=48, temperature=0.5)
ADMIN_KEY = "a key of this test"

_worlds = itertools.count()
"""No two worlds say the same."""

ANSWERS: list[dict[str, Any]] = []
"""The engine's record: text, ids in and out, log probabilities, versions."""
TRANSPORTS: list[str] = []
"""What the HTTP clients of agents send through."""
EPISODES: list[dict[str, Any]] = []
"""The record of our own workflows."""


def earned(text: str) -> float:
    return float(zlib.crc32(text.encode()) % 2)


def reward_fn(
    prompt: str, completions: str, prompt_ids: Any, completion_ids: Any, **_: Any
) -> float:
    return earned(completions)


class Rollouts:
    """An engine and an executor, and what comes out of them."""

    def __init__(self, directory: Path, *, dump: bool = False, version: int = 4) -> None:
        ANSWERS.clear()
        EPISODES.clear()
        TRANSPORTS.clear()
        TOK.save_pretrained(directory / "tok")
        self.config = InferenceEngineConfig(
            experiment_name="puzzles",
            trial_name="trial 1",
            fileroot=str(directory),
            consumer_batch_size=2,
            max_concurrent_rollouts=8,
            max_head_offpolicyness=100,
            tokenizer_path=str(directory / "tok"),
            dump_to_file=dump,
            check_trajectory_format=False,
            backend="sglang:d1",
            agent=AgentConfig(
                agent_cls_path="areal_world.ThroughProxy",
                mode="inline",
                admin_api_key=ADMIN_KEY,
                tool_call_parser="qwen25",
            ),
        )
        self.engine = RemoteInfEngine(self.config, object())
        self.engine.logger = logging.getLogger("engine")
        self.engine.agenerate = self.agenerate
        self.engine._version = version
        self.calls = 1000 * next(_worlds)
        self.executor = WorkflowExecutor(self.config, self.engine)
        self.executor.initialize(train_data_parallel_size=1)
        self.engine._workflow_executor = self.executor

    async def agenerate(self, req: Any) -> ModelResponse:
        await asyncio.sleep(0.001)
        self.calls += 1
        n = self.calls
        text = self.say(n, TOK.decode(req.input_ids))
        out = [*TOK.encode(text, add_special_tokens=False), TOK.eos_token_id]
        half = len(out) // 2
        version = self.engine._version
        record = {
            "text": text,
            "prompt": list(req.input_ids),
            "ids": out,
            "logprobs": [-n / 64 - i / 1024 for i in range(len(out))],
            "versions": [version] * half + [version + 1] * (len(out) - half),
        }
        ANSWERS.append(record)
        return ModelResponse(
            input_tokens=list(record["prompt"]),
            output_tokens=list(out),
            output_logprobs=list(record["logprobs"]),
            output_versions=list(record["versions"]),
            stop_reason="stop",
            tokenizer=TOK,
        )

    def say(self, n: int, prompt: str) -> str:
        if "<|im_start|>tool" in prompt or "tool?" not in prompt:
            return f"answer {n} é漢🙂"
        call = json.dumps({"name": "add", "arguments": {"n": n}})
        return f"let me see\n<tool_call>\n{call}\n</tool_call>"

    def run(
        self,
        workflow: Any,
        kwargs: dict[str, Any] | None,
        *,
        group: int = 3,
        is_eval: bool = False,
        tasks: int = 2,
        more: dict[str, Any] | None = None,
        proxy: str | None = None,
        asks: str = "puzzle",
        expect: int | None = None,
        accept: Any = None,
    ) -> list[Any]:
        resolved = self.engine._resolve_workflow(
            workflow, kwargs, group_size=group, proxy_addr=proxy
        )
        for i in range(tasks):
            data = {
                "messages": [{"role": "user", "content": f"{asks} {i} ñ"}],
                "answer": str(i),
                "query_id": f"puzzle-{i}",
                "level": i,
                **(more or {}),
            }
            self.executor.submit(data, resolved, should_accept_fn=accept, is_eval=is_eval)
        wanted = tasks if expect is None else expect
        return self.executor.wait(wanted, timeout=600) if wanted else self.settle(tasks)

    def settle(self, rejected: int) -> list[Any]:
        """Wait until so many tasks were rejected and none is running."""
        for _ in range(6000):
            stats = self.executor.staleness_manager.get_stats()
            if stats.rejected >= rejected and not stats.running:
                return []
            time.sleep(0.05)
        raise TimeoutError("the tasks did not end")

    def close(self) -> None:
        self.executor.destroy()


class OneTurn(RolloutWorkflow):
    """A workflow of a user's own. Some members are rejected, some fail, one ends in a tool."""

    def __init__(self, behaviour: str = "plain", tokenizer: Any = TOK) -> None:
        self.behaviour = behaviour
        self.tokenizer = tokenizer
        self.members: dict[Any, int] = {}

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> Any:
        assert isinstance(engine, RemoteInfEngine)  # what a careful workflow would check
        task = workflow_context.get().task_id
        member = self.members[task] = self.members.get(task, -1) + 1
        ids = TOK.apply_chat_template(
            data["messages"], add_generation_prompt=True, return_dict=False
        )
        answer = await engine.agenerate(ModelRequest(input_ids=ids, gconfig=GCONFIG, tokenizer=TOK))
        EPISODES.append({"task": task, "member": member, "ids": answer.output_tokens})
        if self.behaviour == "rejects" and member == 1:
            return None
        if self.behaviour == "fails" or (self.behaviour == "one fails" and member == 1):
            raise ValueError("the grader does not answer")
        seq = answer.input_tokens + answer.output_tokens
        tail = TOK.encode("\n<|im_start|>tool\n42<|im_end|>\n") if self.behaviour == "tool" else []
        given, made = len(answer.input_tokens), len(answer.output_tokens)
        result = {
            "input_ids": torch.tensor([seq + tail], dtype=torch.int32),
            "loss_mask": torch.tensor([[0] * given + [1] * made + [0] * len(tail)]),
            "logprobs": torch.tensor([[0.0] * given + answer.output_logprobs + [0.0] * len(tail)]),
            "versions": torch.tensor([[-1] * given + answer.output_versions + [-1] * len(tail)]),
            "attention_mask": torch.ones(1, len(seq + tail), dtype=torch.bool),
            "rewards": torch.tensor([0.25 * member]),
        }
        if self.behaviour == "normalised":
            result["original_rewards"] = torch.tensor([float(member)])
        if self.behaviour == "messages":
            said = {
                "role": "assistant",
                "content": "calls",
                "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": "{}"}}],
            }
            result["messages"] = [json.dumps([*data["messages"], said])]
        return result


class InOneGroup(GroupedRolloutWorkflow):
    """AReaL's group, with the controls of its later versions: `drop_incomplete_group` and
    `reward_normalization`, which writes into the members' interactions."""

    def __init__(self, workflow: Any) -> None:
        super().__init__(workflow, 3, logging.getLogger("group"))

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> Any:
        members = [self.workflow.arun_episode(engine, data) for _ in range(self.group_size)]
        results = await asyncio.gather(*members)
        if None in results:
            return None
        if isinstance(next(iter(results[0].values())), torch.Tensor):
            return concat_padded_tensors(results)
        for n, result in enumerate(results):
            for interaction in result.values():
                interaction.original_reward = interaction.reward
                interaction.reward = n - 1.0
                if interaction._cache is not None:
                    interaction._cache["rewards"] = torch.tensor([n - 1.0])
        return {name: value for result in results for name, value in result.items()}


def _parse_tool_calls(
    text: str, tools: Any, parser: Any, reasoning: Any, finish_reason: str, **_: Any
) -> tuple[Any, str, str]:
    """AReaL parses tool calls with the inference engine's package, which is not here."""
    head, mark, rest = text.partition("<tool_call>")
    if not mark:
        return None, text, finish_reason
    asked = json.loads(rest.partition("</tool_call>")[0])
    function = Function(name=asked["name"], arguments=json.dumps(asked["arguments"]))
    call = ChatCompletionMessageFunctionToolCall(
        id=f"call-{asked['arguments']['n']}", function=function, type="function"
    )
    return [call], head, "tool_calls"


client_module.process_tool_calls = _parse_tool_calls

TOOLS = [
    {
        "type": "function",
        "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
    }
]


async def converse(client: Any, data: dict[str, Any]) -> None:
    """Two calls of the model with a tool's answer between them."""
    messages = [dict(m) for m in data["messages"]]
    first = await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    said = first.choices[0].message.model_dump(exclude_none=True)
    call = said["tool_calls"][0]
    messages += [said, {"role": "tool", "tool_call_id": call["id"], "content": "it is 42 ✓"}]
    second = await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    EPISODES.append({"task": data["query_id"], "ids": [first.id, second.id], "call": call})


class InProcess(RolloutWorkflow):
    """An agent on AReaL's own OpenAI client: it calls a tool, then answers."""

    def __init__(self, tokenizer: Any = TOK) -> None:
        self.tokenizer = tokenizer

    async def arun_episode(self, engine: Any, data: dict[str, Any]) -> Any:
        client = ArealOpenAI(
            engine=engine, tokenizer=TOK, tool_call_parser="qwen25", api_key="none"
        )
        await converse(client, data)
        client.set_last_reward(1.0)
        made = client.export_interactions(style="individual")
        for interaction in made.values():
            interaction.original_reward = None  # later versions have it
            interaction.reward = 1.0
        return made


class Unmarked:
    """The same agent as a user writes it for AReaL's proxy."""

    async def run(self, data: dict[str, Any], **kwargs: Any) -> float:
        client = AsyncOpenAI(
            base_url=kwargs["base_url"],
            api_key=kwargs["api_key"],
            http_client=kwargs["http_client"],
            max_retries=0,
        )
        TRANSPORTS.append(type(kwargs["http_client"]._transport).__name__)
        await converse(client, data)
        if "fails" in data["messages"][0]["content"]:
            raise ValueError("the grader does not answer")
        return 1.0


@areal.agent
class ThroughProxy(Unmarked):
    async def run(self, data: dict[str, Any], **kwargs: Any) -> float:
        return await super().run(data, **kwargs)


TRACED = "rollscope.adapters.areal.TracedWorkflow"
RLVR = {
    "inner": "areal.workflow.rlvr.RLVRWorkflow",
    "reward_fn": "areal_world.reward_fn",
    "gconfig": GCONFIG,
    "tokenizer": TOK,
}


def answer_of(rollout: Rollout) -> dict[str, Any]:
    return next(a for a in ANSWERS if a["text"] == written(rollout)[-1])


def branch(rollout: Rollout, leaf: Any) -> list[int]:
    n = rollout.messages.index(leaf)
    ids: list[int] = []
    while n >= 0:
        message = rollout.messages[n]
        ids = list(message.tokens.ids if message.tokens is not None else ()) + ids
        n = n - 1 if message.parent is None else message.parent
    return ids
