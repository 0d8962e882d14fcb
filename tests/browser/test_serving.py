"""The real command, serving to others: the token, what it opens, and where it must not be seen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import requests
from playwright.sync_api import expect

ROOT = Path(__file__).parents[2]


@contextmanager
def command(*words: str, **more: str) -> Iterator[list[str]]:
    """Runs `rollscope`; gives the lines that it prints, up to the first silence after its link."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ROLLSCOPE", "SSH"))}
    code = "import sys; from rollscope.cli import main; sys.exit(main(sys.argv[1:]))"
    running = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env={**env, "PYTHONUNBUFFERED": "1", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said: list[str] = []
    try:
        assert running.stdout is not None
        said.append(running.stdout.readline())
        if "SSH_CONNECTION" in more:
            said.append(running.stdout.readline())
        yield said
    finally:
        running.terminate()
        said += (running.communicate(timeout=60)[0] or "").splitlines()


def test_a_token_is_printed_once_and_leaves_no_trace_in_the_browser(
    store_dir: Path, browser: Any
) -> None:
    serve = ("serve", str(store_dir), "--host", "0.0.0.0", "--port", "0")
    with command(*serve) as said, closing(browser.new_context()) as tabs:
        link = re.search(r"http://\S+:(\d+)/login\?token=(\S+)", said[0])
        assert link is not None, said
        port, token = link.groups()
        here = f"http://127.0.0.1:{port}"
        assert requests.get(f"{here}/api/runs", timeout=60).status_code == 401

        page = tabs.new_page()
        asked: list[Any] = []
        page.on("request", lambda request: asked.append(request))
        page.goto(here)
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("wrong")
        page.get_by_label("Token").fill(token)
        page.keyboard.press("Enter")
        expect(page.locator("article.card").first).to_be_visible()
        tabs.clear_cookies()

        page.goto(f"{here}/login?token={token}")
        expect(page.locator("article.card").first).to_be_visible()
        assert token not in page.url
        assert not page.evaluate("document.cookie"), "no script can read the cookie"
        stored = "JSON.stringify([{...localStorage}, {...sessionStorage}, history.state])"
        assert token not in page.evaluate(stored)
        first = next(n for n, r in enumerate(asked) if "/login?token=" in r.url)
        for request in asked[first + 1 :]:
            assert token not in request.url
            assert token not in request.headers.get("referer", "")

        id = page.evaluate("new URL(location).searchParams.get('id')")
        label = {"rollout": id, "label": "good"}
        bearer = {"authorization": f"Bearer {token}"}
        put = requests.post(f"{here}/api/labels", json=label, headers=bearer, timeout=60)
        assert put.status_code == 403
        assert "--allow-labels" in put.json()["error"]
        assert requests.get(f"{here}/api/status", headers=bearer, timeout=60).json()["dir"] is None
    assert sum(line.count(token) for line in said) == 1, "printed once"


def test_over_ssh_the_command_prints_the_line_that_forwards_its_port(store_dir: Path) -> None:
    ssh = {"SSH_CONNECTION": "10.0.0.1 5000 10.0.0.9 22", "USER": "ada"}
    view = ("view", "--no-browser", "--port", "0", "--dir", str(store_dir))
    with command(*view, **ssh) as said:
        port = re.findall(r"http://localhost:(\d+)/", said[0])[0]
        assert f"ssh -N -L {port}:localhost:{port} ada@10.0.0.9" in said[1]
        assert requests.get(f"http://localhost:{port}/api/runs", timeout=60).ok


def test_behind_a_proxy_only_its_name_is_answered_to(store_dir: Path) -> None:
    serve = ("serve", str(store_dir), "--port", "0", "--name", "rollouts.example.com")
    with command(*serve) as said:
        port = re.findall(r"http://localhost:(\d+)/", said[0])[0]
        ask = f"http://127.0.0.1:{port}/api/status"
        assert requests.get(ask, headers={"host": "rollouts.example.com"}, timeout=60).ok
        other = requests.get(ask, headers={"host": "evil.example.com"}, timeout=60)
        assert other.status_code == 403


def test_a_checkout_without_npm_says_what_is_missing(tmp_path: Path) -> None:
    """What `pip install .` runs, where neither the page nor npm is there."""
    (tmp_path / "hatch_build.py").write_text((ROOT / "hatch_build.py").read_text())
    (tmp_path / "viewer").mkdir()
    (tmp_path / "viewer" / "package-lock.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "hatch_build.py"],
        cwd=tmp_path,
        env={"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    assert "needs npm (Node 20.19 or newer)" in done.stderr
    assert "install a wheel" in done.stderr
