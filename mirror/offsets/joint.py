"""Offsets in copies that several flows write, or that another flow copies back.

A group goes on at the first record that it has not read, copied or not. Where the logs
have their records in the same order it reads none again; one offset cannot split two
interleavings, so otherwise it reads some again, and `again` says how many. It skips
none: what the maps no longer know, or not yet, counts as unread.

`both_ways` is the pure rule for two clusters whose flows copy one topic to each other,
`JointMap` the offset map that applies it: it joins the map of a flow, on its target,
and the map of the flow back, on the source, and looks into the copies for what neither
has copied. For all other topics the flow's own map answers.

`merged` is the pure rule for several sources with one copy, and `MergedGroups` applies
it: each flow into a copy knows where a group of its source goes on. A group of that
name on another source has checkpoints of that source's flow, on the same target; their
offsets are translated again, so that they are as exact as that flow's map is now.
Without them nothing is set: that group may be further back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters import codes
from mirror.clusters.topics import same_topic
from mirror.offsets import checkpoints, runs
from mirror.offsets.checkpoints import checkpoints_topic
from mirror.offsets.progress import topic_name
from mirror.offsets.reverse_start import Covers, Start, edges
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.offsets.translation import UNKNOWN, Exactness, OffsetMap, Translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.checkpoints import Checkpoint, Known
    from mirror.offsets.groups import Copy, GroupsStanding
    from mirror.offsets.reverse_start import Edges
    from mirror.offsets.runs import RunArray

_AT_THE_END = frozenset({Exactness.TIP, Exactness.BEHIND})


def both_ways(
    there: Translated, back: Translated, log: Edges, born: Start
) -> Translated:
    """Where a group goes on in `log`, which has what was written there and copies.

    `there`: the answer of the flow there for the group's offset. `back`: that of the
    flow back, whose copies the group reads beside its own cluster's records: the next
    one to read, as an offset of `log`. `log` was asked for before the map of the flow
    there was read: what is not in that map yet comes after its cut. `born`: the first
    record that the flow there did not copy, from the position of the flow back on; or
    the end.
    """
    if there.exactness is Exactness.UNKNOWN:
        return UNKNOWN
    at_the_end = there.exactness in _AT_THE_END
    copy = max(there.offset, log.cut) if at_the_end else there.offset
    offset, sure = _next_born(back, log, born)
    if offset > copy or (offset == copy and not sure):
        return replace(there, offset=copy, joint=True)
    exactness = Exactness.EXACT if sure else Exactness.EARLIER
    if there.exactness is Exactness.BEHIND:
        exactness = Exactness.BEHIND
    elif at_the_end and sure and offset >= log.cut:
        exactness = Exactness.TIP
    return replace(there, offset=offset, exactness=exactness, joint=True)


def _next_born(back: Translated, log: Edges, born: Start) -> tuple[int, bool]:
    """The next record to read that was written to the log itself, or an offset before
    it; and whether it is sure.
    """
    if back.exactness is Exactness.EXACT:
        return max(back.offset, log.start), True
    if back.exactness in _AT_THE_END:
        # All that the flow back has copied is read; what follows it is not.
        return max(born.offset, log.start), born.sure
    # Not known one by one; or older than all that the map knows.
    return max(back.offset, log.start), False


def again(runs: RunArray, *, read: int, answer: int) -> int:
    """How many records a group reads again that stand in these `runs` of a flow to the
    log with the answer: it has read the source up to the offset `read`.
    """
    return _count(runs, UPSTREAM, read, DOWNSTREAM, answer)


def again_born(runs: RunArray, *, read: int, answer: int) -> int:
    """The same for records that were written to the log with the answer: `runs` are of
    the flow back, and the group has read its copies up to the offset `read`.
    """
    return _count(runs, DOWNSTREAM, read, UPSTREAM, answer)


def _count(runs: RunArray, column: int, below: int, other: int, first: int) -> int:
    """Records below an offset in one column, and from an offset on in the other one."""
    last = np.minimum(runs[:, COUNT], below - runs[:, column])
    begin = np.maximum(first - runs[:, other], 0)
    return int(np.maximum(last - begin, 0).sum())


# ---- copies that another flow copies back ----


_HOLES_AT_ONCE = 64
"""To look into for one partition at each refresh; the rest follows with the next. Only
while something is being written there is more than a few."""

_NOTHING_COPIED = Translated(offset=0, exactness=Exactness.TIP)


class JointMap:
    """Answers as `OffsetMap`, over both maps. Not thread-safe."""

    def __init__(
        self,
        flow: FlowConfig,
        known: OffsetMap,
        source: Cluster,
        target: Cluster,
        *,
        patient: bool = False,
    ) -> None:
        """`known` is the flow's map. `patient`: look into as many holes as there are,
        instead of into the rest at the next `refresh`.
        """
        self._flow = flow
        self._known = known
        self._source = source
        self._target = target
        self._most = None if patient else _HOLES_AT_ONCE
        self._back_flow: FlowConfig | None = None
        self._back: OffsetMap | None = None
        self._copies: Mapping[str, Copy] = {}
        self._covers: Covers | None = None
        self._edges: dict[TopicPartition, Edges] = {}
        self._starts: dict[TopicPartition, Start] = {}
        self._begins: dict[TopicPartition, Edges] = {}
        """Where the source's logs begin, by their partitions."""
        self._copied_back: Covers | None = None
        self.refused: dict[str, str] = {}
        """By target topic, why the map of the flow back cannot be read."""

    @property
    def known(self) -> OffsetMap:
        """The flow's own map."""
        return self._known

    def joins(self, topic: str) -> bool:
        """Whether it has two maps for a topic of the source."""
        return topic in self._copies

    def refresh(self, copies: Mapping[str, Copy], *, wait: bool = True) -> None:
        """Take in what both maps and the copies have now. `wait` as for `OffsetMap`.

        Raises:
            ClusterError: a cluster does not answer, or the flow has no map.
        """
        both_ways = {topic: copy for topic, copy in copies.items() if copy.back}
        self.refused = {}
        if why := self._refresh_back(both_ways, wait=wait):
            self.refused = dict.fromkeys((c.topic for c in both_ways.values()), why)
            both_ways = {}
        # Before the flow's map: then it has all copies below these ends.
        merged = {t: copy for t, copy in copies.items() if copy.back or copy.beside}
        self._edges = edges(
            self._target, [(merged[topic].topic, p) for topic, p in self._keys(merged)]
        )
        self._begins = edges(self._source, self._keys(both_ways))
        self._known.refresh(wait=wait)
        if self._covers is None or self._copies.keys() != both_ways.keys():
            begins = {
                key: self._position((both_ways[key[0]].topic, key[1]))
                for key in self._keys(both_ways)
            }
            self._copied_back = None
            self._covers = Covers(self._flow, self._target, both_ways, begins)
        self._copies = both_ways
        self._starts.clear()
        if both_ways:
            self._covers.follow()
        if self._copied_back is not None:
            self._copied_back.follow()

    def _refresh_back(self, both_ways: Mapping[str, Copy], *, wait: bool) -> str:
        """The map of the flow back, if that ever ran; why it cannot be read."""
        flow = next((copy.back for copy in both_ways.values()), None)
        if flow is None:
            self._back_flow = self._back = None
            return ""
        if flow != self._back_flow:
            self._back_flow, self._back = flow, None
        if self._back is None:
            names = [
                topic_name(flow.source),
                runs.topic_name(flow.source, flow.separator),
            ]
            there = self._source.topics(names)
            errors = {name: there[name].error for name in names if there[name].error}
            for name, error in errors.items():
                if error != codes.UNKNOWN_TOPIC_OR_PARTITION:
                    where = f"topic {name} of cluster {flow.target}"
                    return f"{where} cannot be read: {codes.name_of(error)}"
            if errors:
                return ""
            self._back = OffsetMap.of(flow, self._source)
        self._back.refresh(wait=wait)
        return ""

    @staticmethod
    def _keys(copies: Mapping[str, Copy]) -> list[TopicPartition]:
        return [
            (topic, partition)
            for topic, copy in copies.items()
            for partition in range(copy.partitions)
        ]

    def _position(self, copy: TopicPartition) -> int:
        return 0 if self._back is None else max(self._back.position(*copy), 0)

    def position(self, topic: str, partition: int) -> int:
        """The next source offset to copy, -1 while not known."""
        return self._known.position(topic, partition)

    def stable_end(self, copy: TopicPartition) -> int | None:
        """The end of a copy that several flows write, as of `refresh`; 0 if the flow's
        map may name copies late, and None while its leader does not answer.
        """
        if not self._flow.exactly_once:
            return 0
        known = self._edges.get(copy)
        return known.cut if known is not None else None

    def translate(self, topic: str, partition: int, offset: int) -> Translated:
        """The target's offset for a source's; see `Translator`.

        Raises:
            ClusterError: a cluster does not answer.
        """
        key = (topic, partition)
        return self.translate_all({key: {offset}})[key][offset]

    def reverse(self, topic: str, partition: int, offset: int) -> Translated:
        """As `OffsetMap`: only of what the flow itself copied."""
        return self._known.reverse(topic, partition, offset)

    def translate_all(
        self, questions: Mapping[TopicPartition, AbstractSet[int]]
    ) -> Mapping[TopicPartition, Mapping[int, Translated]]:
        """As `translate`, for many offsets of each partition."""
        answers = self._known.translate_all(questions)
        return {
            key: self._joined(key, found) if key[0] in self._copies else found
            for key, found in answers.items()
        }

    def _joined(
        self, key: TopicPartition, found: Mapping[int, Translated]
    ) -> dict[int, Translated]:
        copy = (self._copies[key[0]].topic, key[1])
        known = self._edges.get(copy)
        if known is None:  # no leader to ask, so nothing is known of its records
            return {
                offset: replace(UNKNOWN, joint=True) for offset, answer in found.items()
            }
        back = self._usable_back(copy, known)
        late = None if back is None else back.late(*copy)
        answers = {}
        for offset, there in found.items():
            following = _next_copied(back, late, copy, offset)
            answers[offset] = self._answer(key, copy, known, offset, there, following)
        return answers

    def _answer(  # noqa: PLR0917  what is known of one offset
        self,
        key: TopicPartition,
        copy: TopicPartition,
        known: Edges,
        offset: int,
        there: Translated,
        back: Translated,
    ) -> Translated:
        if (begin := self._begins.get(key)) is None:
            return replace(UNKNOWN, joint=True)  # no leader to ask what is there
        if offset < begin.start:
            # What it has still to read is gone from the source, and from the maps.
            back = replace(UNKNOWN, exactness=Exactness.BEFORE)
        else:
            there = self._from_oldest(key, copy, known, offset, there)
        born = Start(known.start, sure=False)
        if back.exactness is Exactness.TIP:
            born = self._start(key, copy, known, back.offset)
        return both_ways(there, back, known, born)

    def _from_oldest(
        self,
        key: TopicPartition,
        copy: TopicPartition,
        known: Edges,
        offset: int,
        there: Translated,
    ) -> Translated:
        """The first copy that the flow's map knows, for an older offset, if everything
        before it was written where the copy is: then the map has lost nothing. Else the
        first record that may be a copy.
        """
        oldest = self._known.oldest(*key)
        if there.exactness is not Exactness.BEFORE or oldest is None:
            return there
        if self._back is None or self._back_flow is None or offset >= oldest[0]:
            return there
        if self._copied_back is None:
            self._copied_back = Covers(
                self._back_flow,
                self._source,
                {each.topic for each in self._copies.values()},
                {},
                source=self._target,
            )
            self._copied_back.follow()
        # The markers there are of others: none are counted.
        until = replace(known, cut=min(oldest[1], known.cut))
        first = self._copied_back.start(copy, copy, until, 0, most=self._most)
        offset = max(min(first.offset, oldest[1]), there.offset)
        if offset < oldest[1]:
            return replace(there, offset=offset)
        return Translated(offset=offset, exactness=Exactness.EXACT)

    def _usable_back(self, copy: TopicPartition, known: Edges) -> OffsetMap | None:
        """The map of the flow back, unless it is of a topic that is gone."""
        if self._back is None:
            return None
        source_id = self._back.source_id(*copy)
        return self._back if same_topic(source_id, known.topic_id) else None

    def _start(
        self, key: TopicPartition, copy: TopicPartition, known: Edges, position: int
    ) -> Start:
        if (start := self._starts.get(copy)) is None or start.offset < position:
            assert self._covers is not None
            start = self._starts[copy] = self._covers.start(
                key, copy, known, position, most=self._most
            )
        return start


def _next_copied(
    back: OffsetMap | None, late: RunArray | None, copy: TopicPartition, offset: int
) -> Translated:
    """The next record of the copy to read that the flow back has copied; `late` are its
    late records.
    """
    found = UNKNOWN if back is None else back.reverse(*copy, offset)
    if found.exactness is Exactness.UNKNOWN:
        return _NOTHING_COPIED
    if late is None or not len(late):
        return found
    late = late[late[:, DOWNSTREAM] + late[:, COUNT] > offset]
    into = np.maximum(offset - late[:, DOWNSTREAM], 0)
    first = int((late[:, UPSTREAM] + into).min(initial=found.offset))
    if first == found.offset:
        return found
    return Translated(offset=first, exactness=Exactness.EXACT)


# ---- copies of several sources ----


def merged(answers: Sequence[Translated], end: int) -> Translated:
    """Where a group goes on in a copy of several sources: `answers` are those of the
    sources that it reads, `end` the copy's last stable offset, asked for before their
    maps were read, or 0 if maps may name copies late. Records of sources that the group
    does not read are not looked at.
    """
    known = [each for each in answers if each.exactness is not Exactness.UNKNOWN]
    if not known:
        return UNKNOWN
    limits = [
        replace(each, offset=max(each.offset, end))
        if each.exactness in _AT_THE_END
        else each
        for each in known
    ]
    first = min(limits, key=lambda each: each.offset)
    if all(each.exactness in _AT_THE_END for each in known):
        # All is read. What other sources wrote behind that the group has not seen.
        last = max(each.offset for each in known)
        first = replace(first, offset=min(first.offset, last))
    return replace(first, joint=True)


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
