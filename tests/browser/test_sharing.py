"""What is copied from the page, run by somebody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from server.conftest import Served, serving

from .pages import ready

ASKED = [
    ("", ""),
    ("split:train reward:>0.4", ""),
    ("-fate:dropped (task:q-1 OR task:q-2)", "-response_tokens"),
    ('"it\'s" OR /app\\w+s/ OR task:tree', "step"),
]


def copied(page: Any, button: str) -> str:
    page.evaluate("navigator.clipboard.writeText('')")
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_text(" copied")).to_be_visible()
    return str(page.evaluate("navigator.clipboard.readText()"))


def ran(*command: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSCOPE")} | {"PATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def selected(site: Served, q: str, order: str) -> list[str]:
    ids: list[str] = []
    page = site.get("rollouts", q=q, order=order, limit=500)
    while page["rows"]:
        ids += [row["id"] for row in page["rows"]]
        page = site.get("rollouts", q=q, order=order, limit=500, at=len(ids))
    return ids


@pytest.mark.parametrize(("q", "order"), ASKED)
def test_link_python_and_command_give_the_same_selection(
    store_dir: Path, browser: Any, q: str, order: str
) -> None:
    allowed = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    with serving(store_dir, dir=str(store_dir)) as site, closing(allowed) as tabs:
        page = tabs.new_page()
        page.goto(f"{site.url}/?{urlencode({'q': q, 'order': order})}")
        ready(page)
        wanted = selected(site, q, order)
        assert wanted

        python = copied(page, "Python") + "\nprint(*(row.id for row in rollouts))"
        assert sorted(ran(sys.executable, "-c", python).split()) == sorted(wanted)
        command = copied(page, "CLI") + " --json --limit 100000"
        lines = ran("sh", "-c", command).splitlines()
        assert sorted(json.loads(line)["id"] for line in lines) == sorted(wanted)
        if order:  # then they come in the same order, too
            assert [json.loads(line)["id"] for line in lines] == wanted

        count = page.get_by_role("search").inner_text()
        other = tabs.new_page()
        other.goto(copied(page, "copy link"))
        ready(other)
        expect(other.get_by_role("search")).to_contain_text(count.split(" of ")[0].split()[-1])
        assert other.url == page.url


def test_a_page_without_a_clipboard_can_be_copied_from(store_dir: Path, browser: Any) -> None:
    """Pages that come by http from another machine have none."""
    allowed = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    with serving(store_dir) as site, closing(allowed) as tabs:
        page = tabs.new_page()
        page.add_init_script("Object.defineProperty(window, 'isSecureContext', {value: false})")
        page.goto(f"{site.url}/?q=split:train")
        ready(page)
        assert copied(page, "copy link") == page.url
