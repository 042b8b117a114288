"""What `/metrics` answers."""

from __future__ import annotations

from dataclasses import fields
import json
import re
import time
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families
import pytest

from mirror.copying.tally import latency_bounds
from mirror.host import process_name
from mirror.observing.catalogue import METRICS, MetricType, names
from mirror.observing.exposition import exposition
from mirror.observing.server import StatusServer
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from mirror.status.values import (
    Counts,
    DrillStatus,
    FlowStatus,
    GroupStatus,
    HistogramStatus,
    JobStatus,
    MemberStatus,
    PairStatus,
    PartitionStatus,
    PassiveStatus,
    ResourceStatus,
    RiskStatus,
    SchemaStatus,
    SlotStatus,
    SparkStatus,
    TopicRisk,
    TopicTimes,
)
from tests.harness.statuses import (
    cluster_status,
    partition_status,
    sample,
    show,
    whole,
)

pytestmark = pytest.mark.unit

FLOW = {"source": "A", "target": "B"}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def partition(topic: str, number: int, **changes: Any) -> PartitionStatus:
    return partition_status(topic, number, **{"lag_seconds": 0.0} | changes)


def full_store(**changes: Any) -> StatusStore:
    """A flow that has everything a flow can have."""
    store = StatusStore(("A->B",))
    now = time.time()
    counts = tuple(range(len(latency_bounds(60.0)) + 1))
    times = HistogramStatus(counts=counts, sum_seconds=7.5)
    known: dict[str, Any] = {
        **FLOW,
        "state": FlowState.RUNNING,
        "sla_seconds": 60.0,
        "lease_gap_ms": 80.0,
        "overdue": 0.0,
        "reported_at": now,
        "report_due": now + 20,
        "slot_loads": (whole(SlotStatus, number=0),),
        "bounds": latency_bounds(60.0),
        "times": (
            TopicTimes(
                topic="orders", target_topic="A.orders", latency=times, age=times
            ),
        ),
        "spark": whole(SparkStatus, phases=(("addBatch", 10.0),)),
        "jobs": (whole(JobStatus, name="checkpoints"),),
        "risk": whole(RiskStatus, topics=(whole(TopicRisk, topic="orders"),)),
        "schemas": whole(SchemaStatus, mode="require"),
        "groups": (whole(GroupStatus, group="g", position_at=time.time() - 50),),
        "partitions": (
            partition("orders", 0, records=5, bytes=50, bytes_in=40, lag_seconds=3.0),
            partition(
                *("orders", 1),
                records=7,
                lag=4,
                lag_seconds=9.0,
                state="FAULTED",
                failed={"MESSAGE_SIZE_TOO_LARGE": 1},
                dead_letters=3,
            ),
            partition("events", 0, lag_seconds=-1.0),
        ),
    }
    flow = whole(FlowStatus, name="A->B", **known | changes)
    store.errors.add("a slot", [("B Produce TOPIC_AUTHORIZATION_FAILED", 2)])
    store.update("A->B", lambda _: flow)
    store.pairs = (pair_status(),)
    store.clusters = (cluster_status("A"),)
    store.resources = whole(ResourceStatus)
    return store


def drill_status(at: float, verdict: str) -> DrillStatus:
    return sample(DrillStatus, at=at, verdict=verdict, ratio=0.75)


def pair_status(**changes: Any) -> PairStatus:
    """After a failover from A, which is back and has writers."""
    known: dict[str, Any] = {
        "name": "A<->B",
        "active": "B",
        "epoch": 4,
        "since": 1.0,
        "step": 8,
        "block_seconds": 12.5,
        "fence_owed": "A",
        "passive": PassiveStatus(writes=17, tail=5),
        "members": (MemberStatus(cluster="A", read_at=8.0), MemberStatus(cluster="B")),
        "drills": (drill_status(9.0, "NOT READY"), drill_status(8.0, "READY")),
    }
    return PairStatus(**known | changes)


def scrape(store: StatusStore, *, per_partition: bool = True) -> Samples:
    _, body = exposition(store, per_partition=per_partition)("")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset({**FLOW, **labels}.items())


def test_all_that_is_declared_is_exposed():
    """A flow that has everything has every declared metric, and no others but those of
    the process.
    """
    found = {name for name, _ in scrape(full_store())}

    assert {n for n in found if not n.startswith(("process_", "python_"))} == names()


def test_every_field_of_a_partition_is_shown():
    """Every counter of the status has a metric."""
    shown = scrape(full_store())
    numbers = {
        *(f.name for f in fields(Counts)),
        *("bytes_in", "lag", "lag_seconds"),
    }
    of_partitions = {n for n, labels in shown if "partition" in dict(labels)}

    assert len(of_partitions) == len(numbers)
    # What is not shown as a series of its own, and where it is instead.
    elsewhere = {
        *("topic", "partition", "target_topic", "slot"),  # labels
        *("state", "reason", "since"),  # mirror_partitions; words are for /status
        *("position", "end_offset"),  # their difference is the lag
        *("latency_p50_ms", "latency_p99_ms"),  # the histogram
        "failed",  # mirror_failed_records_total, by topic and reason
    }
    declared = {f.name for f in (*fields(PartitionStatus), *fields(Counts))}
    assert declared - {"counts"} == numbers | elsewhere


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_prometheus(metric):
    """One prefix, base units, _total on counters and on nothing else."""
    assert re.fullmatch(r"mirror_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricType.COUNTER)
    assert not re.search(r"_(ms|milliseconds|kb|mb|percent|count)(_|$)", metric.name)
    assert metric.help.endswith(".")
    if metric.kind is MetricType.HISTOGRAM:
        assert metric.name.endswith("_seconds")


def test_failures_by_reason():
    """Records that failed have a series for each topic and reason, dead letters among
    them; errors have one for each cluster, API and error.
    """
    found = scrape(full_store(), per_partition=False)
    failed = {
        dict(labels)["reason"]: value
        for (name, labels), value in found.items()
        if name == "mirror_failed_records_total"
    }
    errors = {"cluster": "B", "api": "Produce", "error": "TOPIC_AUTHORIZATION_FAILED"}

    assert failed == {"MESSAGE_SIZE_TOO_LARGE": 1, "TRANSFORM": 3}
    assert found["mirror_cluster_errors_total", frozenset(errors.items())] == 2


def test_values():
    """Counters, gauges, states, a histogram and a summary have the status's values."""
    store = full_store()
    shown = scrape(store)

    assert shown[key("mirror_records_total", topic="orders", partition="0")] == 5
    assert shown[key("mirror_read_bytes_total", topic="orders", partition="0")] == 40
    assert shown[key("mirror_lag_seconds", topic="orders", partition="1")] == 9
    assert key("mirror_lag_seconds", topic="events", partition="0") not in shown
    assert shown[key("mirror_flow_lag_seconds")] == 9
    assert shown[key("mirror_flow_within_sla")] == 1
    assert shown[key("mirror_flow_lease_gap_seconds")] == pytest.approx(0.08)
    assert shown[key("mirror_flow_state", state="RUNNING")] == 1
    assert shown[key("mirror_flow_state", state="FAILED")] == 0
    assert shown[key("mirror_partitions", topic="orders", state="FAULTED")] == 1
    assert shown[key("mirror_partitions", topic="events", state="FAULTED")] == 0
    assert shown[key("mirror_topic_info", topic="orders", target_topic="A.orders")] == 1
    took = store.flow("A->B").transactions
    summary = "mirror_transaction_duration_seconds"
    assert shown[key(f"{summary}_count")] == took.committed
    assert shown[key(f"{summary}_sum")] == took.seconds
    [risk] = store.flow("A->B").risk.topics
    unknown = key("mirror_data_at_risk_unknown_partitions", topic="orders")
    assert shown[unknown] == risk.unknown
    age = shown[key("mirror_position_age_seconds", group="g")]
    assert age == pytest.approx(50, abs=20)
    assert shown[key("mirror_job_failing", job_name="checkpoints")] == 1
    assert shown[key("mirror_spark_batch_phase_seconds", phase="addBatch")] == 10

    name = "mirror_replication_latency_seconds"
    ends = latency_bounds(60.0)
    at_sla = ends.index(60.0)
    below = sum(range(at_sla + 1))
    assert shown[key(f"{name}_bucket", topic="orders", le="60.0")] == below
    everything = sum(range(len(ends) + 1))
    assert shown[key(f"{name}_bucket", topic="orders", le="+Inf")] == everything
    assert shown[key(f"{name}_count", topic="orders")] == everything
    assert shown[key(f"{name}_sum", topic="orders")] == 7.5


def test_values_of_pairs():
    """Roles, steps, blocks and debts by pair and cluster; what is not known has no
    value.
    """
    store = full_store()
    shown = scrape(store)

    def of(name: str, **labels: str) -> float | None:
        return shown.get((name, frozenset({"pair": "A<->B", **labels}.items())))

    assert of("mirror_active", cluster="A") == 0
    assert of("mirror_active", cluster="B") == 1
    assert of("mirror_pair_epoch") == 4
    assert of("mirror_journal_read_timestamp_seconds", cluster="A") == 8
    assert of("mirror_journal_read_timestamp_seconds", cluster="B") is None
    assert of("mirror_switch_step") == 8
    assert of("mirror_switch_block_seconds") == 12.5
    assert of("mirror_fence_owed", cluster="A") == 1
    assert of("mirror_fence_owed", cluster="B") == 0
    assert of("mirror_writes_on_passive_records_total", cluster="A") == 17
    assert of("mirror_writes_on_passive_records_total", cluster="B") is None
    assert of("mirror_tail_records", cluster="A") == 5
    assert of("mirror_tail_records", cluster="B") is None

    assert of("mirror_readiness", state="NOT_READY") == 1
    assert of("mirror_readiness", state="READY") == 0
    assert of("mirror_readiness_ratio") == 0.75
    assert of("mirror_drill_timestamp_seconds") == 9

    store.pairs = (
        pair_status(block_seconds=-1.0, passive=PassiveStatus(), drilled=False),
    )
    shown = scrape(store)
    assert of("mirror_switch_block_seconds") is None
    assert of("mirror_drill_timestamp_seconds") is None
    assert of("mirror_writes_on_passive_records_total", cluster="A") is None
    assert of("mirror_tail_records", cluster="A") is None


def test_per_topic():
    """With `metrics_per: topic`, topics have the sums and the largest lag, and no
    series has a partition.
    """
    shown = scrape(full_store(), per_partition=False)

    assert shown[key("mirror_records_total", topic="orders")] == 12
    assert shown[key("mirror_lag_records", topic="orders")] == 4
    assert shown[key("mirror_lag_seconds", topic="orders")] == 9
    assert not any("partition" in dict(labels) for _, labels in shown)
    assert {name for name, _ in shown} == {name for name, _ in scrape(full_store())}


def test_a_topic_that_is_gone_has_no_series():
    """This holds for its partitions and for its times."""
    store = full_store()
    assert any(dict(labels).get("topic") == "orders" for _, labels in scrape(store))

    gone: Any = {"partitions": (partition("events", 0),), "times": ()}
    show(store, "A->B", **gone, risk=RiskStatus())

    assert {dict(labels).get("topic") for _, labels in scrape(store)} == {
        None,
        "events",
    }


@pytest.mark.parametrize(
    ("changes", "within"),
    [
        ({"sla_seconds": 9.0}, 1),
        ({"sla_seconds": 8.9}, 0),
        ({"state": FlowState.STOPPED}, None),
        ({"partitions": (partition("t", 0, state="PAUSED", lag_seconds=99.0),)}, None),
        (
            {
                "partitions": (
                    partition("t", 0, state="PAUSED", lag_seconds=99.0),
                    partition("t", 1, lag_seconds=1.0),
                )
            },
            1,
        ),
        ({"reported_at": 0.0, "state": FlowState.STARTING}, None),
        ({"reported_at": 0.0, "state": FlowState.RETRYING}, 0),
        ({"reported_at": 1.0, "state": FlowState.RETRYING}, 0),
    ],
)
def test_within_the_sla(changes: dict[str, Any], within: int | None) -> None:
    """A lag equal to the SLA is within it; a flow that is down is not, once a report
    was due; a flow stopped on purpose has no value.
    """
    assert scrape(full_store(**changes)).get(key("mirror_flow_within_sla")) == within


def test_resources():
    """What the JVM, a slot and the container use is there with its limit, and has no
    value while it is not known.
    """
    store = full_store()
    shown = scrape(store)
    of_service = {name: value for (name, labels), value in shown.items() if not labels}

    jvm, [slot] = store.resources.jvm, store.flow("A->B").slot_loads
    assert of_service["mirror_jvm_heap_bytes"] == jvm.heap_bytes
    assert of_service["mirror_jvm_gc_seconds_total"] == jvm.gc_seconds
    assert of_service["mirror_jvm_open_files_limit"] == jvm.open_files_limit
    assert of_service["mirror_memory_bytes"] == store.resources.memory_bytes
    assert shown[key("mirror_slot_memory_bytes", slot="0")] == slot.memory_bytes
    limit = shown[key("mirror_slot_open_files_limit", slot="0")]
    assert limit == slot.open_files_limit
    store.resources = ResourceStatus()
    assert not {
        name
        for name, _ in scrape(store)
        if name.startswith(("mirror_jvm_", "mirror_memory_"))
    }


def test_odd_topic_names_survive():
    """Kafka allows dots, dashes and underscores; escaping works for more."""
    odd = 'a"b\\c'
    shown = scrape(full_store(partitions=(partition(odd, 0, records=3),), times=()))

    assert shown[key("mirror_records_total", topic=odd, partition="0")] == 3


def test_a_flow_that_only_begins_has_metrics():
    """A scrape may come before anything is known."""
    shown = scrape(StatusStore(("A->B",)))

    assert any(name == "mirror_flow_state" for name, _ in shown)


def get(url: str, **headers: str) -> tuple[int, str, str]:
    try:
        with urlopen(Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_metrics_over_http():
    """Prometheus gets the format that it asks for, old and new."""
    with StatusServer(full_store(), "127.0.0.1", 0) as server:
        url = f"{server.url}/metrics"
        code, kind, text = get(url)
        assert (code, kind.partition(";")[0]) == (200, "text/plain")
        assert "# TYPE mirror_records_total counter" in text
        code, kind, text = get(url, Accept="application/openmetrics-text;version=1.0.0")
        assert (code, kind.partition(";")[0]) == (200, "application/openmetrics-text")
        assert any(f.name == "mirror_records" for f in openmetrics(text))


def test_health_over_http():
    """The service is alive unless a lease is long overdue or the main loop hangs; a
    stuck one is not ready either, one whose flow fails is.
    """
    store = full_store()
    with StatusServer(store, "127.0.0.1", 0) as server:
        assert get(f"{server.url}/healthz")[0] == 200
        assert get(f"{server.url}/readyz")[0] == 200
        show(store, "A->B", report_due=time.time() - 100)
        code, _, text = get(f"{server.url}/healthz")
        assert code == 503
        assert "A->B" in json.loads(text)["reason"]
        assert get(f"{server.url}/readyz")[0] == 503
        show(store, "A->B", state=FlowState.RETRYING, reason="no broker")
        assert get(f"{server.url}/healthz")[0] == 200
        assert get(f"{server.url}/readyz")[0] == 200
        assert get(f"{server.url}/nothing")[0] == 404


@pytest.mark.parametrize(
    ("state", "leader", "ready"),
    [
        (FlowState.STARTING, "", False),
        (FlowState.STARTING, "another:1", False),
        (FlowState.STARTING, "this one", True),
        (FlowState.RETRYING, "this one", True),
        (FlowState.RETRYING, "", True),
        (FlowState.RUNNING, "this one", True),
        (FlowState.STANDBY, "another:1", True),
        (FlowState.RESTING, "another:1", True),
        (FlowState.STOPPED, "this one", False),
    ],
)
def test_ready_is_a_process_that_leads_or_could(
    state: FlowState, leader: str, *, ready: bool
) -> None:
    """An instance is ready when it leads its flow, whatever the flow's clusters do, or
    could take it over at once; not while its slots start, nor after a stop.
    """
    leader = process_name() if leader == "this one" else leader
    store = full_store(state=state, leader=leader)
    with StatusServer(store, "127.0.0.1", 0) as server:
        code, _, text = get(f"{server.url}/readyz")

    assert code == (200 if ready else 503)
    assert json.loads(text)["ready"] is ready
