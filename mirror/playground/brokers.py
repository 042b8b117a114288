"""Real Kafka clusters for the demo, the tests and the benchmarks.

Main function: `playground`, a context in which the named clusters run. Three
roads lead there: clusters given by MIRROR_TEST_BOOTSTRAP_<NAME>, Docker, or
Kafka's own jars as processes; MIRROR_TEST_BROKERS=env|docker|jars forces one.
It makes clusters and clears them away; what is done to them in between is
`PlaygroundCluster`'s.
"""

from __future__ import annotations

from contextlib import contextmanager
import os
import shutil
from typing import TYPE_CHECKING, Literal, cast, get_args

from mirror.errors import PlaygroundError
from mirror.playground.archive import class_data_options
from mirror.playground.cluster import GivenNode, PlaygroundCluster
from mirror.playground.node import JarNode, NodePlan, random_uuid
from mirror.playground.ports import LOOPBACK, free_ports
from mirror.playground.settings import broker_settings, plain_listeners

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

Road = Literal["env", "docker", "jars"]


@contextmanager
def playground(  # noqa: PLR0913 - all but the names have defaults
    names: Sequence[str] = ("a", "b"),
    *,
    root: Path,
    road: Road | None = None,
    nodes: int = 1,
    settings: Mapping[str, str] | None = None,
    jvm: Sequence[str] = (),
    keep: bool = False,
) -> Iterator[dict[str, PlaygroundCluster]]:
    """Run one cluster per name and clear them away afterwards.

    Args:
        names: one cluster each.
        root: folder for data and logs, one subfolder per cluster.
        road: None asks `choose_road`.
        nodes: brokers per cluster, all of them controllers too.
        settings: broker settings over the playground's own.
        jvm: Java options over the playground's own, such as a larger heap.
        keep: leave data and logs in `root` after a clean stop.

    Raises:
        PlaygroundError: a cluster could not be started on that road.
    """
    chosen = road or choose_road(names)
    if chosen == "env":
        yield {name: _given(name) for name in names}
        return
    clusters = {
        name: _from_jars(
            name, root / name, nodes=nodes, settings=settings or {}, jvm=jvm
        )
        for name in names
    }
    try:
        _start_together(clusters.values())
        yield clusters
    finally:
        for cluster in clusters.values():
            if keep:
                cluster.stop()
            else:
                # What is about to be deleted needs no orderly farewell.
                cluster.kill()
                shutil.rmtree(root / cluster.name, ignore_errors=True)


def choose_road(names: Sequence[str]) -> Road:
    """MIRROR_TEST_BROKERS; else given addresses; else Docker; else the jars."""
    forced = os.environ.get("MIRROR_TEST_BROKERS")
    if forced:
        if forced not in get_args(Road):
            raise PlaygroundError(
                f"MIRROR_TEST_BROKERS is {forced!r}: it must be env, docker or jars"
            )
        return cast("Road", forced)
    if all(_address_variable(name) in os.environ for name in names):
        return "env"
    return own_road()


def own_road() -> Road:
    """The road to clusters that are ours to kill, whatever may be given."""
    return "jars"


def _address_variable(name: str) -> str:
    return f"MIRROR_TEST_BOOTSTRAP_{name.upper()}"


def _given(name: str) -> PlaygroundCluster:
    bootstrap = os.environ.get(_address_variable(name))
    if not bootstrap:
        raise PlaygroundError(
            f"{_address_variable(name)} is not set: it names the brokers of cluster"
            f" {name}, as host:port[,host:port]"
        )
    return PlaygroundCluster(
        name=name,
        bootstrap=bootstrap,
        admin_bootstrap=bootstrap,
        node_by_number={1: GivenNode(bootstrap)},
    )


def _from_jars(
    name: str,
    folder: Path,
    *,
    nodes: int,
    settings: Mapping[str, str],
    jvm: Sequence[str],
) -> PlaygroundCluster:
    numbers = range(1, nodes + 1)
    ports = free_ports(2 * nodes)
    plain = {n: f"{LOOPBACK}:{ports[2 * n - 2]}" for n in numbers}
    control = {n: f"{LOOPBACK}:{ports[2 * n - 1]}" for n in numbers}
    cluster_id = random_uuid()
    node_by_number = {
        number: JarNode(
            NodePlan(
                number=number,
                folder=(folder / f"node-{number}").resolve(),
                cluster_id=cluster_id,
                plain_address=plain[number],
                settings=broker_settings(
                    node=number,
                    voters=control,
                    listeners=plain_listeners(
                        plain=plain[number], control=control[number]
                    ),
                    extra=settings,
                ),
                jvm=(*class_data_options(), *jvm),
                cluster_size=nodes,
            )
        )
        for number in numbers
    }
    bootstrap = ",".join(plain.values())
    return PlaygroundCluster(
        name=name,
        bootstrap=bootstrap,
        admin_bootstrap=bootstrap,
        node_by_number=node_by_number,
        folder=folder,
    )


def _start_together(clusters: Collection[PlaygroundCluster]) -> None:
    for cluster in clusters:
        for node in cluster.node_by_number.values():
            node.spawn()
    for cluster in clusters:
        cluster.start()
