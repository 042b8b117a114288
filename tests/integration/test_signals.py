"""Signals to the service's whole process group, as `timeout`, a terminal and a
container send them, and the end of its JVM: what it prints stays JSON, a line an event.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_ENDS = {signal.SIGTERM: 0, signal.SIGINT: 0}
_EARLY = (0.0, 0.4, 0.8, 1.3, 1.8, 2.8, 4.3)
"""Seconds after the first library is loaded."""


def assert_only_json(mirror: RunningMirror) -> None:
    for line in mirror.log.read_text().splitlines():
        assert line.startswith("{"), mirror.log_tail(100)
        json.loads(line)


def assert_nothing_is_left(mirror: RunningMirror) -> None:
    wait_for(lambda: not mirror.survivors(), timeout=10)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGINT,
        pytest.param(signal.SIGQUIT, marks=pytest.mark.full),
    ],
    ids=lambda each: each.name,
)
def test_signals_at_work(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    """The service ends as the signal says, prints nothing but events, and its next run
    copies the rest: every record is there once.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, partitions=3)
    client, first = producer(source), keys(3, 1_500)
    second = keys(3, 1_500, first=1_500)
    config = config_for(source, target, alias=number.name, topics=[topic_name], tasks=2)

    with RunningMirror(config, tmp_path) as mirror:
        send(client, topic_name, first, b"v")
        mirror.wait_until(lambda status: status["flows"][0]["records"] > 0)
        mirror.signal_group(signal.SIGHUP)  # a reload: it goes on
        send(client, topic_name, second, b"v")
        mirror.signal_group(number)
        assert mirror.wait() == _ENDS.get(number, -number), mirror.log_tail()
        assert_nothing_is_left(mirror)
        assert_only_json(mirror)
        assert "Traceback" not in mirror.log.read_text(), mirror.log_tail(100)
        mirror.start()
        mirror.wait_copied(source, topic_name)
        assert mirror.terminate() == 0
    written = {partition: first[partition] + second[partition] for partition in first}
    assert_exactly_once(order_of(target, f"{number.name}.{topic_name}"), written)


def test_a_service_whose_jvm_has_ended(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """The system kills the JVM, as for its memory: the service says so and exits with
    1, so that what started it starts it again.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name)
    config = config_for(source, target, alias="KILLED", topics=[topic_name], tasks=1)

    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_leases()
        for pid in mirror.java_pids():
            os.kill(pid, signal.SIGKILL)
        assert mirror.wait(20) == 1, mirror.log_tail()
        assert_nothing_is_left(mirror)
    assert "Spark's JVM is gone" in mirror.log.read_text()
    assert_only_json(mirror)


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)],
    ids=lambda each: each.name,
)
def test_signals_at_the_start(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    """Once the program itself runs, however early that is: no traceback, nothing but
    events, and no process is left.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    config = config_for(source, target, topics=[topic_name], tasks=1)
    for seconds in _EARLY:
        mirror = RunningMirror(config, tmp_path / str(seconds))
        with contextlib.closing(mirror.launch()):
            maps = Path(f"/proc/{mirror.pids()[0]}/maps")
            wait_for(lambda maps=maps: "pydantic_core" in maps.read_text(), pause=0.01)
            time.sleep(seconds)
            mirror.signal_group(number)
            mirror.wait()
            assert_only_json(mirror)
            assert "Traceback" not in mirror.log.read_text(), mirror.log_tail(100)
            assert_nothing_is_left(mirror)
