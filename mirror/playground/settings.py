"""The server.properties of small brokers.

Main function: `broker_settings`, given a node's `Listener`s. Few internal partitions
and threads make a broker that is up in a second and needs 150 MB; with short session
timeouts the death of one shows soon. `secured` adds security.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SMALL = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    # A killed broker can come back only after its old session has expired.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
    # Else an idle controller writes two records a second.
    "metadata.max.idle.interval.ms": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address on which a node can be reached."""

    name: str
    address: str
    """host:port where the broker listens."""
    advertised: str
    """The advertised host:port; empty for the controllers' listener."""
    protocol: str = "PLAINTEXT"


def plain_listeners(*, plain: str, control: str) -> list[Listener]:
    """The two listeners that every node has: for everyone, and for the quorum."""
    return [
        Listener(name="PLAINTEXT", address=plain, advertised=plain),
        Listener(name="CONTROLLER", address=control, advertised=""),
    ]


def broker_settings(
    *,
    node: int,
    voters: Mapping[int, str],
    listeners: Sequence[Listener],
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Settings of one node; `voters` are the controllers' addresses by node. In `extra`
    {node} stands for its number.
    """
    copies = str(min(3, len(voters)))
    in_sync = str(min(2, len(voters)))
    return {
        **_SMALL,
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{number}@{address}" for number, address in voters.items()
        ),
        "listeners": ",".join(f"{each.name}://{each.address}" for each in listeners),
        "advertised.listeners": ",".join(
            f"{each.name}://{each.advertised}" for each in listeners if each.advertised
        ),
        "listener.security.protocol.map": ",".join(
            f"{each.name}:{each.protocol}" for each in listeners
        ),
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        **{name: text.replace("{node}", str(node)) for name, text in extra.items()},
    }
