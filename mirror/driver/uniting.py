"""Ends the parts of a flow, so that one service can copy it alone again.

Main functions: `parts_of`, which only looks, and `unite`. Positions, offset map and
ledger are the flow's, so nothing moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.batches.writing import append
from mirror.driver.generation import Generation, Part
from mirror.driver.ownership import rewrite_progress
from mirror.driver.rewriting import Rewriting
from mirror.errors import FencedError
from mirror.offsets import progress, standby
from mirror.recovery import ends

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig


_ATTEMPTS = 3


def parts_of(flow: FlowConfig, target: Cluster) -> tuple[Part, ...]:
    """The parts that have copied the flow, the first one first.

    Raises:
        ClusterError: the target does not answer.
    """
    name = progress.topic_name(flow.source)
    if target.topic(name) is None:
        return ()
    return Generation.parse(
        progress.read(target, name, committed=False).generation
    ).parts


def unite(flow: FlowConfig, target: Cluster) -> tuple[Part, ...]:
    """End all parts, whose running services are fenced; returns them. A service with a
    part that still runs begins its part again.

    Raises:
        FencedError: a run began meanwhile; nothing was written.
        ClusterError: the target does not answer, or refuses.
    """
    whole = flow.model_copy(update={"part": None})
    found = parts_of(whole, target)
    for attempt in range(_ATTEMPTS):
        try:
            rewrite_progress(
                whole, target, lambda _: Rewriting(positions={}, unites=True)
            )
            break
        except FencedError:
            # A fenced service came back before we were done.
            if attempt == _ATTEMPTS - 1:
                raise
    topic = standby.topic_name(flow.source)
    if found and target.topic(topic) is not None:
        append(target, topic, [standby.ended(ends.KIND, each.name) for each in found])
    return found
