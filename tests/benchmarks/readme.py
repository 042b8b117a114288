"""The part of the README that compares mirror with others, generated from results.

Main functions: `write`, the text, and `put`, which inserts it between the page's marks.
It lists every comparison, including those that mirror loses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.page import is_ours, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.columns import Column
    from tests.benchmarks.document import Comparison, Document

BEGIN = "<!-- from here made by `make bench-chart` -->"
END = "<!-- to here -->"
_THEIRS = "mm2"
_LOOP = "franz-go"
_SPEED = ("records_per_second", "tls_mb_per_second")
_CPU = ("cpu_seconds_per_million", "tls_cpu_seconds_per_gb")
_ALSO = ("start_seconds", "resident_mb")
"""Not in the charts, but of interest; shown once, for the first throughput."""


def write(document: Document) -> str:
    """Throughput and CPU against each peer, latency, and where others are better."""
    titles = ("", "records/s", "CPU per record", "vs a loop in Go: records/s, CPU")
    parts = [table(titles, _copying(document))]
    parts += _latency(document)
    if worse := list(_worse(document)):
        parts.append("Where others are better (`-alo`: at least once):\n")
        parts.append(table(("", "", "mirror", "others"), worse))
    return "\n".join(parts)


def put(text: str, page: str) -> str:
    """Replace the text between the page's marks.

    Raises:
        ValueError: the page has no marks.
    """
    before, _, rest = page.partition(f"{BEGIN}\n")
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"the page has no {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{text}{END}{after}"


def _copying(document: Document) -> Iterator[tuple[str, ...]]:
    """A row for each scenario that copies at full speed."""
    for comparison in document.comparisons:
        for ours in filter(is_ours, comparison.peers):
            beside, loop = (
                (
                    _times(_ratio(comparison, ours, peer, _SPEED)),
                    _part(_ratio(comparison, ours, peer, _CPU)),
                )
                for peer in (_THEIRS, _LOOP)
            )
            if any((*beside, *loop)):
                yield (comparison.title, *beside, ", ".join(filter(None, loop)))


def _ratio(
    comparison: Comparison, ours: str, peer: str, fields: tuple[str, ...]
) -> float | None:
    for field in fields:
        mine, theirs = (comparison.peers.get(p, {}).get(field) for p in (ours, peer))
        if mine and theirs and theirs.median:
            return mine.median / theirs.median
    return None


def _times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def _part(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"1/{1 / ratio:.0f}" if 0 < ratio < 0.15 else f"{ratio:.2f}"


def _latency(document: Document) -> Iterator[str]:
    for comparison in document.comparisons:
        peers = comparison.peers
        if comparison.kind == "latency" and "mirror" in peers and _THEIRS in peers:
            mine, theirs = (
                [f"{peers[peer][field].median:.0f}" for field in ("p50_ms", "p99_ms")]
                for peer in ("mirror", _THEIRS)
            )
            yield (
                f"At {comparison.title} a record takes {mine[0]} ms (p50) and "
                f"{mine[1]} ms (p99) from producer to consumer, with\n"
                f"MirrorMaker 2 {theirs[0]} and {theirs[1]} ms.\n"
            )


def _worse(document: Document) -> Iterator[tuple[str, str, str, str]]:
    also = set(_ALSO)
    for comparison in document.comparisons:
        copies = comparison.kind == "throughput"
        for ours in filter(is_ours, comparison.peers):
            for column in comparison.columns:
                if not (column.better or (copies and column.field in also)):
                    continue
                if better := list(_better_than(comparison, ours, column)):
                    also.discard(column.field)
                    mine = column.show(comparison.peers[ours][column.field].median)
                    yield comparison.title, column.title, mine, ", ".join(better)


def _better_than(comparison: Comparison, ours: str, column: Column) -> Iterator[str]:
    """The peers that do better than ours, with their figures."""
    mine = comparison.peers[ours].get(column.field)
    for peer, figures in comparison.peers.items():
        theirs = figures.get(column.field)
        if is_ours(peer) or mine is None or theirs is None:
            continue
        sign = 1 if column.better == "more" else -1
        if sign * theirs.median > sign * mine.median:
            yield f"{peer} {column.show(theirs.median)}"
