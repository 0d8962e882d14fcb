"""A real browser on the real page over a real server."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from server.conftest import LATE, Served, serving
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

    expect.set_options(timeout=120_000)  # a busy machine must not fail a test
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def look(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page that must stay free of errors: `page.wrong` lists what went wrong. What it
    asked for is in `page.asked`, what it still waits for in `page.pending`."""
    opened = []

    def open_page(
        url: str, *, width: int = 1440, height: int = 900, dark: bool = False, **options: Any
    ) -> Any:
        page = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            **options,
        )
        page.set_default_timeout(120_000)
        if LATE:
            slow = page.context.new_cdp_session(page)
            slow.send("Emulation.setCPUThrottlingRate", {"rate": 4})
        page.wrong = []
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("dialog", lambda dialog: (page.wrong.append("dialog"), dialog.dismiss()))
        page.asked, page.pending = [], set()
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("request", lambda request: page.pending.add(request))
        page.on("requestfinished", lambda request: page.pending.discard(request))
        page.on("requestfailed", lambda request: page.pending.discard(request))
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


@pytest.fixture(scope="session")
def demo_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store that `rollscope demo` makes: all of it, once for all workers of the session."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    directory, done = shared / "demo", shared / "demo.done"
    with (shared / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            env = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSCOPE")}
            env |= {"ROLLSCOPE_SEAL": "off", "ROLLSCOPE_MIN_FREE": "0"}
            for command in (["demo", "--no-view"], ["compact"]):
                code = (
                    f"from rollscope.cli import main; main({[*command, '--dir', str(directory)]})"
                )
                subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=900)
            done.touch()
    return directory


@pytest.fixture(scope="session")
def demo_site(demo_dir: Path) -> Iterator[Served]:
    with serving(demo_dir) as served:
        yield served
