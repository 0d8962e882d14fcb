"""Other systems' own servers, in processes of their own."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from sinks.conftest import wait_for


@contextmanager
def served(
    command: Callable[[int], list[str]], env: Mapping[str, str], health: str, log: Path
) -> Iterator[str]:
    """The address of the server that `command(port)` starts, once `health` answers there.

    A port that is free now may be taken when the server comes to it. Then the server ends, and
    is started again with another one.
    """
    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = started(command(port), env, f"http://127.0.0.1:{port}{health}", log)
        if process.poll() is None:
            break
    assert process.poll() is None, log.read_text()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(120)


def started(
    command: list[str], env: Mapping[str, str], health: str, log: Path
) -> subprocess.Popen[bytes]:
    """A server that answers at the address `health`, or has ended."""
    with log.open("w") as said:
        process = subprocess.Popen(command, env=env, stdout=said, stderr=said)
    wait_for(lambda: process.poll() is not None or _answers(health), "a server", 300)
    return process


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.HTTPError:
        return False
