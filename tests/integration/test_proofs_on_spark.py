"""What a running service proves of its copies, on Spark, beside its leases."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
import urllib.request

import psutil
import pytest

from tests.harness import segments
from tests.harness.admin import create_topic
from tests.harness.load import NumberedLoad, producer
from tests.harness.service import RunningMirror, config_for, is_worker
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.waiting import PATIENCE_SECONDS, wait_for
from tests.harness.witness import Witness, assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.segments import StoredBatch

pytestmark = pytest.mark.integration

_TOPIC, _FAULTY = "orders", 20
_OLD = 60


def _flipped(batches: list[StoredBatch]) -> list[StoredBatch]:
    for each in batches:
        for record in each.records:
            if record.offset == _FAULTY:
                assert record.value
                record.value = bytes([record.value[0] ^ 1]) + record.value[1:]
    return batches


def _copied_with_a_fault(made: dict[str, PlaygroundCluster]) -> None:
    """Records that an earlier service copied, one of them changed in the copy since."""
    a, b = made["a"], made["b"]
    create_topic(a.bootstrap, _TOPIC, partitions=2)
    flow = SparklessFlow(
        source=a.bootstrap, target=b.bootstrap, topic=_TOPIC, alias="A"
    ).own()
    client = producer(a.bootstrap)
    for number in range(_OLD):
        client.produce(
            _TOPIC, key=b"old:%d" % number, value=b"v%d" % number, partition=0
        )
    assert client.flush(30) == 0
    with Witness(b.bootstrap) as witness, flow.slot() as slot:
        witness.begin(flow.copy)
        copy_until(witness, slot, flow.lease(60), count=_OLD, timeout=60)
    b.stop()
    segments.rewrite(b, f"A.{_TOPIC}", _flipped)
    b.start()


def _proving(mirror: RunningMirror) -> list[int]:
    """The processes in which ranges are compared."""
    found = []
    for pid in mirror.worker_pids():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if is_worker(process) and process.nice() > 0:
                found.append(pid)
    return found


def _metric(mirror: RunningMirror, name: str) -> float:
    with urllib.request.urlopen(
        f"{mirror.url}/metrics", timeout=PATIENCE_SECONDS
    ) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(each.split()[-1]) for each in lines if each.startswith(name))


def _told(mirror: RunningMirror) -> bytes:
    """The events that copies differ."""
    asked = f"{mirror.url}/events?kind=copy-differs"
    with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
        return bytes(answer.read())


@pytest.mark.full
def test_copies_are_proven_while_the_service_copies(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]], tmp_path: Path
) -> None:
    """A fault in an old copy is found soon, as an event, a metric and in the status;
    everything that is copied meanwhile is found equal. The process that compares gets
    SIGKILL: only its range is compared again, and no lease fails.
    """
    made = make_clusters()
    _copied_with_a_fault(made)
    a, b = made["a"].bootstrap, made["b"].bootstrap
    config = config_for(a, b, topics=[_TOPIC], tasks=1, verify="new", verify_share=20)
    load = NumberedLoad(a, _TOPIC, 2)
    with RunningMirror(config, tmp_path) as mirror:
        with load.streaming():
            status = mirror.wait_until(lambda d: d["flows"][0]["verify"]["findings"])
            (found,) = status["flows"][0]["verify"]["shown"]
            assert (found["kind"], found["source"], found["target"]) == (
                *("DIFFERENT", _FAULTY, _FAULTY),
            )
            assert _metric(mirror, "mirror_verify_findings") == 1
            wait_for(
                lambda: b"DIFFERENT, 1 at offset 20 on the source" in _told(mirror)
            )

            pids: list[int] = []
            wait_for(lambda: pids.extend(_proving(mirror)) or pids)
            (pid,) = pids
            psutil.Process(pid).kill()
            before = mirror.flow()["verify"]["proven_at"]
            mirror.wait_until(lambda d: d["flows"][0]["verify"]["proven_at"] > before)
            assert _proving(mirror) != [pid]
        mirror.wait_copied(a, _TOPIC)
        total = _OLD + load.total
        mirror.wait_until(
            lambda d: d["flows"][0]["verify"]["records"]["equal"] == total - 1
        )
        mirror.assert_never_failed()
        verify = mirror.flow()["verify"]
        assert (verify["findings"], verify["share"]) == (1, 1.0)
        assert mirror.terminate() == 0
    expected = {p: list(keys) for p, keys in load.order.items()}
    expected[0] = [b"old:%d" % number for number in range(_OLD)] + expected[0]
    assert_exactly_once(order_of(b, f"A.{_TOPIC}"), expected)
