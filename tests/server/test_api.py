"""What the API answers, over a real store and a real server."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rollscope
from rollscope.cli import main
from rollscope.model import Message, Rollout
from rollscope.server.openapi import describe
from rollscope.server.routes import ROUTES
from rollscope.server.shapes import RolloutRow
from rollscope.store.read.bodies import sketch
from rollscope.store.read.reader import Reader

from .conftest import Served, serving
from .made import SIBLINGS, STEPS, TASKS

ALL = STEPS * TASKS * SIBLINGS


def test_paging_by_cursor_gives_every_rollout_once(site: Served) -> None:
    seen: list[str] = []
    cursor = ""
    while True:
        page = site.get("rollouts", q="split:train", limit=7, cursor=cursor)
        assert page["at"] == len(seen)
        seen += [row["id"] for row in page["rows"]]
        cursor = page["next"] or ""
        if not cursor:
            break
    assert len(seen) == len(set(seen)) == page["count"] == ALL


def test_paging_by_place_gives_the_same_rows_as_the_cursor(site: Served) -> None:
    whole = site.get("rollouts", q="split:train", limit=50)["rows"]
    part = site.get("rollouts", q="split:train", limit=10, at=20)
    assert [row["id"] for row in part["rows"]] == [row["id"] for row in whole[20:30]]


def test_the_page_and_ls_list_the_same_runs_also_those_without_a_rollout_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with rollscope.init(project="p", run="done", dir=tmp_path) as run:
        run.log(Rollout(step=3, messages=[]))
    begun = rollscope.init(project="p", run="begun", dir=tmp_path)
    with serving(tmp_path) as site:
        shown = site.get("runs")["runs"]
    begun.finish()
    assert main(["ls", "--json", "--dir", str(tmp_path)]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [run["run"] for run in shown] == ["done", "begun"]
    same = ("project", "run", "rollouts", "superseded", "first_step", "last_step")
    assert [[run[name] for name in same] for run in shown[::-1]] == [
        [run[name] for name in same] for run in listed
    ]
    assert [(run["live"], run["last_time"] is None) for run in shown] == [
        (False, False),
        (True, True),
    ]


def test_rows_have_the_columns_that_were_asked_for_and_no_others(site: Served) -> None:
    whole = site.get("rollouts", q="split:train", limit=5)["rows"]
    assert set(whole[0]) == set(RolloutRow.__struct_fields__)
    asked = {"id", "reward", "duration", "labels", "environment"}
    part = site.get("rollouts", q="split:train", limit=5, columns=", ".join(asked - {"id"}))
    assert part["rows"] == [{name: row[name] for name in asked} for row in whole]


def test_a_column_that_does_not_exist_is_named(site: Served) -> None:
    answer = site.raw("rollouts", columns="reward,rewrad")
    assert answer.status_code == 400
    assert "no such column: rewrad (known: id, project" in answer.json()["error"]


def test_the_place_of_a_rollout_in_a_selection_is_known(site: Served) -> None:
    rows = site.get("rollouts", q="split:train", limit=60)["rows"]
    for at in (0, 1, 37, 59):
        assert site.get(f"rollouts/{rows[at]['id']}/place", q="split:train")["at"] == at
    assert site.get(f"rollouts/{rows[0]['id']}/place", q="split:odd")["at"] is None


def test_siblings_stand_together_newest_step_first(site: Served) -> None:
    rows = site.get("rollouts", q="split:train", limit=SIBLINGS * 2)["rows"]
    assert [row["step"] for row in rows] == [STEPS - 1] * SIBLINGS * 2
    assert [row["index"] for row in rows] == [*range(SIBLINGS)] * 2
    assert len({row["group"] for row in rows}) == 2


def test_an_unchanged_answer_is_not_sent_again(site: Served) -> None:
    first = site.raw("rollouts", q="split:train")
    again = site.raw("rollouts", q="split:train", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""


def test_a_wrong_query_is_answered_with_where_and_what_instead(site: Served) -> None:
    answer = site.raw("rollouts", q="split:train stpe:3")
    assert answer.status_code == 400
    problem = answer.json()
    assert (problem["start"], problem["end"]) == (12, 16)
    assert "step" in problem["suggestions"]


def test_it_begins_at_a_group_with_mixed_rewards(site: Served) -> None:
    start = site.get("start")["id"]
    siblings = site.get(f"rollouts/{start}/neighbours")["siblings"]
    assert {row["step"] for row in siblings} == {STEPS - 1}
    assert len({row["reward"] for row in siblings}) == 2


def test_any_one_is_another_than_the_one_that_is_read(site: Served) -> None:
    """Else a key that opens any one would seem dead once in as many times as there are rollouts."""
    ids = [row["id"] for row in site.get("rollouts", q=f"step:{STEPS - 1}")["rows"]]
    here = ids[0]
    for _ in range(40):
        there = site.get("random", q=f"step:{STEPS - 1}", but=here)["id"]
        assert there in ids and there != here
        here = there
    assert site.get("random", q=f"id:{here}", but=here) == {"id": here}


def test_numbers_that_json_cannot_hold_are_named_and_missing_ones_are_null(site: Served) -> None:
    rows = {row["task"]: row for row in site.get("rollouts", q="split:odd")["rows"]}
    assert rows["nan"]["reward"] == "NaN"
    assert rows["inf"]["reward"] == "-Infinity"
    assert rows["failed"]["reward"] is None


def test_a_long_rollout_is_read_in_windows(site: Served) -> None:
    id = _id(site, "task:long")
    outline = site.get(f"rollouts/{id}")["outline"]
    assert len(outline["role"]) == 2_000
    bodies = site.get(f"rollouts/{id}/messages", first=1_990, count=40)["messages"]
    assert [body["n"] for body in bodies] == [*range(1_990, 2_000)]
    assert bodies[0]["text"].startswith("turn 1990: word")


def test_a_rollout_comes_with_the_messages_that_are_asked_for(site: Served) -> None:
    for q, first in (("task:long", 1_960), ("task:q-1 step:3", 0)):
        id = _id(site, q)
        opened = site.get(f"rollouts/{id}", first=first, count=40)
        assert opened["bodies"] == site.get(f"rollouts/{id}/messages", first=first, count=40)
        assert site.get(f"rollouts/{id}")["bodies"] is None


def test_an_outline_is_the_same_however_much_of_the_rollout_is_read(site: Served) -> None:
    with Reader(site.dir) as reader:
        for row in site.get("rollouts", q="superseded:true,false", limit=500)["rows"]:
            whole = reader.get(row["id"])
            assert whole is not None
            read = [sketch(n, message) for n, message in enumerate(whole.messages)]
            assert read == reader.outline(row["id"]), row["task"]


def test_a_timeline_shows_when_the_policy_wrote_however_long_the_rollout(site: Served) -> None:
    turns = site.get(f"rollouts/{_id(site, 'task:long')}/spans")["turns"]
    assert [turn["message"] for turn in turns] == [*range(1, 2_000, 2)]
    assert (turns[0]["start"], turns[0]["end"]) == (1_001.0, 1_001.5)
    assert (turns[0]["versions"], turns[-1]["versions"]) == ([0, 1], [1])


def test_a_wide_text_is_cut_and_the_rest_can_be_asked_for(site: Served) -> None:
    id = _id(site, "task:wide")
    body = site.get(f"rollouts/{id}/messages")["messages"][0]
    assert (len(body["text"]), body["chars"]) == (20_000, 300_000)
    rest = site.get(f"rollouts/{id}/messages/0", start=20_000, chars=50_000)
    assert rest["start"] == 20_000
    assert len(rest["text"]) == 50_000


def test_parts_keep_their_places_in_the_text(site: Served) -> None:
    id = _id(site, "task:parts")
    body = site.get(f"rollouts/{id}/messages")["messages"][0]
    ends = [part["end"] for part in body["parts"]]
    assert ends == [11, None, None, 26]
    assert body["text"][11:26] == "these pictures?"


def test_a_tree_tells_every_parent(site: Served) -> None:
    outline = site.get(f"rollouts/{_id(site, 'task:tree')}")["outline"]
    assert outline["parent"] == [-1, 0, 0, -1, 3]


def test_the_strip_tells_extremes_and_missing_values(site: Served) -> None:
    strip = site.get(f"rollouts/{_id(site, 'task:unicode')}/strip", stream="logprob")
    assert strip["tokens"] == 6
    assert strip["missing"] == 1
    assert strip["lowest_at"] == [0, 1]
    assert strip["mean"][2] is None


def test_the_ratio_of_two_streams_is_made_from_them(site: Served) -> None:
    id = site.get("start")["id"]
    strip = site.get(f"rollouts/{id}/strip", stream="ratio")
    assert 0.5 < strip["average"] < 2


def test_neighbours_lead_to_the_same_task_at_other_steps(site: Served) -> None:
    id = _id(site, "task:q-1 step:3 index:2")
    near = site.get(f"rollouts/{id}/neighbours")
    earlier = site.get(f"rollouts/{near['earlier']}")["row"]
    later = site.get(f"rollouts/{near['later']}")["row"]
    assert [(row["step"], row["index"]) for row in (earlier, later)] == [(2, 2), (4, 2)]
    assert near["previous_group"] and near["next_group"]


def test_compare_tells_where_two_rollouts_part(site: Served) -> None:
    good = _id(site, "task:q-1 step:5 reward:1")
    bad = _id(site, "task:q-1 step:5 reward:0")
    compared = site.get("compare", ids=f"{bad},{good}")
    assert [row["id"] for row in compared["rows"]] == [good, bad]  # held against the better one
    assert compared["aligned"][0]["same"]
    first = compared["first"]
    assert not compared["aligned"][first["row"]]["same"]
    sides = compared["aligned"][first["row"]]["sides"]
    assert all(any(not piece["same"] for piece in side["words"]) for side in sides)
    assert "reward" in {d["key"] for d in compared["differences"]}


def test_compare_takes_more_than_two(site: Served) -> None:
    ids = [row["id"] for row in site.get("rollouts", q="task:q-1 step:5")["rows"]]
    compared = site.get("compare", ids=",".join(ids))
    assert {len(row["sides"]) for row in compared["aligned"]} == {len(ids)}


def test_compare_shows_messages_that_only_one_has(site: Served) -> None:
    short, long = _id(site, "task:failed"), _id(site, "task:parts")
    compared = site.get("compare", ids=f"{short},{long}")
    lonely = [row for row in compared["aligned"] if row["sides"][0]["n"] is None]
    assert lonely and all(not row["same"] for row in lonely)


def test_the_funnel_adds_up(site: Served) -> None:
    funnel = site.get("funnel", q="split:train")
    assert sum(end["count"] for end in funnel["ends"]) == funnel["total"] == ALL
    for end in funnel["ends"]:
        assert site.get("rollouts", q=f"split:train {end['q']}")["count"] == end["count"]
    for stage in funnel["stages"]:
        assert site.get("rollouts", q=stage["q"])["count"] == stage["count"]


def test_failures_are_counted_by_whose_fault_it_was(site: Served) -> None:
    failures = site.get("failures", q="split:odd")
    kinds = {bar["name"]: bar for bar in failures["kinds"]}
    assert kinds["environment"]["count"] == 1
    assert failures["failures"][0]["example"]["task"] == "failed"


def test_tasks_are_told_apart_by_their_history(site: Served) -> None:
    tasks = {row["task"]: row for row in site.get("tasks", q="split:train")["tasks"]}
    assert tasks["q-0"]["kind"] == "never"
    kinds = ("flipped", "regressed", "mixed", "never", "always", "not scored")
    listed = [site.get("tasks", q="split:train", kind=kind) for kind in kinds]
    assert all(
        row["kind"] == kind for kind, got in zip(kinds, listed, strict=True) for row in got["tasks"]
    )
    assert sum(got["count"] for got in listed) == len(tasks)
    assert listed[3]["count"] == 1
    history = site.get("history", task="q-1", dataset="apples")
    assert history["count"] == STEPS * SIBLINGS
    assert {row["step"] for row in history["rows"]} == set(range(STEPS))


def test_facets_and_histograms_count_everything(site: Served) -> None:
    facets = {f["key"]: f for f in site.get("facets", q="split:train")["facets"]}
    assert sum(v["count"] for v in facets["fate"]["values"]) == ALL
    histograms = site.get("histograms", q="split:train", keys="reward,step")["histograms"]
    assert [sum(h["counts"]) for h in histograms] == [ALL, ALL]
    assert histograms[1]["counts"] == [TASKS * SIBLINGS] * STEPS
    assert histograms[1]["mean"] == pytest.approx((STEPS - 1) / 2)


def test_the_ribbon_has_every_step_and_the_metrics_asked_for(site: Served) -> None:
    lanes = site.get("ribbon", q="split:train", metrics="kl")["runs"]
    assert [c["step"] for c in lanes[0]["steps"]] == [*range(STEPS)]
    assert lanes[0]["steps"][0]["dead"] >= 1
    assert lanes[0]["metrics"]["kl"][3] == [3, 0.03]
    assert lanes[0]["metrics"]["loss"] == []


def test_hits_tell_where_the_words_stand(site: Served) -> None:
    id = _id(site, "task:q-1 step:5 index:0")
    hits = site.get(f"rollouts/{id}/hits", q="baskets", find="APPLES")["hits"]
    text = site.get(f"rollouts/{id}/messages")["messages"][0]["text"]
    found = {text[h["start"] : h["end"]] for h in hits if h["message"] == 0}
    assert found == {"baskets", "apples"}


def test_patterns_are_found_where_the_engine_finds_them(site: Served) -> None:
    """Also forms that Python's `re` does not know, and characters of several bytes."""
    [row] = site.get("rollouts", q="task:unicode")["rows"]
    [message] = [m for m in site.get(f"rollouts/{row['id']}/messages")["messages"]
                 if m["role"] == "assistant"]  # fmt: skip

    def found(q: str) -> list[str]:
        hits = site.get(f"rollouts/{row['id']}/hits", q=f"assistant:{q}")["hits"]
        assert all(hit["message"] == message["n"] for hit in hits)
        return [message["text"][hit["start"] : hit["end"]] for hit in hits]

    assert found(r"/\pL+/") == ["naïve", "漢字", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢"]
    assert found(r"/(?i)NA|z*/") == ["na"]
    assert found("/x*/") == []


def test_a_pattern_that_would_never_end_in_python_ends(
    tmp_path: Path, serve: Callable[..., Any]
) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    run.log(Rollout(key="1", step=1, messages=[Message(role="assistant", content="x" * 60)]))
    run.finish()
    with serve(tmp_path) as site:
        [row] = site.get("rollouts")["rows"]
        hits = site.get(f"rollouts/{row['id']}/hits", q="/(x+x+)+y/ OR /x+/")["hits"]
        assert [(hit["start"], hit["end"]) for hit in hits] == [(0, 60)]
    assert main(["grep", "/(x+x+)+y/ OR /x+/", "--dir", str(tmp_path)]) == 0


def test_a_text_search_tells_what_it_finds_and_how_far_it_is(site: Served) -> None:
    body = site.raw("search", q="baskets step:5").text
    news = [json.loads(line[5:]) for line in body.splitlines() if line.startswith("data:")]
    assert sum(len(n["rows"]) for n in news) == TASKS * SIBLINGS
    assert news[-1]["done"]


def test_completion_knows_keys_and_values(site: Served) -> None:
    assert "reward" in {key["name"] for key in site.get("keys")["keys"]}
    values = site.get("values", key="fate", prefix="dr")["values"]
    assert [v["value"] for v in values] == ["dropped"]


def test_an_unknown_rollout_is_not_found(site: Served) -> None:
    assert site.raw("rollouts/nobody").status_code == 404
    assert site.raw("nothing").status_code == 404


def test_the_api_is_served_with_its_description(site: Served) -> None:
    described = msgspec.json.decode(msgspec.json.encode(describe(ROUTES)))
    assert site.get("openapi.json")["paths"] == described["paths"]


def _id(site: Served, q: str) -> str:
    return str(site.get("rollouts", q=q, limit=1)["rows"][0]["id"])


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("rollouts", {"q": " OR ".join(f"word{n}" for n in range(400))}),
        ("rollouts", {"cursor": "99999999999999999999~"}),
        ("facets", {"keys": ",".join(f"rewards.{n}" for n in range(100))}),
        ("histograms", {"keys": ",".join(f"rewards.{n}" for n in range(100))}),
    ],
)
def test_too_much_is_refused_before_the_engine_is_asked(
    site: Served, path: str, asked: dict[str, str]
) -> None:
    assert site.raw(path, **asked).status_code == 400


def test_siblings_stand_together_also_where_runs_and_datasets_have_the_same_names(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        with rollscope.init(project="p", run=name, dir=tmp_path) as run:
            run.log(
                Rollout(step=1, group=group, task="0", dataset=dataset, index=index, messages=[])
                for group, dataset in (("g", "x"), (None, "x"), (None, "y"))
                for index in range(3)
            )
    with serving(tmp_path) as site:
        rows = site.get("rollouts", columns="run,group,dataset,index")["rows"]
    places = [(row["run"], row["group"], row["dataset"]) for row in rows]
    assert len(places) == 18
    assert [len(list(same)) for _, same in itertools.groupby(places)] == [3] * 6
    assert [row["index"] for row in rows] == [0, 1, 2] * 6


def test_a_window_of_tokens_has_their_text(site: Served) -> None:
    id = _id(site, "task:unicode")
    whole = site.get(f"rollouts/{id}/tokens")["messages"][0]
    text = site.get(f"rollouts/{id}/messages")["messages"][0]["text"]
    assert (whole["size"], whole["start"], whole["text"]) == (6, 0, text)
    window = site.get(f"rollouts/{id}/tokens", start=2, most=2)["messages"][0]
    assert window["ids"] == whole["ids"][2:4]
    assert window["streams"]["logprob"] == whole["streams"]["logprob"][2:4]
    assert (window["text_start"], window["text"]) == (3, text[3:10])
