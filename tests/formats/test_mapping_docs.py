"""The examples of docs/formats.md: each mapping makes of the file above it what stands below it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rollscope.formats import check_mapping, read
from rollscope.model import Rollout

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
EXAMPLE = re.compile(
    r"^\*\*(?P<title>.+?)\*\*.*?\n\n```(?P<kind>json|jsonl|csv)\n(?P<log>.*?)```\n"
    r"```bash\n(?P<command>.*?)```\n```\n(?P<made>.*?)```",
    re.DOTALL | re.M,
)
EXAMPLES = list(EXAMPLE.finditer(PAGE.read_text()))


def told(rollout: Rollout) -> str:
    """A rollout as the page tells it."""
    names = ("group", "task", "index", "reward")
    fields = [f"{n} {getattr(rollout, n)}" for n in names if getattr(rollout, n) is not None]
    if rollout.group is not None and rollout.task is None:
        fields = [f for f in fields if not f.startswith("task")]
    said = ", ".join(f'{m.role} "{m.content}"' for m in rollout.messages)
    return f"{', '.join(fields)}: {said}"


@pytest.mark.parametrize("example", EXAMPLES, ids=[found["title"] for found in EXAMPLES])
def test_what_the_page_shows(example: re.Match[str], tmp_path: Path) -> None:
    words = shlex.split(example["command"])
    assert words[:3] == ["rollscope", "import", "columns"]
    path = tmp_path / words[3]
    path.write_text(example["log"])
    mapping = words[words.index("--map") + 1]
    check_mapping([path], mapping)
    found = list(read(path, "columns", mapping))
    assert [told(item) if isinstance(item, Rollout) else item for item in found] == (
        example["made"].splitlines()
    )


def test_every_example_is_found() -> None:
    assert len(EXAMPLES) == PAGE.read_text().count("```bash\nrollscope import columns") > 6
