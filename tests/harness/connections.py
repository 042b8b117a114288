"""Mirror's own connection to a test's cluster, where a test uses mirror's parts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def connected(bootstrap: str, *, alias: str = "B") -> Iterator[Cluster]:
    """Closed at the end."""
    config = ClusterConfig(alias=alias, bootstrap_servers=tuple(bootstrap.split(",")))
    with contextlib.closing(Cluster(config).connect()) as cluster:
        yield cluster
