"""Metrics of pairs: roles, the open run, and what happens on the passive cluster.

Main name: `PAIR_METRICS`. They have the label `pair` instead of a flow's source and
target; `exposition` writes them out after those of flows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.observing.readings import known
from mirror.observing.series import MetricType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.observing.series import Labels
    from mirror.status.pairs import PairStatus

    Rows = Iterator[tuple[Labels, float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMetric:
    """One metric of each pair."""

    name: str
    """As queried: counters end in _total."""
    kind: MetricType
    help: str
    labels: Labels = ()
    """Labels besides the pair."""
    rows: Callable[[PairStatus], Rows]
    """The values of those labels and of the metric; None: no value now."""


def _active(pair: PairStatus) -> Rows:
    for member in pair.members:
        yield (member.cluster,), float(member.cluster == pair.active)


def _epoch(pair: PairStatus) -> Rows:
    yield (), pair.epoch


def _read(pair: PairStatus) -> Rows:
    for member in pair.members:
        yield (member.cluster,), member.read_at or None


def _step(pair: PairStatus) -> Rows:
    yield (), pair.step


def _block(pair: PairStatus) -> Rows:
    yield (), known(pair.block_seconds)


def _owed(pair: PairStatus) -> Rows:
    for member in pair.members:
        yield (member.cluster,), float(member.cluster == pair.fence_owed)


def _writes(pair: PairStatus) -> Rows:
    for member in pair.members:
        if member.cluster != pair.active:
            yield (member.cluster,), known(pair.passive.writes)


_STATES = ("READY", "DEGRADED", "NOT_READY")


def _readiness(pair: PairStatus) -> Rows:
    for drill in pair.drills[:1]:
        for state in _STATES:
            yield (state,), float(drill.verdict.replace(" ", "_") == state)


def _ratio(pair: PairStatus) -> Rows:
    for drill in pair.drills[:1]:
        yield (), drill.ratio


def _drilled(pair: PairStatus) -> Rows:
    for drill in pair.drills[:1] if pair.drilled else ():
        yield (), drill.at


def _tail(pair: PairStatus) -> Rows:
    for member in pair.members:
        if member.cluster != pair.active:
            yield (member.cluster,), known(pair.passive.tail)


_G = MetricType.GAUGE

PAIR_METRICS: tuple[PairMetric, ...] = (
    PairMetric(
        name="mirror_active",
        kind=_G,
        labels=("cluster",),
        rows=_active,
        help="1 for the active cluster of a pair, 0 for the other one.",
    ),
    PairMetric(
        name="mirror_pair_epoch",
        kind=_G,
        rows=_epoch,
        help="Grows with each role; 0 while only the configuration says it.",
    ),
    PairMetric(
        name="mirror_journal_read_timestamp_seconds",
        kind=_G,
        labels=("cluster",),
        rows=_read,
        help="When the cluster's journal was last read; no value if it never was.",
    ),
    PairMetric(
        name="mirror_switch_step",
        kind=_G,
        rows=_step,
        help="The step, 1 to 9, at which an open switch or failover is, else 0.",
    ),
    PairMetric(
        name="mirror_switch_block_seconds",
        kind=_G,
        rows=_block,
        help="How long the open switch or failover has kept producers from writing, or "
        "else the last one did; no value if none has.",
    ),
    PairMetric(
        name="mirror_fence_owed",
        kind=_G,
        labels=("cluster",),
        rows=_owed,
        help="1 for a cluster that a failover left and whose producers are not fenced "
        "yet, else 0.",
    ),
    PairMetric(
        name="mirror_writes_on_passive_records_total",
        kind=MetricType.COUNTER,
        labels=("cluster",),
        rows=_writes,
        help="Offsets that applications have used on the passive cluster since it is "
        "passive, without topics to which the other cluster is copied as well.",
    ),
    PairMetric(
        name="mirror_readiness",
        kind=_G,
        labels=("state",),
        rows=_readiness,
        help="1 for what the last drill of a failover from the active cluster found: "
        "READY, DEGRADED or NOT_READY, 0 for the others; no value before the first.",
    ),
    PairMetric(
        name="mirror_readiness_ratio",
        kind=_G,
        rows=_ratio,
        help="The share of groups and partitions that, by the last drill, would go on "
        "exactly after a failover.",
    ),
    PairMetric(
        name="mirror_drill_timestamp_seconds",
        kind=_G,
        rows=_drilled,
        help="When the last drill began; no value if the service is not to drill.",
    ),
    PairMetric(
        name="mirror_tail_records",
        kind=_G,
        labels=("cluster",),
        rows=_tail,
        help="Records of the passive cluster that a failover left uncopied and no one "
        "has settled, counted every 30 seconds in steps of 200,000 offsets, up to "
        "1,000,000 records.",
    ),
)
