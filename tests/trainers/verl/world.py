"""verl's real workers, with only the inference engine replaced.

`Engine` is a scripted `LLMServerClient`: it answers from a table, and keeps its own record of
what it was asked and what it wrote, byte for byte. Tests compare what was stored with that.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir
from tensordict import NonTensorData, NonTensorStack, TensorDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config
from verl import DataProto
from verl.utils.rollout_trace import rollout_trace_op
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from rollscope.model import Fact, Message, Rollout, Tokens, fold, wire
from rollscope.store import frames

TOOL = '''
from verl.tools.function_tool import function_tool
@function_tool
def add(a: int, b: int) -> str:
    """Add two integers.

    Args:
        a: first
        b: second
    """
    return str(a + b)
'''

TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}"
    '{%- if m.tool_calls %}{%- for tc in m.tool_calls %}{{- \'<tool_call>\\n{"name": "\' + '
    'tc.function.name + \'", "arguments": \' + (tc.function.arguments | tojson) + '
    "'}\\n</tool_call>' }}{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'


def make_model(path: Path) -> Path:
    """A tokenizer of bytes and a tiny configuration, on disk as verl wants it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    config.architectures = ["Qwen2ForCausalLM"]
    config.save_pretrained(path)
    (path / "tools.py").write_text(TOOL)
    return path


def make_config(model: Path, *overrides: str) -> Any:
    directory = Path(verl.__file__).parent / "trainer" / "config"
    with initialize_config_dir(str(directory), version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={model}",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.prompt_length=512",
                "actor_rollout_ref.rollout.response_length=512",
                "actor_rollout_ref.rollout.multi_turn.format=hermes",
                f"actor_rollout_ref.rollout.multi_turn.function_tool_path={model}/tools.py",
                "actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent",
                "actor_rollout_ref.rollout.calculate_log_probs=True",
                "actor_rollout_ref.rollout.n=2",
                "trainer.project_name=maths",
                "trainer.experiment_name=tiny",
                *overrides,
            ],
        )


_VERSIONS = ("global_steps", "min_global_steps", "max_global_steps")


class Engine(LLMServerClient):
    """Calls a tool first and answers then; every answer is different, with odd characters."""

    is_numbered = True
    version = 7
    """Of its weights."""

    def __init__(self, config: Any, tokenizer: Any, fail: Callable[[str], None] | None = None):
        self.config = config
        self.tokenizer_real = tokenizer
        self.tokenizer = None
        self.turns: list[dict[str, Any]] = []
        self.fail = fail
        self.record: Path | None = None
        """Where to write the record, when the engine lives in other processes."""

    @rollout_trace_op
    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict, **kwargs: Any
    ) -> TokenOutput:
        await asyncio.sleep(0)
        text = self.read(prompt_ids)
        if self.fail is not None:
            self.fail(text)
        answered = text.count("<|im_start|>tool")
        number = len(self.turns) if self.is_numbered else 0
        who = f"{number} {os.getpid()}" if self.is_numbered else ""
        said = f"It is 5. 🙂 naïve {who}" if answered else CALL
        ids = self.tokenizer_real.encode(said, add_special_tokens=False)
        ids.append(self.tokenizer_real.eos_token_id)
        logprobs = [-0.25 - i / 64 - number for i in range(len(ids))]
        turn = {"request": request_id, "prompt": list(prompt_ids), "ids": list(ids)}
        self.turns.append({**turn, "logprobs": logprobs, "text": said})
        if self.record is not None:
            with (self.record / f"{os.getpid()}.jsonl").open("ab") as file:
                file.write(msgspec.json.encode(self.turns[-1]) + b"\n")
        return TokenOutput(
            token_ids=ids,
            log_probs=list(logprobs),
            stop_reason="completed",
            extra_fields=dict.fromkeys(_VERSIONS, self.version),
        )

    def read(self, ids: list[int]) -> str:
        if self.tokenizer_real is None:
            path = self.config.actor_rollout_ref.model.path
            self.tokenizer_real = AutoTokenizer.from_pretrained(path)
        return str(self.tokenizer_real.decode(ids))

    def conversations(self) -> list[list[dict[str, Any]]]:
        """The turns of each rollout, in the order in which rollouts began."""
        found: dict[str, list[dict[str, Any]]] = {}
        for turn in self.turns or self._recorded():
            found.setdefault(turn["request"], []).append(turn)
        return list(found.values())

    def _recorded(self) -> list[dict[str, Any]]:
        files = [] if self.record is None else sorted(self.record.glob("*.jsonl"))
        return [msgspec.json.decode(line) for f in files for line in f.read_bytes().splitlines()]


class SameAgain(Engine):
    """Says the same to the same prompt, whatever order verl's threads ask in."""

    is_numbered = False


def reward_of(response: Iterable[int]) -> float:
    return sum(response) % 97 / 96


class Grader:
    """A reward worker's handle: gives a reward that depends on the tokens, and remembers it."""

    def __init__(self) -> None:
        self.given: dict[tuple[int, ...], float] = {}
        self.compute_score = self

    async def remote(self, data: DataProto) -> dict[str, Any]:
        ids = tuple(data.batch["responses"][-1].tolist())
        reward = reward_of(ids)
        self.given[ids] = reward
        return {"reward_score": reward, "reward_extra_info": {"acc": reward > 0.5, "pred": "5"}}


def dataset_rows(prompts: int, repeat: int) -> dict[str, list[Any]]:
    """The columns that verl's own dataset makes, each prompt `repeat` times."""
    columns: dict[str, list[Any]] = {}
    for i in range(prompts):
        row = {
            "raw_prompt": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": f"What is 2+3? ({i}) 你好"},
            ],
            "index": 100 + i,
            "uid": f"uid-{i}",
            "data_source": "sums",
            "reward_model": {"style": "rule", "ground_truth": "5"},
            "extra_info": {"index": 100 + i, "level": "easy"},
        }
        for name, value in row.items():
            columns.setdefault(name, []).extend([value] * repeat)
    return columns


def legacy_batch(columns: dict[str, list[Any]], step: int = 3, validate: bool = False) -> DataProto:
    n = len(columns["raw_prompt"])
    arrays = {}
    for name, values in columns.items():
        arrays[name] = np.empty(n, dtype=object)
        arrays[name][:] = values
    return DataProto.from_dict(
        tensors={"dummy": torch.zeros(n, 1)},
        non_tensors=arrays,
        meta_info={"global_steps": step, "validate": validate},
    )


def v1_batch(columns: dict[str, list[Any]], step: int = 3, validate: bool = False) -> TensorDict:
    n = len(columns["raw_prompt"])
    data = {k: NonTensorStack(*[NonTensorData(v) for v in values]) for k, values in columns.items()}
    data["global_steps"] = torch.tensor([step] * n)
    batch = TensorDict(data, batch_size=[n])
    if validate:
        batch["validate"] = NonTensorData(True)
    return batch


def wait_for(store: Path, ready: Callable[[list[Rollout]], bool]) -> list[Rollout]:
    """What is stored, once it is as it should be: actors write on, this process reads."""
    deadline = time.monotonic() + 300
    found: list[Rollout] = []
    while time.monotonic() < deadline:
        found = stored(store) if store.exists() else []
        if found and ready(found):
            return found
        time.sleep(0.1)
    told = [(r.key, r.step, r.trained_step, r.fate, r.fate_reason, r.reward) for r in found]
    raise AssertionError(f"not ready after 300 s: {told}")


# -- what was stored -------------------------------------------------------------------


def lines(store: Path) -> list[tuple[str, dict[str, Any]]]:
    return [
        (log.name, msgspec.json.decode(line))
        for log in sorted(store.rglob("live/*.jsonl.zst"))
        for frame in frames.scan(log)
        for line in frame.lines()
    ]


def stored(store: Path) -> list[Rollout]:
    """Every rollout, its late facts folded in, from the logs."""
    heads: dict[str, dict[str, Any]] = {}
    parts: dict[str, dict[str, dict[Any, Any]]] = {}
    facts: dict[str, list[tuple[Fact, str]]] = {}
    for log, line in lines(store):
        body = line.get("rollout") or line.get("more")
        if body is not None:
            if "rollout" in line:
                heads[body["id"]] = body
            mine = parts.setdefault(body["id"], {"messages": {}, "spans": {}})
            for n, message in enumerate(body.pop("messages", ()), body.pop("first", 0)):
                mine["messages"][n] = message
            mine["spans"] |= {span["id"]: span for span in body.pop("spans", ())}
        for raw in line.get("facts", ()):
            fact = msgspec.convert(raw, Fact)
            facts.setdefault(fact.rollout, []).append((fact, log))
    found = []
    for id, head in heads.items():
        messages = [_message(m) for _, m in sorted(parts[id]["messages"].items())]
        head["spans"] = list(parts[id]["spans"].values())
        rollout = msgspec.convert(head, Rollout)
        rollout.messages = messages
        found.append(fold(rollout, facts.get(id, ())))
    return found


def _message(raw: dict[str, Any]) -> Message:
    tokens, parts, text = raw.pop("tokens", None), raw.pop("parts", None), raw.pop("content", None)
    message = msgspec.convert(raw, Message)
    message.content = wire.join_parts(text or "", parts) if parts is not None else text
    if tokens is not None:
        streams = tokens.pop("streams", {})
        message.tokens = Tokens(
            tokens.pop("ids", []), tokens.pop("ends", None), {**tokens, **streams}
        )
    return message


def flat(rollout: Rollout, stream: str = "ids") -> list[Any]:
    """All tokens of a rollout, or one stream of them with None where it is not known."""
    out: list[Any] = []
    for message in rollout.messages:
        if message.tokens is not None:
            values = message.tokens.ids if stream == "ids" else message.tokens.streams.get(stream)
            out += values if values is not None else [None] * len(message.tokens)
    return out
