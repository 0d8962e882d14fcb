"""The example in docs/adapters.md is an adapter that works."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bytetok import ByteTokenizer

from rollscope import capture

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


class Trainer:
    __version__ = "1.0"
    config = SimpleNamespace(project="p", name="r")
    tokenizer = ByteTokenizer()
    global_step = 4

    def step(self, batch: list[Any]) -> int:
        return len(batch)


def test_the_example_adapter_records(own_store: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    module: dict[str, Any] = {}
    exec(code, module)
    trainer = Trainer()
    module["attach"](trainer)
    encode = trainer.tokenizer.encode
    row = SimpleNamespace(
        prompt_ids=encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"),
        response_ids=encode("ok<|im_end|>"),
        mask=[1, 1, 1],
        logprobs=[-0.5, -0.25, -0.125],
        uid="u",
        sample=0,
        reward=1.0,
        dataset_id="q-1",
    )
    assert trainer.step([row]) == 1
    run = capture.active()
    assert run is not None
    run.finish()
    assert run.counters.recorded == 1
    (rollout,) = module["convert"]([row], step=4, tokenizer=trainer.tokenizer)
    assert [(m.role, m.content) for m in rollout.messages] == [("user", "hi"), ("assistant", "ok")]
