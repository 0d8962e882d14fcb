"""Rollout text is hostile. Planted in every text field, on every screen, nothing of it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope.model import Error, Message, Rollout, Span, Tokens, ToolCall
from rollscope.model.records import Part
from server.conftest import Served, serving

from .conftest import at_rest

ACT = "window.__ran=1;alert(1)"

CORPUS = [
    f"<script>{ACT}</script>",
    f'<img src=x onerror="{ACT}">',
    f"<svg onload={ACT}><animate onbegin={ACT} attributeName=x dur=1s></svg>",
    f"[click](javascript:{ACT})",
    f'![x](x" onerror="{ACT})',
    '<a href="data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==">x</a>',
    f"$\\href{{javascript:{ACT}}}{{x}} \\url{{javascript:{ACT}}}$",
    f"</textarea></title></style></script><script>{ACT}</script>",
    f"\"' autofocus onfocus={ACT} x='",
    "\u001b]8;;javascript:alert(1)\u0007link\u001b]8;;\u0007\u001b[31m\u001b[2J",
    "safe \u202e txt.exe \u2066 hidden \u200b zero",
    "{{constructor.constructor('window.__ran=1')()}} ${window.__ran=1} <%= 1 %>",
    f"```html\n<script>{ACT}</script>\n```\n<iframe srcdoc='<script>parent.__ran=1</script>'>",
    f"<math><mi xlink:href=\"javascript:{ACT}\">x</mi></math><style>@import 'x'</style>",
]

SVG = "data:image/svg+xml,<svg onload=alert(1)>"

SCREENS = ["read", "table", "group", "compare", "tasks", "task", "fate", "failures", "spans"]


def poisoned(text: str, n: int) -> list[Rollout]:
    """Two siblings with the text in every field that takes text."""
    part = Part(type=text, text=text, image=text, data={text: text})
    return [
        Rollout(
            key=f"{n}-{index}",
            step=n,
            split=text,
            dataset=text,
            task=text,
            group=text,
            index=index,
            reward=float(index),
            rewards={text: 1.0},
            reward_texts={text: text, "other": text},
            stop_reason=text,
            fate=text,
            fate_reason=text,
            error=Error(kind=text, type=text, text=text),
            environment=text,
            reference=text,
            sampling={text: text},
            meta={text: {text: text}},
            messages=[
                Message(role=text, name=text, content=text, stop_reason=text, state=text),
                Message(role="user", content=[part, Part(type="image", image=SVG)]),
                Message(
                    role="assistant",
                    content=f"{text}{index}",
                    sampled=True,
                    tokens=Tokens([7, 8], [0, len(text) + 1]),
                    meta={"marks": {"7": text}},
                    tool_calls=[ToolCall(id="1", name=text, arguments={text: text})],
                ),
                Message(role="tool", name=text, tool_call_id="1", content=text),
            ],
            spans=[Span(name=text, id="1", start=1.0, end=2.0, inputs=text, outputs={text: text},
                        error=Error(kind=text, type=text, text=text), meta={text: text})],
        )
        for index in range(2)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROLLSCOPE_SEAL", "off")
        plant(directory)
    with serving(directory) as served:
        yield served


def plant(directory: Path) -> None:
    run = rollscope.init(project=CORPUS[0], run=CORPUS[1], dir=directory)
    for n, text in enumerate(CORPUS):
        ids = run.log(poisoned(text, n))
        run.annotate(ids[0], label=text, author=text, note=text, flag={text: text})
        run.metrics(n, {text: 1.0})
    run.finish()


@pytest.mark.parametrize("n", range(len(CORPUS)))
def test_nothing_runs_on_any_screen(hostile: Served, look: Callable[..., Any], n: int) -> None:
    rows = hostile.get("rollouts", q=f"step:{n}")["rows"]
    assert len(rows) == 2
    page = look(f"{hostile.url}/?q=step:{n}")
    for screen in SCREENS:
        for view in ("text", "raw") if screen == "read" else ("text",):
            state = {
                "s": screen,
                "q": f"step:{n}",
                "id": rows[0]["id"],
                "task": CORPUS[n],
                "view": view,
                "ids": f"{rows[0]['id']},{rows[1]['id']}" if screen == "compare" else "",
            }
            page.evaluate(
                """state => {
                    history.pushState(null, '', '?' + new URLSearchParams(state));
                    dispatchEvent(new PopStateEvent('popstate'));
                }""",
                state,
            )
            at_rest(page)
            if screen == "spans":
                page.locator(".lane").first.click()
            ran = page.evaluate("window.__ran")
            assert ran is None, (screen, CORPUS[n])
    assert page.locator("main script, main iframe, main object, main svg [onload]").count() == 0
    problems = [text for text in page.wrong if "404" not in text]
    assert problems == []


def test_bidirectional_controls_and_escapes_can_be_seen(
    hostile: Served, look: Callable[..., Any]
) -> None:
    page = look(f"{hostile.url}/?q=step:10")
    page.locator("article.card").first.wait_for()
    page.locator("article.card").get_by_text("U+202E").first.wait_for()
    shown = page.locator("main").inner_text()
    assert "\u202e" not in shown
    assert "\u2066" not in shown
