"""A bundle is the same page without our server, and tells no secret."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import rollscope
from rollscope.cli import main
from rollscope.model import Message, Rollout, Tokens

SECRET = "ada@example.com"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def bundled(store_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    query = "split:train OR task:tree OR task:unicode"
    assert main(["bundle", query, "--dir", str(store_dir), "--out", str(folder)]) == 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("screen", "text"),
    [
        ("s=read", "reference"),
        ("s=table", "last words of the policy"),
        ("s=group", "compare best and worst"),
        ("s=compare", "first divergence"),
        ("s=tasks", "never solved"),
        ("s=task&task=q-1&dataset=apples", "first success"),
        ("s=fate", "Where they ended"),
        ("s=failures", "No failures"),
        ("s=spans", "calculator"),
        ("view=tokens&stream=logprob&q=task:q-1", "lowest"),
    ],
)
def test_every_screen_works_from_plain_files(
    bundled: str, look: Callable[..., Any], screen: str, text: str
) -> None:
    page = look(f"{bundled}/?{screen}")
    expect(page.get_by_text(text).first).to_be_visible()
    assert page.wrong == []


def test_it_filters_by_itself(bundled: str, look: Callable[..., Any]) -> None:
    page = look(f"{bundled}/?q=task:q-1 step:2..3 -reward:1")
    expect(page.get_by_role("search")).to_contain_text("5 of 98")
    page.keyboard.press("j")
    expect(page.locator("article.card").first).to_be_visible()


def test_redaction_leaves_no_secret_anywhere(tmp_path: Path) -> None:
    run = rollscope.init(project="p", run="r", dir=tmp_path / "s")
    text = f"write to {SECRET} today"
    ids = run.log(
        Rollout(
            key="1",
            step=1,
            reference=SECRET,
            meta={"who": SECRET},
            reward_texts={"judge": text},
            messages=[
                Message(role="user", content=text, tokens=Tokens([1, 2], ends=[9, len(text)])),
                Message(role="assistant", content=f"mailed {SECRET}", sampled=True),
            ],
        )
    )
    run.annotate(ids[0], note=f"leaks {SECRET}")
    run.finish()
    out = tmp_path / "site"
    argv = ["bundle", "--dir", str(tmp_path / "s"), "--out", str(out), "--redact", "email"]
    assert main(argv) == 0
    for path in (out / "data").rglob("*.json"):
        assert SECRET not in path.read_text(), path
    assert "[email]" in (out / "data" / "rollouts" / "0.json").read_text()
