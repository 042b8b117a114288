"""Waits until a broker is up: it serves metadata, not merely a port.

Main function: `wait_until_serving`. It asks one address about one node; the caller's
`check` raises if waiting has become pointless.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING

from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import ClusterError, PlaygroundError

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_SECONDS = 0.05
_ANSWER_SECONDS = 5.0


def wait_until_serving(
    address: str,
    *,
    node: int,
    brokers: int,
    seconds: float,
    check: Callable[[], None],
) -> None:
    """Wait until the node at `address` lists itself among so many brokers.

    Raises:
        PlaygroundError: it timed out; or whatever `check` raises.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        check()
        if _accepts(address):
            known = _known_brokers(address)
            if node in known and len(known) >= brokers:
                return
        time.sleep(_PAUSE_SECONDS)
    raise PlaygroundError(
        f"node {node} at {address} did not serve within {seconds:.0f} s"
    )


def _accepts(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=0.5).close()
    except OSError:
        return False
    return True


def _known_brokers(address: str) -> set[int]:
    config = ClusterConfig(
        alias="playground",
        bootstrap_servers=[address],
        request_timeout_seconds=_ANSWER_SECONDS,
    )
    try:
        # A killed broker is not listed until it is back.
        with contextlib.closing(Cluster(config).connect()) as cluster:
            return set(cluster.nodes)
    except ClusterError:
        return set()
