"""Waits until the flow has copied a topic again, from its first record.

Main function: `wait`. It only looks at the flow's progress: any service may copy.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

from mirror.errors import MirrorError
from mirror.offsets import progress
from mirror.pairs.control import PausesReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.pairs.control import Rebuild

STALLED_SECONDS = 120.0
"""Without any progress for so long, nothing copies the topic: a flow that was fenced
several times rests for half a minute before it begins again.
"""
_LOOK_AGAIN_SECONDS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """How far the new copy is."""

    offsets: int
    """Source offsets passed, of all partitions."""
    of: int


def wait(
    flow: FlowConfig,
    target: Cluster,
    rebuild: Rebuild,
    *,
    show: Callable[[Copied], None],
) -> None:
    """Wait until the flow has copied what the source had when it began again.

    Raises:
        MirrorError: nothing copies it.
        ClusterError: the target does not answer.
    """
    reader = progress.ProgressReader(target, progress.topic_name(flow.source))
    passed, since = -1, time.monotonic()
    whole = sum(rebuild.ends)
    while True:
        positions = reader.read().positions
        reached = 0
        for number, end in enumerate(rebuild.ends):
            known = positions.get((rebuild.topic, number))
            if known is not None and known.topic_id.hex == rebuild.topic_id:
                reached += min(known.offset, end)
            elif known is not None:  # the source's topic was re-created meanwhile
                reached += end
        show(Copied(offsets=reached, of=whole))
        if reached >= whole:
            return
        if reached > passed:
            passed, since = reached, time.monotonic()
        if time.monotonic() - since > STALLED_SECONDS:
            raise MirrorError(_stalled(flow, target, rebuild, whole - reached))
        time.sleep(_LOOK_AGAIN_SECONDS)


def _stalled(flow: FlowConfig, target: Cluster, rebuild: Rebuild, left: int) -> str:
    why = "does a service run? See `mirror status`"
    if PausesReader(target, flow).read().since(rebuild.topic):
        why = f"the topic is paused: `mirror resume {flow.name}`"
    return (
        f"flow {flow.name}: nothing copies {rebuild.topic}, of which {left:,} offsets "
        f"are missing: {why}. Run the same command again later: it moves the groups"
    )
