"""What a person does with what they read: copies it, labels it, asks what became of it."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import rollscope
from rollscope import Message, Rollout, Span, ToolCall
from rollscope.cli import main
from server.conftest import Served, serving

from .pages import Look, Shoot, at_rest, eventually, param, ready

CODE = "def f(x):\n    return x  # twice"
SAID = f"So:\n\n```python\n{CODE}\n```\n\nThat *is* all.\n"
META = {
    "source": {"file": "a b.jsonl", "line": 7},
    "tags": ["x", "y"],
    "big": dict.fromkeys("abcdefghijkl", 1),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task of three siblings without a fate, and a rollout of another project."""
    directory = tmp_path_factory.mktemp("reading")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        with rollscope.init(project="p", run="r", dir=directory) as run:
            for index, word in enumerate(("five", "six", "seven")):
                call = ToolCall(id="c", name="bash", arguments={"command": "ls | wc"})
                messages = [
                    Message(role="user", content="Add two and three."),
                    Message(role="assistant", content=SAID, tool_calls=[call], sampled=True),
                    Message(role="tool", content="12", tool_call_id="c"),
                    Message(role="assistant", content=f"It is {word}.", sampled=True),
                ]
                spans = [
                    Span(name="generate", id="a", start=100.0),
                    Span(name="run", id="b", start=520.0, end=530.0),
                    Span(name="generate", id="c", start=531.0),
                ]
                run.log(Rollout(key=str(index), step=1, task="it's a sum", dataset="d", group="g",
                                index=index, reward=float(index == 1), meta=META,
                                messages=messages, spans=spans))  # fmt: skip
        with rollscope.init(project="other", run="r2", dir=directory) as run:
            said = [Message(role="user", content="Hello.")]
            run.log(Rollout(key="o", step=1, task="t", messages=said, fate="trained", reward=1.0))
    return directory


@pytest.fixture
def site(folder: Path) -> Iterator[Served]:
    with serving(folder, dir=str(folder)) as served:
        yield served


@pytest.fixture
def copying(look: Look) -> Any:
    """Pages that may read the clipboard."""
    return lambda url: look(url, permissions=["clipboard-read", "clipboard-write"])


def copied(page: Any, button: Any) -> str:
    page.evaluate("navigator.clipboard.writeText('')")
    button.click()
    expect(page.locator(".said")).to_contain_text("copied")
    return str(page.evaluate("navigator.clipboard.readText()"))


SCREENS = ["group", "compare", "task", "tasks", "matrix", "fate", "failures", "findings", "spans"]


@pytest.mark.parametrize("screen", SCREENS)
def test_what_is_copied_is_the_question_of_the_screen_and_runs(
    site: Served, copying: Any, screen: str
) -> None:
    ids = [row["id"] for row in site.get("rollouts", q="project:p", order="index")["rows"]]
    about = f"id={ids[0]}&ids={ids[0]},{ids[1]}&task=it's a sum&dataset=d"
    page = copying(f"{site.url}/?s={screen}&q=project:p&{about}")
    at_rest(page)
    python = copied(page, page.get_by_role("button", name="Python", exact=True))
    command = copied(page, page.get_by_role("button", name="CLI", exact=True))
    found: dict[str, Any] = {}
    exec(python, found)
    answers = {
        "group": lambda: [row.id for row in found["siblings"]] == ids,
        # The best is the base, as on the screen.
        "compare": lambda: (
            (found["base"].id, [a.divergence.pair for a in found["alignments"]]) == (ids[1], [3])
        ),
        "task": lambda: sorted(row.id for row in found["rollouts"]) == sorted(ids),
        "tasks": lambda: [task.task for task in found["tasks"]] == ["it's a sum"],
        "matrix": lambda: [task.task for task in found["matrix"].tasks] == ["it's a sum"],
        "fate": lambda: [end.count for end in found["ends"]] == [3],
        "failures": lambda: found["failures"] == [],
        "findings": lambda: {check.unlooked for check in found["checks"]} >= {3},  # nobody looked
        "spans": lambda: [span.name for span in found["spans"]] == ["generate", "run", "generate"],
    }
    assert answers[screen]()
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        for line in command.splitlines():
            program, *words = shlex.split(line)
            assert program == "rollscope"
            assert main(words) == (1 if screen == "compare" else 0)  # 1: they differ
    expected = {
        "group": ids[2], "compare": "message 3", "task": ids[1],
        "tasks": "it's a sum", "matrix": "it's a sum", "fate": "fate not known", "failures": "",
        "findings": "reply.loop", "spans": "generate",
    }  # fmt: skip
    assert expected[screen] in told.getvalue()
    assert page.wrong == []


def test_messages_and_code_are_copied_as_they_were_written(
    site: Served, copying: Any, shoot: Shoot
) -> None:
    page = ready(copying(f"{site.url}/?q=project:p index:0"))
    card = page.get_by_role("article", name="assistant, message 1")
    code = card.get_by_role("button", name="Copy the code")
    expect(code).to_be_visible()
    assert copied(page, code).rstrip("\n") == CODE
    assert copied(page, card.get_by_role("button", name="Copy the message")) == SAID
    assert copied(page, card.get_by_role("button", name="Copy the command")) == "ls | wc"
    assert copied(page, card.get_by_role("button", name="Copy the result")) == "12"
    shoot(page, "copy-buttons")
    assert page.wrong == []


def test_a_message_of_megabytes_is_copied_whole(tmp_path: Path, copying: Any) -> None:
    text = "".join(f"{n} 日本 𝔘\n" for n in range(60_000))
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        run.log(Rollout(step=1, task="t", messages=[Message(role="user", content=text)]))
    with serving(tmp_path) as site:
        page = ready(copying(f"{site.url}/"))
        assert copied(page, page.get_by_role("button", name="Copy the message")) == text


def test_meta_is_a_tree_that_folds(site: Served, look: Look, shoot: Shoot) -> None:
    page = ready(look(f"{site.url}/?q=project:p index:0"))
    meta = page.get_by_role("complementary", name="Facts").locator("section", has_text="Meta").last
    expect(meta.get_by_text("a b.jsonl")).to_be_visible()
    many = meta.locator("details", has_text="big")
    expect(many.get_by_text("12 keys")).to_be_visible()
    expect(many.get_by_role("button").first).to_be_hidden()
    many.locator("summary").click()
    expect(many.get_by_role("button").first).to_be_visible()
    shoot(page, "meta-tree")
    meta.get_by_role("button", name="a b.jsonl").click()
    eventually(lambda: 'meta.source.file:"a b.jsonl"' in param(page, "q"))
    expect(page.get_by_role("search")).to_contain_text("1 of")
    page.keyboard.press("x")
    expect(page.get_by_role("complementary", name="Facts")).to_contain_text('"line":·7')
    assert page.wrong == []


def test_a_label_keeps_its_key_and_each_project_has_its_own(site: Served, look: Look) -> None:
    page = ready(look(f"{site.url}/?q=project:p index:0"))
    at_rest(page)
    here = param(page, "id")
    page.keyboard.press("l")
    word = page.get_by_label("Another label")
    expect(word).to_be_focused()
    page.keyboard.type("odd")
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_contain_text("labelled odd")
    page.keyboard.press("l")
    keys = page.get_by_role("dialog").locator(".mine .button")
    usual = ["1 good", "2 bad", "3 hack", "4 wrong-grade", "5 interesting"]
    expect(keys).to_have_text([*usual, "6 odd"])
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    expect(page.locator(".said")).to_contain_text("labelled good")
    page.goto(f"{site.url}/?q=project:other")
    ready(page)
    at_rest(page)
    page.keyboard.press("l")
    expect(keys).to_have_text(usual)
    assert [row["id"] for row in site.get("rollouts", q="label:odd")["rows"]] == [here]
    assert page.wrong == []


def test_where_no_fate_was_recorded_nothing_is_said_to_be_lost(
    site: Served, look: Look, shoot: Shoot
) -> None:
    page = look(f"{site.url}/?s=fate&q=project:p")
    expect(page.get_by_role("note")).to_contain_text("No fate was recorded")
    expect(page.locator(".losses")).to_have_count(0)
    expect(page.locator(".stage", has_text="Trained")).to_contain_text("not known")
    shoot(page, "fate-unknown")
    page.goto(f"{site.url}/?s=fate&q=project:other")
    expect(page.get_by_role("link", name=re.compile("Trained"))).to_contain_text("1")
    expect(page.get_by_role("note")).to_have_count(0)
    assert page.wrong == []


def test_a_call_without_an_end_is_no_waiting(site: Served, look: Look, shoot: Shoot) -> None:
    page = look(f"{site.url}/?s=spans&q=project:p index:0")
    tools = page.locator(".tools").filter(has_text="spans")
    expect(tools).to_contain_text("2 without an end")
    expect(tools).not_to_contain_text(re.compile(r"\d+ m .*waiting"))
    shoot(page, "spans-without-ends")
    assert page.wrong == []


def test_a_long_name_of_a_task_bursts_no_failure(tmp_path: Path, look: Look, shoot: Shoot) -> None:
    with rollscope.init(project="p", run="r", dir=tmp_path) as run:
        error = rollscope.Error(kind="tool", type="Timeout" * 20, text="gone")
        run.log(Rollout(step=1, task="/a/very/long/name" * 20, error=error))
    with serving(tmp_path) as site:
        page = look(f"{site.url}/?s=failures", width=1024, height=768)
        found = page.locator("article header")
        expect(found.get_by_role("link", name=re.compile("example"))).to_be_visible()
        assert found.evaluate("head => head.scrollWidth <= head.clientWidth")
        assert page.locator(".scroll.page").evaluate("page => page.scrollWidth <= page.clientWidth")
        shoot(page, "failures-long")
        assert page.wrong == []
