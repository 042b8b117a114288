"""The hand-written loops are as exact as they claim, so that comparisons are fair."""

from __future__ import annotations

import os
import signal
import time

import pytest

from mirror.playground.brokers import playground
from tests.benchmarks import load, payloads
from tests.benchmarks.bench import PARTITIONS
from tests.benchmarks.peers.known import PEERS
from tests.benchmarks.peers.peer import Task
from tests.benchmarks.target import Target

pytestmark = pytest.mark.bench

_RECORDS = 400_000


@pytest.mark.parametrize("name", ["franz-go", "confluent"])
def test_killed_loop_goes_on(name, tmp_path):
    """A loop that is stopped midway and restarted copies every record once."""
    peer = PEERS[name]
    if reason := peer.missing():
        pytest.skip(reason)
    peer.prepare()
    with playground(("a", "b"), root=tmp_path / "clusters", given=False) as clusters:
        source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
        load.create_topic(source, "events", partitions=PARTITIONS)
        _fill(source)
        task = Task(
            source=source,
            target=target,
            alias="A",
            topic="events",
            compression="zstd",
            folder=tmp_path,
        )
        copy = Target(target, task.target_topic, partitions=PARTITIONS)
        service = peer.start(task)
        _wait_for(copy, 1)
        for pid in service.pids():
            os.kill(pid, signal.SIGKILL)
        service.stop()
        _fill(source)
        service = peer.start(task)
        try:
            _wait_for(copy, 2 * _RECORDS)
            time.sleep(1)
        finally:
            service.stop()

        assert copy.count_records() == 2 * _RECORDS


def _fill(bootstrap: str) -> None:
    load.fill(
        bootstrap,
        "events",
        partitions=PARTITIONS,
        pool=payloads.incompressible(100),
        records=_RECORDS,
    )


def _wait_for(copy: Target, offsets: int) -> None:
    until = time.monotonic() + 60
    while copy.committed_offsets() < offsets:
        assert time.monotonic() < until, f"{copy.committed_offsets()} of {offsets}"
        time.sleep(0.02)
