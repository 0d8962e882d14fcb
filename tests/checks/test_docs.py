"""The examples of docs/checks.md do what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import rollscope
from rollscope.checks import Settings, scan

from .made import rollout

PAGE = (Path(__file__).parents[2] / "docs" / "checks.md").read_text()


def test_the_examples_run(own_store: Path, capsys: Any) -> None:
    with rollscope.init(project="math", run="r") as run:
        run.log([rollout("no, " * 5000, split="train"), rollout("I'm sorry.", split="train")])
    read, own = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(read, {})
    assert "reply.loop 1 " in capsys.readouterr().out
    names: dict[str, Any] = {}
    exec(own, names)
    (mine,) = names["CHECKS"]
    store = rollscope.open()
    scan(store, settings=Settings(Path("none"), {mine.id: mine}))
    assert store.rollouts("flag:reply.apology").count() == 1
    (found,) = store.findings().of("reply.apology")
    assert found.text == "the whole reply is an apology" and (found.start, found.end) == (0, 10)


def test_the_example_of_parameters_is_understood(own_store: Path, tmp_path: Path) -> None:
    (example,) = (t for t in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if "ratio" in t)
    file = tmp_path / "checks.toml"
    file.write_text(example)
    settings = Settings(file)
    assert "reply.loop" in settings.off("math") and "reply.loop" not in settings.off("other")
