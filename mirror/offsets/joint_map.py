"""An offset map that answers for copies that another flow copies back.

Main type: `JointMap`. It joins the map of a flow, on its target, and the map of the
flow back, on the source (`joint`), and looks into the copies for what neither has
copied. For all other topics the flow's own map answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters import codes
from mirror.offsets import runs
from mirror.offsets.covers import Covers, edges
from mirror.offsets.joint import OtherLog, both_ways
from mirror.offsets.offset_map import OffsetMap
from mirror.offsets.progress import NO_ID, topic_name
from mirror.offsets.reverse_start import Start
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.offsets.translation import UNKNOWN, Exactness, Translated

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.covers import Edges
    from mirror.offsets.groups import Copy
    from mirror.offsets.runs import RunArray


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
        log = OtherLog(start=known.start, end=known.cut, born=born)
        return both_ways(there, back, log)

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
        gone = NO_ID not in (source_id, known.topic_id) and source_id != known.topic_id
        return None if gone else self._back

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
