"""The second place where the epoch of a pair's role stands: its flows' generations.

Each run of a flow notes on its target what it knows of the journals, and so does what
moves the role. Main functions: `read`, and `problem`: journals that know less have lost
entries, so they do not tell which cluster is active.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.errors import MirrorError
from mirror.offsets import progress
from mirror.pairs import roles
from mirror.pairs.journal import JournalReader
from mirror.pairs.roles import Epochs
from mirror.service.generation import Generation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.pairs.journal import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleNote:
    """What flows of a pair have noted."""

    epochs: Epochs = field(default_factory=Epochs)
    flow: str = ""
    """The last one that knew more than others; empty: none has noted anything."""

    def __or__(self, other: RoleNote) -> RoleNote:
        """What both have noted together."""
        flow = other.flow if self.epochs.lacks(other.epochs) else self.flow
        return RoleNote(epochs=self.epochs | other.epochs, flow=flow)


def read(pair: PairConfig, clusters: Iterable[Cluster]) -> RoleNote:
    """What is noted on these clusters of the pair.

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
        noted = Generation.parse(text).roles.get(pair.name, Epochs())
        found |= RoleNote(epochs=noted, flow=f"{source}->{cluster.alias}")
    return found


def problem(pair: PairConfig, entries: Sequence[Entry], noted: RoleNote) -> str:
    """What is wrong with the journals, which have these entries of the pair; empty if
    nothing is.
    """
    known = roles.epochs(entries)
    if not known.lacks(noted.epochs):
        return ""
    what, here, there = "role", known.role, noted.epochs.role
    if here >= there:
        what, here, there = "run", known.begun, noted.epochs.begun
    named = f"/{pair.scope}" if pair.scope else ""
    ways = " or ".join(
        f"`mirror failover '{pair.other_than(each)}->{each}{named}' --role-only` if "
        f"that is {each}"
        for each in pair.members
    )
    return (
        f"the journals of pair {pair.name} have lost entries: their newest {what} has "
        f"epoch {here}, and the progress of {noted.flow} knows one of epoch {there}. "
        "So it is not known which cluster is active, and nothing of the pair is "
        "copied. If a cluster that may know more does not answer, wait for it. Else "
        f"say which one is active: {ways}"
    )


def require(
    pair: PairConfig, entries: Sequence[Entry], clusters: Iterable[Cluster]
) -> None:
    """`entries`: what the journals on these clusters said.

    Raises:
        MirrorError: the journals have lost entries, or a cluster does not answer.
    """
    clusters = [*clusters]
    noted = read(pair, clusters)
    if problem(pair, entries, noted):
        # A run may have begun since they were read: notes come behind entries.
        journals = (JournalReader(each).read(wait=False) for each in clusters)
        entries = roles.merged(entries, *journals, pair=pair.name)
    if text := problem(pair, entries, noted):
        raise MirrorError(text)
