"""A replayed tail, and a restored topic, beside one slot's copy:
`python -m tests.benchmarks.replaying`.

Slot and replay move the same topic between the same two clusters; the restore brings as
many records of one partition home. All run in this process, one after the other. It
prints each one's rate and CPU seconds, and the ratios.
"""

from __future__ import annotations

from pathlib import Path
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from mirror.playground.brokers import playground
from mirror.proofs.account import Scope
from mirror.proofs.verification import terms_of
from mirror.recovery.tails.settling import TailSettling, settle
from mirror.recovery.tails.tail import Choice, Order, Way
from tests.benchmarks import load, payloads
from tests.benchmarks.target import Target
from tests.harness.admin import delete_topic
from tests.harness.failed_over import Failed
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

_TOPIC, _PARTITIONS = "replaying", 4


def main(records: int = 400_000, record_bytes: int = 1000) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        playground(("a", "b"), root=Path(folder), given=False) as clusters,
    ):
        source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
        load.create_topic(source, _TOPIC, partitions=_PARTITIONS)
        size = load.fill(
            source, _TOPIC, partitions=_PARTITIONS,
            pool=payloads.incompressible(record_bytes), records=records,
        )  # fmt: skip
        copied, replayed = (
            SparklessFlow(
                source=source, target=target, topic=_TOPIC, alias=alias,
                settings={"start": "earliest"},
            )
            for alias in ("copied", "replayed")
        )  # fmt: skip
        copied.own()
        copy = Target(target, copied.copy, partitions=_PARTITIONS)

        def by_slot() -> None:
            with copied.slot() as slot:
                running = RunningLease(slot, copied.lease(120))
                wait_for(lambda: copy.committed_offsets() >= records, timeout=120)
                running.end()

        slot_rate, slot_cpu = _measured("slot", size, by_slot)
        replayed.own()
        config = replayed.config()
        flow = config.flows[replayed.name]
        with replayed.connected() as (one, other):
            settling = TailSettling(
                flow=flow, terms=terms_of(config, flow, one, other, Scope()),
                source=one, target=other,
                order=Order(way=Way.REPLAY, choice=Choice()),
            )  # fmt: skip
            replay = _measured("replay", size, lambda: settle(settling))
        found = Target(target, replayed.copy, partitions=_PARTITIONS).count_records()
        assert found == records
        for what, (rate, cpu) in (
            ("replay", replay),
            ("restore", _restored(clusters, records, record_bytes)),
        ):
            print(
                f"{what}: rate {rate / slot_rate:.2f}x, CPU {cpu / slot_cpu:.2f}x of "
                "the slot's"
            )


def _restored(
    clusters: dict[str, PlaygroundCluster], records: int, record_bytes: int
) -> tuple[float, float]:
    """A topic that is gone from the cluster that is back, after a failover."""
    failed = Failed(clusters, "restoring", policy="identity")
    failed.fail()
    size = load.fill(
        failed.b, failed.topic, partitions=1,
        pool=payloads.incompressible(record_bytes), records=records,
    )  # fmt: skip
    delete_topic(failed.a, failed.topic)
    measured = _measured("restore", size, failed.restore)
    failed.rehearsal.__exit__(None, None, None)
    copy = Target(failed.a, failed.topic, partitions=1)
    assert copy.count_records() == records + 40
    return measured


def _measured(what: str, size: int, act: Callable[[], object]) -> tuple[float, float]:
    begun, used = time.monotonic(), time.process_time()
    act()
    seconds, cpu = time.monotonic() - begun, time.process_time() - used
    print(f"{what}: {size / seconds / 1e6:.1f} MB/s, {cpu:.2f} s of CPU")
    return size / seconds, cpu


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
