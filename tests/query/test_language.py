"""What each kind of term means, one promise a line."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rollscope.query import QueryError, Store

from .tables import Tables

ROLLOUTS: list[dict[str, Any]] = [
    {
        "id": "a",
        "run": "one",
        "launch": "L1",
        "step": 100,
        "trained_step": 102,
        "split": "train",
        "task": "381",
        "index": 0,
        "reward": 1.0,
        "rewards": {"correct": 1.0, "format.json": 0.5},
        "truncated": False,
        "fate": "trained",
        "start": 10.0,
        "end": 15.5,
        "time": 1763200000.0,
        "tools": ["python", "search"],
        "version_min": 3,
        "version_max": 5,
        "meta": {"lang": "zh", "n": 381, "tags": ["x", "y"], "deep": {"er": True}, "a.b": "dot"},
        "sampling": {"temperature": 0.7},
        "labels": ["good one"],
    },
    {
        "id": "b",
        "run": "one",
        "launch": "L1",
        "step": 200,
        "split": "eval",
        "task": "q-1",
        "index": 1,
        "reward": math.nan,
        "truncated": True,
        "fate": "dropped",
        "fate_reason": "Zero variance",
        "error_kind": "tool",
        "error_type": "TimeoutError",
        "error_text": "timed out after 30 s",
        "policy_version": 9,
        "flags": ["loop"],
        "meta": {"lang": "en", "n": "381", "score": 0.25, "gone": None},
    },
    {"id": "c", "run": "two", "launch": "L1", "step": 150, "reward": -math.inf, "meta": {}},
    {"id": "old", "run": "one", "launch": "L0", "step": 100, "superseded": True, "reward": 1.0},
]

MESSAGES: list[dict[str, Any]] = [
    {"rollout": "a", "n": 0, "role": "user", "text": "What is 6 * 7? Say Please."},
    {
        "rollout": "a",
        "n": 1,
        "role": "assistant",
        "text": "Let me see",
        "tool_calls": [{"name": "python", "arguments": '{"code": "print(\\"hi\\")\\nexit()"}'}],
    },
    {"rollout": "a", "n": 2, "role": "tool", "text": "hi\nProcess ended"},
    {"rollout": "b", "n": 0, "role": "user", "text": "def test_one(): sys.exit(0)"},
    {
        "rollout": "b",
        "n": 1,
        "role": "assistant",
        "text": "42 please",
        "tool_calls": [{"name": "search", "arguments": {"q": 'a "quoted" Straße', "k": 5}}],
    },
    {
        "rollout": "b",
        "n": 2,
        "role": "user",
        "parts": [{"type": "tool_result", "id": "1", "data": {"rows": ["first\trow"]}}],
    },
    {"rollout": "old", "n": 0, "role": "user", "text": "please"},
]


@pytest.fixture(scope="module")
def store() -> Store:
    return Store(reader=Tables(ROLLOUTS, MESSAGES))


CASES = {
    # numbers
    "": "abc",
    "step:100": "a",
    "step:100..150": "ac",
    "step:150..": "bc",
    "step:..150": "ac",
    "step:<150": "a",
    "step:<=150": "ac",
    "step:>150": "b",
    "step:>=150": "bc",
    "step:100,200": "ab",
    "step:<120,>180": "ab",
    "step:99.5..100.5": "a",
    "step:>1e30": "",
    "step:<inf": "abc",
    "reward:1": "a",
    "reward:>-5": "a",
    "reward:<0": "c",
    "reward:-inf": "c",
    "reward:nan": "b",
    "-reward:>0": "bc",
    "reward:none": "",
    "advantage:none": "abc",
    "has:reward": "abc",
    "-has:trained_step": "bc",
    "duration:5..6": "a",
    "staleness:2": "a",
    "staleness:none": "bc",
    "time:2025-11-15": "a",
    "time:<2025-11-15": "",
    "time:2025-11-15T09:46..": "a",
    "time:>2025-11-15": "",
    # texts
    "split:eval": "b",
    "-split:eval": "ac",
    "split:train,eval": "ab",
    "split:none": "c",
    "task:381": "a",
    "task:/^q-/": "b",
    "task:/^Q-/": "",
    "task:/^Q-/i": "b",
    "fate_reason:variance": "b",
    "fate_reason:ZERO": "b",
    'fate_reason:"zero"': "",
    'fate_reason:"Zero var"': "b",
    "truncated:true": "b",
    "truncated:false": "a",
    "truncated:none": "c",
    "-truncated:true": "ac",
    # lists
    "tool:search": "a",
    "tool:sea": "",
    "tool:/^sea/": "a",
    "tool:none": "bc",
    "flag:loop": "b",
    'label:"good one"': "a",
    "has:label": "a",
    # errors
    "error:tool": "b",
    "error:timeout": "b",
    'error:"timeout"': "",
    "-error:timeout": "ac",
    "error:none": "ac",
    "error_kind:tool": "b",
    # versions
    "version:4": "a",
    "version:5..9": "ab",
    "version:>5": "b",
    "version:<4": "a",
    "version:5..4": "",
    "version:-inf": "",
    "version:none": "c",
    # rewards, meta, sampling
    "rewards.correct:>0.5": "a",
    "rewards.format.json:0.5": "a",
    "has:rewards.correct": "a",
    "has:rewards": "a",
    "has:meta": "ab",
    "meta.lang:zh": "a",
    "meta.lang:zh,en": "ab",
    "meta.lang:/^z/": "a",
    "meta.n:381": "ab",
    "meta.n:>380": "a",
    "meta.score:0.2..0.3": "b",
    "meta.tags:y": "a",
    "meta.deep.er:true": "a",
    "meta.a.b:dot": "a",
    'meta."a.b":dot': "a",
    "meta.gone:none": "abc",
    "has:meta.lang": "ab",
    'has:meta."a.b"': "a",
    "sampling.temperature:<1": "a",
    # words of the trainers
    "sample_index:381": "a",
    "rollout_n:1": "b",
    "experiment_name:two": "c",
    "validate:true": "b",
    "validate:false": "a",
    "global_step:200": "b",
    # text
    "please": "ab",
    '"please"': "b",
    '"Please"': "a",
    "/[Pp]lease/": "ab",
    "PLEASE 42": "b",
    "user:please": "a",
    'assistant:"42"': "b",
    "role.tool:ended": "a",
    "has:role.tool": "a",
    "system:none": "abc",
    '"sys.exit(0)"': "b",
    "sys.exit(0)": "b",
    r"/def test_\w+/": "b",
    r'"print(\"hi\")"': "a",
    "/hi.+\\nexit/": "a",
    r'"\"quoted\""': "b",
    "straße": "b",
    "STRASSE": "",
    r'"{\"q\":"': "b",
    '"first\trow"': "b",
    "text:please,ended": "ab",
    "-please": "c",
    # logic
    "step:100 OR step:200": "ab",
    "step:100 AND split:train": "a",
    "NOT step:100": "bc",
    "-(step:100 OR step:200)": "c",
    "please (step:100 OR fate:dropped)": "ab",
    "please -(user:please OR step:7)": "b",
    "(please step:100) OR step:150": "ac",
    "--step:100": "a",
    # launches
    "reward:1 launch:L0": ["old"],
    "launch:L0,L1": ["a", "b", "c", "old"],
    "superseded:true": ["old"],
}


@pytest.mark.parametrize("query", CASES)
def test_what_a_query_finds(store: Store, query: str) -> None:
    found = sorted(row.id for row in store.rollouts(query))
    assert found == list(CASES[query])


ERRORS = {
    "rewrd:<0.2": ('unknown key "rewrd"', 0, 5, "reward"),
    "step:1 tok:x": ('unknown key "tok"', 7, 10, None),
    "http://x": ('unknown key "http"', 0, 4, None),
    "sample_indx:3": ('unknown key "sample_indx"', 0, 11, "sample_index"),
    "rewards:1": ("rewards needs a name", 0, 7, None),
    "reward:high": ("reward takes a number", 7, 11, None),
    'reward:"1"': ("reward takes a number", 7, 10, None),
    "step:1,x": ("step takes a number", 7, 8, None),
    "step:1...2": ("step takes a number", 5, 10, None),
    "step:..": ("step takes a number", 5, 7, None),
    "task:<5": ("task is a text", 5, 7, None),
    "truncated:maybe": ("truncated is true, false or none", 10, 15, None),
    "has:nothing": ('unknown key "nothing"', 4, 11, None),
    "step:": ("a value is missing", 5, 6, None),
    "step:1,": ("a value is missing", 7, 8, None),
    "a OR": ("a term is missing", 4, 5, None),
    "OR a": ("a term is missing before OR", 0, 2, None),
    "(a": ("never closed", 0, 1, None),
    "a)": ("closes nothing", 1, 2, None),
    "()": ("a term is missing", 1, 2, None),
    '"abc': ("quote is never closed", 0, 4, None),
    "/abc": ("pattern is never closed", 0, 4, None),
    "/usr/bin": ("a space is missing after the closing slash", 0, 6, None),
    "-": ("nothing follows -", 0, 1, None),
    "x /(a/": ("the pattern cannot be read: missing ): (a", 2, 6, None),
    "task:/[/": ("the pattern cannot be read", 5, 8, None),
    "(" * 300: ("nested deeper", 100, 101, None),
    "a " * 200: ("more than 100 terms", 200, 400, None),
}


@pytest.mark.parametrize("query", ERRORS)
def test_errors_say_what_is_wrong_where_and_what_was_meant(store: Store, query: str) -> None:
    what, start, end, near = ERRORS[query]
    with pytest.raises(QueryError) as caught:
        store.rollouts(query)
    error = caught.value
    assert what in error.what
    assert (error.start, error.end) == (start, end)
    assert (near is None and not error.nearest) or near in error.nearest
    assert f"character {start + 1}" in str(error)


def test_an_error_shows_the_place() -> None:
    with pytest.raises(QueryError) as caught:
        Store(reader=Tables()).rollouts("step:1 rewrd:<0.2")
    assert str(caught.value) == (
        'unknown key "rewrd" (character 8); did you mean reward or rewards?\n'
        "  step:1 rewrd:<0.2\n"
        "         ^^^^^"
    )
