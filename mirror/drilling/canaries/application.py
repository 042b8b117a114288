"""The application of a canary: it writes numbered records, and reads them as a group.

Main type: `Application`. Its producer is a thread; its consumer reads when it is asked
to, from what the group has committed up to the end, and commits. Over both clusters
each number must be read once. It has no rights of its own: it writes and reads as
mirror does.
"""

from __future__ import annotations

from collections import Counter
import contextlib
import threading
import time
from typing import TYPE_CHECKING
import uuid

from mirror.batches import to_columns
from mirror.batches.writing import TopicWriter
from mirror.clusters import codes
from mirror.clusters.admin import group_offsets, topic_admin
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.cluster import Cluster
from mirror.clusters.wire import fetch
from mirror.errors import MirrorError
from mirror.policy.naming import CANARY
from mirror.proving.log_stream import LogStream, Stretch
from mirror.switching.stage import StepError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirror.config.cluster_settings import ClusterConfig

_PAUSE_SECONDS = 0.05
"""Between two records."""


class Application:
    """One producer and one group; the producer writes on one cluster at a time."""

    def __init__(self) -> None:
        self.written = 0
        """How many records brokers have acknowledged."""
        self._run = uuid.uuid4().hex.encode()
        self._read: Counter[int] = Counter()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._first_at = 0.0
        self._error = ""

    def start(self, config: ClusterConfig) -> None:
        """Write on this cluster from now on."""
        self._stop.clear()
        self._first_at = 0.0
        self._thread = threading.Thread(
            target=self._write, args=(config,), name="mirror-canary"
        )
        self._thread.start()

    def stop(self) -> None:
        """Write no more.

        Raises:
            StepError: it could not write.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._require_fine()

    def end(self) -> None:
        """The same, whatever has happened."""
        with contextlib.suppress(StepError):
            self.stop()

    def wait_for_writes(self, count: int, *, seconds: float) -> float:
        """Wait for so many more records; returns when this cluster acknowledged its
        first one, epoch seconds.

        Raises:
            StepError: they do not come.
        """
        goal, until = self.written + count, time.monotonic() + seconds
        while self.written < goal:
            self._require_fine()
            if time.monotonic() > until:
                raise StepError(
                    f"the canary's producer wrote nothing for {seconds:g} s"
                )
            time.sleep(_PAUSE_SECONDS)
        return self._first_at

    def _require_fine(self) -> None:
        if self._error:
            raise StepError(f"the canary's producer cannot write: {self._error}")

    def _write(self, config: ClusterConfig) -> None:
        with contextlib.closing(Cluster(config, client_id="mirror.canary")) as cluster:
            try:
                cluster.connect()
                writer = TopicWriter(cluster, CANARY)
                while not self._stop.is_set():
                    writer.write([(self._run, b"%d" % self.written)])
                    # First: who waits for the count reads this next.
                    self._first_at = self._first_at or time.time()
                    self.written += 1
                    self._stop.wait(_PAUSE_SECONDS)
            except MirrorError as error:
                self._error = str(error)

    def read(self, cluster: Cluster, topics: Iterable[str]) -> None:
        """Read these topics as the group, from where it stands to their ends.

        Raises:
            MirrorError: they cannot be read, or the group's offsets not be set.
        """
        there = cluster.topics()
        keys = [(topic, 0) for topic in topics if topic in there]
        found = group_offsets.fetch(cluster, [CANARY])
        if CANARY in found.refused:
            raise MirrorError(
                f"{cluster.alias} does not say where group {CANARY} is: "
                f"{found.refused[CANARY]}"
            )
        mine = found.groups.get(CANARY, {})
        starts = topic_admin.list_offsets(cluster, keys, timestamp=topic_admin.EARLIEST)
        ends = topic_admin.offsets_of_all(cluster, keys, timestamp=topic_admin.LATEST)
        for key, end in ends.items():
            begin = mine[key].offset if key in mine else starts.get(key, 0)
            part = Stretch(
                topic=key[0], partition=0, topic_id=there[key[0]].topic_id,
                first=begin, end=end,
            )  # fmt: skip
            self._read.update(self._numbers(cluster, part))
        commit(cluster, {key: CommittedOffset(end) for key, end in ends.items()})

    def _numbers(self, cluster: Cluster, part: Stretch) -> Iterator[int]:
        """Of this canary's records; others are of earlier ones."""
        stream = LogStream(cluster, part, isolation=fetch.READ_COMMITTED)
        for some in stream.listed():
            for place in some.places:
                key, value = (
                    some.buffer[place[at] : place[at] + place[size]].tobytes()
                    for at, size in (
                        (to_columns.KEY_AT, to_columns.KEY_SIZE),
                        (to_columns.VALUE_AT, to_columns.VALUE_SIZE),
                    )
                )
                if key == self._run:
                    yield int(value)

    @property
    def received(self) -> int:
        """How many different records the group has read."""
        return len(self._read)

    @property
    def lost(self) -> int:
        """How many of the records that were written the group has not read."""
        return sum(number not in self._read for number in range(self.written))

    @property
    def repeated(self) -> int:
        """How many it has read again."""
        return sum(count - 1 for count in self._read.values())


def begin_at_end(cluster: Cluster, topics: Iterable[str]) -> None:
    """Let the group leave out what earlier canaries wrote. Raises as `commit`."""
    there = cluster.topics()
    keys = [(topic, 0) for topic in topics if topic in there]
    ends = topic_admin.offsets_of_all(cluster, keys, timestamp=topic_admin.LATEST)
    commit(cluster, {key: CommittedOffset(end) for key, end in ends.items()})


def commit(cluster: Cluster, places: dict[tuple[str, int], CommittedOffset]) -> None:
    """Set the group's offsets.

    Raises:
        MirrorError: the cluster refuses, as while the group has members.
    """
    refused = group_offsets.commit(cluster, {CANARY: places})
    for answers in refused.values():
        code = next(iter(answers.values()))
        raise MirrorError(
            f"{cluster.alias} refuses to set the offsets of group {CANARY}: "
            f"{codes.name_of(code)}"
        )
