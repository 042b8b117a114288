"""Real Kafka clusters for the demo, the tests and the benchmarks.

Main function: `playground`, a context in which the named clusters run. There are three
ways: clusters given by MIRROR_TEST_BOOTSTRAP_<NAME>, Docker, or Kafka's own jars as
processes; MIRROR_TEST_BROKERS=env|docker|jars forces one. It creates clusters and
removes them; `PlaygroundCluster` handles them in between.
"""

from __future__ import annotations

from contextlib import contextmanager
import os
import shutil
from typing import TYPE_CHECKING, Literal, cast, get_args

from mirror.errors import PlaygroundError
from mirror.playground.cluster import ClusterPlan, GivenNode, PlaygroundCluster
from mirror.playground.docker import cluster_in_docker, docker_answers
from mirror.playground.processes import cluster_of_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror.playground.secured import CertificateKind

Road = Literal["env", "docker", "jars"]


@contextmanager
def playground(  # noqa: PLR0913 - all but the root have a default
    names: Sequence[str] = ("a", "b"),
    *,
    root: Path,
    road: Road | None = None,
    given: bool = True,
    nodes: int = 1,
    secured: bool = False,
    certificate: CertificateKind = "valid",
    settings: Mapping[str, str] | None = None,
    jvm: Sequence[str] = (),
    keep: bool = False,
) -> Iterator[dict[str, PlaygroundCluster]]:
    """Run one cluster per name and remove them afterwards.

    Args:
        names: one cluster each.
        root: folder for data and logs, one subfolder per cluster.
        road: None takes `choose_road`'s choice.
        given: clusters named by the environment may be used; they cannot be killed.
        nodes: brokers per cluster, all of them controllers too.
        secured: add SCRAM and mutual TLS listeners, and an authorizer.
        certificate: what secured brokers present; clients must refuse the bad ones.
        settings: broker settings over the playground's own.
        jvm: Java options over the playground's own, such as a larger heap.
        keep: stop cleanly and leave data and logs in `root`.

    Raises:
        PlaygroundError: a cluster could not be created that way.
    """
    plans = [
        ClusterPlan(
            name=name,
            folder=root / name,
            nodes=nodes,
            secured=secured,
            certificate=certificate,
            settings=settings or {},
            jvm=jvm,
        )
        for name in names
    ]
    make = _MAKERS[road or choose_road(plans, given=given)]
    clusters = {plan.name: make(plan) for plan in plans}
    try:
        _start_together(list(clusters.values()))
        yield clusters
    finally:
        for cluster in clusters.values():
            _clear(cluster, keep=keep)


def choose_road(plans: Sequence[ClusterPlan], *, given: bool = True) -> Road:
    """MIRROR_TEST_BROKERS; else given clusters; else Docker; else the jars.

    Given clusters and Docker offer only plain clusters; anything else uses the jars
    unless forced.
    """
    forced = os.environ.get("MIRROR_TEST_BROKERS")
    if forced and forced not in get_args(Road):
        raise PlaygroundError(
            f"MIRROR_TEST_BROKERS is {forced!r}: it must be env, docker or jars"
        )
    if forced and (given or forced != "env"):
        return cast("Road", forced)
    if any(map(_special, plans)):
        return "jars"
    if given and all(_can_be_given(plan) for plan in plans):
        return "env"
    return "docker" if docker_answers() else "jars"


def _can_be_given(plan: ClusterPlan) -> bool:
    return not plan.settings and _address_variable(plan.name) in os.environ


def _special(plan: ClusterPlan) -> bool:
    return plan.nodes > 1 or plan.secured or bool(plan.jvm)


def _address_variable(name: str) -> str:
    return f"MIRROR_TEST_BOOTSTRAP_{name.upper()}"


def _given(plan: ClusterPlan) -> PlaygroundCluster:
    bootstrap = os.environ.get(_address_variable(plan.name))
    if not bootstrap:
        raise PlaygroundError(
            f"{_address_variable(plan.name)} is not set: it names the brokers of"
            f" cluster {plan.name}, as host:port[,host:port]"
        )
    if _special(plan) or plan.settings:
        raise PlaygroundError(
            f"cluster {plan.name} was given by {_address_variable(plan.name)} and is"
            " used as it is: other nodes, security or settings are not possible"
        )
    return PlaygroundCluster(
        name=plan.name,
        bootstrap=bootstrap,
        admin_bootstrap=bootstrap,
        node_by_number={1: GivenNode(bootstrap)},
    )


_MAKERS: dict[Road, Callable[[ClusterPlan], PlaygroundCluster]] = {
    "env": _given,
    "docker": cluster_in_docker,
    "jars": cluster_of_processes,
}


def _start_together(clusters: Sequence[PlaygroundCluster]) -> None:
    for cluster in clusters:
        for node in cluster.node_by_number.values():
            node.spawn()
    for cluster in clusters:
        cluster.start()


def _clear(cluster: PlaygroundCluster, *, keep: bool) -> None:
    if keep and cluster.folder is not None:
        cluster.stop()
        return
    cluster.discard()
    if cluster.folder is not None:
        shutil.rmtree(cluster.folder, ignore_errors=True)
