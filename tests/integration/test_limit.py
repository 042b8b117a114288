"""max_bytes_per_second: what a flow reads, and what people see of it."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.service import config_for
from tests.harness.waiting import crowd, deadline_in
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror
    from tests.harness.standing import StandingMirror

pytestmark = [pytest.mark.integration, pytest.mark.full]

_SIZE = 10_000
_SLOW, _FAST = 1_000_000, 3_000_000
_QUIET = 2.0
"""On a more crowded machine slots wait for a core, and read less than they may."""


def test_a_flow_reads_what_it_may(
    clusters: dict[str, PlaygroundCluster], topic_name: str, standing: StandingMirror
) -> None:
    """Two slots share a limit, and all records are in a partition of one of them: an
    ordinary consumer of the copy sees the limit within a tenth. Status and metrics say
    that the limit is why the flow is behind. A changed file changes the rate without a
    restart, and without the limit the rest comes at once; every record is there once.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    written = {0: keys(1, 12_000)[0], 1: []}
    value = random.Random(1).randbytes(_SIZE)  # which nothing compresses
    send(producer(source), topic_name, written, value)
    config = config_for(
        source,
        target,
        flows=("LIM->B",),
        topics=[topic_name],
        tasks=2,
        lease_seconds=5,
        max_bytes_per_second=_SLOW,
    )
    config["clusters"]["LIM"] = {"bootstrap_servers": source}
    with standing.hosting(config) as mirror, Witness(target) as witness:
        mirror.wait_running("LIM->B")
        witness.begin(f"LIM.{topic_name}")
        _assert_keeps(_rate(witness, 800, 1_500), _SLOW)
        _until(mirror, witness, lambda flow: flow["limit_used"] > 0.8)
        shown = CliRunner().invoke(app, ["status", "-u", mirror.url], env=_WIDE)
        assert "held back by max_bytes_per_second" in shown.output

        _limit(mirror, _FAST)
        _until(mirror, witness, lambda flow: flow["max_bytes_per_second"] == _FAST)
        faster = _rate(witness, 400, 2_000)
        _assert_keeps(faster, _FAST)
        assert faster > 1.3 * _SLOW

        _limit(mirror, None)
        witness.wait(len(written[0]), 60)
        witness.assert_found(written)
        mirror.wait_until(lambda status: not status["flows"][0]["limit_used"])
        mirror.assert_never_failed()


_WIDE = {"COLUMNS": "300"}


def _until(
    mirror: RunningMirror, witness: Witness, holds: Callable[[dict[str, Any]], bool]
) -> None:
    """Wait until it holds for the flow's status, and read the copy meanwhile: what
    waits for a consumer would be counted in the next rate.
    """
    deadline = deadline_in(60)
    while not holds(mirror.flow("LIM->B")):
        assert time.monotonic() < deadline, mirror.flow("LIM->B")
        witness.wait(sum(map(len, witness.found.values())) + 1, 60)


def _assert_keeps(rate: float, limit: int) -> None:
    assert rate < 1.1 * limit
    if crowd() < _QUIET:
        assert rate > 0.9 * limit


def _rate(witness: Witness, first: int, count: int) -> float:
    """Bytes per second over `count` records, after the first ones."""
    known = sum(map(len, witness.found.values()))
    witness.wait(known + first, 60)
    begun, known = time.monotonic(), sum(map(len, witness.found.values()))
    witness.wait(known + count, 60)
    took = time.monotonic() - begun
    return (sum(map(len, witness.found.values())) - known) * _SIZE / took


def _limit(mirror: RunningMirror, limit: int | None) -> None:
    """Change the limit in the service's file, and let it be read."""
    file = mirror.log.with_name("mirror.yaml")
    document = json.loads(file.read_text())
    document["flows"]["LIM->B"]["max_bytes_per_second"] = limit
    file.write_text(json.dumps(document))
    os.kill(mirror.pids()[0], signal.SIGHUP)
