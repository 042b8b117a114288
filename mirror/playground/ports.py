"""Free ports on the loopback address.

Main function: `free_ports`. The ports are below the ephemeral range, so that no
outgoing connection takes one between the choice and the broker's bind. It does not
reserve the ports after returning them, but processes that run at the same time choose
from different ones, mostly.
"""

from __future__ import annotations

from contextlib import ExitStack
import os
import random
import socket

LOOPBACK = "127.0.0.1"
_LOWEST, _SHARES, _SHARE = 20_000, 30, 400


def free_ports(count: int) -> list[int]:
    """Choose `count` different ports, at random, all held until all are chosen."""
    chosen: list[int] = []
    first = _LOWEST + os.getpid() % _SHARES * _SHARE
    # Seeded apart from the global generator, which tests may have pinned.
    randomness = random.SystemRandom()
    with ExitStack() as held:
        while len(chosen) < count:
            port = randomness.randrange(first, first + _SHARE)
            candidate = held.enter_context(socket.socket())
            try:
                candidate.bind((LOOPBACK, port))
            except OSError:
                continue
            chosen.append(port)
    return chosen
