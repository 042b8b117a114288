"""Leases on Spark hand over: slots copy on from one micro-batch into the next."""

from __future__ import annotations

from contextlib import closing
import time
from typing import TYPE_CHECKING, Any
import uuid

from confluent_kafka import Consumer
import pytest

from tests.harness.admin import add_partitions, create_topic
from tests.harness.load import NumberedLoad
from tests.harness.service import config_for
from tests.harness.waiting import PATIENCE_SECONDS, deadline_in
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Clusters
    from tests.harness.service import RunningMirror
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

_HANDOVERS = 8


@pytest.mark.parametrize("exactly_once", [True, False])
def test_slots_copy_on_between_leases(
    clusters: Clusters,
    standing: StandingMirror,
    topic_name: str,
    record_property: Callable[[str, object], None],
    *,
    exactly_once: bool,
) -> None:
    """Slots copy from lease to lease without a pause and without taking over, until
    a new partition asks for another assignment: that ends the credit, and no run. Each
    record is there exactly once, also without transactions: one process after the other
    copies, never two. How long an ordinary consumer waits at most for the
    next records is noted.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    mark = uuid.uuid4().hex[:6]
    create_topic(source, topic_name, 3)
    load = NumberedLoad(source, topic_name, 3, seed=12)
    config = config_for(
        source, target, topics=[topic_name], tasks=1, lease_seconds=1,
        refresh_topics_seconds=1, exactly_once=exactly_once,
    )  # fmt: skip
    config["clusters"] = {
        f"{alias}{mark}": cluster for alias, cluster in config["clusters"].items()
    }
    name, copy = f"A{mark}->B{mark}", f"A{mark}.{topic_name}"
    config["flows"] = {name: config["flows"]["A->B"]}
    with standing.hosting(config) as mirror:
        with load.streaming(chunk=5, pause=0.05):
            mirror.wait_until(lambda d: _handovers(d) >= 1)
            before = mirror.flow()["transactions"]
            longest = _longest_pause(mirror, target, copy)
            record_property("longest_pause_ms", round(longest * 1000))
            after = mirror.flow()["transactions"]
            assert after["takeovers"] == before["takeovers"]
        add_partitions(source, topic_name, 4)
        load.add_partition()
        with load.streaming(chunk=5, pause=0.05):
            mirror.wait_until(lambda d: len(d["flows"][0]["partitions"]) == 4)
            changed = _handovers(mirror.status())
            mirror.wait_until(lambda d: _handovers(d) > changed + 2)
        mirror.wait_copied(source, topic_name)
        assert mirror.flow()["transactions"]["takeovers"] > after["takeovers"]
        mirror.assert_never_failed()
    assert_exactly_once(order_of(target, copy), load.order)


def _handovers(document: dict[str, Any]) -> int:
    return int(document["flows"][0]["transactions"]["handovers"])


def _longest_pause(mirror: RunningMirror, target: str, copy: str) -> float:
    """The longest time between two arrivals, over some hand-overs."""
    first, now = mirror.flow()["transactions"]["handovers"], 0
    settings = {"bootstrap.servers": target, "group.id": copy, "fetch.wait.max.ms": 5}
    longest, last, asked = 0.0, 0.0, time.monotonic()
    deadline = deadline_in(PATIENCE_SECONDS)
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([copy])
        while now < first + _HANDOVERS:
            assert time.monotonic() < deadline, f"{now - first} hand-overs"
            message = consumer.poll(0.05)
            at = time.monotonic()
            if message is not None and not message.error():
                longest = max(longest, at - last) if last else 0.0
                last = at
            if at > asked + 0.5:
                asked = at
                now = mirror.flow()["transactions"]["handovers"]
    return longest
