"""What we export comes back: everything but what docs/formats.md says is left out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope import Message, Rollout, Span, Tokens
from rollscope.cli import main
from rollscope.formats import Problem, find, read
from rollscope.formats._encode import encode
from rollscope.model import Error, Part, ToolCall
from rollscope.model.conversation import branches, by_policy, text

DATA = Path(__file__).parents[3] / "shared" / "data"
PLACE = ("id", "project", "run", "launch", "worker")
"""A rollout that is imported gets a new place; `meta.origin` has the old one."""


def odd() -> Iterator[Rollout]:
    """What real files rarely have: branches, calls inside parts, NaN, streams of other names."""
    ids = Tokens(
        [1, 2], ends=[1, 2], logprob=[-0.5, None], mask=[0, 1], streams={"mine": [1.0, 2.0]}
    )
    yield Rollout(
        key="tree", step=3, task="t", index=0, group="g", split="train", reward=math.nan,
        rewards={"a": 0.5, "b": -math.inf}, reward_texts={"a": "fine"}, advantage=0.25,
        error=Error(kind="tool", type="Timeout", text="late"), sampling={"top_p": 0.9},
        reference={"x": [1, None]}, start=1.5, end=2.5, policy_version=7, truncated=False,
        messages=[
            Message(role="user", content="q"),
            Message(role="assistant", content="first", sampled=True, tokens=ids),
            Message(role="assistant", parent=0, sampled=True, content=[
                Part(type="reasoning", text="hm"), Part(type="text", text="second"),
            ]),
            Message(role="environment", content="told", state={"at": [1]}, reward=0.5),
        ],
        spans=[Span(name="f", id="s", inputs={"x": 1}, start=1.0, end=2.0)],
        meta={"lang": "de", "deep": {"a": [1, 2]}},
    )  # fmt: skip
    yield Rollout(
        key="parts", messages=[
            Message(role="user", content=[
                Part(type="text", text="see"), Part(type="image", image="data:image/png;base64,AA"),
            ]),
            Message(role="assistant", sampled=True, tool_calls=[
                ToolCall(id="c", name="f", arguments='{"a": 1}'),
                ToolCall(id="d", name="g", arguments="not json"),
            ]),
            Message(role="tool", tool_call_id="c", name="f", content="4", meta={"took": 1.5}),
        ],
    )  # fmt: skip
    yield Rollout(
        key="broken", messages=[
            Message(role="assistant", sampled=True, content=[
                Part(type="text", text="So:"),
                Part(type="unparsed_tool_call", data={"raw": "{", "error": "torn"}),
                Part(type="data", data={"data": [1]}),
            ]),
        ],
    )  # fmt: skip
    yield Rollout(key="nothing", task="t", step=3, index=1, group="g", reference=[])
    for n in range(3):
        asked = [Message(role="user", content="Well?"), Message(role="assistant", content=f"{n}")]
        asked[1].sampled = True
        yield Rollout(key=f"pair {n}", group="h", index=n, reward=float(n), messages=asked)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with real rollouts of four programs, and some odd ones."""
    folder = tmp_path_factory.mktemp("trips") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        patch.setenv("ROLLSCOPE_MIN_FREE", "0")
        with rollscope.init(project="p", run="odd", dir=folder) as run:
            run.log(list(odd()))
            run.annotate(key="tree", streams={"advantage": [0.1, 0.2]}, message=1)
            run.annotate(key="tree", reward=1.0, author="ada", **{"label.odd": True})
            run.metrics(3, {"loss": 0.5})
        if DATA.is_dir():
            log = next(DATA.glob("inspect*/evals/*lcb-oneoff*"))
            found = [DATA / "nemo-gym" / "resources_servers", DATA / "swe-agent", log]
            with rollscope.init(project="p", run="real", dir=folder) as run:
                for path in found:
                    run.log([r for r in islice(read(path), 150) if isinstance(r, Rollout)])
    return folder


def exported(store: Path, tmp_path: Path, name: str, *words: str) -> Path:
    out = tmp_path / (name if name in ("parquet", "hf", "scout") else f"{name}.jsonl")
    assert main(["export", name, "--out", str(out), "--dir", str(store), *words]) == 0
    return out


def back(path: Path) -> list[Rollout]:
    """The rollouts of an export, as they are recognised and read."""
    found = [item for source in find(path) if hasattr(source, "read") for item in source.read()]
    assert [str(item) for item in found if isinstance(item, Problem)] == []
    return [item for item in found if isinstance(item, Rollout)]


def stored(store: Path, query: str = "") -> dict[str, Rollout]:
    with closing(rollscope.open(store)) as opened:
        return {row.id: opened.get(row.id) for row in opened.rollouts(query)}


def plain(rollout: Rollout, leave: tuple[str, ...] = ()) -> Any:
    """As JSON, without its place and what is to be left out."""
    body = json.loads(encode(rollout))
    return {k: v for k, v in body.items() if k not in (*PLACE, *leave)}


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_nothing_is_lost(name: str, store: Path, tmp_path: Path) -> None:
    was = stored(store)
    now = {str(r.id): r for r in back(exported(store, tmp_path, name))}
    assert len(was) == len(now) > 2
    for id, rollout in was.items():
        here = plain(now[id])
        for extra in ("labels", "facts"):
            here.get("meta", {}).pop(extra, None)
        if not here.get("meta"):
            here.pop("meta", None)
        assert here == plain(rollout), id


def test_people_s_labels_come_back_with_their_authors(store: Path, tmp_path: Path) -> None:
    now = {r.key: r for r in back(exported(store, tmp_path, "parquet", "key:tree"))}
    (fact,) = now["tree"].meta["facts"]
    assert (fact["name"], fact["value"], fact["author"]) == ("label.odd", True, "ada")
    now = {r.key: r for r in back(exported(store, tmp_path, "jsonl", "key:tree"))}
    assert now["tree"].meta["labels"] == ["odd"]


def test_the_metrics_of_one_run_come_back(store: Path, tmp_path: Path) -> None:
    (source,) = [
        s for s in find(exported(store, tmp_path, "parquet", "run:odd")) if hasattr(s, "read")
    ]
    assert list(source.metrics()) == [(3, {"loss": 0.5})]


def said(rollout: Rollout) -> list[Any]:
    return [
        (m.role, text(m), m.tool_call_id, [(c.id, c.name) for c in m.tool_calls])
        for m in rollout.messages
    ]


def others(message: Message) -> list[Any]:
    """The parts that are neither text nor a picture."""
    parts = message.content if isinstance(message.content, list) else []
    return [(part.type, part.data) for part in parts if part.data is not None]


def test_a_hugging_face_dataset_comes_back(store: Path, tmp_path: Path) -> None:
    was = stored(store)
    now = {str(r.id): r for r in back(exported(store, tmp_path, "hf"))}
    assert len(was) == len(now)
    for id, rollout in was.items():
        here, there = now[id], rollout
        leave = ("messages", "meta")
        assert plain(here, leave) == plain(there, leave), id
        assert said(here) == said(there), id
        assert [others(m) for m in here.messages] == [others(m) for m in there.messages]
        for mine, theirs in zip(here.messages, there.messages, strict=True):
            for field in ("parent", "sampled", "stop_reason", "reward", "name"):
                assert getattr(mine, field) == getattr(theirs, field), (id, field)
            ids = None if theirs.tokens is None else theirs.tokens.ids
            assert (None if mine.tokens is None else mine.tokens.ids) == ids


def test_transcripts_of_scout_come_back(store: Path, tmp_path: Path) -> None:
    was = stored(store)
    now = {str(r.id): r for r in back(exported(store, tmp_path, "scout"))}
    assert len(was) == len(now)
    leave = ("messages", "meta", "spans", "reward_texts", "start", "end", "time", "error")
    for id, rollout in was.items():
        here = now[id]
        assert plain(here, leave) == plain(rollout, leave), id
        way = branches(rollout.messages)
        last = way[-1] if way else []
        assert [(m.role, text(m)) for m in here.messages] == [(m.role, text(m)) for m in last], id
        assert [by_policy(m) for m in here.messages] == [by_policy(m) for m in last]
        assert [others(m) for m in here.messages] == [others(m) for m in last]


def test_atif_comes_back_with_its_rewards(store: Path, tmp_path: Path) -> None:
    was = stored(store)
    now = back(exported(store, tmp_path, "atif"))
    assert len(was) == len(now)
    by_id = {str(r.key): r for r in now}
    for id, rollout in was.items():
        here = by_id.get(id) or by_id[str(rollout.key)]
        for field in ("reward", "step", "task", "index", "group", "advantage", "environment"):
            mine, theirs = getattr(here, field), getattr(rollout, field)
            assert mine == theirs or (mine != mine and theirs != theirs), (id, field)
        assert {k: repr(v) for k, v in here.rewards.items()} == {
            k: repr(v) for k, v in rollout.rewards.items()
        }
        assert [m.role for m in here.messages] == [m.role for m in rollout.messages], id
        assert [bool(text(m)) for m in here.messages] == [bool(text(m)) for m in rollout.messages]


def test_pairs_come_back_as_two_rollouts_of_a_group(store: Path, tmp_path: Path) -> None:
    path = exported(store, tmp_path, "pairs")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    now = back(path)
    assert len(now) == 2 * len(lines) > 0
    for line, (best, worst) in zip(lines, zip(now[::2], now[1::2], strict=True), strict=True):
        assert (best.reward, worst.reward) == (line["score_chosen"], line["score_rejected"])
        assert best.group == worst.group
        assert best.task == worst.task
        assert (best.key, worst.key) == (line["id_chosen"], line["id_rejected"])
        assert len(best.messages) == len(line["prompt"]) + len(line["chosen"])


def test_lines_for_fine_tuning_come_back(store: Path, tmp_path: Path) -> None:
    path = exported(store, tmp_path, "sft")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    now = back(path)
    assert [len(r.messages) for r in now] == [len(line["messages"]) for line in lines]
    assert [r.reward for r in now] == [line["reward"] for line in lines]


def test_what_was_imported_from_an_export_is_exported_again_the_same(
    store: Path, tmp_path: Path
) -> None:
    """Through the command, into another store: twice round is the same as once."""
    first = exported(store, tmp_path, "jsonl")
    other = tmp_path / "other"
    assert main(["import", str(first), "--dir", str(other)]) == 0
    again = tmp_path / "again.jsonl"
    assert main(["export", "jsonl", "--out", str(again), "--dir", str(other)]) == 0

    def bodies(path: Path) -> list[str]:
        found = []
        for line in path.read_text().splitlines():
            body = {k: v for k, v in json.loads(line).items() if k not in (*PLACE, "key")}
            body["meta"] = {k: v for k, v in body.get("meta", {}).items() if k != "origin"}
            found.append(json.dumps(body, sort_keys=True))
        return sorted(found)

    assert bodies(again) == bodies(first)


def test_a_folder_of_exports_is_read_by_their_formats(store: Path, tmp_path: Path) -> None:
    for name in ("parquet", "hf", "scout", "atif", "pairs"):
        exported(store, tmp_path, name)
    formats = {s.format for s in find(tmp_path) if hasattr(s, "format")}
    assert formats == {"parquet", "hf", "scout", "atif", "pairs"}
