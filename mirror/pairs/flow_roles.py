"""What the roles of pairs mean for flows: which rest, and whose configs count.

Main functions: `flow_roles` of all pairs, `in_order` for the order of flows alone, and
`resting_flows`, those that rest because their pair feeds a cluster out of its other
member. Of the two flows of a pair, the one out of the active cluster comes first,
wherever it stands in the file. The service follows the journals by itself; these
functions read them once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.config import feeding, scopes
from mirror.errors import ClusterError
from mirror.pairs import roles
from mirror.pairs.journal import JournalReader
from mirror.topics.merging import Merging, by_role

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRoles:
    """What the roles of all pairs mean for the flows."""

    flows: tuple[FlowConfig, ...]
    """All enabled ones in order of precedence."""
    resting: Mapping[str, str]
    """Why a flow copies nothing now, by its name."""
    left: Mapping[str, tuple[PairConfig, ...]]
    """The pairs with names whose topics and groups a flow leaves alone, by its name."""
    unfed: frozenset[str]
    """Those that rest because their pair feeds the target from its other cluster."""
    notes: tuple[str, ...]
    """Of which pairs the role may be another one: not both journals could be read."""

    @property
    def applying(self) -> tuple[FlowConfig, ...]:
        """The flows, each with what it copies now, unless it is `resting`."""
        return tuple(
            scopes.without(flow, self.left.get(flow.name, ())) for flow in self.flows
        )


def in_order(
    config: MirrorConfig, reach: Callable[[str], Cluster]
) -> tuple[tuple[FlowConfig, ...], tuple[str, ...]]:
    """The flows that count, in order of precedence and each with what it copies now,
    and the `notes` of `flow_roles`. One whose target another flow feeds does not count.
    """
    found = flow_roles(config, reach)
    flows = tuple(each for each in found.applying if each.name not in found.unfed)
    return flows, found.notes


def flow_roles(config: MirrorConfig, reach: Callable[[str], Cluster]) -> FlowRoles:
    """`reach` gives a cluster by its alias, or raises `ClusterError`."""
    passive, notes = set(), []
    unfed: set[str] = set()
    resting: dict[str, str] = {}
    left: dict[str, tuple[PairConfig, ...]] = {}
    for pair in config.recovery.values():
        journals, failures = [], []
        for alias in pair.members:
            try:
                journals.append(JournalReader(reach(alias)).read(wait=False))
            except ClusterError as error:
                failures.append(str(error))
        active = roles.role(roles.merged(*journals, pair=pair.name), pair).active
        notes += [
            f"pair {pair.name}: {text}; which cluster is active is not certain, and "
            f"the configs of {active} count here"
            for text in failures
        ]
        for name in feeding.flows_from(pair, pair.other_than(active)):
            resting[name] = f"{name} rests: {active} is active in {pair.name}"
            unfed.add(name)
        back = f"{pair.other_than(active)}->{active}"
        if pair.scope is None:
            passive.add(back)
        if pair.both_ways:
            continue
        if pair.scope is None:
            resting[back] = f"{back} rests: {active} is active in {pair.name}"
        else:
            left[back] = (*left.get(back, ()), pair)
    return FlowRoles(
        flows=by_role(config.enabled_flows, passive),
        resting=resting,
        left=left,
        unfed=frozenset(unfed),
        notes=tuple(notes),
    )


# ---- flows that rest because another one feeds their target ----


def resting_flows(
    config: MirrorConfig, reach: Callable[[str], Cluster]
) -> frozenset[str]:
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
    return feeding.copying(config, resting_flows(config, reach), own)


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
