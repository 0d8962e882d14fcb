"""The socket that the server listens on."""

from __future__ import annotations

import socket

from rollscope.server.serve import listen


def test_answers_are_not_held_back_for_an_acknowledgement() -> None:
    """asyncio turns Nagle's algorithm off only for sockets that say they are TCP; with it each
    answer of more than one packet would wait 40 ms."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP
