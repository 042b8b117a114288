"""A cluster of one broker, seen from far away.

One context, `far_from`. The tests' own clients reach the broker directly.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirror.playground.ports import LOOPBACK, free_ports
from tests.benchmarks.wan import Wan
from tests.harness.proxy import BrokerProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster


@contextmanager
def far_from(
    cluster: PlaygroundCluster, *, one_way_seconds: float
) -> Iterator[tuple[str, BrokerProxy]]:
    """Its address over a distance, and the proxy in front of its broker."""
    (port,) = free_ports(1)
    address = f"{LOOPBACK}:{port}"
    with (
        BrokerProxy(cluster.bootstrap, seen_at=port) as proxy,
        Wan(address, proxy.bootstrap, one_way_seconds=one_way_seconds),
    ):
        yield address, proxy
