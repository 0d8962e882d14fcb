"""A bundle is the same page without our server, and tells no secret."""

from __future__ import annotations

import re
import shutil
import sys
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
from rollscope.model import Error, Message, Part, Rollout, Span, Tokens, ToolCall

from .pages import Look

SECRET = "ada@example.com"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[Path], str]]:
    """A plain web server over a folder; gives its address."""
    servers = []

    def start(folder: Path) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def bundled(
    store_dir: Path, tmp_path_factory: pytest.TempPathFactory, serve: Callable[[Path], str]
) -> str:
    """Its address: somewhere below the top of a web server, as in a bucket."""
    top = tmp_path_factory.mktemp("site")
    folder = top / "some" / "place"
    query = "split:train OR task:tree OR task:unicode"
    assert main(["bundle", query, "--dir", str(store_dir), "--out", str(folder)]) == 0
    return f"{serve(top)}/some/place"


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
        ("s=failures", "cut off"),
        ("s=spans", "calculator"),
        ("view=tokens&stream=logprob&q=task:q-1", "lowest"),
    ],
)
def test_every_screen_works_from_plain_files(
    bundled: str, look: Look, screen: str, text: str
) -> None:
    page = look(f"{bundled}/?{screen}")
    expect(page.get_by_text(text).first).to_be_visible()
    assert page.wrong == []


def test_it_filters_by_itself(bundled: str, look: Look) -> None:
    page = look(f"{bundled}/?q=task:q-1 step:2..3 -reward:1")
    expect(page.get_by_role("search")).to_contain_text("5 of 98")
    page.keyboard.press("j")
    expect(page.locator("article.card").first).to_be_visible()


def test_words_are_looked_for_in_the_whole_text(bundled: str, look: Look) -> None:
    """Also far from the previews, in tool arguments, under negation, and by role."""
    for q, count in (
        ("baskets", "96 of 98"),
        ("-baskets", "2 of 98"),
        ("assistant:baskets", "0 of 98"),
        ("user:baskets step:5", "16 of 98"),
        ("/sub.agent/ OR (baskets step:5)", "17 of 98"),
    ):
        page = look(f"{bundled}/?q={q}")
        expect(page.get_by_role("search")).to_contain_text(count)
        assert page.wrong == []


def test_hits_are_shown_as_they_are_found(
    store_dir: Path,
    tmp_path: Path,
    look: Look,
    serve: Callable[[Path], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["rollscope.server.bundle"], "TEXTS", 4_000)
    assert main(["bundle", "split:train", "--dir", str(store_dir), "--out", str(tmp_path)]) == 0
    page = look("about:blank")
    held: list[Any] = []
    page.route("**/texts/2.json", lambda route: held.append(route))
    page.goto(f"{serve(tmp_path)}/?q=baskets")
    expect(page.locator("article.card").first).to_contain_text("baskets")
    expect(page.get_by_role("search")).to_contain_text(re.compile(r"[1-9]\d* found · \d+ % read"))
    expect(page.get_by_role("button", name="stop")).to_be_visible()
    held[0].continue_()
    expect(page.get_by_role("search")).to_contain_text("96 of 96")
    assert page.wrong == []


def test_a_search_that_is_stopped_does_not_claim_to_have_read_everything(
    bundled: str, look: Look
) -> None:
    page = look("about:blank")
    page.route("**/texts/0.json", lambda route: None)  # never answered
    page.goto(f"{bundled}/?q=baskets")
    expect(page.get_by_role("search")).to_contain_text("0 found · 0 % read")
    expect(page.get_by_text("Nothing matches")).to_have_count(0)
    page.get_by_role("button", name="stop").click()
    expect(page.get_by_role("search")).to_contain_text("0 found · stopped at 0 %")
    expect(page.get_by_text("Nothing found so far.")).to_be_visible()
    assert page.wrong == []


def test_metrics_are_drawn(bundled: str, look: Look) -> None:
    page = look(f"{bundled}/?q=split:train&metric=kl")
    line = page.locator(".ribbon path[stroke-dasharray]").first
    expect(line).to_have_attribute("d", re.compile("M.+L"))


TOKENS = [71, 72, 73, 74, 75]
"""They decode to a secret."""


def secretive() -> Rollout:
    """A secret in every field that takes text, in names of fields, and across every cut."""
    text = f"write to {SECRET} today"
    long = "x" * 155 + SECRET  # previews end in the middle of it
    error = Error(kind="tool", type=text, text=text)
    return Rollout(
        key=SECRET,
        step=1,
        split=text,
        dataset=text,
        task=SECRET,
        group=text,
        index=0,
        reward=1.0,
        rewards={SECRET: 1.0},
        reward_texts={"judge": text, SECRET: text},
        stop_reason=text,
        fate_reason=text,
        environment=text,
        error=error,
        reference={SECRET: [text]},
        sampling={SECRET: text},
        meta={"who": SECRET, SECRET: {"task": SECRET}, "ids": TOKENS},
        messages=[
            Message(role="system", content="y" * 75 + SECRET),
            Message(role="user", content=long, name=SECRET, state={SECRET: text}, meta={"m": text}),
            Message(
                role="assistant",
                content=[Part(type="reasoning", text=text), Part(type="text", text=long)],
                sampled=True,
                tokens=Tokens(TOKENS, ends=[1, 2, 3, 4, 5]),
                tool_calls=[ToolCall(id="1", name=SECRET, arguments={SECRET: text})],
            ),
            Message(role="tool", tool_call_id="1", content=f"mailed {SECRET}"),
            Message(role="assistant", content=[]),
            Message(role=f"helper {SECRET}", content="ready"),
        ],
        spans=[
            Span(
                name=SECRET,
                id="1",
                start=1.0,
                end=2.0,
                inputs={"ids": TOKENS, "to": SECRET},
                outputs=[text],
                error=error,
                meta={SECRET: text},
            )
        ],
    )


def test_redaction_leaves_no_secret_in_any_file(tmp_path: Path) -> None:
    run = rollscope.init(project=SECRET, run=SECRET, dir=tmp_path / "s")
    ids = run.log(secretive())
    run.annotate(ids[0], note=f"leaks {SECRET}", author=SECRET, label=SECRET)
    run.metrics(1, {SECRET: 1.0})
    run.finish()
    out = tmp_path / "site"
    argv = ["bundle", "--dir", str(tmp_path / "s"), "--out", str(out), "--redact", "email"]
    assert main(argv) == 0
    files = [path for path in out.rglob("*") if path.is_file()]
    data = {path.relative_to(out).as_posix(): path.read_bytes() for path in files}
    assert {
        "data/rows.json",
        "data/metrics.json",
        "data/rollouts/0.json",
        "data/texts/0.json",
    } <= set(data)
    for name, content in data.items():
        assert b"ada@" not in content, f"{name}: {_around(content, b'ada@')}"
        assert b"71,72,73" not in content, name
        assert SECRET not in name
    assert b"[email]" in data["data/rollouts/0.json"]


def test_without_redaction_the_same_files_would_tell_it(tmp_path: Path) -> None:
    """So that the test above is known to look where the secrets are."""
    run = rollscope.init(project="p", run="r", dir=tmp_path / "s")
    run.log(secretive())
    run.finish()
    out = tmp_path / "site"
    assert main(["bundle", "--dir", str(tmp_path / "s"), "--out", str(out)]) == 0
    for name in ("rows", "rollouts/0", "texts/0"):
        assert SECRET in (out / "data" / f"{name}.json").read_text(), name


def test_tokens_of_a_secret_in_a_name_or_across_parts_go_too(tmp_path: Path) -> None:
    halves = [Part(type="text", text="mail ada@exa"), Part(type="text", text="mple.com")]
    said = [
        Message(role="user", name=SECRET, content="hello"),
        Message(role="assistant", tool_calls=[ToolCall(name=SECRET, arguments={})]),
        Message(role="assistant", content=[Part(type="tool_call", call=ToolCall(name=SECRET))]),
        Message(role="assistant", content=halves),
    ]
    for message in said:
        message.tokens = Tokens(TOKENS, ends=[0, 0, 0, 0, 0])
    with rollscope.init(project="p", run="r", dir=tmp_path / "s") as run:
        run.log(Rollout(step=1, messages=said))
    out = tmp_path / "site"
    argv = ["bundle", "--dir", str(tmp_path / "s"), "--out", str(out), "--redact", "emails"]
    assert main(argv) == 0
    for path in (out / "data").rglob("*.json"):
        assert b"71,72,73" not in path.read_bytes(), path
        assert b"ada@" not in path.read_bytes(), path


def test_only_an_empty_folder_or_an_older_bundle_is_written_to(tmp_path: Path) -> None:
    with rollscope.init(project="p", run="r", dir=tmp_path / "s") as run:
        run.log(Rollout(step=1, messages=[Message(role="user", content="one")]))
    out = tmp_path / "site"
    make = ["bundle", "--dir", str(tmp_path / "s"), "--out", str(out)]
    (out / "data").mkdir(parents=True)
    (out / "data" / "mine.csv").write_text("precious")
    assert main(make) == 2
    assert (out / "data" / "mine.csv").read_text() == "precious"
    (out / "index.html").write_text("<title>somebody's page</title>")
    assert main(make) == 2
    assert "somebody's" in (out / "index.html").read_text()
    shutil.rmtree(out)
    out.mkdir()
    assert main(make) == 0
    (out / "data" / "texts" / "99.json").write_text("of an earlier bundle")
    assert main(make) == 0
    assert not (out / "data" / "texts" / "99.json").exists()


@pytest.mark.parametrize("redact", ["", " , ", "nonsense", "regex=(", "nomodule:f", "os:nothing"])
def test_a_redaction_that_cannot_be_done_makes_no_bundle(
    tmp_path: Path, redact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with rollscope.init(project="p", run="r", dir=tmp_path / "s") as run:
        run.log(Rollout(step=1, messages=[Message(role="user", content="one")]))
    out = tmp_path / "site"
    argv = ["bundle", "--dir", str(tmp_path / "s"), "--out", str(out), "--redact", redact]
    assert main(argv) == 2
    assert not out.exists()
    assert "redact" in capsys.readouterr().err


def _around(content: bytes, what: bytes) -> bytes:
    at = content.index(what)
    return content[max(0, at - 120) : at + 60]
