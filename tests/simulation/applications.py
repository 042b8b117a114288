"""Applications: consumers of the source that may move to the target at any time.

Main type: `Applications`. Its groups read the source's topics and commit how far they
are; the real code moves their offsets on the target. What such a group finds there is
held against the truth each time: it must not skip a record that it has not read.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.groups import Group
from tests.simulation.judge import WrongError
from tests.simulation.partition import committed

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.model import ModelCluster
    from tests.simulation.world import World

TopicPartition = tuple[str, int]
_GROUPS = ("g0", "g1")
_VISIT = 0.02
"""How often an application is started on the target for a while, in a step."""
_LATE_SECONDS = 15.0
"""No request is on its way for longer. Kafka has no commit on a condition: one that was
decided before an application committed there may come after it."""


class Applications:
    """The groups of one history."""

    def __init__(
        self, world: World, source: ModelCluster, judge: Judge, prefix: str, seed: int
    ) -> None:
        self._world = world
        self._source = source
        self._judge = judge
        self._prefix = prefix
        self._random = random.Random(seed)  # its own: the rest stays as without it
        self._read: dict[tuple[str, str, int], int] = {}
        """The highest offset that a group has committed, by the topic's id."""
        self._there: dict[tuple[str, TopicPartition], tuple[int, float]] = {}
        """What groups had on the target, and when an application committed that; 0: the
        product has set it."""
        for name in _GROUPS:
            source.groups[name] = Group()
        judge.target.group_moved = self.moved

    def step(self) -> None:
        """A group reads a little, or goes back a little, and commits."""
        name = self._random.choice(_GROUPS)
        if self._random.random() < _VISIT:
            self._visit(name)
        places = [
            (topic, number)
            for topic in self._judge.topics
            if topic in self._source.topics
            for number in range(len(self._source.topics[topic].partitions))
        ]
        if not places:
            return
        where = self._random.choice(places)
        partition = self._source.partition(where)
        assert partition is not None
        log = partition.log
        group = self._source.groups[name]
        at = max(group.offsets.get(where, (log.start, ""))[0], log.start)
        if self._random.random() < 0.1:
            at = self._random.randint(log.start, at)
        next_to_read = [offset + 1 for offset, _, _ in committed(log, at)]
        if next_to_read:
            at = self._random.choice(next_to_read)
        at = min(at, log.end)
        group.offsets[where] = (at, "")
        key = (name, self._source.topics[where[0]].id.hex, where[1])
        self._read[key] = max(self._read.get(key, 0), at)

    def _visit(self, name: str) -> None:
        """An application of the group reads on the target for some seconds."""
        target = self._judge.target
        group = target.groups.setdefault(name, Group())
        group.members += 1
        seconds = self._random.choice((0.5, 4.0))
        self._world.note(f"group {name} is at work on the target for {seconds} s")

        def leave() -> None:
            for copy, (at, metadata) in list(group.offsets.items()):
                partition = target.partition(copy)
                assert partition is not None
                read = [offset + 1 for offset, _, _ in committed(partition.log, at)]
                if read:
                    offset = self._random.choice(read)
                    group.offsets[copy] = (offset, metadata)
                    self._there[name, copy] = (offset, self._world.now)
            group.members -= 1

        self._world.after(seconds, leave)

    def moved(self, name: str, copy: TopicPartition) -> None:
        """The product has set an offset on the target.

        Raises:
            WrongError: the group would skip a record that it has not read, or read what
                it has read on the target.
        """
        where = (copy[0].removeprefix(self._prefix), copy[1])
        offset = self._judge.target.groups[name].offsets[copy][0]
        self._world.note(f"group {name} is set to {copy}@{offset}")
        before, at = self._there.get((name, copy), (0, 0.0))
        self._there[name, copy] = (offset, 0.0)
        if (read := self._of(name, where)) is None:
            return
        late = at and self._world.now - at < _LATE_SECONDS
        if offset < before and not (late or self._judge.is_renewed(copy[0])):
            raise WrongError(f"group {name} goes back in {copy}: {before} to {offset}")
        self._judge.look()
        for number, placed in self._judge.pairs(where):
            if number >= read and placed < offset:
                raise WrongError(
                    f"group {name} has read {where} up to {read}, and skips {number}: "
                    f"it is at {placed} of the copy, the group is set to {offset}"
                )

    def behind(self) -> str:
        """The first group that would read again on the target what it has read, though
        all is copied; empty if there is none.
        """
        for name in _GROUPS:
            for where in self._source.groups[name].offsets:
                if text := self._behind(name, where):
                    return text
        return ""

    def _behind(self, name: str, where: TopicPartition) -> str:
        copy = (self._prefix + where[0], where[1])
        there = self._judge.target.partition(copy)
        read = self._source.groups[name].offsets[where][0]
        if (
            there is None
            or self._of(name, where) is None
            or self._judge.is_renewed(copy[0])
        ):
            return ""
        pairs = self._judge.pairs(where)
        before = [placed for number, placed in pairs if number < read]
        if not before or not self._judge.has_begun(where):
            return ""
        at = self._judge.target.groups.get(name, Group()).offsets.get(copy, (0, ""))[0]
        again = [placed for placed in before if placed >= at]
        if not again:
            return ""
        return (
            f"group {name} has read {where} up to {read}, and is set to {copy}@{at}: "
            f"it would read {len(again)} records again"
        )

    def _of(self, name: str, where: TopicPartition) -> int | None:
        """How far a group has read the topic that is there now; None if that says
        nothing: it lost its end, or is another one.
        """
        topic = self._source.topics.get(where[0])
        if topic is None or self._judge.is_truncated(where):
            return None
        return self._read.get((name, topic.id.hex, where[1]))
