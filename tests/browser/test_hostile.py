"""Rollout text is hostile. Planted in every text field, on every screen, nothing of it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import rollscope
from rollscope.cli import main
from rollscope.model import Error, Message, Rollout, Span, Tokens, ToolCall
from rollscope.model.records import Part
from server.conftest import Served, serving

from .pages import Look, at_rest, until

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

SCREENS = [
    "read",
    "table",
    "group",
    "compare",
    "tasks",
    "matrix",
    "task",
    "fate",
    "failures",
    "spans",
]


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
def test_nothing_runs_on_any_screen(hostile: Served, look: Look, n: int) -> None:
    page = look(f"{hostile.url}/?q=step:{n}")
    walk(page, hostile, n)
    problems = [text for text in page.wrong if "404" not in text]
    assert problems == []


def walk(page: Any, hostile: Served, n: int) -> None:
    """Opens every screen on the rollouts that hold the n-th text."""
    rows = hostile.get("rollouts", q=f"step:{n}")["rows"]
    assert len(rows) == 2
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


def test_bidirectional_controls_and_escapes_can_be_seen(hostile: Served, look: Look) -> None:
    page = look(f"{hostile.url}/?q=step:10")
    page.locator("article.card").first.wait_for()
    page.locator("article.card").get_by_text("U+202E").first.wait_for()
    shown = page.locator("main").inner_text()
    assert "\u202e" not in shown
    assert "\u2066" not in shown


def test_nothing_runs_in_a_bundle(
    hostile: Served, look: Look, tmp_path: Path, browser: Any
) -> None:
    """Its page has no headers of ours: the policy stands in the page."""
    out = tmp_path / "site"
    assert main(["bundle", "--dir", str(hostile.dir), "--out", str(out)]) == 0
    handler = partial(SimpleHTTPRequestHandler, directory=str(out))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = look(f"http://127.0.0.1:{server.server_port}/")
        for n in range(len(CORPUS)):
            walk(page, hostile, n)
        page.evaluate(
            """() => {
                const script = document.createElement('script');
                script.textContent = 'window.__ran = 1';
                document.body.append(script);
            }"""
        )
        assert page.evaluate("window.__ran") is None, "the policy would have stopped it, too"
        server.shutdown()


def test_a_pattern_that_backtracks_for_ever_stops_neither_page_nor_server(
    tmp_path: Path, look: Look
) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path)
    run.log(Rollout(step=1, messages=[Message(role="assistant", content="x" * 60 + " abc")]))
    run.finish()
    with serving(tmp_path) as site:
        page = look(f"{site.url}/?q=/(x%2Bx%2B)%2By/ OR /a.c/")
        page.get_by_text("1 hit").wait_for()
        until(page, "() => CSS.highlights.get('hits')?.size === 1")
        assert page.wrong == []
