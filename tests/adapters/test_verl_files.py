"""verl's own dumps are read, and what they do not say is not made up."""

import json
from pathlib import Path
from typing import Any

from rollscope.adapters.verl import read, recognise
from rollscope.formats import detect
from rollscope.model.problem import Problem


def dump(folder: Path, step: int, rows: list[dict[str, Any]]) -> None:
    """As verl writes it: `<step>.jsonl`, one row a line."""
    folder.mkdir(exist_ok=True)
    with (folder / f"{step}.jsonl").open("w") as file:
        for row in rows:
            base = {"input": "user\n2+3?\nassistant\n", "output": "5", "gts": "5", "score": 1.0}
            file.write(json.dumps({**base, "step": step, **row}, ensure_ascii=False) + "\n")


def test_v1_rows_know_their_group_and_place(tmp_path: Path) -> None:
    folder = tmp_path / "rollout_data"
    dump(folder, 10, [{"uid": "a-b_0_0", "acc": True, "pred": "5"}, {"uid": "a-b_1_0", "score": 0}])
    dump(folder, 9, [{"uid": "c_0_0", "output": "draft"}, {"uid": "c_0_1", "output": "5 🙂"}])
    assert recognise(folder) and detect(folder) == "verl"
    first, *rest = read(folder)
    assert (first.step, first.group, first.index) == (9, "c", 0)
    assert [m.content for m in first.messages if m.role == "assistant"] == ["draft", "5 🙂"]
    assert [m.parent for m in first.messages] == [None, None, -1, None]
    assert [(r.group, r.index, r.reward) for r in rest] == [("a-b", 0, 1.0), ("a-b", 1, 0)]
    assert rest[0].rewards == {"acc": 1.0} and rest[0].meta == {"pred": "5"}
    assert (rest[0].split, rest[0].reference) == ("train", "5")


def test_legacy_rows_have_no_place(tmp_path: Path) -> None:
    folder = tmp_path / "val"
    dump(folder, 3, [{"request_id": "r1"}, {"request_id": "r2"}, {"input": "other"}])
    found = list(read(folder / "3.jsonl"))
    assert {r.split for r in found} == {"eval"}
    assert [r.index for r in found] == [None] * 3
    assert found[0].group == found[1].group != found[2].group
    assert len({r.key for r in found}) == 3


def test_a_bad_line_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    dump(folder, 1, [{}, {}])
    file = folder / "1.jsonl"
    file.write_text(file.read_text() + '{"input": "x", "outp')
    *good, bad = read(folder)
    assert len(good) == 2 and good[0].split is None
    assert isinstance(bad, Problem) and bad.line == 3


def test_other_files_are_not_taken_for_verls(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"messages": []}\n')
    assert not recognise(tmp_path) and not recognise(tmp_path / "none")
