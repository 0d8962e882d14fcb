"""The ASGI application: the API, the page, and who may have them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount
from starlette.routing import Route as Path_
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ..query import NotFound, QueryError, Store
from ..store.read.cancel import Cancellable, Cancelled
from . import shapes as s
from . import turns
from .desk import Desk
from .openapi import describe
from .routes import ROUTES, Route
from .security import Gate, Guard, client, refusal

STATIC = Path(__file__).parent.parent / "viewer" / "static"
BODY = 64_000
"""Bytes that a request may carry: a long note."""
UNTAGGED = {"any_one", "runs"}
"""Answers that may change although the store does not: random ones, and when a writer dies."""
AGAIN = 0.05
"""Seconds between two calls to end a query whose client has gone."""


def app(
    store: Store,
    *,
    token: str | None = None,
    hosts: Iterable[str] | None = (),
    allow_labels: bool = True,
    dir: str | None = None,
) -> ASGIApp:
    """The application over a store.

    `hosts`: names besides those of this machine by which it may be called; None: any, which
    is safe only with a `token`. `dir`: where the store lies, if readers may know.
    """
    desk = Desk(store, can_label=allow_labels, dir=dir)
    gate = Gate(token)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await anyio.to_thread.run_sync(desk.close)

    routes: list[Any] = [_route(desk, route) for route in ROUTES]
    description = msgspec.json.encode(describe(ROUTES))
    routes += [
        Path_("/api/openapi.json", _fixed(description)),
        Path_("/api/login", _login(gate), methods=["POST"]),
        Path_("/login", _login_link(gate)),
        Path_("/api/{rest:path}", _unknown),
        Path_("/", _page),
    ]
    if STATIC.is_dir():  # a checkout whose page was not built has none
        routes.append(Mount("/", StaticFiles(directory=STATIC)))
    inner = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)],
    )
    return Guard(inner, gate, hosts)


def _route(desk: Desk, route: Route) -> Path_:
    async def answer(request: Request) -> Response:
        try:
            # Path values come as text, and the description says what they are.
            path: dict[str, Any] = dict(request.path_params)
            if "n" in path:
                path["n"] = msgspec.convert(path["n"], int, strict=False)
                if not 0 <= path["n"] < 2**31:
                    raise NotFound("no such message")
            asked: Any = msgspec.convert(dict(request.query_params), route.params, strict=False)
            if route.body is not None:
                path["body"] = msgspec.json.decode(await _body(request), type=route.body)
            if route.stream:
                return await _stream(desk, route, asked, client(request.scope))
            return await _plain(desk, route, asked, path, request)
        except Exception as error:
            return _refused(error)

    return Path_(route.path, answer, methods=[route.method])


async def _plain(
    desk: Desk, route: Route, asked: Any, path: dict[str, Any], request: Request
) -> Response:
    def work() -> Any:
        return route.answerer(desk, asked, **path)

    if route.method != "GET":  # a write goes through even if the client leaves
        return _json(await anyio.to_thread.run_sync(work))
    known = request.headers.get("if-none-match")

    def answer() -> Response:
        desk.store.refresh()
        tag = _tag(desk, request)
        if known == tag:
            return Response(status_code=304, headers={"etag": tag})
        response = _json(work())
        if route.name not in UNTAGGED:
            response.headers["etag"] = tag
        return response

    queries = Cancellable()
    async with _ended_when(queries, lambda: _gone(request)):
        if not turns.is_large(route.name, asked):
            return await anyio.to_thread.run_sync(queries.run, answer)
        return await _in_turn(desk, client(request.scope), queries, answer)


async def _in_turn(
    desk: Desk, who: str, queries: Cancellable, answer: Callable[[], Response]
) -> Response:
    with desk.turns.asking(who) as asker:
        async with (
            desk.turns.turn(asker),
            _ended_when(queries, lambda: anyio.sleep(turns.SECONDS)) as late,
        ):
            try:
                return await turns.aside(queries.run, answer)
            except Cancelled:
                if late.is_set():
                    raise ValueError(turns.TOO_LONG) from None
                raise


async def _gone(request: Request) -> None:
    """Waits until the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@contextlib.asynccontextmanager
async def _ended_when(
    queries: Cancellable, happens: Callable[[], Awaitable[None]]
) -> AsyncIterator[asyncio.Event]:
    """Ends the queries as soon as something happens, and sets what it gives."""
    happened = asyncio.Event()

    async def watch() -> None:
        await happens()
        happened.set()
        while True:  # until the work has noticed
            queries.cancel()
            await anyio.sleep(AGAIN)

    watching = asyncio.create_task(watch())
    try:
        yield happened
    finally:
        watching.cancel()


def _tag(desk: Desk, request: Request) -> str:
    """Names an answer: the store as it is, and what was asked. The same tag, the same bytes."""
    text = f"{desk.generation}|{request.url.path}?{request.url.query}"
    return f'W/"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'


async def _stream(desk: Desk, route: Route, asked: Any, who: str) -> Response:
    steps = route.answerer(desk, asked, who)
    # The first event tells whether the question is understood, before a 200 is sent.
    first = await anext(steps)

    async def lines() -> AsyncIterator[bytes]:
        yield _event(*first)
        async for event, value in steps:
            yield _event(event, value)

    return StreamingResponse(
        lines(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


def _event(event: str, value: Any) -> bytes:
    if value is None:
        return b": still here\n\n"
    return b"event: " + event.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


async def _body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":  # other kinds can be sent by forms of other sites
        raise ValueError("send JSON, with content-type: application/json")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY:
            raise ValueError(f"more than {BODY} bytes")
    return body


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _refused(error: Exception) -> Response:
    """The answer to a question that cannot be answered. Our own errors are raised."""
    if isinstance(error, QueryError):
        problem = s.Refusal(
            error=error.what,
            start=error.start,
            end=error.end,
            suggestions=list(error.nearest),
        )
        return Response(msgspec.json.encode(problem), 400, media_type="application/json")
    if isinstance(error, Cancelled):
        return Response(status_code=499)  # nobody reads it
    if isinstance(error, turns.TooMany):
        return refusal(429, str(error))
    if isinstance(error, NotFound):
        return refusal(404, str(error))
    if isinstance(error, PermissionError):
        return refusal(403, str(error))
    if isinstance(error, (ValueError, msgspec.MsgspecError)):
        return refusal(400, str(error))
    raise error


def _fixed(body: bytes) -> Any:
    async def answer(_: Request) -> Response:
        return Response(body, media_type="application/json")

    return answer


async def _unknown(_: Request) -> Response:
    return refusal(404, "there is no such question; /api/openapi.json lists them all")


async def _page(_: Request) -> Response:
    index = STATIC / "index.html"
    if not index.is_file():
        text = "The viewer was not built. In a checkout: make viewer (it needs npm)."
        return Response(text, 503, media_type="text/plain")
    return Response(index.read_bytes(), media_type="text/html")


def _login(gate: Gate) -> Any:
    async def answer(request: Request) -> Response:
        try:
            given = msgspec.json.decode(await _body(request), type=s.Login).token
        except (ValueError, msgspec.MsgspecError) as error:
            return refusal(400, str(error))
        refused = gate.judge(client(request.scope), given)
        return refused or gate.open(_json(s.Done()), secure=request.url.scheme == "https")

    return answer


def _login_link(gate: Gate) -> Any:
    """The printed link: moves the token from the address into the cookie."""

    async def answer(request: Request) -> Response:
        refused = gate.judge(client(request.scope), request.query_params.get("token", ""))
        response = RedirectResponse("/", 303, headers={"cache-control": "no-store"})
        return response if refused else gate.open(response, secure=request.url.scheme == "https")

    return answer
