"""Whose configs count, for commands: the order of flows by the roles of their pairs.

Main function: `in_order`. Of the two flows of a pair, the one out of the active cluster
comes first, wherever it stands in the file. The service follows the journals by itself;
this reads them once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config import feeding
from mirror.errors import ClusterError
from mirror.metadata.merging import by_role
from mirror.recovery import roles
from mirror.recovery.journal import JournalReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig


def in_order(
    config: MirrorConfig, reach: Callable[[str], Cluster]
) -> tuple[tuple[FlowConfig, ...], tuple[str, ...]]:
    """All enabled flows in order of precedence, without those that rest because their
    pair feeds a cluster otherwise, and of which pairs the role may be another one, as
    not both journals could be read.

    `reach` gives a cluster by its alias, or raises `ClusterError`.
    """
    passive, active_of, notes = set(), {}, []
    for pair in config.recovery.values():
        journals, failures = [], []
        for alias in pair.members:
            try:
                journals.append(JournalReader(reach(alias)).read(wait=False))
            except ClusterError as error:
                failures.append(str(error))
        active = roles.role(roles.merged(*journals, pair=pair.name), pair).active
        active_of[pair.name] = active
        passive.add(f"{pair.other_than(active)}->{active}")
        notes += [
            f"pair {pair.name}: {text}; which cluster is active is not certain, and "
            f"the configs of {active} count here"
            for text in failures
        ]
    rests = feeding.resting(config.recovery.values(), active_of)
    flows = [flow for flow in config.enabled_flows if flow.name not in rests]
    return by_role(flows, passive), tuple(notes)
