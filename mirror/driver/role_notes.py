"""The second place where the epoch of a pair's role stands: its flows' generations.

Each run of a flow notes the newest epoch that it knows of the journals, on its target,
and so does what moves the role. Main functions: `read`, and `problem`: journals that
know only older epochs have lost entries, so they do not tell which cluster is active.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.driver.generation import Generation
from mirror.errors import MirrorError
from mirror.offsets import progress
from mirror.recovery import roles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.recovery.journal import Entry


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RoleNote:
    """The newest epoch that a flow of a pair has noted."""

    epoch: int = 0
    """0: it has noted none."""
    flow: str = ""
    cluster: str = ""
    """The alias of the flow's target, where the note is."""


def read(pair: PairConfig, clusters: Iterable[Cluster]) -> RoleNote:
    """The newest note on these clusters of the pair.

    Raises:
        ClusterError: one does not answer, or a record of its progress is damaged.
    """
    found = RoleNote()
    for cluster in clusters:
        source = pair.other_than(cluster.alias)
        name = progress.topic_name(source)
        if cluster.topic(name) is None:
            continue
        text = progress.reader(cluster, name).read(wait=False).generation
        noted = RoleNote(
            epoch=Generation.parse(text).roles.get(pair.name, 0),
            flow=f"{source}->{cluster.alias}",
            cluster=cluster.alias,
        )
        found = max(found, noted)
    return found


def problem(pair: PairConfig, entries: Sequence[Entry], noted: RoleNote) -> str:
    """What is wrong with the journals, which have these entries of the pair; empty if
    nothing is.
    """
    known = roles.newest_epoch(entries)
    if noted.epoch <= known:
        return ""
    named = f"/{pair.scope}" if pair.scope else ""
    ways = " or ".join(
        f"`mirror failover '{pair.other_than(each)}->{each}{named}' --role-only` if "
        f"that is {each}"
        for each in pair.members
    )
    return (
        f"the journals of pair {pair.name} have lost entries: their newest epoch is "
        f"{known}, and the progress of {noted.flow} on {noted.cluster} has "
        f"{noted.epoch}. So it is not known which cluster is active, and nothing of "
        "the pair is copied. If a cluster that may know more does not answer, wait for "
        f"it. Else say which one is active: {ways}"
    )


def require(
    pair: PairConfig, entries: Sequence[Entry], clusters: Iterable[Cluster]
) -> None:
    """
    Raises:
        MirrorError: the journals have lost entries, or a cluster does not answer.
    """
    if text := problem(pair, entries, read(pair, clusters)):
        raise MirrorError(text)
