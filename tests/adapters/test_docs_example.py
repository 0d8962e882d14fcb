"""The example in docs/adapters.md is an adapter that works."""

import copy
import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bytetok import ByteTokenizer

from rollscope import capture
from rollscope.store.read.reader import Reader

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


class Trainer:
    __version__ = "1.0"
    config = SimpleNamespace(project="p", name="r")
    tokenizer = ByteTokenizer()
    global_step = 4

    def step(self, batch: list[Any]) -> int:
        return len(batch)


def example() -> dict[str, Any]:
    """The page's adapter, as a module."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) < 75
    module: dict[str, Any] = {}
    exec(code, module)
    return module


def row(tokenizer: ByteTokenizer) -> Any:
    return SimpleNamespace(
        prompt_ids=tokenizer.encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"),
        response_ids=tokenizer.encode("ok<|im_end|>"),
        mask=[1, 1, 1],
        logprobs=[-0.5, -0.25, -0.125],
        uid="u",
        sample=0,
        reward=1.0,
        dataset_id="q-1",
    )


def test_the_example_adapter_records(own_store: Path) -> None:
    trainer, module = Trainer(), example()
    assert module["attach"](module["attach"](trainer)) is trainer
    batch = [row(trainer.tokenizer)]
    before = copy.deepcopy(batch)
    assert trainer.step(batch) == 1
    assert batch == before
    finish()
    with Reader(own_store) as reader:
        ((id,),) = reader.cursor().execute("SELECT id FROM rollouts").fetchall()
        rollout = reader.get(id)
    assert rollout is not None
    assert [(m.role, m.content) for m in rollout.messages] == [("user", "hi"), ("assistant", "ok")]
    assert (rollout.step, rollout.split, rollout.task, rollout.reward) == (4, "train", "q-1", 1.0)
    tokens = [m.tokens for m in rollout.messages]
    ids = batch[0].prompt_ids + batch[0].response_ids
    assert [i for t in tokens for i in t.ids] == ids
    assert [v for v in tokens[1].logprob if v is not None] == batch[0].logprobs


def test_the_example_adapter_is_off_when_told_and_harmless_when_broken(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example()
    monkeypatch.setenv("ROLLSCOPE", "off")
    trainer = Trainer()
    module["attach"](trainer)
    assert "step" not in vars(trainer) and not own_store.exists()
    monkeypatch.delenv("ROLLSCOPE")
    module["convert"] = lambda *_, **__: 1 / 0
    module["attach"](trainer)
    assert trainer.step([row(trainer.tokenizer)]) == 1
    finish()


def test_the_example_adapter_tells_what_it_does_not_find(
    own_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Changed(Trainer):
        def step(self, rows: list[Any]) -> int:  # type: ignore[override]
            return len(rows)

    trainer = example()["attach"](Changed())
    assert trainer.step([1, 2]) == 2 and "step" not in vars(trainer)
    assert "MyTrainer 1.0: Changed.step has no parameter batch: it is (rows: " in caplog.text
    assert capture.active() is None


def test_lists_of_another_length_are_missing_in_the_example_too() -> None:
    tokenizer, problems = ByteTokenizer(), []
    short = row(tokenizer)
    short.logprobs = [-0.5]
    (rollout,) = example()["convert"]([short], step=4, tokenizer=tokenizer, problems=problems)
    assert rollout.messages[1].tokens.logprob is None
    assert any("logprob" in text for text in problems)


def test_everything_that_the_page_offers_is_there() -> None:
    table = PAGE.read_text().partition("## What is there to use")[2].partition("## Rules")[0]
    names = re.findall(r"`((?:capture|run|adapters)\.[\w.]+)`", table)
    assert len(names) > 10
    for name in names:
        place, _, attribute = name.rpartition(".")
        if place == "run":
            assert hasattr(capture.Run, attribute) or attribute == "before_finish", name
        else:
            owner = importlib.import_module(f"rollscope.{place}")
            known = hasattr(owner, attribute)
            assert known or importlib.import_module(f"rollscope.{name}"), name


def finish() -> None:
    run = capture.active()
    assert run is not None
    run.finish()
