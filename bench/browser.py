"""Speed of the viewer in the real browser, over a store that `reading.py make` made.

python browser.py FOLDER        a JSON object on stdout, times in milliseconds

`live_ms` is taken over a small store beside it, because something is recorded meanwhile. `long.py`
takes what long messages cost, over a store of its own.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import long
from served import serving

RARE = "quetzalcoatl"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

WATCH = """
window.__longest = 0;
new PerformanceObserver(list => {
  for (const task of list.getEntries())
    window.__longest = Math.max(window.__longest, task.duration);
}).observe({entryTypes: ['longtask']});
"""


def measure(folder: str) -> dict[str, float]:
    """One visit: open, filter, search, read on, scroll through everything; then a running job, and
    long messages."""
    with opened() as page:
        with serving("rollscope", folder) as server:
            found = _visit(page, server.url)
            page.goto("about:blank")
        found["live_ms"] = _live(page)
        found |= long.measure(page, FLAGS)
    return {name: round(value, 1) for name, value in found.items()}


@contextlib.contextmanager
def opened() -> Iterator[Any]:
    """A page of the real browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(180_000)
        yield page
        browser.close()


def _visit(page: Any, url: str) -> dict[str, float]:
    card, row = page.locator("article.card .content").first, page.locator("a.row").first
    page.goto(url)
    card.wait_for()  # the server's caches and the browser's are warm from here on
    found = {"usable_ms": _ms(lambda: (page.goto(url), card.wait_for(), row.wait_for()))}
    found["filter_ms"] = statistics.median(_filtered(page, row))
    found["rare_text_ms"] = _ms(lambda: _select(page, RARE, row))
    _select(page, "", row)
    found["transcript_ms"] = statistics.median(_ms(lambda: _next(page)) for _ in range(7))
    page.evaluate(WATCH)
    box = page.get_by_role("listbox", name="Rollouts")
    for part in range(1, 21):
        box.evaluate("(box, at) => box.scrollTo(0, box.scrollHeight * at)", part / 20)
        page.wait_for_timeout(120)
    row.wait_for()
    found["longest_task_ms"] = page.evaluate("window.__longest")
    found["memory_mb"] = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    return found


def _filtered(page: Any, row: Any) -> Iterator[float]:
    """Filters, each asked of a page that has drawn everything: nobody types faster than that."""
    for most in (40, 80, 160, 320, 640):
        page.wait_for_timeout(2000)
        yield _ms(lambda: _select(page, f"reward:>0.5 step:1..{most}", row))  # noqa: B023


def _live(page: Any) -> float:
    """From `log` in a job that goes on to the row in an open page, the slowest of ten."""
    import rollscope
    from rollscope.model import Message, Rollout

    def one(step: int) -> Rollout:
        said = [Message(role="user", content="?"), Message(role="assistant", content="!")]
        return Rollout(step=step, task=f"task-{step}", index=0, messages=said)

    slowest = 0.0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = rollscope.init(project="bench", run="live", dir=folder)
        run.log(one(0))
        run.flush()
        with serving("rollscope", folder) as server:
            page.goto(server.url)
            page.locator("a.row").first.wait_for()
            for step in range(1, 11):
                start = time.perf_counter()
                run.log(one(step))
                page.locator("a.row", has_text=f"task-{step}").first.wait_for()
                slowest = max(slowest, (time.perf_counter() - start) * 1000)
            page.goto("about:blank")
        run.finish()
    return slowest


def _select(page: Any, query: str, row: Any) -> None:
    page.evaluate(
        """q => {
            history.pushState(null, '', '?' + new URLSearchParams({q}));
            dispatchEvent(new PopStateEvent('popstate'));
        }""",
        query,
    )
    # Old rows may stay until the new ones are here, marked as busy.
    page.wait_for_selector("[role=listbox][aria-busy=true]", state="detached")
    row.wait_for()


def _next(page: Any) -> None:
    """To the next rollout: until what the policy wrote there stands in the last card."""
    last = "[...document.querySelectorAll('article.card .content')].at(-1)"
    before = page.evaluate(f"{last}.textContent.slice(0, 300)")
    page.keyboard.press("j")
    page.wait_for_function(
        f"old => {{ const c = {last}; return c && !c.querySelector('.wait')"
        " && c.textContent.trim() && c.textContent.slice(0, 300) !== old; }",
        arg=before,
    )


def _ms(work: Any) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
