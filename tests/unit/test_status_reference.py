"""The page of `/status` has every field that the service answers with, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.status import reference
from mirror.status.states import FlowState, PartitionState, SchemaState
from mirror.status.values import (
    ClusterStatus,
    ConfigDrift,
    DrillStatus,
    ErrorStatus,
    FindingStatus,
    FlowStatus,
    GroupStatus,
    HistogramStatus,
    JobStatus,
    JvmStatus,
    MemberStatus,
    PairStatus,
    PartitionRisk,
    PartitionStatus,
    ResourceStatus,
    RiskStatus,
    RunStatus,
    SchemaStatus,
    ServiceStatus,
    SlotStatus,
    SubjectStatus,
    TopicDrift,
    TopicRisk,
    TopicTimes,
    VerifyStatus,
)

pytestmark = pytest.mark.unit

_PARTITION = PartitionStatus(
    topic="t", partition=0, target_topic="A.t", slot=0, state=PartitionState.RUNNING,
    reason="", since=0, position=0, end_offset=0, lag=0, latency_p50_ms=0,
    latency_p99_ms=0,
)  # fmt: skip
_GROUP = GroupStatus(
    group="g", type="consumer", partitions=1, source_offset=0, target_offset=0,
    behind=0, unknown=0, exactness="EXACT", active_on_target=False, reason="",
)  # fmt: skip
_FLOW = FlowStatus(
    name="A->B",
    state=FlowState.RUNNING,
    slot_loads=(
        SlotStatus(
            number=0, partitions=1, busy=0, records_per_second=0, bytes_per_second=0
        ),
    ),
    times=(
        TopicTimes(
            topic="t",
            target_topic="A.t",
            latency=HistogramStatus(),
            age=HistogramStatus(),
        ),
    ),
    drift=(
        TopicDrift(
            topic="t",
            target_topic="A.t",
            partitions=1,
            target_partitions=1,
            configs=(ConfigDrift(name="x", wanted=None, found="1"),),
        ),
    ),
    jobs=(JobStatus(name="checkpoints"),),
    risk=RiskStatus(
        topics=(TopicRisk(topic="t", records=0, bytes=0, seconds=0),),
        partitions=(
            PartitionRisk(topic="t", partition=0, records=0, bytes=0, seconds=0, at=0),
        ),
    ),
    verify=VerifyStatus(
        shown=(
            FindingStatus(
                kind="MISSING", topic="t", partition=0, source=0, target_topic="A.t",
                target=None, count=1, detail="", found_at=0,
            ),
        )
    ),
    groups=(_GROUP,),
    schemas=SchemaStatus(
        subjects=(
            SubjectStatus(
                subject="s", state=SchemaState.SYNCED, reason="", versions=1, there=1
            ),
        )
    ),
    partitions=(_PARTITION,),
)  # fmt: skip
_PAIR = PairStatus(
    name="A<->B",
    active="A",
    epoch=1,
    since=0,
    runs=(RunStatus(name="1", text="", began=0, by=""),),
    drills=(
        DrillStatus(
            source="A", target="B", at=0, by="", verdict="READY", text="", ratio=1
        ),
    ),
    members=(MemberStatus(cluster="A"),),
)
_JVM = JvmStatus(
    heap_bytes=0, heap_limit_bytes=0, gc_seconds=0, cpu_seconds=0, memory_bytes=0,
    open_files=0, open_files_limit=0,
)  # fmt: skip
WHOLE = ServiceStatus(
    started=0,
    flows=(_FLOW,),
    pairs=(_PAIR,),
    clusters=(ClusterStatus(alias="A", sides=("source",), answers=True, since=0),),
    errors=(ErrorStatus(cluster="A", api="Fetch", error="x", count=1),),
    resources=ResourceStatus(jvm=_JVM),
)
"""One of everything."""


def objects(found: Any, path: str = "") -> dict[str, set[str]]:
    """The fields of each object of an answer, by its place."""
    if isinstance(found, list | tuple):
        places = [objects(each, f"{path}[]") for each in found]
    elif isinstance(found, dict) and not path.endswith(".records"):
        below = {f"{path}.{name}".lstrip("."): each for name, each in found.items()}
        places = [{path: set(found)}]
        places += [objects(each, name) for name, each in below.items()]
    else:
        return {}
    return {name: fields for place in places for name, fields in place.items()}


def test_the_page_has_what_is_answered() -> None:
    """Each object of a whole answer has exactly the fields of its table; the second of
    two alike refers to the first.
    """
    answered = objects(WHOLE.to_json())
    told = {
        path: {each.name for each in reference.fields_of(path, model)}
        for path, model in reference.models()
    }

    by_name = {
        "flows[].schemas.states",
        "flows[].partitions[].failed",
    }  # names are data
    assert answered.keys() - told.keys() == {"flows[].times[].age", *by_name}
    assert {path: answered[path] for path in told} == told


def test_every_field_is_explained() -> None:
    """A field without a docstring in its class would be an empty cell."""
    missing = [
        f"{path}.{each.name}"
        for path, model in reference.models()
        for each in reference.fields_of(path, model)
        if not each.text
    ]

    assert missing == []
