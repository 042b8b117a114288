"""A thousand groups of a hundred partitions beside a flow that copies.

What a round of checkpoints costs, as the service itself says, and what copying feels
of it: records carry the moment when they were sent, and brokers of the target
write down when they came, which is held against the times of the rounds.
"""

from __future__ import annotations

from bisect import bisect_left
import contextlib
from dataclasses import dataclass
import itertools
import random
import struct
import threading
import time
from typing import TYPE_CHECKING, Self

from confluent_kafka import Consumer, TopicPartition
import numpy as np
import psutil
import pytest

from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from tests.harness.admin import create_topic, end_offsets
from tests.harness.load import producer
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

GROUPS, PARTITIONS = 1000, 100
_ROUND_SECONDS = 5.0
_PAUSE_SECONDS = 1.0
_EVERY_SECONDS = 10
"""Time for all groups to commit between two rounds, which else share its cores."""
_SENT = struct.Struct(">d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One turn of the job that looks at groups."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@contextlib.contextmanager
def sending(bootstrap: str, topic: str) -> Iterator[None]:
    """A thousand small records a second, over all partitions, until it ends."""
    client = producer(bootstrap, linger_ms=5)
    stop = threading.Event()

    def run() -> None:
        partitions = itertools.cycle(range(PARTITIONS))
        while not stop.wait(0.05):
            sent = _SENT.pack(time.time())
            for _ in range(50):
                client.produce(topic, value=sent, partition=next(partitions))
            client.poll(0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        assert client.flush(60) == 0


def move_groups(
    source: Cluster, topic: str, ends: dict[int, int], share: float
) -> None:
    """Set all groups near this share of each partition, each at a place of its own."""
    chance = random.Random(share)
    offsets = {
        f"group-{number}": {
            (topic, p): CommittedOffset(int(end * (share + 0.1 * chance.random())))
            for p, end in ends.items()
        }
        for number in range(GROUPS)
    }
    assert not group_offsets.commit(source, offsets)


class Rounds:
    """Every turn of the job while it is watched; a context manager."""

    def __init__(self, mirror: RunningMirror) -> None:
        self.seen: dict[float, Round] = {}
        self._mirror = mirror
        self._process = psutil.Process(mirror.pids()[0])
        self._stop = threading.Event()
        self._cpu: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def since(self, moment: float) -> list[Round]:
        """Those that began then or later, and have ended."""
        return [each for _, each in sorted(self.seen.items()) if each.began >= moment]

    def wait(self, moment: float) -> Round:
        """The first one that begins after a moment, once it has ended."""
        wait_for(lambda: self.since(moment))
        return self.since(moment)[0]

    def cpu_seconds(self, each: Round) -> float:
        """What the driver used meanwhile, for this and everything else."""
        moments = [moment for moment, _ in self._cpu]
        first, last = (
            self._cpu[min(bisect_left(moments, moment), len(moments) - 1)][1]
            for moment in (each.began, each.ended)
        )
        return last - first

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            times = self._process.cpu_times()
            self._cpu.append((time.time(), times.user + times.system))
            for job in self._mirror.flow()["jobs"]:
                if job["name"] == "checkpoints" and job["succeeded_at"]:
                    ended = job["succeeded_at"]
                    self.seen[ended] = Round(began=ended - job["seconds"], ended=ended)


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        return [each.offset for each in consumer.committed(places, timeout=30)]
    finally:
        consumer.close()


def test_a_round_is_quick_and_copying_goes_on(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """With 1000 groups of 100 partitions each, all moved, a round of checkpoints that
    also sets their offsets takes less than 5 s of CPU, and copying does not stand still
    meanwhile; the groups end at the right offsets.
    """
    clusters = make_clusters("a", "b")
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    copy = f"A.{topic_name}"
    create_topic(a, topic_name, PARTITIONS)
    create_topic(b, copy, PARTITIONS, message_timestamp_type="LogAppendTime")
    config = config_for(
        a, b, topics=[topic_name], tasks=1, lease_seconds=10,
        sync_topic_configs=False, sync_group_offsets=True,
        emit_checkpoints_seconds=_EVERY_SECONDS,
    )  # fmt: skip
    cluster = Cluster(ClusterConfig(alias="A", bootstrap_servers=(a,)))
    with (
        contextlib.closing(cluster.connect()) as source,
        RunningMirror(config, tmp_path) as mirror,
    ):
        mirror.wait_running()
        with sending(a, topic_name), Rounds(mirror) as rounds:
            time.sleep(6)
            quiet = (time.time() - 5, time.time())
            begins = rounds.wait(time.time()).ended
            for share in (0.3, 0.7):
                move_groups(source, topic_name, end_offsets(a, topic_name), share)
                last = rounds.wait(time.time())
            ends = last.ended
            rounds.wait(ends)
        moved = [each for each in rounds.since(begins) if each.ended <= ends]
        unmoved = rounds.since(ends)
        mirror.wait_copied(a, topic_name)
        assert mirror.flow()["group_count"] == GROUPS
        on_source, on_target = (
            committed(bootstrap, f"group-{GROUPS - 1}", topic)
            for bootstrap, topic in ((a, topic_name), (b, copy))
        )
        assert mirror.terminate() == 0
    sent, came = [], []
    for partition, messages in read_topic(b, copy).items():
        sent += [_SENT.unpack(message.value())[0] for message in messages]
        came += [message.timestamp()[1] / 1000 for message in messages]
        # The copy begins with the first record, so this many stand before a place.
        before = [m for m in messages if m.offset() < on_target[partition]]
        assert len(before) == on_source[partition]
    arrivals = np.array(came)
    delays = arrivals - np.array(sent)
    busy = [(each.began, each.ended) for each in (*moved, *unmoved)]
    cpu = [round(rounds.cpu_seconds(each), 2) for each in (*moved, *unmoved)]
    figures = {
        "rounds with all groups moved, s": [round(each.seconds, 2) for each in moved],
        "rounds with none moved, s": [round(each.seconds, 2) for each in unmoved],
        "CPU of the driver in these, s": cpu,
        "longest gap between records, quiet, ms": _gap(arrivals, [quiet]),
        "longest gap between records, in rounds, ms": _gap(arrivals, busy),
        "largest delay of a record, quiet, ms": _largest(arrivals, delays, [quiet]),
        "largest delay of a record, in rounds, ms": _largest(arrivals, delays, busy),
        "records": len(came),
    }
    for name, value in figures.items():
        record_property(name, value)
        print(f"{name}: {value}")
    assert max(cpu) < _ROUND_SECONDS, figures
    gaps = [_gap(arrivals, [window]) for window in busy]
    assert float(np.median(gaps)) < _PAUSE_SECONDS * 1000 * crowd(), (gaps, figures)


def _gap(arrivals: np.ndarray, windows: list[tuple[float, float]]) -> int:
    """The longest time without any record, in milliseconds."""
    moments = np.unique(arrivals)
    longest = 0.0
    for first, last in windows:
        inside = moments[(moments >= first) & (moments <= last)]
        edges = np.concatenate([[first], inside, [last]])
        longest = max(longest, float(np.diff(edges).max()))
    return round(longest * 1000)


def _largest(
    arrivals: np.ndarray, delays: np.ndarray, windows: list[tuple[float, float]]
) -> int:
    inside = np.zeros(len(arrivals), np.bool_)
    for first, last in windows:
        inside |= (arrivals >= first) & (arrivals <= last)
    return round(float(delays[inside].max()) * 1000)
