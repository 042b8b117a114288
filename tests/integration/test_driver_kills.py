"""The whole service dies without a word, and the next one goes on exactly there."""

from __future__ import annotations

import shutil
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

_PARTITIONS = 5


@pytest.mark.quick
def test_driver_killed_in_mid_copy(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """kill -9 of driver and JVM in mid-copy, then a restart with Spark's checkpoint
    kept, and another one with it removed: everything arrives exactly once, and the
    dead driver's processes are gone.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    load = NumberedLoad(source, topic_name, _PARTITIONS, seed=2)
    copy = f"A.{topic_name}"
    with RunningMirror(
        config_for(source, target, topics=[topic_name], tasks=1), tmp_path
    ) as mirror:
        for checkpoint_kept in (True, False):
            with load.streaming():
                before = copied_records(target, copy)
                # Fencing writes markers, too, before any worker copies.
                wait_for(
                    lambda before=before: (
                        mirror.worker_pids()
                        and copied_records(target, copy) > before + 100
                    ),
                )
                mirror.kill_driver()
                wait_for(lambda: not mirror.survivors())
            if not checkpoint_kept:
                shutil.rmtree(mirror.state_dir)
            mirror.start()
        load.send(1000)
        mirror.wait_copied(source, topic_name)
        assert mirror.terminate() == 0
    assert_exactly_once(order_of(target, copy), load.order)
