"""Several clusters by alias, each connected when first used.

Main type: `Reach`, a context manager over a configuration's clusters. A cluster that
does not answer is tried only once, so it costs its timeout only once. `at_once`, and
`begun`, which does not wait for it, work on several, a thread for each: one waits while
the others do. A `Cluster` is not thread-safe: no two pieces of work may use the same.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Self, TypeVar

from mirror.clusters.cluster import Cluster
from mirror.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from mirror.config.cluster_settings import ClusterConfig

T = TypeVar("T")


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


def at_once(work: Sequence[Callable[[], T]]) -> list[Future[T]]:
    """All of it, done or failed, in this order."""
    wait(futures := begun(work))
    return futures


def begun(work: Sequence[Callable[[], T]]) -> list[Future[T]]:
    """The same while it is being done: the process ends no sooner."""
    if not work:
        return []
    pool = ThreadPoolExecutor(len(work))
    # Copied, since for how long brokers are waited for counts there as well.
    futures = [pool.submit(copy_context().run, each) for each in work]
    pool.shutdown(wait=False)
    return futures
