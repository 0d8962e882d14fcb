"""Who is refused, and what an answer may not do."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from rollscope.server.security import COOKIE, Gate, Rate, is_loopback
from rollscope.server.serve import address, welcome

from .conftest import Served

FORGED = [
    *("evil.example", "localhost.evil.example", "127.0.0.1.nip.io:80", "0.0.0.0", "[::]", "127.1"),
    *("", "@", "[::1", "[localhost]", "localhost]", "localhost, evil.example", "2130706433"),
    *(
        "evil.example@localhost",
        "localhost@evil.example",
        "a:b@localhost",
        "localhost/evil.example",
    ),
    *("localhost?evil.example", "localhost#evil.example", "localhost:port", "localhost\\evil"),
]
OURS = ["localhost:1234", "LOCALHOST", "localhost.", "127.0.0.1", "127.8.8.8:1", "[::1]:80"]


def test_a_forged_host_is_refused(site: Served) -> None:
    for host in FORGED:
        assert site.raw("runs", headers={"host": host}).status_code == 403, host
    for host in OURS:
        assert site.raw("runs", headers={"host": host}).status_code == 200, host


def test_pages_of_other_sites_are_refused(site: Served) -> None:
    here = site.url.removeprefix("http://")
    for origin in ("https://evil.example", "null", "", "http://[", "http://", here, "file://",
                   f"http://{here}.evil.example", f"http://{here}@evil.example"):  # fmt: skip
        assert site.raw("runs", headers={"origin": origin}).status_code == 403, origin
    assert site.raw("runs", headers={"origin": site.url}).status_code == 200
    for place in ("cross-site", "same-site"):
        assert site.raw("runs", headers={"sec-fetch-site": place}).status_code == 403
    assert site.raw("runs", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_a_link_from_elsewhere_may_be_followed_but_nothing_be_sent(site: Served) -> None:
    followed = {
        "sec-fetch-site": "cross-site",
        "sec-fetch-mode": "navigate",
        "sec-fetch-dest": "document",
    }
    assert requests.get(site.url, headers=followed, timeout=60).ok
    framed = followed | {"sec-fetch-dest": "iframe"}
    assert requests.get(site.url, headers=framed, timeout=60).status_code == 403
    for path in ("labels", "login"):
        sent = requests.post(f"{site.url}/api/{path}", json={}, headers=followed, timeout=60)
        assert sent.status_code == 403


def test_only_json_is_taken(site: Served) -> None:
    form = requests.post(f"{site.url}/api/labels", data={"rollout": "x"}, timeout=60)
    assert form.status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/..%2f..%2f..%2fetc/passwd",
        "/assets/..%5c..%5csecret",
        "/%2e%2e/%2e%2e/pyproject.toml",
        "/assets/../../server/app.py",
        "//etc/passwd",
        "/api/rollouts/..%2f..%2fetc",
    ],
)
def test_no_path_leads_out_of_the_page(site: Served, path: str) -> None:
    place = urlsplit(site.url)
    line = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=60)
    line.request("GET", path)
    answer = line.getresponse()
    body = answer.read()
    assert answer.status in (400, 403, 404), (path, answer.status)
    assert b"root:" not in body
    assert b"def " not in body


def test_every_answer_carries_the_strict_policy(site: Served) -> None:
    for path in ("/", "/api/runs", "/api/none", "/nothing"):
        headers = requests.get(site.url + path, timeout=60).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_a_token_is_asked_for_and_can_be_a_cookie_or_a_bearer(
    serve: Callable[..., Any], store_dir: Path
) -> None:
    with serve(store_dir, token="correct horse", hosts=None) as site:
        assert site.raw("runs").status_code == 401
        assert site.raw("runs", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert site.raw("runs", headers={"authorization": "Bearer correct horse"}).ok
        session = requests.Session()
        url = f"{site.url}/api/login"
        assert session.post(url, json={"token": "wrong"}, timeout=60).status_code == 401
        assert session.post(url, json={"token": "correct horse"}, timeout=60).ok
        assert session.get(f"{site.url}/api/runs", timeout=60).ok
        cookie = next(c for c in session.cookies if c.name == COOKIE)
        assert "correct" not in (cookie.value or "")
        assert cookie.has_nonstandard_attr("HttpOnly")


def test_the_printed_link_logs_in_and_takes_the_token_out_of_the_address(
    serve: Callable[..., Any], store_dir: Path
) -> None:
    with serve(store_dir, token="secret", hosts=None) as site:
        session = requests.Session()
        answer = session.get(f"{site.url}/login?token=secret", timeout=60, allow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert session.get(f"{site.url}/api/runs", timeout=60).ok
        assert not requests.get(f"{site.url}/login?token=bad", timeout=60).cookies


def test_guessing_a_token_is_slowed_down_at_every_door(
    serve: Callable[..., Any], store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After too many guesses the right token is refused, too: else one could go on guessing."""

    def bearer(site: Served, token: str) -> int:
        return site.raw("runs", headers={"authorization": f"Bearer {token}"}).status_code

    def login(site: Served, token: str) -> int:
        url = f"{site.url}/api/login"
        return requests.post(url, json={"token": token}, timeout=60).status_code

    def link(site: Served, token: str) -> int:
        url = f"{site.url}/login?token={token}"
        return 200 if requests.get(url, timeout=60, allow_redirects=False).cookies else 401

    monkeypatch.setattr(Gate, "again", 0.0)  # a slow machine would get some back
    for door in (bearer, login, link):
        with serve(store_dir, token="secret", hosts=None) as site:
            session = requests.Session()
            session.get(f"{site.url}/login?token=secret", timeout=60)
            assert {door(site, str(n)) for n in range(10)} == {401}
            refused = [bearer(site, "secret"), login(site, "secret"), link(site, "secret")]
            assert refused == [429, 429, 401]
            assert session.get(f"{site.url}/api/runs", timeout=60).ok, "who is in stays in"


def test_labels_are_refused_where_they_are_not_allowed(
    serve: Callable[..., Any], store_dir: Path
) -> None:
    with serve(store_dir, allow_labels=False) as site:
        id = site.get("start")["id"]
        body = {"rollout": id, "label": "good"}
        answer = requests.post(f"{site.url}/api/labels", json=body, timeout=60)
        assert answer.status_code == 403
        assert "--allow-labels" in answer.json()["error"]
        assert not site.get("status")["can_label"]


def test_a_rate_lets_a_burst_through_and_no_more() -> None:
    rate = Rate(per_second=0, burst=3)
    assert [rate.allows("a") for _ in range(4)] == [True, True, True, False]
    assert rate.allows("b")


def test_loopback_names_are_known() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]")))
    assert not any(map(is_loopback, ("0.0.0.0", "192.168.1.2", "example.com", "localhost.com")))


def test_over_ssh_one_line_forwards_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5000 10.0.0.9 22")
    monkeypatch.setenv("USER", "ada")
    text = welcome("127.0.0.1", 7373, None)
    assert "ssh -N -L 7373:localhost:7373 ada@10.0.0.9" in text
    assert address("::1", 7, None) == "http://[::1]:7/"


def test_a_link_for_others_does_not_lead_to_their_own_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.getfqdn", lambda: "localhost.localdomain")
    monkeypatch.setattr("socket.gethostname", lambda: "node-7")
    assert "http://node-7:80/login?token=t" in welcome("0.0.0.0", 80, "t")
    assert "http://localhost:80/" in welcome("127.0.0.1", 80, None)
