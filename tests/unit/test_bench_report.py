"""What the benchmark tells: figures, a page and pictures from made-up runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar
from xml.etree import ElementTree as ET

import pytest
import typer
from typer.testing import CliRunner

from tests.benchmarks import chart, document, page, readme, report
from tests.benchmarks.columns import Column
from tests.benchmarks.latency import LatencyResult
from tests.benchmarks.runner import Run
from tests.benchmarks.scenarios import SCENARIOS
from tests.benchmarks.throughput import ThroughputResult

pytestmark = pytest.mark.unit


@dataclass(frozen=True, slots=True, kw_only=True)
class GapResult:
    """A kind of result that the report has never heard of."""

    COLUMNS: ClassVar = (("p99_ms", "p99 ms", ",.1f", "less"),)

    note: str
    p50_ms: float
    p99_ms: float


def _copied(records_per_second: float, cpu: float = 1.0) -> ThroughputResult:
    return ThroughputResult(
        records=1000,
        expected=1000,
        start_seconds=1.0,
        fresh_rate=0.8,
        copy_seconds=1.0,
        records_per_second=records_per_second,
        mb_per_second=records_per_second / 1e4,
        cpu_seconds_per_million=cpu,
        cpu_seconds_per_gb=cpu * 10,
        resident_mb=100.0,
    )


def _delayed(p50_ms: float) -> LatencyResult:
    return LatencyResult(
        records=10,
        expected=10,
        p50_ms=p50_ms,
        p99_ms=p50_ms * 3,
        max_ms=p50_ms * 9,
        cpu_cores=0.1,
        resident_mb=100.0,
    )


def _run(scenario, peer, result=None, *, repeat=1, **more) -> Run:
    return Run(scenario=scenario, peer=peer, repeat=repeat, result=result, **more)


RUNS = [
    _run("100b", "mm2", _copied(100_000, cpu=4.0)),
    _run("100b", "mirror", _copied(500_000)),
    _run("100b", "franz-go", _copied(400_000)),
    _run("100b", "mm2", _copied(120_000, cpu=4.0), repeat=2),
    _run("100b", "mirror", _copied(700_000), repeat=2, other_cores=1.0),
    _run("100b", "franz-go", repeat=2, error="it ended\nwith a trace"),
    _run("latency", "mm2", _delayed(40.0)),
    _run("latency", "mirror", _delayed(10.0)),
]


def _save(folder, runs, *, data=None):
    return report.save(
        folder,
        runs=runs,
        summary=report.summarise(runs),
        scenarios=[SCENARIOS[name] for name in dict.fromkeys(r.scenario for r in runs)],
        data=data,
    )


@pytest.fixture(scope="module", autouse=True)
def _without_java():
    """What the machine is would be asked of Java, Go and git."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "describe", lambda data: {"cpu": "abacus"})
        yield


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return _save(tmp_path_factory.mktemp("saved"), RUNS)


def test_median_and_ratio():
    """A figure is the median of the runs that count, beside the yardstick."""
    figures = report.summarise(RUNS)["100b"]

    speed = figures["mirror"]["records_per_second"]
    assert (speed.median, speed.min, speed.max) == (600_000, 500_000, 700_000)
    assert speed.ratio == pytest.approx(600 / 110)
    assert figures["franz-go"]["records_per_second"].max == 400_000


def test_another_yardstick():
    """Without MirrorMaker 2 the others are compared with whom there is."""
    runs = [run for run in RUNS if run.peer != "mm2"]
    figures = report.summarise(runs)["100b"]

    assert figures["mirror"]["records_per_second"].ratio == pytest.approx(1.5)


def test_unknown_kind_of_result():
    """A result's own columns are shown, in its order, whatever it is a result of."""
    runs = [_run("gap", "mirror", GapResult(note="calm", p50_ms=1.0, p99_ms=2.0))]
    figures = report.summarise(runs)["gap"]["mirror"]

    assert list(figures) == ["p99_ms", "p50_ms"]
    assert figures["p99_ms"].column == Column("p99_ms", "p99 ms", ",.1f", "less")
    assert figures["p50_ms"].column is None


def test_pictures_and_page(saved, tmp_path):
    """The command writes a picture per kind of result, and the page that shows them."""
    app = typer.Typer()
    app.command()(chart.main)
    front = tmp_path / "front.md"
    front.write_text(f"# Ours\n\n{readme.BEGIN}\nold\n{readme.END}\n\nmore\n")
    folder = tmp_path / "measured"
    options = ["--folder", str(folder), "--readme", str(front)]
    done = CliRunner().invoke(app, [str(saved), *options])

    assert done.exit_code == 0, done.output
    assert {each.name for each in folder.iterdir()} == {
        "README.md",
        "latency.svg",
        "throughput.svg",
    }
    compared = readme.write(document.read([saved]))
    assert front.read_text() == (
        f"# Ours\n\n{readme.BEGIN}\n{compared}{readme.END}\n\nmore\n"
    )
    text = (folder / "README.md").read_text()
    assert "600,000 (500,000 - 700,000) **x 5.45**" in text
    assert "python -m tests.benchmarks" in text
    assert "| cpu | abacus |" in text
    assert "- franz-go, run 2 failed: it ended\n" in text
    assert "- mirror, run 2: other processes used 1.0 cores\n" in text


def test_what_a_gigabyte_costs(saved):
    """The page has the CPU of a gigabyte and the time of a start once more for all
    scenarios together, where other pages lead to.
    """
    text = page.write(document.read([saved]))

    assert "## Cost of a gigabyte and of a start\n" in text
    assert "| 100 B, random | mirror | 10.00 | 1.0 | 40.00 | 1.0 |" in text


def test_the_front_page_says_where_mirror_is_worse(tmp_path):
    """The README's table has the ratio to each peer; each contest that a peer wins is
    named with both figures, and so is a later start, once.
    """
    runs = [
        _run("100b", "mm2", _copied(100_000, cpu=4.0)),
        _run("100b", "mirror", dataclasses.replace(_copied(971_000), start_seconds=9)),
        _run("100b", "franz-go", _copied(500_000, cpu=0.8)),
        _run("1kb", "mm2", _copied(100_000)),
        _run("1kb", "mirror", dataclasses.replace(_copied(200_000), start_seconds=9)),
        _run("latency", "mm2", _delayed(40.0)),
        _run("latency", "mirror", _delayed(10.0)),
        _run("latency-alo", "mm2-alo", _delayed(5.0)),
        _run("latency-alo", "mirror-alo", _delayed(7.5)),
    ]
    text = readme.write(document.read([_save(tmp_path, runs)]))

    assert "| 100 B, random | 9.7 times | 0.25 | 1.9 times, 1.25 |" in text
    assert (
        "takes 10 ms (p50) and 30 ms (p99) from producer to consumer, with\n"
        "MirrorMaker 2 40 and 120 ms." in text
    )
    _, _, worse = text.partition("better (")
    rows = [line for line in worse.splitlines() if line.startswith("| 1")]
    alo = "| 1000 records/s, at least once"
    assert rows == [
        "| 100 B, random | CPU s/M records | 1.00 | franz-go 0.80 |",
        "| 100 B, random | start s | 9.0 | mm2 1.0, franz-go 1.0 |",
        f"{alo} | p50 ms | 7.5 | mm2-alo 5.0 |",
        f"{alo} | p99 ms | 22.5 | mm2-alo 15.0 |",
    ]


def test_picture(saved):
    """A picture is an SVG with all peers and figures as text, the same each time."""
    comparisons = document.read([saved]).kinds()["throughput"]
    picture = chart.draw(comparisons)

    text = " ".join(ET.fromstring(picture).itertext())
    for words in ("mirror", "franz-go", "600,000  x 5.45", "100 B, random"):
        assert words in text
    assert picture == chart.draw(comparisons)


def test_later_run_wins(tmp_path, saved):
    """Of a scenario in two files the later one is reported, with its peers only."""
    later = _save(tmp_path, [_run("100b", "mirror", _copied(900_000))])
    renamed = later.read_text().replace('"date": "2', '"date": "3')
    later.write_text(renamed)

    merged = document.read([later, saved])

    by_name = {each.scenario: each for each in merged.comparisons}
    assert list(by_name["100b"].peers) == ["mirror"]
    assert list(by_name["latency"].peers) == ["mm2", "mirror"]
    assert len(merged.sessions()) == 2
    assert "100b" in page.write(merged)


def test_foreign_file(tmp_path):
    """A file that is no report is refused with its name."""
    (tmp_path / "other.json").write_text('{"summary": {}}')

    with pytest.raises(document.DocumentError, match=r"other\.json"):
        document.read([tmp_path / "other.json"])
