"""The benchmark itself works: a tiny run from end to end, not a measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.benchmarks import report, runner
from tests.benchmarks.peers.known import YARDSTICK
from tests.benchmarks.scenarios import SCENARIOS

pytestmark = pytest.mark.bench


@pytest.mark.parametrize(
    "scenario",
    [
        replace(SCENARIOS["100b"], records=300_000),
        replace(SCENARIOS["latency"], seconds=3.0, warm_up_seconds=1.0),
    ],
    ids=lambda scenario: scenario.name,
)
def test_yardstick_is_measured(scenario, tmp_path):
    """MirrorMaker 2 copies every record, and figures come out."""
    runs = list(runner.run([scenario], [YARDSTICK], repeats=1, folder=tmp_path))

    assert [run.error for run in runs] == [None]
    result = runs[0].result
    assert result.records == pytest.approx(result.expected, rel=0.01)

    summary = report.summarise(runs)

    assert summary[scenario.name][YARDSTICK]["records"].ratio == 1.0
    assert len(report.tables(summary, [scenario])) == 1
    assert report.save(
        tmp_path / "bench", runs=runs, summary=summary, scenarios=[scenario]
    ).exists()
