"""Brokers die and come back in mid-copy; it is seen, and it does no harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.admin import copied_records, create_topic
from tests.harness.load import NumberedLoad
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 4


def _complains(document: dict[str, Any]) -> bool:
    """Whether the status tells of trouble, with a reason."""
    (flow,) = document["flows"]
    if flow["state"] == "RETRYING":
        return bool(flow["reason"])
    return any(p["state"] == "FAULTED" and p["reason"] for p in flow["partitions"])


def _recoveries(document: dict[str, Any]) -> int:
    (flow,) = document["flows"]
    return flow["transactions"]["takeovers"]


def _is_well(document: dict[str, Any]) -> bool:
    (flow,) = document["flows"]
    return (
        flow["state"] == "RUNNING"
        and not flow["reason"]
        and not flow["faulted"]
        and not any(p["reason"] for p in flow["partitions"])
    )


def test_brokers_killed_in_mid_copy(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """kill -9 of the source's only broker, and then of one of the target's three, in
    mid-copy: the status says that and why, recovers by itself once the broker is
    back, and every acknowledged record is on the target exactly once. Where the two
    brokers left take the lead before anybody looks, its count of recoveries says it.

    The target has three because Kafka 4.3 may take a commit for complete that it has
    not marked in all partitions, if its only broker is killed in between: after its
    restart the coordinator logs CompleteCommit, no marker is ever written, and the
    last stable offset of these partitions stands still for every consumer.
    """
    clusters = {**make_clusters("a"), **make_clusters("b", nodes=3)}
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    load = NumberedLoad(source, topic_name, _PARTITIONS, seed=3)
    copy = f"A.{topic_name}"
    with RunningMirror(
        config_for(source, target, topics=[topic_name], tasks=1), tmp_path
    ) as mirror:
        mirror.wait_running()
        for side in ("a", "b"):
            # The producer, idempotent, lives through the death of the source.
            with load.streaming():
                before = copied_records(target, copy)
                wait_for(
                    lambda before=before: copied_records(target, copy) > before, 60, 0.2
                )
                recovered = _recoveries(mirror.status())
                clusters[side].kill(1)
                mirror.wait_until(
                    lambda document, side=side, recovered=recovered: (
                        _complains(document)
                        or (side == "b" and _recoveries(document) > recovered)
                    )
                )
                clusters[side].start(1)
            mirror.wait_until(_is_well)
        load.send(1000)
        mirror.wait_copied(source, topic_name)
        mirror.wait_until(_is_well)
        assert mirror.terminate() == 0
    assert_exactly_once(order_of(target, copy), load.order)
