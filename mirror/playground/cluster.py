"""A running cluster, and what tests do to it.

Main type: `PlaygroundCluster`: where to connect, with which settings, and methods to
stop, kill and restart single nodes. The `Node` protocol hides how a node runs (process,
container, or elsewhere and not ours). `brokers` creates clusters.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mirror.errors import PlaygroundError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirror.playground.secured import CertificateKind

START_SECONDS = 120.0
STOP_SECONDS = 10.0


class Node(Protocol):
    """One broker, however it runs."""

    @property
    def pid(self) -> int | None: ...

    def spawn(self) -> None: ...

    def wait(self, *, brokers: int, seconds: float) -> None:
        """Wait until it serves metadata that lists it among `brokers` brokers."""

    def stop(self, *, seconds: float) -> None: ...

    def kill(self) -> None: ...

    def discard(self) -> None:
        """End it for good, at once."""

    def log_tail(self, lines: int) -> str: ...


class GivenNode:
    """A broker that someone else runs: it can be used, and nothing else."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def pid(self) -> int | None:
        return None

    def spawn(self) -> None:
        """It runs already, or its user will notice."""

    def wait(self, *, brokers: int, seconds: float) -> None:
        """It runs already, or its user will notice."""

    def stop(self, *, seconds: float) -> None:  # noqa: ARG002 - the protocol's
        raise self._refusal("stopped")

    def kill(self) -> None:
        raise self._refusal("killed")

    def discard(self) -> None:
        """Its owner decides on that."""

    def log_tail(self, lines: int) -> str:  # noqa: ARG002 - the protocol's
        return ""

    def _refusal(self, verb: str) -> PlaygroundError:
        return PlaygroundError(
            f"the cluster at {self._bootstrap} was given by MIRROR_TEST_BOOTSTRAP_*"
            f" and cannot be {verb}: only brokers that the playground started can"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The specification of a cluster to create."""

    name: str
    folder: Path
    nodes: int = 1
    secured: bool = False
    certificate: CertificateKind = "valid"
    """The certificate that the brokers of a secured cluster present."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Broker settings over the playground's own; {node} is the broker's number."""
    jvm: Sequence[str] = ()
    """Java options over the playground's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A way to connect to a cluster."""

    bootstrap: str
    client_config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundCluster:
    """A cluster with nodes numbered from 1."""

    name: str
    bootstrap: str
    """host:port[,host:port] of the listener that clients under test use."""
    admin_bootstrap: str
    """The plaintext listener where everything is allowed; often the same one."""
    node_by_number: Mapping[int, Node]
    client_config: Mapping[str, str] = field(default_factory=dict)
    """Settings as in a cluster's configuration; empty when plain."""
    mutual_tls: Access | None = None
    """With a client certificate, as the same user; None when plain."""
    one_way_tls: Access | None = None
    """Over TLS without authentication; None when plain."""
    sasl: Access | None = None
    """With a password and without TLS, as the same user; None when plain."""
    folder: Path | None = None
    """Configuration, data, logs and certificates; None when not on this machine."""

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(self.node_by_number)

    def start(self, node: int | None = None) -> None:
        """Start a node, or all, and wait until each serves metadata.

        Raises:
            PlaygroundError: it did not come up; the message ends in its log.
        """
        chosen = self._choose(node)
        for each in chosen:
            each.spawn()
        try:
            for each in chosen:
                each.wait(brokers=len(chosen), seconds=START_SECONDS)
        except PlaygroundError as error:
            raise PlaygroundError(f"{error}\n{self.log_tail()}") from error

    def stop(self, node: int | None = None) -> None:
        """Stop a node, or all, cleanly; by force after ten seconds."""
        chosen = self._choose(node)
        with ThreadPoolExecutor(max_workers=len(chosen)) as pool:
            # A quorum cannot hand over if nodes are stopped one after another.
            list(pool.map(lambda each: each.stop(seconds=STOP_SECONDS), chosen))

    def kill(self, node: int | None = None) -> None:
        """SIGKILL to a node, or to all."""
        for each in self._choose(node):
            each.kill()

    def discard(self) -> None:
        """End all nodes for good; their data is no longer needed."""
        for each in self._choose(None):
            each.discard()

    def pids(self) -> dict[int, int]:
        """Process ids of the nodes that run as processes of this machine."""
        pids = {number: node.pid for number, node in self.node_by_number.items()}
        return {number: pid for number, pid in pids.items() if pid is not None}

    def log_tail(self, lines: int = 40) -> str:
        """The last lines that each node wrote."""
        return "\n".join(
            f"--- cluster {self.name}, node {number} ---\n{node.log_tail(lines)}"
            for number, node in self.node_by_number.items()
        )

    def _choose(self, node: int | None) -> list[Node]:
        if node is None:
            return list(self.node_by_number.values())
        if node not in self.node_by_number:
            raise PlaygroundError(
                f"cluster {self.name} has no node {node}, only {list(self.nodes)}"
            )
        return [self.node_by_number[node]]
