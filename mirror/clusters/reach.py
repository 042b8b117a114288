"""Several clusters by alias, each connected when first used.

Main type: `Reach`, a context manager over a configuration's clusters. A cluster that
does not answer is tried only once, so it costs its timeout only once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from mirror.clusters.cluster import Cluster
from mirror.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from mirror.config.cluster_settings import ClusterConfig


class Reach:
    """Connections that are closed together. Not thread-safe, but for different ones."""

    def __init__(
        self, clusters: Mapping[str, ClusterConfig], *, client_id: str
    ) -> None:
        self._configs = clusters
        self._client_id = client_id
        self._reached: dict[str, Cluster | ClusterError] = {}

    def __call__(self, alias: str) -> Cluster:
        """The cluster, connected.

        Raises:
            ClusterError: it does not answer, or did not when it was first used.
        """
        if alias not in self._reached:
            cluster = Cluster(self._configs[alias], client_id=self._client_id)
            try:
                self._reached[alias] = cluster.connect()
            except ClusterError as error:
                self._reached[alias] = error
        found = self._reached[alias]
        if isinstance(found, ClusterError):
            raise found
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            return  # threads may be at work with them; the process ends
        for cluster in [*self._reached.values()]:  # one may be connecting still
            if isinstance(cluster, Cluster):
                cluster.close()
        self._reached.clear()
