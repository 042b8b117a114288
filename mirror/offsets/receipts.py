"""Receipts: whether the record at an offset of the source is committed on the target.

Main type: `Receipts`, of one flow. Its thread follows the flow's offset map, which says
in the transaction of the records where on the target they stand; nothing that a service
or a slot believes counts. It begins with the first question and rests while there is
none. A receipt is given once

- the committed map names the record's offset in the copy that is there now, by its id;
- consumers of committed records see the copy up to there: the map's transaction may
  have ended before the copy's markers were written;
- the copy and the progress topic cannot lose what was acknowledged with one broker
  (`why_unsafe`).

Where the position has passed an offset that the map does not name, there is no copy and
no receipt. So nothing here can be wrong in a service that is fenced or cut off: what
was committed stays so, and a leader that is out of date only shows less. Who waits is
in a heap per partition, and costs nothing until the copy gets there.
"""

from __future__ import annotations

from concurrent.futures import Future
import contextlib
from dataclasses import dataclass, field
from enum import StrEnum
import heapq
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import Cluster
from mirror.clusters.topics import NO_ID, same_topic
from mirror.config.own_topics import IN_SYNC
from mirror.errors import ClusterError, CorruptBatchError, MirrorError
from mirror.offsets import progress
from mirror.offsets.index import MapPlace
from mirror.offsets.progress import ProgressReader
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.offsets.translation import MapFollower, PlaceQuery
from mirror.retry import QUESTION

if TYPE_CHECKING:
    from collections.abc import Mapping
    import uuid

    from mirror.clusters.topics import Topic, TopicPartition
    from mirror.clusters.wire.pending_response import Pending
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.offsets.index import Epoch, Track
    from mirror.offsets.progress import Position
    from mirror.offsets.runs import RunArray

_PURPOSE = "receipts"
_POLL_SECONDS = 0.5
_LOOK_SECONDS = 1.0
"""How often positions and topics are asked for while somebody waits for longer."""
_SAFE_SECONDS = 5.0
"""How often that is asked for, and topics' configs, while anybody waits."""
_PAUSE_SECONDS = 0.5
"""After an error."""
_UNCLEAN = "unclean.leader.election.enable"
_SAFE_IN_SYNC = 2
_BEYOND_ALL = 1 << 63
_NOT_LOOKED = (0.0, "")


class Outcome(StrEnum):
    """What is known of a record."""

    COPIED = "COPIED"
    PENDING = "PENDING"
    """It is not copied yet."""
    NOT_COPIED = "NOT_COPIED"
    """The flow has passed it: its copy never comes, or is gone."""
    REFUSED = "REFUSED"
    """There are no receipts for this topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The answer about one record."""

    outcome: Outcome
    target_topic: str = ""
    target_offset: int = -1
    """Where its copy stands; -1 if there is none."""
    topic_id: uuid.UUID = NO_ID
    """Of the source topic whose record was copied; NO_ID if that is not known."""
    reason: str = ""
    """Why there is no receipt."""


class _Asked(NamedTuple):
    """Who waits for a record. They are ordered by its offset."""

    offset: int
    number: int
    topic_id: uuid.UUID
    answer: Future[Receipt]
    at_once: bool


class _Place(NamedTuple):
    """Where the map says that the copy of a record stands."""

    topic: str
    partition: int
    offset: int
    topic_id: uuid.UUID
    """The source topic's."""
    copy_id: uuid.UUID

    @property
    def where(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(slots=True)
class _Looked:
    """What was asked at the last look, and since: it is asked again at the next."""

    positions: Mapping[TopicPartition, Position] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    """Copies, and the progress topic."""
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    """Where committed records of copies end."""


class Receipts:
    """Answers for one flow. Thread-safe."""

    def __init__(
        self,
        target: ClusterConfig,
        source_alias: str,
        separator: str = ".",
        *,
        exactly_once: bool = True,
    ) -> None:
        """`separator`, `exactly_once`: as the flow has them."""
        self._target = target
        self._source_alias = source_alias
        self._separator = separator
        self._exactly_once = exactly_once
        self._lock = threading.Condition()
        self._new: list[tuple[TopicPartition, _Asked]] = []
        self._reached: dict[TopicPartition, int] = {}
        """The offset up to which the partitions that are waited for are looked at."""
        self._numbers = 0
        self._given_up = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._wakes, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        self.trouble = ""
        """Why nothing is known now; empty: nothing is wrong."""

    def ask(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        topic_id: uuid.UUID = NO_ID,
        at_once: bool = False,
    ) -> Future[Receipt]:
        """What becomes known of a record of the source; who no longer waits cancels it.

        `topic_id`: of the source's topic; NO_ID: that which is copied under the name.
        `at_once`: it may be PENDING; else it is not done until more is known.
        """
        key = (topic, partition)
        answer: Future[Receipt] = Future()
        with self._lock:
            if self._closed:
                return answer
            self._numbers += 1
            asked = _Asked(offset, self._numbers, topic_id, answer, at_once)
            self._new.append((key, asked))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="mirror-receipts", daemon=True
                )
                self._thread.start()
            self._lock.notify()
            if at_once or offset < self._reached.get(key, _BEYOND_ALL):
                self._interrupt()
        answer.add_done_callback(self._note_end)
        return answer

    def knows(self, topic: str, partition: int) -> bool:
        """Whether anything of this partition was seen to be copied."""
        return (topic, partition) in self._reached

    def close(self) -> None:
        """Answer no more: what is asked stays so. It waits for no cluster."""
        with self._lock:
            self._closed = True
            if self._thread is not None:
                self._lock.notify()
                self._interrupt()
            else:
                self._close_sockets()

    def _interrupt(self) -> None:
        """End a wait for the target."""
        with contextlib.suppress(BlockingIOError):  # enough is there to wake it
            self._wakes.send(b"x")

    def _note_end(self, answer: Future[Receipt]) -> None:
        if answer.cancelled():
            self._given_up += 1  # a hint alone: it may miss some

    # ---- the thread ----

    def _run(self) -> None:
        cluster = Cluster(self._target, client_id="mirror.receipts")
        follower = _Follower(
            cluster,
            self._source_alias,
            self._separator,
            exactly_once=self._exactly_once,
        )
        waiting = _Waiting()
        try:
            while self._take_new(waiting):
                self._turn(follower, waiting)
        finally:
            cluster.close()
            with self._lock:  # after a bug, the next question begins again
                self._thread = None
                if self._closed:
                    self._close_sockets()

    def _close_sockets(self) -> None:
        self._wakes.close()
        self._woken.close()

    def _turn(self, follower: _Follower, waiting: _Waiting) -> None:
        try:
            follower.turn(waiting, self._woken)
            self.trouble = ""
        except (MirrorError, CorruptBatchError) as error:
            self.trouble = str(error)
            follower.forget()
            waiting.answer_at_once(str(error))
            time.sleep(_PAUSE_SECONDS)
        if self._given_up > len(waiting) // 2:
            self._given_up = 0
            waiting.drop_given_up()

    def _take_new(self, waiting: _Waiting) -> bool:
        """Take over what was asked; without anything to wait for, wait for that.
        Returns whether to go on.
        """
        with self._lock:
            self._reached = waiting.reached
            while not (self._new or waiting or self._closed):
                self._lock.wait()
            new, self._new = self._new, []
            for key, asked in new:
                waiting.add(key, asked)
            return not self._closed


class _Waiting:
    """Who waits, and how far each partition is looked at. Not thread-safe."""

    def __init__(self) -> None:
        self.heaps: dict[TopicPartition, list[_Asked]] = {}
        self.placed: list[tuple[TopicPartition, _Asked, _Place]] = []
        """Those whose record is committed, though not all its markers may be there."""
        self.reached: dict[TopicPartition, int] = {}
        self.newest = 0
        """The number of the newest question ever."""
        self.urgent: set[TopicPartition] = set()
        """Partitions with questions that a look may answer."""

    def __len__(self) -> int:
        return len(self.placed) + sum(map(len, self.heaps.values()))

    def __bool__(self) -> bool:
        return bool(self.placed or any(self.heaps.values()))

    def oldest(self) -> int:
        """The lowest number of a question without an answer."""
        placed = [asked.number for _, asked, _ in self.placed]
        return min(
            [each.number for heap in self.heaps.values() for each in heap] + placed,
            default=self.newest + 1,
        )

    def add(self, key: TopicPartition, asked: _Asked) -> None:
        self.newest = max(self.newest, asked.number)
        heapq.heappush(self.heaps.setdefault(key, []), asked)
        if asked.at_once or asked.offset < self.reached.get(key, _BEYOND_ALL):
            self.urgent.add(key)

    def below(self, key: TopicPartition, end: int, newest: uuid.UUID) -> list[_Asked]:
        """Take those who wait for a record below `end` of the topic with this id."""
        heap = self.heaps.get(key, [])
        found: list[_Asked] = []
        others: list[_Asked] = []
        while heap and heap[0].offset < end:
            asked = heapq.heappop(heap)
            fits = same_topic(asked.topic_id, newest)
            (found if fits else others).append(asked)
        for asked in others:
            heapq.heappush(heap, asked)
        return found

    def answer_at_once(self, reason: str = "") -> None:
        """Answer those who do not wait."""
        for key in self.urgent:
            heap = self.heaps.get(key, [])
            if any(each.at_once for each in heap):
                for each in heap:
                    if each.at_once:
                        tell(each, Receipt(outcome=Outcome.PENDING, reason=reason))
                self.heaps[key] = [each for each in heap if not each.at_once]
                heapq.heapify(self.heaps[key])
        self.urgent.clear()

    def drop_given_up(self) -> None:
        for key, heap in self.heaps.items():
            self.heaps[key] = [each for each in heap if not each.answer.cancelled()]
            heapq.heapify(self.heaps[key])

    def begin_again(self) -> None:
        """Look for all places once more: the copies may be others now."""
        self.heaps = {key: heap for key, heap in self.heaps.items() if heap}
        for key, asked, _ in self.placed:
            if not asked.answer.cancelled():
                heapq.heappush(self.heaps.setdefault(key, []), asked)
        self.placed.clear()


def tell(asked: _Asked, receipt: Receipt) -> None:
    """Answer it, unless it was given up."""
    if asked.answer.set_running_or_notify_cancel():
        asked.answer.set_result(receipt)


class _Follower:
    """Reads the target. Not thread-safe."""

    def __init__(
        self, cluster: Cluster, source_alias: str, separator: str, *, exactly_once: bool
    ) -> None:
        self._cluster = cluster
        self._progress_topic = progress.topic_name(source_alias)
        self._progress = ProgressReader(cluster, self._progress_topic)
        self._map = MapFollower(cluster, source_alias, separator, fenced=exactly_once)
        self._asked: Pending | None = None
        self._looked = _Looked()
        self._look_at = self._next_look = 0.0
        """When to look if somebody waits since the last time, and if not."""
        self._seen = 0
        """The newest question when a look was last due."""
        self._confirm_at = self._pause = 0.0
        """When to ask again whether markers are written, and how long to wait then."""
        self._unsafe: dict[str, tuple[float, str]] = {}
        """By topic, until when this holds, and why it is not safe."""
        self._is_connected = False

    def forget(self) -> None:
        """After an error: ask for everything again."""
        self._asked, self._looked, self._next_look = None, _Looked(), 0.0

    def turn(self, waiting: _Waiting, woken: socket.socket) -> None:
        """Wait for what comes next, and answer whom it concerns.

        Raises:
            MirrorError: the target does not answer, or what it has cannot be read.
        """
        if self._look_is_due(waiting):
            self._look(waiting)
        else:
            for key in self._wait(waiting, woken):
                self._sort_out(waiting, key)
        self._confirm(waiting)

    def _look_is_due(self, waiting: _Waiting) -> bool:
        now = time.monotonic()
        if waiting.urgent or now >= self._next_look:
            return True
        if now < self._look_at:
            return False
        # While records come and are copied, a look would only hold receipts up.
        if waiting.oldest() <= self._seen:
            return True
        self._look_at, self._seen = now + _LOOK_SECONDS, waiting.newest
        return False

    def _wait(self, waiting: _Waiting, woken: socket.socket) -> set[TopicPartition]:
        """Whose runs have come, after a while at most."""
        if self._asked is None:
            self._asked = self._map.reader.ask(_PURPOSE, _POLL_SECONDS)
        connection = self._asked.connection
        seconds = self._look_at - time.monotonic()
        if waiting.placed:
            seconds = min(seconds, self._confirm_at - time.monotonic())
        if not (connection.readable or self._asked.answered):
            poller = select.poll()
            poller.register(connection, select.POLLIN)
            poller.register(woken, select.POLLIN)
            descriptors = {at for at, _ in poller.poll(max(0.0, seconds) * 1000)}
            if woken.fileno() in descriptors:
                woken.recv(1 << 16)
            if connection.fileno() not in descriptors:
                return set()
        asked, self._asked = self._asked, None
        return self._map.take(asked)

    # ---- a look: everything that may have changed besides the map ----

    def _look(self, waiting: _Waiting) -> None:
        if not self._is_connected:
            self._cluster.connect()
            self._is_connected = True
        waiting.begin_again()
        self._looked = self._topics(waiting)
        # First: then the map has all runs up to these positions when it is read.
        positions = self._progress.read(wait=False).positions
        self._map.follow(wait=False)
        self._looked.positions = positions
        self._look_into_safety()
        now = time.monotonic()
        self._look_at, self._next_look = now + _LOOK_SECONDS, now + _SAFE_SECONDS
        self._seen = waiting.newest
        for key in list(waiting.heaps):
            self._refuse(waiting, key)
            self._sort_out(waiting, key)
            self._sort_out_passed(waiting, key)
        self._confirm(waiting)
        waiting.answer_at_once()

    def _topics(self, waiting: _Waiting) -> _Looked:
        own = {self._progress_topic, self._map.topic}
        copies = {
            track.target_topic
            for key in waiting.heaps
            if (track := self._map.tracks.get(key)) is not None
        }
        shown = self._cluster.topics(own | copies)
        for name in own:
            if shown[name].error == codes.UNKNOWN_TOPIC_OR_PARTITION:
                raise ClusterError(
                    f"cluster {self._cluster.alias} has no topic {name}: the flow has "
                    "never run"
                )
        return _Looked(topics=shown)

    def _look_into_safety(self) -> None:
        now = time.monotonic()
        due = [
            name
            for name, topic in self._looked.topics.items()
            if topic.error == codes.NONE
            and self._unsafe.get(name, _NOT_LOOKED)[0] <= now
            and name != self._map.topic
        ]
        if not due:
            return
        keys = [IN_SYNC, _UNCLEAN]
        for result in topic_admin.describe_configs(self._cluster, due, keys):
            name = result.resource_name
            if result.error_code == codes.NONE:
                configs = {each.name: each.value for each in result.configs}
                replicas = self._looked.topics[name].replication_factor
                reason = why_unsafe(name, configs, replicas)
            else:
                what = f"a receipt needs the configs of {name}"
                reason = str(codes.error_of(result, what))
            self._unsafe[name] = now + (0.0 if reason else _SAFE_SECONDS), reason

    def _refuse(self, waiting: _Waiting, key: TopicPartition) -> None:
        """Answer all who wait for a partition where there are no receipts."""
        track = self._map.tracks.get(key)
        if reason := self._why_unsafe("" if track is None else track.target_topic):
            for asked in waiting.below(key, _BEYOND_ALL, NO_ID):
                tell(asked, Receipt(outcome=Outcome.REFUSED, reason=reason))

    def _why_unsafe(self, copy: str) -> str:
        names = (self._progress_topic, copy)
        return next(
            filter(None, (self._unsafe.get(n, _NOT_LOOKED)[1] for n in names)), ""
        )

    # ---- from runs of the map to places in the copy ----

    def _sort_out(self, waiting: _Waiting, key: TopicPartition) -> None:
        """Find places for those who wait for what the map has reached."""
        if (track := self._map.tracks.get(key)) is None or not track.epochs:
            return
        newest = track.epochs[-1]
        waiting.reached[key] = end = newest.end(UPSTREAM)
        if not waiting.heaps.get(key) or self._is_elsewhere(key, track):
            return
        for asked in waiting.below(key, end, newest.topic_id):
            self._place(waiting, key, track, asked)

    def _is_elsewhere(self, key: TopicPartition, track: Track) -> bool:
        """Whether runs of another source topic, or another copy, are still to come."""
        position = self._looked.positions.get(key)
        copy = self._looked.topics.get(track.target_topic)
        if copy is None:  # it is new: a look shows it
            self._next_look = 0.0
            return True
        newest = track.epochs[-1].topic_id
        left = position is not None and not same_topic(position.topic_id, newest)
        return left or copy.error != codes.NONE or track.is_another(copy.topic_id)

    def _sort_out_passed(self, waiting: _Waiting, key: TopicPartition) -> None:
        """Answer those whose record the position has passed, and that has no run."""
        position = self._looked.positions.get(key)
        if position is None:
            return
        waiting.reached[key] = max(waiting.reached.get(key, 0), position.offset)
        heap = waiting.heaps.get(key)
        if not heap or heap[0].offset >= position.offset:
            return
        track = self._map.tracks.get(key)
        if track is not None and track.epochs:
            if self._is_elsewhere(key, track):
                return
            # The map's markers may have been on their way when it was read.
            self._map.follow(wait=True)
            self._sort_out(waiting, key)
        for asked in waiting.below(key, position.offset, position.topic_id):
            tell(asked, _not_copied(position.topic_id, _PASSED))

    def _place(
        self, waiting: _Waiting, key: TopicPartition, track: Track, asked: _Asked
    ) -> None:
        copy = self._looked.topics[track.target_topic]
        newest = track.epochs[-1].topic_id
        epochs = [e for e in track.there(copy.topic_id) if e.topic_id == newest]
        late = self._map.late.runs_of(key, newest, copy.topic_id)
        # Later epochs win: of records that were cut off, earlier ones know an offset.
        epoch = next(
            (e for e in reversed(epochs) if asked.offset >= e.first(UPSTREAM)), None
        )
        found = -1 if epoch is None else self._offset_in(key, epoch, asked.offset)
        if found < 0:
            found = place_among(late, asked.offset)
        if found < 0:
            tell(asked, _not_copied(newest, _PASSED))
            return
        place = _Place(copy.name, key[1], found, newest, track.copy_id)
        waiting.placed.append((key, asked, place))
        self._confirm_at = 0.0

    def _offset_in(self, key: TopicPartition, epoch: Epoch, offset: int) -> int:
        """Where the copy of a source offset is, -1 if the epoch has none."""
        found = epoch.find(offset, UPSTREAM)
        if not isinstance(found, MapPlace):
            return place_among(epoch.kept, offset)
        wanted = PlaceQuery(key, epoch.topic_id, found)
        ((_, part),) = self._map.places.read([wanted], self._map.reader)
        return place_among(part, offset)

    # ---- from places in the copy to receipts ----

    def _confirm(self, waiting: _Waiting) -> None:
        """Answer those whose record consumers of committed records see."""
        if not waiting.placed or time.monotonic() < self._confirm_at:
            return
        looked, before = self._looked, len(waiting.placed)
        keys = {
            at.where
            for _, _, at in waiting.placed
            if at.offset >= looked.stable.get(at.where, -1)
        }
        if keys:
            looked.stable |= topic_admin.list_offsets(
                self._cluster, keys, timestamp=topic_admin.LATEST, topics=looked.topics
            )
            if unknown := keys - looked.starts.keys():
                looked.starts |= topic_admin.list_offsets(
                    self._cluster, unknown, timestamp=topic_admin.EARLIEST,
                    topics=looked.topics,
                )  # fmt: skip
        waiting.placed = [
            each for each in waiting.placed if not self._answer(each[1], each[2])
        ]
        answered = len(waiting.placed) < before
        self._pause = QUESTION.after(0.0 if answered else self._pause)
        self._confirm_at = time.monotonic() + self._pause

    def _answer(self, asked: _Asked, at: _Place) -> bool:
        """Whether there was an answer, or who asked has given up."""
        looked = self._looked
        if asked.answer.cancelled():
            return True
        if reason := self._why_unsafe(at.topic):
            tell(asked, Receipt(outcome=Outcome.REFUSED, reason=reason))
        elif at.offset < looked.starts.get(at.where, 0):
            tell(asked, _not_copied(at.topic_id, _DELETED))
        elif at.offset < looked.stable.get(at.where, -1) and same_topic(
            looked.topics[at.topic].topic_id, at.copy_id
        ):
            tell(asked, _copied(at))
        else:
            return False
        return True


_PASSED = (
    "the flow has passed this offset, and the offset map has no copy of it: it was "
    "left out, lost or never there, or is older than the map; `mirror trace` tells"
)
_DELETED = "it was copied, and is deleted from the copy since"


def _not_copied(topic_id: uuid.UUID, reason: str) -> Receipt:
    return Receipt(outcome=Outcome.NOT_COPIED, topic_id=topic_id, reason=reason)


def _copied(at: _Place) -> Receipt:
    return Receipt(
        outcome=Outcome.COPIED,
        target_topic=at.topic,
        target_offset=at.offset,
        topic_id=at.topic_id,
    )


def place_among(runs: RunArray, offset: int) -> int:
    """The target offset of a source offset's copy; -1 if no run has it. Runs ascend."""
    index = int(np.searchsorted(runs[:, UPSTREAM], offset, "right")) - 1
    if index < 0:
        return -1
    into = offset - int(runs[index, UPSTREAM])
    if into >= runs[index, COUNT]:
        return -1
    return int(runs[index, DOWNSTREAM]) + into


def why_unsafe(name: str, configs: Mapping[str, str | None], replicas: int) -> str:
    """Why a topic may lose what was acknowledged with one broker; empty: it may not."""
    least = int(configs.get(IN_SYNC) or 1)
    if replicas < _SAFE_IN_SYNC:
        # Brokers want no more replicas in sync than there are.
        return (
            f"{name} has replication factor {replicas}: a receipt needs at least "
            f"{_SAFE_IN_SYNC}, and {IN_SYNC}={_SAFE_IN_SYNC}"
        )
    if least < _SAFE_IN_SYNC:
        return f"{name} has {IN_SYNC}={least}: a receipt needs at least {_SAFE_IN_SYNC}"
    if configs.get(_UNCLEAN) == "true":
        return f"{name} has {_UNCLEAN}=true: a receipt needs false"
    return ""
