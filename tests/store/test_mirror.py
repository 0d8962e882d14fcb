"""A store in a bucket is read like one in a folder: live, sealed, compacted.

The client is the real one (obstore); the bucket is a loopback server that speaks the two
requests of S3 that are used, ListObjectsV2 and GetObject with ranges.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest
import requests

import rollscope
from rollscope.capture.setup import resolve
from rollscope.cli import main
from rollscope.model import Message, Rollout
from rollscope.store.read.bucket import BucketError
from rollscope.store.read.mirror import Mirror

BUCKET = "rollouts"
PREFIX = "team/a"


class _Bucket(BaseHTTPRequestHandler):
    root: Path
    asked: list[str]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if "list-type" in query:
            self._send(200, self._listing(query.get("prefix", [""])[0]), "application/xml")
            return
        key = unquote(url.path).removeprefix(f"/{BUCKET}/")
        path = self.root / key.removeprefix(f"{PREFIX}/")
        self.asked.append(key)
        if not path.is_file():
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>", "application/xml")
            return
        body = path.read_bytes()
        wanted = self.headers.get("range")
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(body)), len(body) - 1)
            head = {"content-range": f"bytes {start}-{end}/{len(body)}"}
            self._send(206, body[start : end + 1], "application/octet-stream", head, path)
        else:
            self._send(200, body, "application/octet-stream", {}, path)

    def _listing(self, prefix: str) -> bytes:
        keys = ""
        for path in sorted(self.root.rglob("*")):
            key = f"{PREFIX}/{path.relative_to(self.root).as_posix()}"
            if key.startswith(prefix) and (about := _stat(path)) is not None:
                when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(about.st_mtime))
                keys += (
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified>"
                    f"<ETag>&quot;x&quot;</ETag><Size>{about.st_size}</Size></Contents>"
                )
        return (
            f'<?xml version="1.0"?><ListBucketResult><Name>{BUCKET}</Name>'
            f"<IsTruncated>false</IsTruncated>{keys}</ListBucketResult>"
        ).encode()

    def _send(
        self,
        code: int,
        body: bytes,
        kind: str,
        head: dict[str, str] | None = None,
        path: Path | None = None,
    ) -> None:
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if path is not None:
            self.send_header("last-modified", formatdate(path.stat().st_mtime, usegmt=True))
            self.send_header("etag", '"x"')
        for name, value in (head or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def _stat(path: Path) -> os.stat_result | None:
    """None: it is no file, or a writer has just replaced it."""
    try:
        return path.stat() if path.is_file() else None
    except FileNotFoundError:
        return None


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    root = tmp_path / "written"
    root.mkdir()
    handler = type("Bucket", (_Bucket,), {"root": root, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield handler
    server.shutdown()
    server.server_close()


URL = f"s3://{BUCKET}/{PREFIX}"


def some(step: int) -> list[Rollout]:
    return [
        Rollout(
            key=f"{step}-{i}",
            step=step,
            task=f"t{i}",
            index=i,
            reward=float(i),
            messages=[
                Message(role="user", content=f"question {step}"),
                Message(role="assistant", content=f"answer {i}", sampled=True),
            ],
        )
        for i in range(4)
    ]


def _silent(*args: Any, **kwargs: Any) -> Any:
    """No heartbeat comes between two looks, whose bytes are counted."""
    return resolve(*args, **kwargs)._replace(beat=3600.0)


def count(folder: Path, q: str = "") -> int:
    with_store = rollscope.open(folder)
    try:
        return with_store.rollouts(q).count()
    finally:
        with_store.close()


def test_a_bucket_is_followed_through_a_life(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollscope.capture.begin.resolve", _silent)
    run = rollscope.init(project="p", run="lr[1e-5] é@x", dir=bucket.root)
    run.log(some(0))
    run.flush()
    mirror = Mirror(URL, tmp_path / "m")
    mirror.sync()
    assert count(mirror.folder) == 4
    assert mirror.sync().bytes == 0, "nothing is fetched twice"

    run.log(some(1))
    run.flush()
    log = next(bucket.root.rglob("live/*"))
    grown = mirror.sync()
    assert count(mirror.folder) == 8
    assert grown.bytes < log.stat().st_size, "of a log only what is new"

    run.finish()
    assert main(["compact", "--dir", str(bucket.root)]) == 0  # a directory instead of a file
    mirror.sync()
    assert not list(mirror.folder.rglob("live/*.zst"))
    assert count(mirror.folder, "question reward:3") == 2
    assert mirror.sync().bytes == 0


def test_a_directory_that_is_still_being_uploaded_is_not_shown(bucket: Any, tmp_path: Path) -> None:
    run = rollscope.init(project="p", run="r", dir=bucket.root)
    run.log(some(0))
    run.finish()
    assert main(["compact", "--dir", str(bucket.root)]) == 0
    missing = next(bucket.root.rglob("messages.parquet"))
    aside = tmp_path / "aside"
    missing.rename(aside)
    mirror = Mirror(URL, tmp_path / "m")
    mirror.sync()
    assert count(mirror.folder) == 0
    aside.rename(missing)
    mirror.sync()
    assert count(mirror.folder) == 4


def test_commands_read_an_address_like_a_folder(
    bucket: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = rollscope.init(project="p", run="r", dir=bucket.root)
    run.log(some(0))
    run.finish()
    assert main(["ls", "reward:3", "--dir", URL, "--json"]) == 0
    assert '"t3"' in capsys.readouterr().out
    for writing in (["rm", "p/r", "--yes"], ["compact"], ["serve", URL, "--allow-labels"]):
        assert main([*writing, *([] if "serve" in writing else ["--dir", URL])]) == 2
        assert "folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "says"),
    [("https://example.com/rollouts", "bucket"), ("ftp://example.com/x", "s3://")],
)
def test_what_cannot_be_read_is_said_with_what_can(
    tmp_path: Path, url: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BucketError, match=says):
        Mirror(url, tmp_path)
    assert main(["serve", url]) == 2
    assert says in capsys.readouterr().err


def test_the_name_in_the_cache_tells_addresses_apart() -> None:
    from rollscope.store.read.mirror import cache_of

    assert cache_of("s3://a/b") == cache_of("s3://a/b/") != cache_of("s3://a/c")
    assert quote(cache_of("s3://a/b").name, safe="%") == cache_of("s3://a/b").name


def test_a_team_sees_what_arrives_in_the_bucket(bucket: Any) -> None:
    run = rollscope.init(project="p", run="r", dir=bucket.root)
    run.log(some(0))
    run.flush()
    code = f"from rollscope.cli import main; main(['serve', {URL!r}, '--port', '0'])"
    served = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert served.stdout is not None
        url = re.search(r"http://\S+?/", served.stdout.readline())
        assert url is not None
        asked = f"{url.group()}api/rollouts"
        assert requests.get(asked, timeout=60).json()["count"] == 4
        run.log(some(1))
        run.flush()
        deadline = time.monotonic() + 120
        while requests.get(asked, timeout=60).json()["count"] != 8:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        label = {"rollout": requests.get(asked, timeout=60).json()["rows"][0]["id"], "label": "x"}
        assert requests.post(f"{url.group()}api/labels", json=label, timeout=60).status_code == 403
    finally:
        served.terminate()
        served.wait(120)
        run.finish()
