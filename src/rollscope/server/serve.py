"""Running the server: where it listens, what it prints, and when it ends."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import Iterable
from pathlib import Path

from ..checks.beside import Scanning
from ..query import Store
from .app import app
from .keeper import Keeper
from .security import is_loopback

PORT = 7373


def serve(
    store: Store | str | Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    open_browser: bool = False,
    token: str | None = None,
    hosts: Iterable[str] = (),
    allow_labels: bool | None = None,
    query: str = "",
    tend: bool = True,
    scan: bool = True,
) -> None:
    """Serve the viewer until interrupted.

    On a host other than loopback a token is demanded (made here if none is given, and printed
    once), and labels can be written only with `allow_labels`. `tend`: seal the logs of writers
    that died, and compact; not for a folder that only mirrors another. `scan`: let checks look at
    new rollouts, in a process beside this one; not for a mirror, either.
    """
    import uvicorn

    before = set(threading.enumerate())
    mine = is_loopback(host)
    if not mine and token is None:
        token = os.environ.get("ROLLSCOPE_TOKEN") or secrets.token_urlsafe(24)
    opened = store if isinstance(store, Store) else Store(store)
    application = app(
        opened,
        token=token,
        hosts=hosts if mine else None,
        allow_labels=mine if allow_labels is None else allow_labels,
        dir=_unusual(opened) if mine and not hosts else None,
    )
    listening = listen(host, port)
    number = listening.getsockname()[1]
    print(welcome(host, number, token, query), flush=True)
    if open_browser:
        webbrowser.open(address("localhost", number, token, query))
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    # A page that is still open when the server is stopped is no error worth a traceback.
    logging.getLogger("uvicorn.error").addFilter(lambda _: not server.should_exit)
    keeper = Keeper(opened.reader)
    scanning = Scanning(Path(opened.reader.root))
    if tend:
        keeper.start()
    if scan and tend:
        scanning.start()
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        scanning.stop()
        if tend:
            keeper.stop()
        listening.close()
        _let_end(set(threading.enumerate()) - before)


def _let_end(threads: Iterable[threading.Thread], within: float = 2.0) -> None:
    """Wait for threads that are about to end. If a thread still holds a part of the engine when
    Python ends, the engine complains in many lines. Busy threads are left alone."""
    end = time.monotonic() + within
    with contextlib.suppress(KeyboardInterrupt):
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


def _unusual(store: Store) -> str | None:
    """Where the store lies, unless every command looks there without being told."""
    place = Path(store.reader.root).absolute()
    return None if place == Path("~/.rollscope").expanduser() else str(place)


def listen(host: str, port: int | None) -> socket.socket:
    """A socket on the port asked for; without one, on 7373, or any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    wanted = [port] if port is not None else [PORT, 0]
    for place, number in enumerate(wanted):
        # asyncio sends small packets at once only if the socket says that it is TCP: without
        # it every answer of more than one packet waits 40 ms for an acknowledgement.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, number))
            found.listen(128)
            return found
        except OSError as error:
            found.close()
            if place == len(wanted) - 1:
                what = error.strerror or str(error)
                raise SystemExit(
                    f"port {number} on {host}: {what}; choose another one with --port"
                ) from None
    raise AssertionError("unreachable")


def address(host: str, port: int, token: str | None, query: str = "") -> str:
    """Where to look. With a token the link logs in, and the token leaves the address."""
    from urllib.parse import quote

    name = f"[{host}]" if ":" in host else host
    if token is not None:
        return f"http://{name}:{port}/login?token={token}"
    return f"http://{name}:{port}/" + (f"?q={quote(query)}" if query else "")


def _name() -> str:
    """This machine, as others call it. Where /etc/hosts says nothing better its full name is
    localhost, which on any other machine is that one."""
    full = socket.getfqdn()
    return socket.gethostname() if full.partition(".")[0] == "localhost" else full


def welcome(host: str, port: int, token: str | None, query: str = "") -> str:
    """What is printed at the start; over SSH, with the line that forwards the port."""
    shown = "localhost" if is_loopback(host) else _name()
    lines = [f"rollscope: {address(shown, port, token, query)}   (Ctrl-C ends it)"]
    if "SSH_CONNECTION" in os.environ and is_loopback(host):
        machine = os.environ["SSH_CONNECTION"].split()[2]
        user = os.environ.get("USER") or os.environ.get("LOGNAME") or "you"
        lines.append(
            f"on your own machine type:  ssh -N -L {port}:localhost:{port} {user}@{machine}"
        )
    return "\n".join(lines)
