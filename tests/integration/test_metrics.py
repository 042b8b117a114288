"""What a running service exposes, compared with brokers and records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
import psutil
import pytest

from tests.harness.admin import create_topic, delete_topic
from tests.harness.load import producer
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import eventually

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror

pytestmark = pytest.mark.integration

_OF_LIMITED = ("_bytes", "_limit_bytes")

Samples = dict[str, list[tuple[dict[str, str], float]]]


def scrape(mirror: RunningMirror) -> Samples:
    with urlopen(f"{mirror.url}/metrics", timeout=30 * crowd()) as answer:
        text = answer.read().decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(samples: Samples, name: str, **labels: str) -> float | None:
    """The sum of the series that have these labels; None if there is none."""
    found = [
        number for own, number in samples.get(name, ()) if labels.items() <= own.items()
    ]
    return sum(found) if found else None


def test_metrics_of_a_topic(
    clusters: dict[str, PlaygroundCluster],
    shared_mirror: RunningMirror,
    shared_topic: str,
) -> None:
    """Records, bytes, latencies and lags of a topic are exactly those that were sent;
    Spark's own progress is there; a deleted topic's series disappear.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, shared_topic, 2)
    client = producer(source, linger_ms=0)
    for number in range(300):
        client.produce(shared_topic, b"v" * 1000, partition=number % 2)
    assert client.flush(30) == 0
    eventually(target, f"A.{shared_topic}", 300)

    here: dict[str, Any] = {"source": "A", "target": "B", "topic": shared_topic}
    shown: Samples = {}

    def copied() -> bool:
        shown.clear()
        shown.update(scrape(shared_mirror))
        return (
            value(shown, "mirror_records_total", topic=shared_topic) == 300
            and value(shown, "mirror_lag_records", **here) == 0
            and value(shown, "mirror_lag_seconds", **here) == 0
            and value(shown, "mirror_flow_within_sla", source="A") == 1
        )

    wait_for(copied, pause=0.3)
    read, written = (
        value(shown, f"mirror_{way}_bytes_total", **here) or 0
        for way in ("read", "written")
    )
    takeovers = value(shown, "mirror_takeovers_total") or 0
    assert 300_000 < written < 400_000
    assert 300_000 < read < 400_000 * takeovers  # what is read again counts again
    for name in ("mirror_replication_latency_seconds", "mirror_record_age_seconds"):
        assert value(shown, f"{name}_count", **here) == 300
        assert value(shown, f"{name}_bucket", le="60.0", **here) == 300
    assert value(shown, "mirror_partitions", state="FAULTED", **here) == 0
    copy = {"target_topic": f"A.{shared_topic}"}
    assert value(shown, "mirror_topic_info", **here, **copy) == 1
    assert (value(shown, "mirror_transaction_duration_seconds_count") or 0) > 0

    def batches() -> float:
        return (
            value(scrape(shared_mirror), "mirror_spark_batches_total", source="A") or 0
        )

    wait_for(lambda: batches() > 0)
    phase = value(
        scrape(shared_mirror),
        "mirror_spark_batch_phase_seconds",
        phase="triggerExecution",
        source="A",
    )
    assert phase is not None
    assert 0 < phase < 60 * crowd()

    delete_topic(source, shared_topic)
    wait_for(lambda: shared_topic not in str(scrape(shared_mirror)), pause=0.5)


def test_resources_are_those_of_the_processes(
    clusters: dict[str, PlaygroundCluster],
    shared_mirror: RunningMirror,
    shared_topic: str,
) -> None:
    """The JVM's and the slots' memory and open files are what the system counts for
    these processes; the heap is within its limit.
    """
    create_topic(clusters["a"].bootstrap, shared_topic, 2)
    limited = {"mirror_jvm_heap", "mirror_memory"}

    def there() -> bool:
        shown = scrape(shared_mirror)
        return len(shown.get("mirror_slot_memory_bytes", ())) == 2 and all(
            value(shown, f"{name}_bytes") for name in limited
        )

    wait_for(there, pause=0.5)
    processes = [psutil.Process(pid) for pid in shared_mirror.pids()]
    [jvm] = [each for each in processes if each.name() == "java"]
    workers = [psutil.Process(pid) for pid in shared_mirror.worker_pids()]

    def as_counted() -> bool:
        """What is shown is as of the last lease's end; the JVM grows at first."""
        now = scrape(shared_mirror)
        memory, files = (
            value(now, f"mirror_jvm_{name}") or 0
            for name in ("memory_bytes", "open_files")
        )
        return (
            0.7 < memory / jvm.memory_info().rss < 1.3
            and abs(files - jvm.num_fds()) <= 40
        )

    wait_for(as_counted, pause=0.5)
    shown = scrape(shared_mirror)

    for name in limited:
        used, limit = (value(shown, f"{name}{end}") for end in _OF_LIMITED)
        assert used is not None
        assert limit is not None
        assert 0 < used < limit
    cpu, spent = jvm.cpu_times(), value(shown, "mirror_jvm_cpu_seconds_total")
    assert spent is not None
    assert cpu.user + cpu.system - 30 * crowd() < spent <= cpu.user + cpu.system
    collecting = value(shown, "mirror_jvm_gc_seconds_total")
    assert collecting is not None
    assert 0 <= collecting < time.time() - jvm.create_time()
    assert (
        value(shown, "mirror_jvm_open_files_limit")
        == jvm.rlimit(psutil.RLIMIT_NOFILE)[0]
    )

    def alike() -> bool:
        """Workers grow at first, too."""
        memory = [size for _, size in scrape(shared_mirror)["mirror_slot_memory_bytes"]]
        sizes = [each.memory_info().rss for each in workers]
        return min(sizes) * 0.7 < min(memory) <= max(memory) < max(sizes) * 1.3

    wait_for(alike, pause=0.5)
    most = max(each.num_fds() for each in workers)
    for _, files in shown["mirror_slot_open_files"]:
        assert 0 < files <= most + 10


def test_a_refused_record_makes_its_partition_late(
    clusters: dict[str, PlaygroundCluster],
    shared_mirror: RunningMirror,
    shared_topic: str,
) -> None:
    """The lag in seconds of a partition that is set aside is the age of the record that
    waits, and grows with it; its neighbour has none.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(target, f"A.{shared_topic}", 2, max_message_bytes="10000")
    create_topic(source, shared_topic, 2)
    client = producer(source)
    sent = time.time()
    client.produce(shared_topic, b"x" * 20_000, partition=0)
    client.produce(shared_topic, b"x", partition=1)
    assert client.flush(30) == 0

    def late(partition: str) -> float | None:
        return value(
            scrape(shared_mirror),
            "mirror_lag_seconds",
            topic=shared_topic,
            partition=partition,
        )

    wait_for(lambda: (late("0") or 0) > 4, pause=0.3)
    assert (late("0") or 0) <= time.time() - sent
    wait_for(lambda: (late("0") or 0) > 8, pause=0.3)
    assert (late("0") or 0) <= time.time() - sent
    wait_for(lambda: late("1") == 0, pause=0.3)
    faulted: dict[str, Any] = {"topic": shared_topic, "state": "FAULTED"}
    wait_for(
        lambda: value(scrape(shared_mirror), "mirror_partitions", **faulted) == 1,
        pause=0.3,
    )
