"""Which flows rest because their pair feeds a cluster out of its other member.

Main functions: `flows`, their names, from the journals; `writers`, what all others do
to each other's topics; and `copying`, a configuration of all others. For commands; a
service follows the journals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config import feeding
from mirror.errors import ClusterError
from mirror.pairs import roles
from mirror.pairs.journal import JournalReader
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import MirrorConfig


def flows(config: MirrorConfig, reach: Callable[[str], Cluster]) -> frozenset[str]:
    """The names of the flows. One journal is enough, as while a member is gone; without
    any, the pair is taken for what the configuration says.

    Raises:
        ClusterError: a member answers, and does not let its journal be read.
    """
    feeds = [pair for pair in config.recovery.values() if pair.feeds]
    return feeding.resting(feeds, {each.name: _active(each, reach) for each in feeds})


def writers(config: MirrorConfig, rests: frozenset[str], own: str) -> Merging:
    """As the flow `own` sees them."""
    return Merging(feeding.copying(config, rests, own).enabled_flows)


def copying(
    config: MirrorConfig, reach: Callable[[str], Cluster], own: str
) -> MirrorConfig:
    """The configuration as the flow `own` sees it now."""
    return feeding.copying(config, flows(config, reach), own)


def _active(pair: PairConfig, reach: Callable[[str], Cluster]) -> str:
    journals = []
    for alias in pair.members:
        try:
            journals.append(JournalReader(reach(alias)).read(wait=False, seconds=0.0))
        except ClusterError as error:
            if not error.retriable:
                raise
            # It is gone for now; the other one may know.
    return roles.role(roles.merged(*journals, pair=pair.name), pair).active
