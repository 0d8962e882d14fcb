"""Who may ask, and what an answer may do: hosts, origins, tokens, rates and headers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .shapes import Problem

COOKIE = "rollscope"
DAY = 86_400

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""Nothing inline, nothing from elsewhere: rollout text that slipped through could not act."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-frame-options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Is this a name or address of this machine only?"""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Rate:
    """A bucket per client: `burst` at once, then `per_second`."""

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second = per_second
        self.burst = burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, who: str, cost: float = 1.0) -> bool:
        now = time.monotonic()
        left, then = self._left.pop(who, (self.burst, now))
        left = min(self.burst, left + (now - then) * self.per_second)
        allowed = left >= cost
        self._left[who] = (left - cost if allowed else left, now)
        while len(self._left) > 10_000:
            self._left.popitem(last=False)
        return allowed


class Guard:
    """ASGI middleware: refuses what should not be asked and limits what answers may do."""

    def __init__(
        self, app: ASGIApp, *, token: str | None = None, hosts: Iterable[str] | None = None
    ) -> None:
        self.app = app
        self.token = token
        self.hosts = None if hosts is None else {host.lower() for host in hosts}
        """Names by which the server may be called; None: any (a token is asked for then)."""
        self.requests = Rate(per_second=100, burst=400)
        self.guesses = Rate(per_second=1 / 6, burst=10)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith("/api/"):
                    headers.setdefault("cache-control", "no-cache, private")
            await send(message)

        refused = self._refusal(scope)
        await (refused or self.app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        who = (scope.get("client") or ("?",))[0]
        if not self._host_allowed(headers.get("host", "")):
            return refusal(403, "this server does not answer to that host name")
        if not self._origin_allowed(headers):
            return refusal(403, "this server answers only its own page")
        if not self.requests.allows(who):
            return refusal(429, "too many requests; wait a moment")
        if self.token is None or not self._needs_token(scope):
            return None
        given = token_given(headers)
        if given is None:
            return refusal(401, "a token is needed: the one that was printed at the start")
        if self.right(given):
            return None
        if not self.guesses.allows(who):
            return refusal(429, "too many wrong tokens; wait a minute")
        return refusal(401, "the token is wrong")

    def right(self, given: str) -> bool:
        """Is it the token, or the proof of it that the cookie carries? In constant time."""
        if self.token is None:
            return True
        proofs = (self.token, proof(self.token))
        same = [hmac.compare_digest(given.encode(), right.encode()) for right in proofs]
        return any(same)

    def _needs_token(self, scope: Scope) -> bool:
        path: str = scope["path"]
        return path.startswith("/api/") and path != "/api/login"

    def _host_allowed(self, host: str) -> bool:
        if self.hosts is None:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name.lower() in self.hosts or is_loopback(name)

    def _origin_allowed(self, headers: Headers) -> bool:
        """Pages of other sites may neither ask nor write, whatever the browser lets through."""
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            mode = headers.get("sec-fetch-mode")
            return mode == "navigate" and headers.get("sec-fetch-dest") == "document"
        origin = headers.get("origin")
        if origin is None:
            return True
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower()


def proof(token: str) -> str:
    """What the cookie carries in the place of the token."""
    return hmac.new(token.encode(), b"rollscope cookie", hashlib.sha256).hexdigest()


def token_given(headers: Headers) -> str | None:
    """The token, or its proof, that a request carries."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value:
        return value.strip()
    try:
        cookie = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return None
    return cookie[COOKIE].value if COOKIE in cookie else None


def set_cookie(response: Response, token: str, *, secure: bool) -> None:
    response.set_cookie(
        COOKIE,
        proof(token),
        max_age=30 * DAY,
        httponly=True,
        samesite="strict",
        secure=secure,
    )


def refusal(code: int, why: str) -> Response:
    body = msgspec.json.encode(Problem(error=why))
    return Response(body, code, media_type="application/json")
