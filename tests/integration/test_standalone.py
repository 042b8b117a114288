"""On a Spark cluster of two executors, submitted as users submit it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
import itertools
import time
from typing import TYPE_CHECKING
import uuid

import psutil
import pytest

from tests.harness.admin import copied_records, create_topic
from tests.harness.load import NumberedLoad
from tests.harness.service import config_for
from tests.harness.standalone import Standalone, SubmittedMirror
from tests.harness.suspending import suspended
from tests.harness.waiting import beside, wait_for
from tests.harness.witness import assert_exactly_once, keys_of, order_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    import threading

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 4
_RECOVERY_SECONDS = 40.0
"""Some 10 s on a machine with nothing else to do."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.mark.full
def test_fewer_cores_than_slots(
    clusters: dict[str, PlaygroundCluster],
    spark: Standalone,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """Two slots on one core take turns, with a warning: everything is copied, and no
    lease is overdue. The task that proves copies takes no core from them, and says so.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    load = NumberedLoad(source, topic_name, _PARTITIONS)
    load.send(1000)
    config = config_for(
        source, target, topics=[topic_name], tasks=2, lease_seconds=30, verify="new"
    )
    with SubmittedMirror(config, tmp_path, spark, executors=1) as mirror:
        mirror.wait_copied(source, topic_name, timeout=120)
        first = mirror.flow()["leases"]
        load.send(1000)
        mirror.wait_copied(source, topic_name)
        mirror.wait_until(lambda d: d["flows"][0]["leases"] > max(first, 7) + 1)
        mirror.assert_never_failed()
        mirror.wait_until(
            lambda d: "no core is free" in d["flows"][0]["verify"]["waiting"]
        )
        assert mirror.flow()["verify"]["read_bytes"] == 0
        assert mirror.terminate() == 0
        assert "fewer cores than slots" in mirror.log.read_text()
    assert_exactly_once(order_of(target, f"A.{topic_name}"), load.order)


@pytest.mark.full
def test_proofs_run_where_no_slot_does(
    clusters: dict[str, PlaygroundCluster],
    spark: Standalone,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """With a slot on one executor, copies are proven on the other one: the slot stays
    in its process, and no lease fails.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    load = NumberedLoad(source, topic_name, _PARTITIONS)
    config = config_for(
        source, target, topics=[topic_name], tasks=1, verify="new", verify_share=20
    )
    with SubmittedMirror(config, tmp_path, spark) as mirror:
        with load.streaming():
            mirror.wait_until(
                lambda d: d["flows"][0]["verify"]["records"].get("equal"),
                timeout=120,
            )
            # Processes are started before it is known which executor is whose. One that
            # is not used ends after a minute.
            found: list[list[tuple[str, int]]] = []

            def one_of_each() -> bool:
                found[:] = _at_work(spark)
                return [*map(len, found)] == [1, 1]

            wait_for(one_of_each)
            ((slot, before),), ((elsewhere, _),) = found
            assert slot != elsewhere
            leases = mirror.flow()["leases"]
            mirror.wait_until(lambda d: d["flows"][0]["leases"] > leases + 3)
        mirror.wait_copied(source, topic_name)
        mirror.wait_until(
            lambda d: d["flows"][0]["verify"]["records"]["equal"] == load.total
        )
        assert before in spark.relay_workers()[slot]
        flow = mirror.flow()
        assert (flow["restarts"], flow["verify"]["findings"]) == (0, 0)
        assert flow["transactions"]["takeovers"] == 1
        assert mirror.terminate() == 0


def _at_work(spark: Standalone) -> tuple[list[tuple[str, int]], ...]:
    """Executors and pids of what copies, and of what proves copies."""
    slots, proofs = [], []
    for where, pids in spark.relay_workers().items():
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                nice = psutil.Process(pid).nice()
                (proofs if nice else slots).append((where, pid))
    return slots, proofs


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """A service on both executors, and the load of its flow A->B."""

    mirror: SubmittedMirror
    load: NumberedLoad
    source: str
    target: str
    topic: str

    @property
    def copy(self) -> str:
        return f"A.{self.topic}"

    def into_a_lease(self) -> None:
        """Wait until a lease has begun and copies."""
        leases = self.mirror.flow()["leases"]
        self.mirror.wait_until(lambda d: d["flows"][0]["leases"] > leases)
        before = copied_records(self.target, self.copy)
        wait_for(lambda: copied_records(self.target, self.copy) > before)

    def assert_complete(self) -> None:
        """Every record is there once, with the value that the function gives it."""
        self.mirror.wait_copied(self.source, self.topic)
        found = read_topic(self.target, self.copy)
        assert_exactly_once(keys_of(found), self.load.order)
        values = {m.value() for messages in found.values() for m in messages}
        assert values == {self.topic.encode()}


@pytest.fixture(scope="module")
def submitted(
    clusters: dict[str, PlaygroundCluster],
    spark: Standalone,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Submitted]:
    """The tests below are its life, from the start to SIGTERM."""
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    topic = f"submitted-{uuid.uuid4().hex[:8]}"
    create_topic(source, topic, _PARTITIONS)
    folder = tmp_path_factory.mktemp("submitted")
    module = folder / "elsewhere" / "masks_that_are_submitted.py"
    module.parent.mkdir()
    module.write_text(
        "def shorter(batch):\n"
        "    return batch.set_column(5, 'value', batch['topic'].cast('binary'))\n"
    )
    config = config_for(
        source,
        target,
        topics=[topic],
        tasks=2,
        lease_seconds=5,
        transform="masks_that_are_submitted:shorter",
    )
    with SubmittedMirror(
        config, folder / "run", spark, further=["--py-files", str(module)]
    ) as mirror:
        yield Submitted(
            mirror=mirror,
            load=NumberedLoad(source, topic, _PARTITIONS),
            source=source,
            target=target,
            topic=topic,
        )


def test_slots_run_on_both_executors(spark: Standalone, submitted: Submitted) -> None:
    """A flow of two slots works on both executors, lease after lease in the same two
    processes. The driver, which would refuse to start without it, and both workers find
    a function that `--py-files` brings.
    """
    mirror = submitted.mirror
    mirror.wait_running()
    with submitted.load.streaming():
        # One slot's lease may end before the other one's process is there.
        workers: dict[str, list[int]] = {}

        def both() -> bool:
            workers.clear()
            workers.update(spark.relay_workers())
            return sorted(map(len, workers.values())) == [1, 1]

        wait_for(both)
        first = mirror.flow()["leases"]
        mirror.wait_until(
            lambda d: (
                d["flows"][0]["leases"] > first + 6
                and all(
                    slot["records_per_second"] > 0
                    for slot in d["flows"][0]["slot_loads"]
                )
            )
        )
        assert spark.relay_workers() == workers
    mirror.assert_never_failed()
    assert "fewer cores than slots" not in mirror.log.read_text()
    submitted.assert_complete()


@pytest.mark.full
def test_executor_and_worker_are_killed(
    spark: Standalone, submitted: Submitted
) -> None:
    """An executor is killed in the middle of a lease under load, and later the Python
    workers of its successor: nothing is lost, repeated or out of order, and soon both
    executors work again.
    """
    mirror = submitted.mirror
    mirror.wait_until(lambda d: d["flows"][0]["leases"] > 6)

    def kill(*pids: int) -> float:
        """Returns the seconds until a lease in which both executors copied."""
        before = mirror.flow()["restarts"]
        for pid in pids:
            psutil.Process(pid).kill()
        began = time.monotonic()

        def recovered() -> bool:
            flow, workers = mirror.flow(), spark.relay_workers()
            return (
                flow["restarts"] > before
                and [slot["records_per_second"] > 0 for slot in flow["slot_loads"]]
                == [True, True]
                and len(workers) == 2
                and all(workers.values())
            )

        wait_for(recovered, _RECOVERY_SECONDS)
        return time.monotonic() - began

    with submitted.load.streaming():
        submitted.into_a_lease()
        seconds = [kill(spark.executors()["worker-0"])]
        # Between short leases, as at the start, a dead worker is just replaced.
        mirror.wait_until(lambda d: d["flows"][0]["leases"] > 6)
        submitted.into_a_lease()
        seconds.append(kill(*spark.relay_workers()["worker-0"]))
    print("both copy again after", seconds)
    submitted.assert_complete()


@pytest.mark.full
def test_an_executor_is_suspended(spark: Standalone, submitted: Submitted) -> None:
    """An executor and its Python workers stand still in the middle of a lease under
    load, until the flow has begun another run, and wake up beside it: nothing is lost,
    repeated or out of order, and both slots copy again.
    """
    mirror = submitted.mirror
    with submitted.load.streaming():
        submitted.into_a_lease()
        before = mirror.flow()["restarts"]
        executor = spark.executors()["worker-0"]
        with suspended([executor, *spark.relay_workers()["worker-0"]]):
            mirror.wait_until(lambda d: d["flows"][0]["restarts"] > before)
        mirror.wait_until(
            lambda d: (
                [s["records_per_second"] > 0 for s in d["flows"][0]["slot_loads"]]
                == [True, True]
            )
        )
    submitted.assert_complete()


@pytest.mark.full
def test_sigterm_and_another_start(submitted: Submitted) -> None:
    """On SIGTERM to spark-submit under load it finishes its transactions and exits with
    0; started again, it goes on where it was stopped, and catches up.
    """
    mirror, load = submitted.mirror, submitted.load
    before = copied_records(submitted.target, submitted.copy)
    with load.streaming():
        wait_for(lambda: copied_records(submitted.target, submitted.copy) > before)
        assert mirror.terminate() == 0
    found = order_of(submitted.target, submitted.copy)
    assert found == {p: load.order[p][: len(keys)] for p, keys in found.items()}
    mirror.start()
    submitted.assert_complete()
    assert mirror.terminate() == 0


@pytest.mark.full
def test_workers_are_replaced(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Both workers are decommissioned under load, one after the other, and others join:
    slots go on elsewhere at their next lease, no run of the flow fails, and every
    record is there once.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    load = NumberedLoad(source, topic_name, _PARTITIONS)
    config = config_for(source, target, topics=[topic_name], tasks=2, lease_seconds=5)
    with (
        Standalone(tmp_path) as spark,
        SubmittedMirror(config, tmp_path / "run", spark) as mirror,
    ):
        mirror.wait_running()
        copied_at: list[float] = []
        with load.streaming(), beside(_watch(target, f"A.{topic_name}", copied_at)):
            for leaves in ("worker-0", "worker-1"):
                leases = mirror.flow()["leases"]
                mirror.wait_until(lambda d, n=leases: d["flows"][0]["leases"] > n + 2)
                spark.decommission(leaves)
                wait_for(lambda gone=leaves: gone not in spark.executors())
                joins = spark.add_worker()
                wait_for(lambda new=joins: spark.relay_workers().get(new))
        mirror.wait_copied(source, topic_name)
        mirror.assert_never_failed()
        assert mirror.terminate() == 0
    pauses = [later - at for at, later in itertools.pairwise(copied_at)]
    print("the longest pauses, in seconds", sorted(pauses)[-5:])
    assert_exactly_once(order_of(target, f"A.{topic_name}"), load.order)


def _watch(
    bootstrap: str, topic: str, found: list[float]
) -> Callable[[threading.Event], None]:
    """Notes when records were copied."""

    def watch(stop: threading.Event) -> None:
        before = 0
        while not stop.wait(0.05):
            if (now := copied_records(bootstrap, topic)) > before:
                before = now
                found.append(time.monotonic())

    return watch
