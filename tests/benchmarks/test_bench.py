"""The benchmark itself works: tiny runs from end to end, not a measurement."""

from __future__ import annotations

import pytest

from tests.benchmarks import report, runner
from tests.benchmarks.peers.known import YARDSTICK
from tests.benchmarks.scenarios import SCENARIOS, adjusted

pytestmark = pytest.mark.bench

_SMALL = {
    "records": 300_000,
    "settle_seconds": 0.0,
    "seconds": 3.0,
    "warm_up_seconds": 1.0,
    "idle_seconds": 1.0,
    "complete": True,
}
_OURS = {
    "bytes": "mirror-bytes",
    "latency-alo": "mirror-alo",
}


@pytest.mark.parametrize("name", ["100b", "latency"])
def test_yardstick_is_measured(name, tmp_path):
    """MirrorMaker 2 copies every record, and the figures are there."""
    scenario = adjusted(SCENARIOS[name], **_SMALL)

    runs = list(runner.run([scenario], {name: [YARDSTICK]}, repeats=1, folder=tmp_path))

    assert [run.error for run in runs] == [None]
    result = runs[0].result
    assert result.records == pytest.approx(result.expected, rel=0.01)

    summary = report.summarise(runs)

    assert summary[name][YARDSTICK]["records"].ratio == 1.0
    assert len(report.tables(summary, [scenario])) == 1
    assert report.save(
        tmp_path / "bench", runs=runs, summary=summary, scenarios=[scenario]
    ).exists()


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_is_measured(name, tmp_path):
    """Every scenario produces our figures, in all the columns it declares."""
    changes = {**_SMALL, **_MORE.get(name, {})}
    scenario = adjusted(SCENARIOS[name], **changes)
    peer = _OURS.get(name, "mirror")

    runs = list(runner.run([scenario], {name: [peer]}, repeats=1, folder=tmp_path))

    assert [run.error for run in runs] == [None]
    shown = report.summarise(runs)[name][peer]
    assert {column.field for column in runs[0].result.COLUMNS} <= shown.keys()


_MORE: dict[str, dict[str, float]] = {
    # Leases of half a second: enough of them in so short a time.
    "gap": {"seconds": 12.0, "lease_seconds": 0.5},
    "verify-new": {"seconds": 12.0, "lease_seconds": 0.5},
    "backlog": {"window_seconds": 0.2, "records": 1_000_000},
    "hot": {"records": 5_000_000},
    "partitions-1000": {"topics": 5},
    "wan-source": {"records": 1_000_000},
    "wan-target": {"records": 1_000_000},
}
