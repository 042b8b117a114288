"""Connections of one run of a flow to its source and its target."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from mirror.clusters.cluster import Cluster
from mirror.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.config.schema import FlowConfig, MirrorConfig


@contextlib.contextmanager
def both_clusters(
    config: MirrorConfig, flow: FlowConfig, ids: Mapping[str, str]
) -> Iterator[tuple[Cluster, Cluster]]:
    """The source and the target, which must have these `ids`, by alias, where one is
    known from an earlier run.

    Raises:
        FlowError: they are the same cluster.
        ClusterError: one does not answer, or is another cluster than before.
    """
    with contextlib.ExitStack() as stack:
        source, target = (
            Cluster(
                config.clusters[alias],
                client_id=f"mirror.{flow.name}",
                cluster_id=ids.get(alias, ""),
            )
            for alias in (flow.source, flow.target)
        )
        stack.callback(source.close)
        stack.callback(target.close)
        source.connect()
        target.connect()
        if source.cluster_id == target.cluster_id:
            raise FlowError(
                f"flow {flow.name}: {source.alias} and {target.alias} are the same "
                f"cluster ({source.cluster_id}); it would copy its own copies"
            )
        yield source, target
