"""Partitions under suspicion: what happens if a broker does not have a position.

Main type: `Suspicions`, those of one slot. The slot does not read such a partition
until the source has said what happened to the position (`inquiry`). Then there is a
`Verdict`: the partition jumps over the missing offsets, or is set aside with a reason
until an operator decides. The flow's settings say which of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.copying.gaps import Suspect
from mirror.copying.jumps import Jump, loss_of
from mirror.errors import UnreachableError
from mirror.pairs.losses import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping
    import uuid

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.copying.gaps import Gap, GapFinding
    from mirror.copying.inquiry import Inquiry
    from mirror.copying.lease import Assignment
    from mirror.copying.source import SourceReader
    from mirror.copying.tally import Tally
    from mirror.offsets.progress import Position


_WORDS = {
    Cause.DELETED: "deleted records before they were copied:",
    Cause.TRUNCATED: "truncated its log and lost",
}
_DECIDE = (
    "on_loss is stop: set where to continue with `mirror flow reset`, or set on_loss "
    "to continue"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do with a partition that was under suspicion."""

    key: TopicPartition
    jump: Jump | None = None
    reason: str = ""
    """Why to set it aside, if it does not jump."""
    stays: Position | None = None
    """Where to go on reading: there is nothing wrong with it."""


class Suspicions:
    """The partitions of one slot that are not read until the source has answered."""

    def __init__(
        self,
        flow: FlowConfig,
        source: Cluster,
        reader: SourceReader,
        inquiry: Inquiry,
        *,
        tally: Tally,
    ) -> None:
        """`source` learns the newest leaders from the answers. Takes over `inquiry`."""
        self._flow = flow
        self._source = source
        self._reader = reader
        self._inquiry = inquiry
        self._tally = tally
        self._wanted: Mapping[TopicPartition, Assignment] = {}
        self._ids: Mapping[str, uuid.UUID] = {}
        self._suspects: dict[TopicPartition, Suspect] = {}

    def begin(
        self,
        wanted: Mapping[TopicPartition, Assignment],
        ids: Mapping[str, uuid.UUID],
    ) -> None:
        """Forget all suspicions. `ids`: the ids of the source topics that are read."""
        self._wanted = wanted
        self._ids = ids
        self._suspects = {}

    def close(self) -> None:
        self._inquiry.close()

    @property
    def pending(self) -> bool:
        """Whether any partition waits for the source's answer."""
        return bool(self._suspects)

    def look_into(
        self, key: TopicPartition, position: Position, *, refused: bool = True
    ) -> None:
        """Stop reading a partition until the source has said what happened to this
        position, which a broker `refused`, or which may be gone.
        """
        self._suspects[key] = Suspect(
            topic=key[0], partition=key[1], position=position, refused=refused
        )
        self._inquiry.open(self._suspects[key])
        self._reader.leave_out(key)

    def verdicts(self) -> list[Verdict]:
        """What has been found out since the last call; never waits.

        Raises:
            UnreachableError: a partition is led by another broker than the one that it
                is read from.
        """
        found = []
        for finding in self._inquiry.findings():
            suspect = finding.suspect
            if self._suspects.get(suspect.key) != suspect:
                continue  # the slot has taken over since and may be elsewhere
            del self._suspects[suspect.key]
            found.append(self._judge(finding))
        return found

    def _judge(self, finding: GapFinding) -> Verdict:
        suspect, gap, key = finding.suspect, finding.gap, finding.suspect.key
        if finding.leader is not None:
            topic_id = gap.to.topic_id if gap else suspect.position.topic_id
            self._source.learn_leader(topic_id, key[1], finding.leader)
            if self._reader.leader(key) != finding.leader:
                # The one that is read from is cut off, and may go on to show what is
                # lost (found by simulation, seed 315).
                raise UnreachableError(
                    f"source partition {key[0]}-{key[1]} is led by broker "
                    f"{finding.leader.node} now, under epoch {finding.leader.epoch}"
                )
        if gap is None:
            stays = None if finding.reason else suspect.position
            return Verdict(key=key, reason=finding.reason, stays=stays)
        if gap.to.topic_id != self._ids[key[0]]:
            return Verdict(
                key=key, reason=f"source topic {key[0]}: brokers disagree on its id"
            )
        if reason := self._wait_for_owner(gap, suspect):
            return Verdict(key=key, reason=reason)
        loss = loss_of(
            self._flow.name,
            self._wanted[key],
            gap,
            old=suspect.position,
            end=self._tally.end_offset(key),
        )
        return Verdict(key=key, jump=Jump(to=gap.to, loss=loss))

    def _wait_for_owner(self, gap: Gap, suspect: Suspect) -> str:
        """Why an operator must decide where to continue; empty if the settings do."""
        if gap.cause is Cause.RECREATED:
            if self._flow.on_recreated_topic == "continue":
                return ""
            return (
                f"source topic {suspect.topic} was deleted and created again: its copy "
                f"ends at offset {suspect.position.offset} of the old one; set where "
                "to continue with `mirror flow reset`, or set on_recreated_topic to "
                "continue"
            )
        if self._flow.on_loss == "continue":
            return ""
        span = f"offsets {gap.first} to {gap.last}"
        return f"the source {_WORDS[gap.cause]} {span}; {_DECIDE}"
