"""A million records under faults: a copy with the source's offsets is the source's log.

Faults come one after the other, in the order of a seed that is printed, or that
MIRROR_TEST_SEED names. Services, workers and brokers of both sides die, sleep and wake
up, brokers are restarted, clocks jump by an hour. No leader is elected uncleanly: of
three replicas two are in sync, and all of these acknowledge.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
import itertools
import os
import random
import time
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
import psutil
import pytest

from tests.harness import strikes
from tests.harness.admin import create_topic, end_offsets
from tests.harness.clocks import (
    HOUR,
    MirrorWithClock,
    broker_clock,
    false_clock,
    set_clock,
    with_clocks,
)
from tests.harness.fault_cells import Lab
from tests.harness.load import NumberedLoad, keys, producer, send
from tests.harness.service import config_for
from tests.harness.suspending import suspended
from tests.harness.waiting import beside, wait_for
from tests.harness.witness import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    import threading

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.full,
    pytest.mark.needs("faults"),
    pytest.mark.timeout(3600),
]

_RECORDS = 1_000_000
_PARTITIONS = 4
_LARGEST = 400
_CHUNK, _MORE = 5000, 50
_SECONDS = 300.0
"""For how long records are sent and faults strike; longer on a slower machine."""
_LASTS_SECONDS = (1.0, 8.0)
"""How long a fault does; leaders are elected after three."""
_PATIENCE_SECONDS = 180.0
_YEARS = 2 * 365 * 86_400.0
_SAID = "cannot have the source's offsets"
"""Words of each report of DIVERGED."""
_FORGETFUL = {"producer.id.expiration.check.interval.ms": "1000"}
"""Leaders forget a producer within a second once its records are older than a day."""


def _strikes(
    rng: random.Random, another: Callable[[], RunningMirror]
) -> dict[str, strikes.Strike]:
    """What may happen, by name. `another`: starts one more service."""

    def one_of(side: str) -> strikes.Choice:
        def choose(lab: Lab) -> tuple[PlaygroundCluster, int]:
            cluster = getattr(lab, side)
            return cluster, rng.choice(cluster.nodes)

        return choose

    found = {
        "workers killed": strikes.workers_killed,
        "service killed": strikes.driver_killed,
        "workers asleep": _workers_asleep,
        "service asleep": _service_asleep(another),
        "service's clock an hour ahead": strikes.clock_set(int(HOUR)),
        "service's clock an hour back": strikes.clock_set(-int(HOUR)),
    }
    for side in ("source", "target"):
        found |= {
            f"{side}'s broker killed": strikes.killed(one_of(side)),
            f"{side}'s broker restarted": strikes.restarted(one_of(side)),
            f"{side}'s broker silent": strikes.silent(one_of(side)),
            f"{side}'s broker an hour ahead": _hour_ahead(one_of(side)),
        }
    return found


@contextmanager
def _workers_asleep(lab: Lab) -> Iterator[None]:
    """Workers sleep until others have written to each of their partitions. As a rule
    Spark has ended them by then.
    """
    with strikes.workers_suspended(lab):
        _goes_on(lab)
        yield


def _service_asleep(another: Callable[[], RunningMirror]) -> strikes.Strike:
    """All processes of a service sleep until another one has written to each partition.
    Then they wake up, workers with what they were about to send.
    """

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        old = lab.mirror
        asleep = old.pids()
        with suspended(asleep):
            lab.mirror = another()
            _goes_on(lab)
            yield
            assert all(map(psutil.pid_exists, asleep))
        _goes_on(lab)
        old.close()

    return strike


def _hour_ahead(choose: strikes.Choice) -> strikes.Strike:
    """A running broker's clock jumps an hour ahead; back, once it is stopped: a node
    whose clock goes back while it runs does not miss its quorum's leader for an hour.
    """

    @contextmanager
    def strike(lab: Lab) -> Iterator[None]:
        assert lab.folder is not None
        cluster, node = choose(lab)
        clock = broker_clock(lab.folder, cluster, node)
        cluster.stop(node)
        cluster.start(node)
        _wait_whole(lab)
        set_clock(clock, int(HOUR))
        try:
            yield
        finally:
            cluster.stop(node)
            set_clock(clock, 0)
            cluster.start(node)

    return strike


def _goes_on(lab: Lab) -> None:
    """Wait until each partition of the copy grows."""
    before = _ends(lab.target, lab.copy)
    wait_for(
        lambda: all(n > before[p] for p, n in _ends(lab.target, lab.copy).items()),
        _PATIENCE_SECONDS,
    )


def _wait_whole(lab: Lab) -> None:
    """Wait until all replicas of all topics are in sync."""

    def is_whole(cluster: PlaygroundCluster) -> bool:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        return all(
            {*part.isrs} == {*part.replicas} and part.leader >= 0
            for topic in admin.list_topics(timeout=30).topics.values()
            for part in topic.partitions.values()
        )

    for cluster in (lab.source, lab.target):
        wait_for(lambda cluster=cluster: is_whole(cluster), _PATIENCE_SECONDS, 0.5)


@pytest.mark.parametrize(
    "ages", [(0.0,), (_YEARS, 0.0)], ids=["today", "two-years-ago-then-today"]
)
def test_a_million_records(
    ages: Sequence[float],
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """Whatever dies, sleeps or has the wrong time: an ordinary client finds each record
    of the source at its partition and offset of the copy, with its key, value, headers
    and timestamp, and no other. Nothing is reported as DIVERGED, before somebody else
    writes to the copy.
    """
    seed = int(os.environ.get("MIRROR_TEST_SEED") or random.randrange(1 << 32))
    print(f"MIRROR_TEST_SEED={seed}")
    rng = random.Random(seed)
    clusters = {
        **make_clusters("a", nodes=3),
        **make_clusters("b", nodes=3, settings=_FORGETFUL),
    }
    a, b = (with_clocks(each, tmp_path) for each in clusters.values())
    create_topic(a.bootstrap, topic_name, _PARTITIONS, retention_ms="-1")
    load = NumberedLoad(
        a.bootstrap, topic_name, _PARTITIONS, seed=seed,
        headers=[("one", b"1"), ("none", None), ("one", b"again")],
    )  # fmt: skip
    config = config_for(
        a.bootstrap, b.bootstrap, topics=[topic_name], tasks=2, offsets="same",
        policy="identity",
    )  # fmt: skip
    clock = false_clock(tmp_path / "clock")
    numbers = itertools.count(1)
    with ExitStack() as stack:

        def begin() -> RunningMirror:
            folder = tmp_path / f"mirror-{next(numbers)}"
            return stack.enter_context(MirrorWithClock(config, folder, clock))

        mirror = begin()
        mirror.wait_running()
        lab = Lab(
            source=a, target=b, alias="A", target_alias="B", topic=topic_name,
            load=load, copy=topic_name, transactional_id="mirror.A->B.0.0",
            mirror=mirror, folder=tmp_path,
        )  # fmt: skip
        struck = _strike_all(lab, ages, rng, _strikes(rng, begin))
        began = time.monotonic()
        wait_for(lambda: _ends(a, topic_name) == _ends(b, topic_name), 600, 1)
        print(f"caught up after {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        found = compare((a.bootstrap, topic_name), (b.bootstrap, topic_name))
        print(
            f"{found.equal} records equal, {len(found.different)} different"
            f" {found.different[:10]}; compared in {time.monotonic() - began:.0f} s;"
            f" {struck.total()} faults: {dict(struck)}; DIVERGED: {_reports(tmp_path)}",
            flush=True,
        )
        assert found.different == []
        assert found.equal >= _RECORDS
        assert _reports(tmp_path) == []
        send(producer(b.bootstrap), topic_name, {0: [b"foreign"]}, b"")
        send(producer(a.bootstrap), topic_name, keys(_PARTITIONS, 1), b"v")
        wait_for(lambda: _reports(tmp_path), _PATIENCE_SECONDS)


def _ends(cluster: PlaygroundCluster, topic: str) -> dict[int, int]:
    return end_offsets(cluster.bootstrap, topic)


def _reports(folder: Path) -> list[str]:
    """The lines of the services' logs that report a copy as DIVERGED."""
    logs = [file.read_text() for file in folder.glob("mirror-*/mirror.log")]
    return [line for log in logs for line in log.splitlines() if _SAID in line]


def _strike_all(
    lab: Lab,
    ages: Sequence[float],
    rng: random.Random,
    named: Mapping[str, strikes.Strike],
) -> Counter[str]:
    """Send the records, those of each age under faults; returns how often each struck.
    Each strikes at each age, and once before any does twice.
    """
    struck = Counter[str]()
    for number, age in enumerate(ages, 1):
        lab.load.age_seconds = age
        until, seconds = number * _RECORDS // len(ages), _SECONDS / len(ages)
        end = time.monotonic() + seconds
        with beside(partial(_send, lab.load, until, end)):
            for count in itertools.count():
                if not count % len(named):
                    order = rng.sample([*named], len(named))
                is_over = time.monotonic() > end and lab.load.total >= until
                if is_over and count >= len(named):
                    break
                name = order[count % len(named)]
                began = time.monotonic()
                with named[name](lab):
                    time.sleep(rng.uniform(*_LASTS_SECONDS))
                _wait_whole(lab)
                _goes_on(lab)
                struck[name] += 1
                print(
                    f"{name}: {time.monotonic() - began:.0f} s,"
                    f" {lab.load.total} records",
                    flush=True,
                )
    return struck


def _send(load: NumberedLoad, until: int, end: float, stop: threading.Event) -> None:
    """Send so evenly that so many are sent at this time, if the brokers take them, and
    some more from then on.
    """
    first, began = load.total, time.monotonic()
    while not stop.wait(0.1):
        share = (time.monotonic() - began) / (end - began)
        if load.total >= until:
            load.send(_MORE, largest=_LARGEST)
        elif load.total + _CHUNK <= first + (until - first) * share:
            load.send(_CHUNK, largest=_LARGEST)
