"""Messages that no screen holds: long thoughts, logs of megabytes, thousands of turns."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

import rollscope
from rollscope.model import Message, Rollout, Tokens, ToolCall
from server.conftest import Served, serving

from .pages import Look, Shoot, at_rest, ready, until

STREAMS = ("logprob", "train_logprob", "ref_logprob", "advantage", "entropy")
TOKENS = 32_000
LOWEST = 29_000


def thought() -> Message:
    """130 kB of thinking in 32,000 tokens, and an answer."""
    chance = random.Random(1)
    words = [chance.choice(("so", "then", "we", "have", "one")) for _ in range(TOKENS)]
    words[200], words[20_000] = "needle", "needle"
    pieces, at = [], 0
    for n, word in enumerate(words):
        pieces.append(word + ("\n\n" if n % 60 == 59 else " "))
    body = "".join(pieces)
    head, tail = "<think>", "</think>\n\nThe answer is **42**, says the needle."
    ends, at = [], len(head)
    for piece in pieces:
        at += len(piece)
        ends.append(at)
    streams = {name: [chance.random() for _ in words] for name in STREAMS}
    streams["logprob"][LOWEST] = -9.5
    tokens = Tokens(list(range(TOKENS)), ends=ends, streams=streams)
    return Message(role="assistant", content=head + body + tail, sampled=True, tokens=tokens)


def log(size: int) -> str:
    line = "{} step of a long log that a tool has written down\n"
    lines = [line.format(n) for n in range(size // 55)]
    lines[len(lines) // 2] = "here lies the pin\n"
    return "".join(lines)


def calls(count: int) -> list[Message]:
    found = [Message(role="user", content="Do it.")]
    for n in range(count):
        what = "ls -la" if n % 10 < 8 else f"cat file-{n}"
        call = ToolCall(name="bash", arguments={"command": what}, id=str(n))
        found.append(Message(role="assistant", content="", tool_calls=[call], sampled=True))
        text = "Traceback: no such file" if n == 700 else "fine"
        found.append(Message(role="tool", content=text, tool_call_id=str(n)))
    return found


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("long")
    ask = Message(role="user", content="What is 6 * 7?")
    turns = [
        Message(role="assistant" if n % 2 else "user", content=f"turn {n}: " + "word " * (n % 90))
        for n in range(3_000)
    ]
    same = "Every word of it is the same. " * 1_800
    told = {
        "thought": [ask, thought()],
        "log": [ask, Message(role="tool", content=log(5_000_000))],
        "huge": [ask, Message(role="tool", content=log(50_000_000))],
        "turns": turns,
        "calls": calls(1_500),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        with rollscope.init(project="p", run="r", dir=directory) as run:
            for task, messages in told.items():
                run.log(Rollout(key=task, step=1, task=task, reward=1.0, messages=messages))
            for i, (first, word) in enumerate((("One way.", "alpha"), ("Another.", "beta"))):
                text = f"{first}\n{same}and {word}. {same}"
                said = [ask, Message(role="assistant", content=text, sampled=True)]
                run.log(Rollout(key=f"two-{i}", step=1, task="two", index=i, messages=said))
            for i, word in enumerate(("gamma", "delta")):
                said = [ask, Message(role="assistant", content=f"{same}then {word}. {same}")]
                late = Rollout(key=f"late-{i}", step=1, task="late", index=i, messages=said)
                late.reward = float(i)
                run.log(late)
            for i in range(2):
                words = random.Random(i)
                text = " ".join(words.choice("abcdefgh") for _ in range(65_000))
                said = [ask, Message(role="assistant", content=text, sampled=True)]
                run.log(Rollout(key=f"other-{i}", step=1, task="other", index=i, messages=said))
    with serving(directory) as site:
        yield site


def id_of(site: Served, q: str) -> str:
    return str(site.get("rollouts", q=q)["rows"][0]["id"])


IN_SIGHT = """text => {
    const box = document.querySelector('.scroll.cards').getBoundingClientRect();
    const now = CSS.highlights.get('hit-now');
    const range = now && [...now][0];
    if (!range || range.toString().toLowerCase() !== text) return false;
    const at = range.getBoundingClientRect();
    return at.height > 0 && at.top >= box.top && at.bottom <= box.bottom;
}"""


def test_the_answer_after_a_long_thought_is_in_sight(
    long: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(f"{long.url}/?id={id_of(long, 'task:thought')}"))
    expect(page.get_by_text("The answer is 42")).to_be_in_viewport()
    expect(page.get_by_role("button", name=re.compile("Thinking"))).to_be_visible()
    expect(page.get_by_text("never closed")).to_have_count(0)
    shoot(page, "long-thought")
    assert page.wrong == []


def test_a_long_thought_comes_piece_by_piece(long: Served, look: Look) -> None:
    page = ready(look(f"{long.url}/?id={id_of(long, 'task:thought')}"))
    page.get_by_role("button", name=re.compile("Thinking")).click()
    page.keyboard.press("End")
    at_rest(page)
    expect(page.get_by_text("The answer is 42")).to_be_in_viewport()
    drawn = page.locator(".piece:not(.wait)").count()
    assert 0 < drawn < page.locator(".piece").count()
    page.keyboard.press("Home")
    at_rest(page)
    expect(page.get_by_text("What is 6 * 7?")).to_be_in_viewport()
    assert page.wrong == []


def test_any_token_shows_its_text(long: Served, look: Look, shoot: Shoot) -> None:
    id = id_of(long, "task:thought")
    page = ready(look(f"{long.url}/?id={id}&view=tokens&stream=logprob"))
    page.get_by_role("button", name=re.compile("lowest −9.5")).click()
    token = page.locator(f'[data-i="{LOWEST}"]')
    expect(token).to_be_in_viewport()
    expect(token).to_have_class(re.compile(r"\bat\b"))
    assert token.inner_text().strip() in {"so", "then", "we", "have", "one"}
    token.hover()
    expect(page.locator(".tip")).to_contain_text(f"token {LOWEST}")
    expect(page.locator(".tip tr")).to_have_count(len(STREAMS) + 2)
    shoot(page, "long-tokens")
    assert page.locator(".tok").count() < 8_000
    assert page.wrong == []


@pytest.mark.parametrize("view", ["text", "tokens", "raw"])
def test_every_hit_comes_into_sight(long: Served, look: Look, shoot: Shoot, view: str) -> None:
    """Unfolded, loaded, scrolled to, and marked as the one in hand."""
    page = ready(look(f"{long.url}/?id={id_of(long, 'task:thought')}&view={view}"))
    page.keyboard.press("/")
    page.keyboard.type("needle")
    expect(page.locator(".find")).to_contain_text("3 hits")
    for number in (1, 2, 3):
        page.keyboard.press("Enter")
        expect(page.locator(".find")).to_contain_text(f"{number} / 3")
        if view == "text" or number < 3:
            until(page, IN_SIGHT, "needle" if view == "text" else "needle" + _mark(view))
    shoot(page, f"long-hit-{view}")
    assert page.wrong == []


def _mark(view: str) -> str:
    return "·" if view == "raw" else " "  # tokens are marked whole


def test_a_hit_in_the_middle_of_megabytes_comes_into_sight(
    long: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(f"{long.url}/?id={id_of(long, 'task:log')}&find=the pin"))
    expect(page.locator(".find")).to_contain_text("1 hit")
    page.keyboard.press("n")
    until(page, IN_SIGHT, "the pin")
    shoot(page, "long-log")
    assert page.locator(".piece:not(.wait)").count() < 40
    assert page.wrong == []


def test_the_end_of_3000_messages_comes_at_the_first_press(long: Served, look: Look) -> None:
    page = ready(look(f"{long.url}/?id={id_of(long, 'task:turns')}"))
    page.keyboard.press("End")
    at_rest(page)
    expect(page.locator(".cards").get_by_text("turn 2999:")).to_be_in_viewport()
    assert page.locator("article.card").count() < 30
    page.keyboard.press("Home")
    at_rest(page)
    expect(page.locator(".cards").get_by_text("turn 0:")).to_be_in_viewport()
    assert page.wrong == []


def test_a_find_shows_hits_in_folded_results_and_arguments(long: Served, look: Look) -> None:
    page = ready(look(f"{long.url}/?id={id_of(long, 'task:calls')}&find=no such file"))
    page.keyboard.press("n")
    until(page, IN_SIGHT, "no such file")
    page.locator(".find input").fill("file-1499")
    expect(page.locator(".find")).to_contain_text("1 hit")
    page.locator(".find input").press("Enter")
    until(page, IN_SIGHT, "file-1499")
    assert page.wrong == []


def test_the_outline_says_what_was_called_and_folds_the_same(
    long: Served, look: Look, shoot: Shoot
) -> None:
    page = ready(look(f"{long.url}/?id={id_of(long, 'task:calls')}&outline=yes"))
    outline = page.get_by_role("navigation", name="Outline")
    expect(outline.get_by_text("ƒ bash ls -la").first).to_be_visible()
    expect(outline.get_by_text("ƒ bash cat file-8", exact=True)).to_be_visible()
    folded = outline.get_by_role("button", name="×8").first
    before = outline.locator(".line").filter(has_text="ls -la")
    expect(before).not_to_have_count(0)
    folded.click()
    for n in range(8):
        expect(before.nth(n)).not_to_contain_text("×")
    page.goto(f"{long.url}/?id={id_of(long, 'task:calls')}&outline=yes&m=1401")
    failed = outline.locator(".line").filter(has=page.get_by_title("the tool says that it failed"))
    expect(failed).to_be_visible()
    shoot(page, "outline")
    page.goto(f"{long.url}/?id={id_of(long, 'task:thought')}&outline=yes")
    expect(outline.get_by_title("with a thought")).to_have_count(1)
    assert page.wrong == []


def test_reading_fifty_megabytes_keeps_the_page_small(long: Served, look: Look) -> None:
    id = id_of(long, "task:huge")
    page = ready(look(f"{long.url}/?id={id}&fold=-text:1.0"))
    nodes: Any = page.locator(".piece:not(.wait)")
    for part in range(1, 9):
        page.locator(".cards").evaluate(
            "(box, to) => box.scrollTo(0, box.scrollHeight * to)", part / 8
        )
        at_rest(page)
        assert 0 < nodes.count() < 40
    page.locator(".find input").fill("the pin")
    expect(page.locator(".find")).to_contain_text("1 hit")
    page.locator(".find input").press("Enter")
    until(page, IN_SIGHT, "the pin")
    assert page.wrong == []
    assert _held(page) < 100e6  # 32 MB where it was measured


def _held(page: Any) -> float:
    """What the page holds on to; what it let go of is not counted."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "JSHeapUsedSize"))


def compared(site: Served, look: Look, task: str) -> Any:
    ids = ",".join(
        row["id"] for row in site.get("rollouts", q=f"task:{task}", order="index")["rows"]
    )
    page = look(f"{site.url}/?s=compare&ids={ids}")
    expect(page.get_by_text("they part at message #1")).to_be_visible()
    at_rest(page)
    return page


def test_where_long_texts_part_is_in_sight(long: Served, look: Look, shoot: Shoot) -> None:
    page = compared(long, look, "late")
    expect(page.get_by_text("after 54,005 characters")).to_be_visible()
    for mark in ("delta", "gamma"):
        expect(page.locator("mark", has_text=re.compile(f"^{mark}$"))).to_be_in_viewport()
    expect(page.locator(".side.base mark")).to_have_text("delta")  # the better one is the base
    assert page.locator("mark").count() == 2
    shoot(page, "long-compare")
    assert page.wrong == []


def test_j_goes_from_place_to_place_inside_a_long_message(long: Served, look: Look) -> None:
    page = compared(long, look, "two")
    expect(page.locator(".side.base mark").first).to_have_text("One way")
    expect(page.locator(".side.base mark").first).to_be_in_viewport()
    page.keyboard.press("j")
    expect(page.locator("mark", has_text=re.compile("^alpha$"))).to_be_in_viewport()
    expect(page.locator("mark", has_text=re.compile("^beta$"))).to_be_in_viewport()
    page.keyboard.press("k")
    expect(page.locator(".side.base mark").first).to_be_in_viewport()
    expect(page.get_by_text("compared roughly")).to_have_count(0)
    assert page.wrong == []


def test_a_comparison_that_is_not_exact_says_so(long: Served, look: Look, shoot: Shoot) -> None:
    page = compared(long, look, "other")
    expect(page.get_by_text("compared roughly")).to_be_visible()
    expect(page.get_by_text("first divergence")).to_be_in_viewport()
    shoot(page, "long-compare-rough")
    assert page.wrong == []
