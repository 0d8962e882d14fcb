"""Whoever installs the wheel needs no Node: the page is inside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from .pages import Look

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("npm") is None, reason="building the wheel needs npm")
def test_the_wheel_opens_the_page_without_node(tmp_path: Path, store_dir: Path, look: Look) -> None:
    wheel = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(wheel, cwd=ROOT, check=True, capture_output=True, timeout=600)
    (built,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(site), str(built)], check=True, timeout=600)
    env = {**os.environ, "PYTHONPATH": str(site), "PATH": "/nonexistent"}
    code = f"from rollscope import server; server.serve({str(store_dir)!r}, port=0)"
    running = subprocess.Popen(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert running.stdout is not None
        url = re.search(r"http://\S+", running.stdout.readline())
        assert url is not None
        page = look(url.group())
        expect(page.locator("article.card").first).to_be_visible()
        assert page.wrong == []
    finally:
        running.terminate()
        running.wait(300)
