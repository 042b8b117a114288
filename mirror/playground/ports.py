"""Free ports on the loopback address.

Main function: `free_ports`. The ports are below the ephemeral range, so that no
outgoing connection takes one between the choice and the broker's bind. It does not
reserve the ports after returning them, but does not choose one again soon. Processes
that do the same at the same time have ranges of their own, in MIRROR_TEST_PORTS.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
import os
import random
import socket

LOOPBACK = "127.0.0.1"
VARIABLE = "MIRROR_TEST_PORTS"
_ALL = "20000-32000"
_chosen: deque[int] = deque(maxlen=1_000)
"""What this process chose last: the brokers may not have bound it yet."""


def free_ports(count: int) -> list[int]:
    """Choose `count` different ports, at random, all held until all are chosen."""
    chosen: list[int] = []
    # Seeded apart from the global generator, which tests may have pinned.
    randomness = random.SystemRandom()
    first, end = map(int, os.environ.get(VARIABLE, _ALL).split("-"))
    with ExitStack() as held:
        while len(chosen) < count:
            port = randomness.randrange(first, end)
            if port in _chosen:
                continue
            candidate = held.enter_context(socket.socket())
            try:
                candidate.bind((LOOPBACK, port))
            except OSError:
                continue
            chosen.append(port)
    _chosen.extend(chosen)
    return chosen
