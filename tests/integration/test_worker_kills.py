"""Python workers die at any moment, and the copy does not show it."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import copied_records, create_topic
from tests.harness.load import NumberedLoad
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_RECORDS = 1_000_000
_KILLS = 5
_PARTITIONS = 6


def test_million_records_while_workers_are_killed(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A million records of all sizes and codecs arrive exactly once and in order while
    every worker is killed at five random moments of the copy; each is counted once,
    although no killed lease reported what it had committed.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    load = NumberedLoad(source, topic_name, _PARTITIONS, seed=1)
    moments = random.Random(20240601)
    copy = f"A.{topic_name}"
    with RunningMirror(
        config_for(source, target, topics=[topic_name]), tmp_path
    ) as mirror:
        for _ in range(_KILLS):
            before = copied_records(target, copy)
            part = threading.Thread(target=load.send, args=[_RECORDS // _KILLS])
            part.start()
            wait_for(lambda before=before: copied_records(target, copy) > before)
            time.sleep(moments.uniform(0, 1))
            mirror.fail_lease()
            part.join()
        assert load.total == _RECORDS
        mirror.wait_copied(source, topic_name, timeout=120)
        # A lease is counted when it ends.
        wait_for(lambda: mirror.flow()["records"] >= _RECORDS)
        status = mirror.flow()
        assert mirror.terminate() == 0
    assert status["restarts"] >= _KILLS
    assert status["records"] == _RECORDS
    assert_exactly_once(order_of(target, copy), load.order)
