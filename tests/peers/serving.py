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
        process, address = _started(command, env, health, log)
        if process.poll() is None:
            break
    assert process.poll() is None, log.read_text()
    try:
        yield address
    finally:
        process.terminate()
        process.wait(120)


def _started(
    command: Callable[[int], list[str]], env: Mapping[str, str], health: str, log: Path
) -> tuple[subprocess.Popen[bytes], str]:
    """A server that answers, or has ended, and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("w") as said:
        process = subprocess.Popen(command(port), env=env, stdout=said, stderr=said)
    address = f"http://127.0.0.1:{port}"
    wait_for(lambda: process.poll() is not None or _answers(address + health), "a server", 300)
    return process, address


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.HTTPError:
        return False
