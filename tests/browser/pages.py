"""How tests wait for a page: never for a time, always for what a person would see."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

Look = Callable[..., Any]
Shoot = Callable[[Any, str], None]


def ready(page: Any) -> Any:
    """Waits for the transcript of the rollout in sight."""
    expect(page.locator("article.card").first).to_be_visible()
    expect(page.get_by_role("tab", selected=True)).to_be_visible()
    return page


_BUSY = "() => document.querySelector('main[aria-busy=true]') !== null"

_DRAWN = """async () => {
    const frame = () => new Promise(done => requestAnimationFrame(done));
    await frame();
    const ends = document.getAnimations().filter(a => a.effect.getComputedTiming().endTime < 1e6);
    await Promise.allSettled(ends.map(a => a.finished));
    await frame();
}"""


def at_rest(page: Any) -> None:
    """Waits until everything that the page asked for is here and drawn, and made it ask for nothing
    more. Of the worker that all tabs share the browser tells that it is asked for, but not when it
    came."""
    asked = -1
    while asked != len(page.asked):
        asked = len(page.asked)
        eventually(lambda: not page.evaluate(_BUSY))
        while [request for request in page.pending if "/assets/listener" not in request.url]:
            page.evaluate(_DRAWN)
        page.evaluate(_DRAWN)


def until(page: Any, holds: str, arg: Any = None) -> None:
    """Waits until a function of the page holds. Playwright's own `wait_for_function` evaluates text
    inside the page; the page's policy forbids that, so that it fails unless it holds at once."""
    eventually(lambda: page.evaluate(holds, arg))


def eventually(holds: Callable[[], Any], seconds: float = 60) -> None:
    """Waits until it holds: a page is never done at once."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.05)


def param(page: Any, name: str) -> str:
    """A word of the page's address."""
    return str(page.evaluate("name => new URL(location).searchParams.get(name)", name))


def left(page: Any, id: str) -> None:
    """Waits until the page shows another rollout than this one."""
    until(page, "id => new URL(location).searchParams.get('id') !== id", id)


def intercept(page: Any, pattern: str, answer: Callable[[Any], None]) -> None:
    """Gives these requests of the page to `answer`. The browser tells a page's process of it a
    moment later, and requests of that moment pass by: so it is tried until one does not."""
    page.route(pattern, lambda route: answer(route))
    if page.url == "about:blank":
        return
    probe = "**/api/status"
    page.route(probe, lambda route: route.fulfill(body="kept back"))
    asked = "() => fetch('api/status').then(it => it.text()).then(text => text === 'kept back')"
    until(page, asked)
    page.unroute(probe)


class Held:
    """Answers that are kept back, as a slow or broken line would."""

    def __init__(self, page: Any, pattern: str) -> None:
        self.page = page
        self.routes: list[Any] = []
        self._end: Callable[[Any], None] = self.routes.append
        intercept(page, pattern, lambda route: self._end(route))

    def wait(self) -> None:
        """Until one is asked for."""
        eventually(lambda: self.page.evaluate("1") and self.routes)

    def release(self) -> None:
        """Lets them come, and all others of the kind."""
        self._all(lambda route: route.continue_())

    def refuse(self) -> None:
        """Says no to them, and to all others of the kind."""
        self._all(lambda route: route.fulfill(status=500, json={"error": "out of order"}))

    def _all(self, end: Callable[[Any], None]) -> None:
        self._end = end
        while self.routes:
            end(self.routes.pop(0))


def visit(page: Any, link: str) -> None:
    """Follows a link of the page, as a click does: without loading it again."""
    page.evaluate(
        """href => {
            const link = Object.assign(document.createElement('a'), {href, text: 'x'});
            link.setAttribute('href', href);
            document.body.append(link);
            link.click();
            link.remove();
        }""",
        link,
    )


def refused(page: Any) -> None:
    """The browser itself tells of answers that are refused: that is no error of the page."""
    told = "Failed to load resource"
    assert [text for text in page.wrong if told not in text] == []
