"""Copies that a real MirrorMaker 2 made: proven by content, before and after adoption,
and with a record taken out.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.pairs import proofs
from mirror.proofs.account import FindingKind
from tests.harness import segments
from tests.harness.admin import create_topic, end_offsets
from tests.harness.load import producer
from tests.harness.mm2 import PROPERTIES, start_mm2
from tests.harness.proofs import proven
from tests.harness.slots import SparklessFlow
from tests.harness.waiting import wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from mirror.proofs.verification import Proven
    from tests.benchmarks.processes import Service
    from tests.harness.segments import StoredBatch

pytestmark = [pytest.mark.integration, pytest.mark.full]

_ALIAS, _TOPIC, _PARTITIONS = "A", "orders", 2
_BY_MM2, _BY_MIRROR = 1200, 400
_TAKEN_OUT = 77


def _send(a: str, first: int, count: int) -> None:
    client = producer(a)
    for number in range(first, first + count):
        client.produce(
            _TOPIC,
            key=None if number % 9 == 0 else b"k%d" % (number % 50),
            value=None if number % 11 == 0 else b"v" * (number % 40),
            headers=[("h", b"%d" % number), ("h", None)][: number % 3],
            partition=number % _PARTITIONS,
        )
    assert client.flush(30) == 0


def _copied_by_mm2(a: str, b: str, folder: Path) -> None:
    service: Service = start_mm2(
        a, b, alias=_ALIAS, topic=_TOPIC, folder=folder, exactly_once=True
    )
    try:

        def there() -> bool:
            service.require_running()
            records = read_topic(b, f"{_ALIAS}.{_TOPIC}")
            return sum(map(len, records.values())) >= _BY_MM2

        wait_for(
            lambda: sum(end_offsets(b, f"{_ALIAS}.{_TOPIC}").values()) >= _BY_MM2,
            150, 0.3,
        )  # fmt: skip
        wait_for(there, 60, 0.3)
        os.kill(service._process.pid, signal.SIGTERM)
        service._process.wait(150)
    finally:
        service.stop()


def _taken_out(batches: list[StoredBatch]) -> list[StoredBatch]:
    (batch,) = (
        each
        for each in batches
        if not each.is_control and _TAKEN_OUT in [r.offset for r in each.records]
    )
    batch.records = [r for r in batch.records if r.offset != _TAKEN_OUT]
    return batches


def _equal(found: Proven) -> int:
    return sum(each.account.equal for each in found.partitions)


def test_what_mirrormaker_copied_is_proven_by_content(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that MirrorMaker 2 copied is equal, as many records as an ordinary consumer
    counts; after `mirror adopt` and further copies all of both is, by the map as well.
    A record taken out of the copy is found at its place.
    """
    made = make_clusters()
    a, b = made["a"].bootstrap, made["b"].bootstrap
    create_topic(a, _TOPIC, partitions=_PARTITIONS)
    flow = SparklessFlow(source=a, target=b, topic=_TOPIC, alias=_ALIAS)
    _send(a, 0, _BY_MM2)
    _copied_by_mm2(a, b, tmp_path)

    right = proven(flow, by_content=True)
    assert right.findings == ()
    assert _equal(right) == sum(map(len, read_topic(b, flow.copy).values())) == _BY_MM2
    with flow.connected() as (_, target):
        kept = proofs.read(target, _ALIAS)
    assert {each.mode for each in kept.values()} == {proofs.BY_CONTENT}
    assert sum(each.records for each in kept.values()) == _BY_MM2
    assert _equal(proven(flow, since=None, by_content=True)) == 0

    monkeypatch.setenv("MIRROR_SERVICE__GROUP", "verify-mm2")
    words = ("adopt", "--yes", "--topic", _TOPIC, "-c", str(tmp_path / PROPERTIES))
    adopted = CliRunner().invoke(app, words)
    assert adopted.exit_code == 0, adopted.output
    _send(a, _BY_MM2, _BY_MIRROR)
    flow.own()
    total = _BY_MM2 + _BY_MIRROR
    flow.copy_until(total)
    both = proven(flow, by_content=True)
    assert both.findings == ()
    assert _equal(both) == total
    by_map = proven(flow)
    assert by_map.findings == ()  # adoption found all of them, one by one
    assert _equal(by_map) == total

    (lost,) = (r for r in read_topic(b, flow.copy)[0] if r.offset() == _TAKEN_OUT)
    same = [
        each.offset()
        for each in read_topic(a, _TOPIC)[0]
        if (each.timestamp(), each.key(), each.value(), each.headers())
        == (lost.timestamp(), lost.key(), lost.value(), lost.headers())
    ]
    made["b"].stop()
    segments.rewrite(made["b"], flow.copy, _taken_out)
    made["b"].start()
    wrong = proven(flow, by_content=True)
    (found,) = wrong.findings
    assert (found.kind, found.partition) == (FindingKind.MISSING, 0)
    assert [found.source] == same
    assert found.key == (None if lost.key() is None else lost.key().decode())
    assert _equal(wrong) == total - 1
