"""A real browser on the real page over a real server."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from server.conftest import Served, serving
from server.conftest import store_dir as store_dir

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAGE = Path(__file__).parents[2] / "src" / "rollscope" / "viewer" / "static" / "index.html"
SHOTS = Path(__file__).parents[2] / "out" / "screenshots"

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    why = None
    if CHROMIUM is None:
        why = "no chromium here: make chromium"
    elif not PAGE.is_file():
        why = "the viewer is not built: make viewer"
    for item in items:
        if why and here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def site(store_dir: Path) -> Iterator[Served]:
    with serving(store_dir) as served:
        yield served


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)  # a busy machine must not fail a test
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page that must stay free of errors; `page.wrong` lists what went wrong."""
    opened = []

    def open_page(url: str, *, width: int = 1440, height: int = 900, dark: bool = False) -> Any:
        page = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
        )
        page.set_default_timeout(30_000)
        page.wrong = []
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("dialog", lambda dialog: (page.wrong.append("dialog"), dialog.dismiss()))
        page.on(
            "console",
            lambda message: message.type == "error" and page.wrong.append(message.text),
        )
        page.goto(url)
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.close()


@pytest.fixture
def shoot() -> Callable[[Any, str], None]:
    """Keeps a picture of the page under out/screenshots."""

    def take(page: Any, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}.png")

    return take
