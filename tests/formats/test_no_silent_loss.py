"""Every text and number of real files is somewhere in the rollouts, except what is named here.

The names are those of docs/formats.md: what a rollout cannot hold, and what stands for it.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rollscope.formats import read
from rollscope.formats.jsonl import encode
from rollscope.model import Rollout

DATA = Path(__file__).parents[3] / "shared" / "data"

OUTSIDE = ("events", "attachments")

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the real rollouts lie in ../shared/data, which is not here"
)


def raw(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every text and number of a JSON value, with its path, lists as `[]`."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, f"{path}[]")
    elif value is not None and not isinstance(value, bool):
        yield path, value


def lost(bodies: Iterable[Any], rollouts: Iterable[Any]) -> set[str]:
    """The paths of what stands in a file and nowhere in its rollout."""
    missing = set()
    for body, rollout in zip(bodies, rollouts, strict=True):
        assert isinstance(rollout, Rollout), str(rollout)
        line = encode(rollout)
        made = {value for _, value in leaves(json.loads(line))}
        text = json.dumps(json.loads(line))
        for path, value in leaves(body):
            if value in made or str(value) in made:
                continue
            if not (isinstance(value, str) and _is_inside(value, text, made)):
                missing.add(path)
    return missing


def _is_inside(value: str, text: str, made: set[Any]) -> bool:
    if json.dumps(value)[1:-1] in text:
        return True
    try:  # JSON in text, which is kept as the JSON that it is
        return {leaf for _, leaf in leaves(json.loads(value))} <= made
    except ValueError:
        return False


def unnamed(missing: set[str], named: str) -> set[str]:
    return {path for path in missing if not re.fullmatch(named, path)}


def test_tau_bench() -> None:
    path = DATA / "tau-bench" / "gpt-4o-airline.json.gz"
    missing = lost(json.loads(raw(path)), read(path))
    assert unnamed(missing, r"\.traj\[\]\.tool_calls\[\]\.type") == set(), "always `function`"


def test_swe_agent() -> None:
    files = sorted((DATA / "swe-agent").rglob("*.traj*"))
    missing = lost([json.loads(raw(file)) for file in files], read(DATA / "swe-agent"))
    sent_again = r"\.trajectory\[\]\.(messages|query)\[\]\..*"
    assert unnamed(missing, sent_again) == set()


def test_nemo_gym() -> None:
    bodies = [
        json.loads(line)
        for file in sorted((DATA / "nemo-gym").rglob("*.jsonl*"))
        for line in raw(file).splitlines()
    ]
    missing = lost(bodies, read(DATA / "nemo-gym"))
    kinds = r".*\.(output|input)(\[\])+(\.(content|summary)\[\])?\.type"
    assert unnamed(missing, rf"{kinds}|.*\.prompt_token_ids\[\]") == set()


def test_inspect() -> None:
    for log in sorted((DATA / "inspect-reward-hacking" / "evals").glob("*.eval"))[:2]:
        with zipfile.ZipFile(log) as file:
            names = [name for name in file.namelist() if name.startswith("samples/")]
            samples = [json.loads(file.read(name)) for name in names]
        for sample in samples:  # texts of events lie there, too
            others = json.dumps({k: v for k, v in sample.items() if k not in OUTSIDE})
            attached = sample.get("attachments") or {}
            sample["attachments"] = {k: v for k, v in attached.items() if k in others}
        missing = lost(samples, read(log))
        dates = r"\.(started|completed)_at"
        assert unnamed(missing, rf"{dates}|\.events\[\]\..*") == set()
