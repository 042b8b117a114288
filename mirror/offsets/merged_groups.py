"""Group offsets in copies of several sources: the smallest that skips nothing.

Main type: `MergedGroups`. Each flow into a copy knows where a group of its source goes
on. A group of that name on another source has checkpoints of that source's flow, on the
same target; their offsets are translated again, so that they are as exact as that
flow's map is now. Without them nothing is set: that group may be further back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING

from mirror.offsets import checkpoints, runs
from mirror.offsets.joint import merged
from mirror.offsets.mm2_records import checkpoints_topic
from mirror.offsets.offset_map import OffsetMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.checkpoints import Known
    from mirror.offsets.groups import Copy, GroupsStanding
    from mirror.offsets.joint_map import JointMap
    from mirror.offsets.mm2_records import Checkpoint
    from mirror.offsets.translation import Translated


_ROUNDS = 3
"""After these, another flow has a group's first checkpoints, if it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settable:
    """Offsets that may be set on the target, and copies that have none."""

    known: Known
    refused: Mapping[str, str] = field(default_factory=dict)
    """By target topic, why none is set in it."""


class _Other:
    """Another flow into the same target."""

    def __init__(self, flow: FlowConfig, target: Cluster) -> None:
        self.flow = flow
        self.map = OffsetMap.of(flow, target)
        self.known: Known = {}


class MergedGroups:
    """What other flows into a target know of groups. Not thread-safe."""

    def __init__(self, target: Cluster, *, cautious: bool = True) -> None:
        """`cautious`: leave out groups that were not known for some rounds."""
        self._target = target
        self._cautious = cautious
        self._since: dict[tuple[str, str, int], float] = {}
        self._others: dict[str, _Other] = {}

    def settable(
        self,
        known: Mapping[str, Mapping[TopicPartition, Checkpoint]],
        standing: GroupsStanding,
        copies: Mapping[str, Copy],
        joint: JointMap,
    ) -> Settable:
        """Of a flow's checkpoints, the offsets to set; `joint` is what it looked with
        when it found where they stand.

        Raises:
            ClusterError: the target does not answer.
        """
        refused = self._refresh(copies) | joint.refused
        by_copy = {copy.topic: copy for copy in copies.values()}
        places = {
            (group, place.target_topic, place.partition): place.translated
            for group, found in standing.places.items()
            for place in found
        }
        found: Known = {}
        for group, at in known.items():
            for key, checkpoint in at.items():
                copy = by_copy.get(key[0])
                if copy is None or key[0] in refused:
                    continue
                wanted = checkpoint.downstream
                if copy.merged:
                    own = places.get((group, *key))
                    end = joint.stable_end(key)
                    if own is None or own.offset < 0 or end is None:
                        continue
                    # The checkpoint may be from before the other flow was looked at.
                    wanted = min(wanted, own.offset)
                    if copy.beside:
                        if self._is_new(group, key, copy):
                            continue
                        wanted = self._answer(group, key, own, copy, end).offset
                made = checkpoint._replace(downstream=wanted)
                found.setdefault(group, {})[key] = made
        # One that is gone is new when it comes back.
        self._since = {
            key: at for key, at in self._since.items() if key[0] in standing.places
        }
        return Settable(known=found, refused=refused)

    def _refresh(self, copies: Mapping[str, Copy]) -> dict[str, str]:
        """Read what the others know now; by target topic, why that is not enough."""
        flows = {flow.name: flow for copy in copies.values() for flow, _ in copy.beside}
        for name in self._others.keys() - flows.keys():
            del self._others[name]
        missing = {}
        for name, flow in flows.items():
            if why := self._read(flow):
                missing[name] = why
        refused = {}
        for copy in copies.values():
            reasons = [missing[f.name] for f, _ in copy.beside if f.name in missing]
            if reasons:
                refused[copy.topic] = reasons[0]
            elif copy.merged and copy.back is None and not copy.beside:
                refused[copy.topic] = (
                    "other flows also write it, or copy it back, in a way that leaves "
                    "open where its records are from"
                )
        return refused

    def _read(self, flow: FlowConfig) -> str:
        if not flow.emit_checkpoints:
            return f"flow {flow.name} also writes it, and emits no checkpoints"
        names = [
            checkpoints_topic(flow.source, flow.mm2_separator),
            runs.topic_name(flow.source, flow.separator),
        ]
        there = self._target.topics(names)
        if gone := [name for name in names if there[name].error]:
            return f"flow {flow.name} also writes it, and has no {gone[0]} yet"
        other = self._others.get(flow.name)
        if other is None or other.flow != flow:
            other = self._others[flow.name] = _Other(flow, self._target)
        other.known = checkpoints.read(self._target, names[0])
        other.map.refresh()
        return ""

    def _is_new(self, group: str, key: TopicPartition, copy: Copy) -> bool:
        """Whether others may not have written their first checkpoints of the group yet:
        nothing would take it back.
        """
        now = time.monotonic()
        seconds = max(flow.emit_checkpoints_seconds for flow, _ in copy.beside)
        since = self._since.setdefault((group, *key), now)
        return self._cautious and now - since < _ROUNDS * seconds

    def _answer(
        self, group: str, key: TopicPartition, own: Translated, copy: Copy, end: int
    ) -> Translated:
        answers = [own]
        for flow, topic in copy.beside:
            other = self._others[flow.name]
            if (checkpoint := other.known.get(group, {}).get(key)) is not None:
                upstream = checkpoint.upstream
                answers.append(other.map.translate(topic, key[1], upstream))
        late = not all(flow.exactly_once for flow, _ in copy.beside)
        return merged(answers, 0 if late else end)


def problems(refused: Mapping[str, str]) -> list[str]:
    """What to say about copies in which no offsets are set."""
    return [
        f"target topic {topic}: group offsets are not set for it, since {why}"
        for topic, why in sorted(refused.items())
    ]
