"""Run by test_asking.py in a process of its own: a legacy worker and nothing about Rollscope.

Prints as JSON whether verl's functions are still the ones that verl defined.
"""

import asyncio
import json
import sys
from pathlib import Path

import verl.experimental.agent_loop.agent_loop as agent_loop
import verl.experimental.agent_loop.tool_agent_loop as tool_agent_loop
import verl.trainer.ppo.ray_trainer as ray_trainer
import verl.trainer.ppo.v1.replay_buffer as replay_buffer
import verl.trainer.ppo.v1.trainer_base as trainer_base
import verl.utils.rollout_trace as rollout_trace
import verl.utils.tracking as tracking
from world import Engine, dataset_rows, legacy_batch, make_config

PLACES = [
    (rollout_trace, "rollout_trace_op"),
    (rollout_trace, "rollout_trace_attr"),
    (tool_agent_loop, "rollout_trace_op"),
    (tool_agent_loop.ToolAgentLoop, "run"),
    (tool_agent_loop.ToolAgentLoop, "_call_tool"),
    (agent_loop.AgentLoopWorker, "__init__"),
    (agent_loop.AgentLoopWorker, "generate_sequences"),
    (agent_loop.AgentLoopWorker, "_run_agent_loop"),
    (agent_loop.AgentLoopWorker, "_compute_score"),
    (agent_loop.AgentLoopManager, "generate_sequences"),
    (agent_loop.LLMServerClient, "generate"),
    (ray_trainer, "compute_advantage"),
    (ray_trainer.RayPPOTrainer, "_update_actor"),
    (trainer_base, "compute_advantage_for_multi_trajectories"),
    (trainer_base.PPOTrainer, "__init__"),
    (trainer_base.PPOTrainer, "_compute_advantage"),
    (trainer_base.PPOTrainer, "_update_actor"),
    (replay_buffer.ReplayBuffer, "_clear_groups"),
    (tracking.Tracking, "log"),
]


def main(model: str, *overrides: str) -> None:
    defined = [getattr(owner, name) for owner, name in PLACES]
    ours = [f.__qualname__ for f in defined if "rollscope" in f.__code__.co_filename]
    config = make_config(Path(model), *overrides)
    engine = Engine(config, None)
    worker = agent_loop.AgentLoopWorker(config, engine)
    engine.tokenizer_real = worker.tokenizer
    asyncio.run(worker.generate_sequences(legacy_batch(dataset_rows(2, 2))))
    now = [getattr(owner, name) for owner, name in PLACES]
    replaced = [name for (_, name), a, b in zip(PLACES, defined, now, strict=True) if a is not b]
    print(json.dumps({"ours": ours, "replaced": replaced, "turns": len(engine.turns)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
