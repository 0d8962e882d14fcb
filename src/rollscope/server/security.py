"""Who may ask, and what an answer may do: hosts, origins, tokens, rates and headers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .shapes import Refusal

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


_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
"""A host is a name or an address, and a port. Nothing else is, even if a parser accepts it."""


class Rate:
    """A bucket per client: `burst` at once, then `per_second`."""

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second = per_second
        self.burst = burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, who: str) -> bool:
        """May one more be? It is counted if so."""
        now = time.monotonic()
        left = self._now(who, now)
        self._left.pop(who, None)
        self._left[who] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > 10_000:
            self._left.popitem(last=False)
        return left >= 1

    def spent(self, who: str) -> bool:
        """Is nothing left? Asking is not counted."""
        return self._now(who, time.monotonic()) < 1

    def _now(self, who: str, now: float) -> float:
        left, then = self._left.get(who, (self.burst, now))
        return min(self.burst, left + (now - then) * self.per_second)


class Gate:
    """Who knows the token. There is one for all doors, so guesses at all of them are counted
    together."""

    again = 1 / 6
    """Guesses that a client gets back each second."""

    def __init__(self, token: str | None) -> None:
        self.token = token
        self.guesses = Rate(per_second=self.again, burst=10)

    def refusal(self, who: str, headers: Headers) -> Response | None:
        """The answer to a request that may not come in; None: it may."""
        if self.token is None:
            return None
        given = token_given(headers)
        if given is None:
            return refusal(401, "a token is needed: the one that was printed at the start")
        return None if same(given, proof(self.token)) else self.judge(who, given)

    def judge(self, who: str, given: str) -> Response | None:
        """Refuses a wrong token. If a client guessed too often, it refuses even the right one;
        otherwise guesses could come as fast as requests. Clients with a cookie are not affected."""
        if self.token is None:
            return None
        if self.guesses.spent(who):
            return refusal(429, "too many wrong tokens; wait a minute")
        if same(given, self.token):
            return None
        self.guesses.allows(who)
        return refusal(401, "the token is wrong")

    def open(self, response: Response, *, secure: bool) -> Response:
        """Puts the proof into the cookie: from now on the browser may come in."""
        if self.token is not None:
            response.set_cookie(
                COOKIE,
                proof(self.token),
                max_age=30 * DAY,
                httponly=True,
                samesite="strict",
                secure=secure,
            )
        return response


class Guard:
    """ASGI middleware: refuses what should not be asked and limits what answers may do."""

    def __init__(self, app: ASGIApp, gate: Gate, hosts: Iterable[str] | None) -> None:
        self.app = app
        self.gate = gate
        self.hosts = None if hosts is None else {host.lower() for host in hosts}
        """Names by which the server may be called; None: any (a token is asked for then)."""
        self.requests = Rate(per_second=100, burst=400)

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
        who = client(scope)
        if not self._host_allowed(headers.get("host", "")):
            return refusal(403, "this server does not answer to that host name")
        if not self._origin_allowed(scope["method"], headers):
            return refusal(403, "this server answers only its own page")
        if not self.requests.allows(who):
            return refusal(429, "too many requests; wait a moment")
        return self.gate.refusal(who, headers) if self._needs_token(scope) else None

    def _needs_token(self, scope: Scope) -> bool:
        path: str = scope["path"]
        return path.startswith("/api/") and path != "/api/login"

    def _host_allowed(self, host: str) -> bool:
        if self.hosts is None:
            return True
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower()
        return name in self.hosts or is_loopback(name)

    def _origin_allowed(self, method: str, headers: Headers) -> bool:
        """Pages of other sites may neither read nor write, whatever the browser lets through. They
        may link here, because following a link only shows the page."""
        origin = headers.get("origin")
        if origin is not None:
            place = origin.partition("://")[2].lower()
            if not place or place != headers.get("host", "").lower():
                return False
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return True
        follows = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        return method in ("GET", "HEAD") and follows == ("navigate", "document")


def client(scope: Scope) -> str:
    """The address that asks."""
    return str((scope.get("client") or ("?",))[0])


def same(given: str, right: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(given.encode(), right.encode())


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


def refusal(code: int, why: str) -> Response:
    body = msgspec.json.encode(Refusal(error=why))
    return Response(body, code, media_type="application/json")
