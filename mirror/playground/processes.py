"""Clusters from Kafka's own jars, every node a process on this machine.

Main function: `cluster_of_processes`, which chooses ports and sets up nodes, quorum and
security. It starts nothing: `PlaygroundCluster.start` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.playground.archive import class_data_options
from mirror.playground.cluster import Access, ClusterPlan, PlaygroundCluster
from mirror.playground.node import JarNode, NodePlan, random_uuid
from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.secured import PASSWORDS, Security
from mirror.playground.settings import broker_settings, plain_listeners

if TYPE_CHECKING:
    from collections.abc import Mapping

_Addresses = dict[int, str]
_LISTENERS = 6


def cluster_of_processes(plan: ClusterPlan) -> PlaygroundCluster:
    """Set up a cluster; for secured ones this also writes the certificates."""
    folder = plan.folder.resolve()
    plain, control, scram, mutual_tls, one_way_tls, sasl = _addresses(plan.nodes)
    security = (
        Security(folder / "security", certificate=plan.certificate)
        if plan.secured
        else None
    )
    extra = {**(security.broker_settings() if security else {}), **plan.settings}
    cluster_id = random_uuid()
    nodes = {}
    for number in plain:
        listeners = plain_listeners(plain=plain[number], control=control[number])
        if security:
            listeners += security.listeners(
                scram=scram[number],
                mutual_tls=mutual_tls[number],
                one_way_tls=one_way_tls[number],
                sasl=sasl[number],
            )
        nodes[number] = JarNode(
            NodePlan(
                number=number,
                folder=folder / f"node-{number}",
                cluster_id=cluster_id,
                plain_address=plain[number],
                settings=broker_settings(
                    node=number, voters=control, listeners=listeners, extra=extra
                ),
                scram_users=PASSWORDS if security else {},
                jvm=(*class_data_options(), *plan.jvm),
            )
        )
    return PlaygroundCluster(
        name=plan.name,
        bootstrap=_bootstrap(scram if security else plain),
        admin_bootstrap=_bootstrap(plain),
        node_by_number=nodes,
        client_config=security.scram_client() if security else {},
        mutual_tls=(
            Access(
                bootstrap=_bootstrap(mutual_tls),
                client_config=security.mutual_tls_client(),
            )
            if security
            else None
        ),
        one_way_tls=(
            Access(
                bootstrap=_bootstrap(one_way_tls),
                client_config=security.one_way_tls_client(),
            )
            if security
            else None
        ),
        sasl=(
            Access(bootstrap=_bootstrap(sasl), client_config=security.sasl_client())
            if security
            else None
        ),
        folder=folder,
    )


def _addresses(nodes: int) -> list[_Addresses]:
    """The addresses of each kind of listener, by node from 1."""
    addresses = [f"{LOOPBACK}:{port}" for port in free_ports(_LISTENERS * nodes)]
    return [
        dict(enumerate(addresses[kind::_LISTENERS], start=1))
        for kind in range(_LISTENERS)
    ]


def _bootstrap(addresses: Mapping[int, str]) -> str:
    return ",".join(addresses.values())
