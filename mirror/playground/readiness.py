"""Waits until a broker is up: it serves metadata, not merely a port.

Main function: `wait_until_serving`. It asks one address about one node; the caller's
`check` raises if waiting has become pointless.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from mirror.errors import PlaygroundError

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_SECONDS = 0.05
_ANSWER_MS = 5_000


def wait_until_serving(
    address: str,
    *,
    node: int,
    brokers: int,
    seconds: float,
    check: Callable[[], None],
) -> None:
    """Wait until the node at `address` lists itself among `brokers` brokers.

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
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=address, bootstrap_timeout_ms=_ANSWER_MS
        )
        try:
            listed = admin.describe_cluster()["brokers"]
        except KeyError:  # kafka-python expects what brokers tell since 3.7
            return {each["broker"] for each in admin.describe_log_dirs()}
        finally:
            admin.close()
    except (KafkaError, OSError):
        return set()
    # A killed broker stays in the list, fenced, until it is back; not before 2.8.
    return {each["broker_id"] for each in listed if not each.get("is_fenced")}
