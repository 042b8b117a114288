"""The driver of a busy flow has kernels before its next take-over needs them."""

from __future__ import annotations

import threading

import pytest

from mirror.copying.lease import PartitionReport
from mirror.service import flow_status
from mirror.service.flow_status import KernelsAhead

pytestmark = pytest.mark.unit


def _report(transactions: int) -> PartitionReport:
    return PartitionReport(
        slot=0, topic="t", partition=0, target_topic="t", state="RUNNING",
        transactions=transactions,
    )  # fmt: skip


def test_kernels_load_once_when_much_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An idle flow loads none; a busy one does, after some leases, and only once."""
    loaded: list[str] = []
    done = threading.Event()

    def load(name: str) -> None:
        loaded.append(name)
        done.set()

    monkeypatch.setattr(flow_status, "import_module", load)
    ahead = KernelsAhead()
    for _ in range(100):
        ahead.learn([_report(0), _report(19), _report(30)])
    assert loaded == []

    ahead.learn([_report(100)])
    assert done.wait(10)
    ahead.learn([_report(10_000)])

    assert loaded == ["mirror.records.batch"]
