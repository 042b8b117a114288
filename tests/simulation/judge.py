"""Looks at the clusters from outside, at every commit and at the end.

Main type: `Judge`. It reads the model's logs, not what the product says, and knows the
truth about each source record from the one who wrote it. Records are decoded by
kafka-python.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mirror.offsets import progress, terms
from tests.simulation.partition import committed, is_filler, records_of

if TYPE_CHECKING:
    from tests.simulation.model import ModelCluster
    from tests.simulation.partition import PartitionLog
    from tests.simulation.sources import Writer, Written

TopicPartition = tuple[str, int]
_STOPS_WITHIN = 0.5
"""Seconds after a record at a wrong offset; what was on its way may still come."""


class WrongError(AssertionError):
    """What no history may show."""


class Judge:
    """Judges the copies that one flow makes."""

    def __init__(
        self,
        writer: Writer,
        target: ModelCluster,
        *,
        prefix: str,
        ledger: str,
        progress_topic: str,
        once: bool,
        same: bool = False,
    ) -> None:
        self.copies: dict[bytes, list[tuple[TopicPartition, int]]] = {}
        """Where each record's copies are, in the order in which they became visible;
        none, if they were deleted with their topic."""
        self._writer = writer
        self.target = target
        self.prefix = prefix
        self._ledger = ledger
        self.progress_topic = progress_topic
        self._positions: dict[tuple[str, int], int] = {}
        self._once = once
        self.same = same
        """Whether the flow began with the source's offsets."""
        self.fills = False
        """Whether copies have records where the source has offsets without one."""
        self._diverged_at: dict[TopicPartition, float] = {}
        self.translated: set[str] = set()
        """Copies that have offsets of their own although others have the source's."""
        self.slow = False
        """Whether answers may come late, or slots sleep."""
        self.forgetful = False
        """Whether leaders forget who has written what while a request is on its way: a
        record may be there twice then, and is to be told of."""
        self._read: dict[TopicPartition, int] = {}
        self._begun: set[tuple[str, int]] = set()
        self._starts: dict[tuple[str, int], int] = {}
        """With `start: latest`: how far the source's logs could be read before the flow
        began."""
        self._first: dict[tuple[str, int], int] = {}
        """Where partitions begin that were there when the flow first started; -1 while
        that is not settled."""
        self._truncated: set[tuple[str, int]] = set()
        self._deleted: list[Written] = []
        self._renewed: set[str] = set()
        self._last: dict[TopicPartition, tuple[int, bytes]] = {}
        self._lost_ends: set[TopicPartition] = set()
        self.diverged: dict[TopicPartition, int] = {}
        """Copies that lost their end and got a record at another offset, from this one
        on: their leader no longer knew who had written what before."""
        self._went_back = False
        """Whether a copy lost its end, with which the source's offsets go back."""
        self._went: set[bytes] = set()
        """Records that a deleted copy had in open transactions. Those that committed
        are not copied again."""

    def begins_with_others(self, name: str) -> None:
        """What a copy has now is not the flow's, which copies all behind it."""
        self.translated.add(name)
        for number, partition in enumerate(self.target.topics[name].partitions):
            self._read[name, number] = partition.log.end

    def begins_late(self) -> None:
        """The flow is to copy only what is written from now on."""
        for topic in self._writer.cluster.topics.values():
            for number, partition in enumerate(topic.partitions):
                self._starts[topic.id.hex, number] = partition.log.stable

    @property
    def topics(self) -> list[str]:
        """The names of the source's topics, those that are gone among them."""
        return self._writer.topics

    def look(self) -> None:
        """Read what became visible to `read_committed` since the last look.

        Raises:
            WrongError: it is not as promised.
        """
        for name in self.copied_topics():
            for number, partition in enumerate(self.target.topics[name].partitions):
                self._follow((name, number), partition.log)
        if (
            self._once
            and (kept := self.target.topics.get(self.progress_topic)) is not None
        ):
            self._follow_progress(kept.partitions[0].log)

    def copied_topics(self) -> list[str]:
        """The copies that are there."""
        names = (self.prefix + topic for topic in self._writer.topics)
        return [name for name in names if name in self.target.topics]

    def _follow_progress(self, log: PartitionLog) -> None:
        """Positions only go forward, in a topic that lost nothing."""
        where = (self.progress_topic, 0)
        at, end = self._read.get(where, 0), log.stable
        starts = not self._first
        for _, key, value in committed(log, at) if at < end else ():
            if not key or value is None:
                continue
            if terms.is_note(key):
                continue
            found = progress.decode(key, value)
            if isinstance(found, str):
                continue
            (topic, number), position, _ = found
            of = (position.topic_id.hex, number)
            if position.offset < self._positions.get(of, -1) and not (
                of in self._truncated or self._went_back
            ):
                raise WrongError(
                    f"progress of {topic}-{number} goes back from "
                    f"{self._positions[of]} to {position.offset}"
                )
            self._positions[of] = position.offset
            if starts or self._first.get(of) == -1:
                self._first[of] = position.offset
        self._read[where] = max(at, end)

    def _follow(self, where: TopicPartition, log: PartitionLog) -> None:
        at, end = self._read.get(where, 0), log.stable
        if at < end:
            for offset, key, value in committed(log, at):
                if self.fills and key is None and is_filler(log, offset):
                    self._judge_filler(where, offset, value)
                else:
                    self._judge(where, offset, key, value)
            self._read[where] = end

    def _judge(
        self,
        where: TopicPartition,
        offset: int,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        record = self._writer.records.get(key or b"")
        place = f"{where[0]}-{where[1]}@{offset}"
        if record is None:
            raise WrongError(f"{place}: {key!r} was never written")
        if not record.committed:
            raise WrongError(f"{place}: {key!r} was not committed on the source")
        if (record.where[0], record.where[1]) != (
            where[0].removeprefix(self.prefix),
            where[1],
        ):
            raise WrongError(f"{place}: {key!r} belongs to {record.where}")
        if record.value != value:
            raise WrongError(f"{place}: {key!r} has another value")
        same = self.same and where[0] not in self.translated
        if same and record.offset != offset:
            if where not in self._lost_ends and not self.forgetful:
                raise WrongError(f"{place}: {key!r} was written at {record.offset}")
            self.diverged.setdefault(where, offset)
            now = self._writer.cluster.world.now
            if now > self._diverged_at.setdefault(where, now) + _STOPS_WITHIN and (
                not self.slow
            ):
                raise WrongError(f"{place}: goes on at wrong offsets")
        if where in self.diverged:
            return
        if self._once and record.name in self.copies:
            raise WrongError(
                f"{place}: {key!r} is a second copy of {self.copies[record.name][:1]}"
            )
        log = (record.topic_id, record.where[1])
        if record.offset < self._starts.get(log, 0) and log not in self._truncated:
            raise WrongError(f"{place}: {key!r} was there before the flow began")
        number = int(record.name.rsplit(b":", 1)[1])
        last, of = self._last.get(where, (-1, b""))
        if number <= last and self._once:
            raise WrongError(f"{place}: {key!r} comes after {of!r}")
        if number > last:
            self._last[where] = (number, record.name)
        self._begun.add(log)
        self.copies.setdefault(record.name, []).append((where, offset))

    def _judge_filler(
        self, where: TopicPartition, offset: int, value: bytes | None
    ) -> None:
        """A filler stands where the source has no record that consumers see."""
        of = (where[0].removeprefix(self.prefix), where[1])
        place = f"{where[0]}-{where[1]}@{offset}"
        if value is not None:
            raise WrongError(f"{place}: a filler with a value")
        source = self._writer.cluster.partition(of)
        if source is None or where in self.diverged or where in self._lost_ends:
            return
        if self._key(of) not in self._truncated and offset in _by_offset(source.log):
            raise WrongError(f"{place}: a filler, but the source has a record there")

    def copy_deleted(self, name: str) -> None:
        """A copy is about to be deleted, and others may follow under its name."""
        self.look()
        self._renewed.add(name)
        same = self.same and name not in self.translated
        for number, partition in enumerate(self.target.topics[name].partitions):
            self._read[name, number] = 0
            if same:
                self._comes_again((name, number))
                continue
            for batch in partition.log.batches:
                for _, key, _ in () if batch.control else records_of(batch):
                    self._went.add(key or b"")
        for key, copies in list(self.copies.items()):
            copies[:] = [each for each in copies if each[0][0] != name]
            if same and not copies and self.prefix + self._topic_of(key) == name:
                del self.copies[key]

    def _comes_again(self, where: TopicPartition) -> None:
        """All that the source still has is copied once more. What is on its way to the
        deleted copy may reach the new one.
        """
        self._went_back = True
        self._lost_ends.add(where)
        self._last.pop(where, None)
        self.diverged.pop(where, None)
        self._diverged_at.pop(where, None)

    def _topic_of(self, key: bytes) -> str:
        return self._writer.records[key].where[0]

    def product_deletes(self, name: str) -> None:
        """A copy is deleted by the product itself.

        Raises:
            WrongError: it has records.
        """
        self.look()
        for number, partition in enumerate(self.target.topics[name].partitions):
            if committed(partition.log, 0):
                raise WrongError(f"{name}-{number} is deleted, and has records")
            self._read[name, number] = 0

    def copy_lost(self, where: TopicPartition, end: int) -> None:
        """A copy has lost what is from an offset on: it is to come again."""
        self._went_back = True
        self._lost_ends.add(where)
        if self.diverged.get(where, -1) >= end:
            del self.diverged[where], self._diverged_at[where]
        self._read[where] = min(self._read.get(where, 0), end)
        names = []
        for name, copies in list(self.copies.items()):
            copies[:] = [each for each in copies if each[0] != where or each[1] < end]
            if not copies:
                del self.copies[name]
            elif copies[-1][0] == where:
                names.append(name)
        last = max(names, key=lambda n: int(n.rsplit(b":", 1)[1]), default=b"")
        self._last[where] = (int(last.rsplit(b":", 1)[1]) if last else -1, last)

    def deleted(self, where: TopicPartition, until: int | None = None) -> None:
        """What is before an offset of the source is about to be deleted; None: all.

        Of a partition from which nothing was copied, that is no loss: a flow begins
        with what is there. Without exactly-once its position may have died with its
        process although something was.
        """
        if not self._once:
            return
        self.look()
        partition = self._writer.cluster.partition(where)
        assert partition is not None
        log = partition.log
        end = log.end if until is None else until
        key = self._key(where)
        watched = key in self._begun and key not in self._truncated
        for batch in log.batches if watched else ():
            for offset, name, _ in () if batch.control else records_of(batch):
                if log.start <= offset < end and name is not None:
                    self._deleted.append(self._writer.records[name])

    def truncated(self, where: TopicPartition) -> None:
        """A source partition is about to lose its end: what is written there now and
        deleted before the flow comes to see it, the flow cannot know.
        """
        self._truncated.add(self._key(where))

    def check_ledger(self) -> None:
        """Hold the ledger against what was really lost.

        Raises:
            WrongError: it names what was copied, or never was gone.
        """
        source = self._writer.cluster
        for loss in self._lost():
            where = (loss["topic"], loss["partition"])
            topic_id = loss["topic_id"].replace("-", "")
            if (topic_id, where[1]) in self._truncated:
                continue
            topic = source.topics.get(where[0])
            still_there = topic is not None and topic.id.hex == topic_id
            if loss["cause"] == "TRUNCATED":
                raise WrongError(f"ledger: {loss}, but nothing was truncated")
            if loss["cause"] == "RECREATED" and still_there:
                raise WrongError(f"ledger: {loss}, but the topic is the same")
            if loss["cause"] == "DELETED" and still_there:
                assert topic is not None
                start = topic.partitions[where[1]].log.start
                if loss["last"] >= start:
                    raise WrongError(f"ledger: {loss}, but the log begins at {start}")
            for record in self._writer.records.values():
                if record.name in self.copies and explains(loss, record):
                    raise WrongError(f"ledger: {loss}, but {record.name!r} is copied")

    def pairs(self, where: TopicPartition) -> list[tuple[int, int]]:
        """The offsets of a partition's copied records, and of their first copies, of
        the topic that is there now.
        """
        topic_id = self._writer.cluster.topics[where[0]].id.hex
        return sorted(
            (record.offset, copies[0][1])
            for name, copies in self.copies.items()
            if copies
            and (record := self._writer.records[name]).topic_id == topic_id
            and record.where == where
        )

    @property
    def lost_ends(self) -> set[TopicPartition]:
        """Source partitions whose copies lost their end: it comes again once a slot
        takes over.
        """
        return {(name.removeprefix(self.prefix), n) for name, n in self._lost_ends}

    def is_noted(self, excused: set[TopicPartition]) -> bool:
        """Whether progress says that the whole source is copied."""
        self.look()
        return all(
            self._positions.get((topic.id.hex, number), 0) >= partition.log.end
            for name, topic in self._writer.cluster.topics.items()
            for number, partition in enumerate(topic.partitions)
            if (name, number) not in excused
        )

    def check_same_offsets(self, told: set[TopicPartition]) -> None:
        """Hold what is on both sides against each other. `told`: source partitions of
        which the flow says that their copies must be made again.

        Raises:
            WrongError: an offset has two records, and the flow does not say so; or it
                says so without a reason.
        """
        for name, topic in self._writer.cluster.topics.items():
            copy = self.target.topics.get(self.prefix + name)
            if self.prefix + name in self.translated:
                continue
            for number, partition in enumerate(topic.partitions):
                where = (self.prefix + name, number)
                if (name, number) in told:
                    lost = where in self._lost_ends or self._key((name, number)) in (
                        self._truncated
                    )
                    if not (lost or self.forgetful):
                        raise WrongError(f"{where} is said to differ for no reason")
                elif copy is not None and number < len(copy.partitions):
                    written = _by_offset(partition.log)
                    copied = _by_offset(copy.partitions[number].log)
                    for offset in written.keys() & copied.keys():
                        if written[offset] != copied[offset]:
                            raise WrongError(f"{where}@{offset} has another record")

    def has_begun(self, where: TopicPartition) -> bool:
        """Whether anything of the topic that is there now was ever copied."""
        return self._key(where) in self._begun

    def is_truncated(self, where: TopicPartition) -> bool:
        """Whether the topic that is there now ever lost its end."""
        return self._key(where) in self._truncated

    def is_renewed(self, copy: str) -> bool:
        """Whether a copy was ever deleted."""
        return copy in self._renewed

    def _key(self, where: TopicPartition) -> tuple[str, int]:
        return self._writer.cluster.topics[where[0]].id.hex, where[1]

    def missing(self, excused: set[TopicPartition]) -> str:
        """The first record that was or is on the source and is not on the target,
        though no loss explains it; empty if there is none. `excused`: partitions that
        may be late.
        """
        self.look()
        lost = self._lost()

        def is_missing(record: Written) -> bool:
            return bool(
                record.committed
                and record.where not in excused
                and record.name not in self.copies
                and record.name not in self._went
                and not self._too_early(record)
                and not _explained(record, lost)
            )

        for record in self._writer.records.values():
            if is_missing(record) and self._is_there(record):
                return f"{record.name!r} at {record.where}@{record.offset}"
        for record in filter(is_missing, self._deleted):
            return f"deleted {record.name!r} at {record.where}@{record.offset}"
        return ""

    def _too_early(self, record: Written) -> bool:
        """Whether it was written before a flow began that copies only what is newer."""
        log = (record.topic_id, record.where[1])
        return bool(self._starts) and record.offset < self._first.get(log, 0)

    def _is_there(self, record: Written) -> bool:
        """Whether the source has the record still."""
        topic = self._writer.cluster.topics.get(record.where[0])
        if topic is None or topic.id.hex != record.topic_id:
            return False
        log = topic.partitions[record.where[1]].log
        if record.offset < log.start:
            return False
        for batch in log.batches:
            if batch.base <= record.offset <= batch.last:
                return any(name == record.name for _, name, _ in records_of(batch))
        return False

    def _lost(self) -> list[dict[str, Any]]:
        return losses_in(self.target, self._ledger)


def _by_offset(log: PartitionLog) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {offset: (key, value) for offset, key, value in committed(log, log.start)}


def losses_in(cluster: ModelCluster, ledger: str) -> list[dict[str, Any]]:
    """What a ledger says, read as any consumer would."""
    topic = cluster.topics.get(ledger)
    log = topic.partitions[0].log if topic else None
    return (
        [json.loads(value or b"") for _, _, value in committed(log, 0)] if log else []
    )


def _explained(record: Written, lost: list[dict[str, Any]]) -> bool:
    # Of a topic that is gone only the end that was seen last is known.
    return any(
        explains(
            {**loss, "last": None} if loss["cause"] == "RECREATED" else loss, record
        )
        for loss in lost
    )


def explains(loss: dict[str, Any], record: Written) -> bool:
    """Whether an entry of the ledger covers a record."""
    return (
        (loss["topic"], loss["partition"]) == record.where
        and loss["topic_id"].replace("-", "") == record.topic_id
        and loss["first"] <= record.offset
        and (loss["last"] is None or record.offset <= loss["last"])
    )
