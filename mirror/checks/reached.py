"""Connects to every cluster of a configuration's enabled flows at the same time, and as
every user that their tasks log in as.

Main type: `Reached`, a context manager with those that answered, and why the others did
not. A cluster that does not answer costs its timeout once, and delays no other.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Self

from mirror.clusters.cluster import Cluster
from mirror.clusters.wire.connection import Connection
from mirror.config.schema import login_ends
from mirror.errors import ClusterError

if TYPE_CHECKING:
    from types import TracebackType

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import MirrorConfig

_CLIENT = "mirror.check"
_BROKERS_AT_ONCE = 16


class Reached:
    """Connected clusters by alias, and by login. Not thread-safe."""

    def __init__(self, config: MirrorConfig) -> None:
        wanted = dict.fromkeys(
            alias
            for flow in config.flows.values()
            if flow.enabled
            for alias in chain(*login_ends(flow))
            if alias is not None
        )
        self._configs = {alias: config.clusters[alias] for alias in wanted}
        self.clusters: dict[str, Cluster] = {}
        self.failures: dict[str, ClusterError] = {}

    def __enter__(self) -> Self:
        with ThreadPoolExecutor(max_workers=max(1, len(self._configs))) as pool:
            answers = list(pool.map(_reach, self._configs.values()))
        for alias, answer in zip(self._configs, answers, strict=True):
            if isinstance(answer, Cluster):
                self.clusters[alias] = answer
            else:
                self.failures[alias] = answer
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        for cluster in self.clusters.values():
            cluster.close()

    def __call__(self, alias: str) -> Cluster:
        """The cluster.

        Raises:
            ClusterError: it did not answer.
        """
        if alias in self.failures:
            raise self.failures[alias]
        return self.clusters[alias]

    def silent_brokers(self, alias: str) -> dict[int, ClusterError]:
        """Brokers of a cluster that do not answer at their advertised address."""
        config, addresses = self._configs[alias], self.clusters[alias].addresses

        def ask(node: int) -> ClusterError | None:
            try:
                Connection(config, *addresses[node], client_id=_CLIENT).close()
            except ClusterError as error:
                return error
            return None

        with ThreadPoolExecutor(max_workers=_BROKERS_AT_ONCE) as pool:
            answers = dict(zip(addresses, pool.map(ask, addresses), strict=True))
        return {node: error for node, error in answers.items() if error is not None}


def _reach(config: ClusterConfig) -> Cluster | ClusterError:
    try:
        return Cluster(config, client_id=_CLIENT).connect()
    except ClusterError as error:
        return error
