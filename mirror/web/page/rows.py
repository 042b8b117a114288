"""The page's lists, made from a status: topics, partitions and groups, worst first.

Main types: `TopicRow`, and `RowPage`, one page of a long list; pure. Templates render
the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from mirror.status.states import PartitionState
from mirror.web.page.tones import tone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.status.values import FlowStatus, GroupStatus, PartitionStatus

    Listed = tuple[str, PartitionStatus]

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic of one flow, over its partitions."""

    flow: str
    topic: str
    target_topic: str
    partitions: int
    state: PartitionState
    """The worst state of its partitions."""
    in_state: int
    """How many partitions are in that state."""
    lag: int
    lag_seconds: float
    is_late: bool
    records: int
    lost: int
    reason: str
    """The reason of one partition in trouble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPage(Generic[Row]):
    """One page of a list."""

    rows: tuple[Row, ...]
    total: int
    number: int = 1
    """The number of this page, from 1."""
    size: int

    @property
    def first(self) -> int:
        return (self.number - 1) * self.size + 1 if self.rows else 0

    @property
    def last(self) -> int:
        return max(self.first + len(self.rows) - 1, 0)

    @property
    def count(self) -> int:
        """How many pages there are."""
        return max(-(-self.total // self.size), 1)

    @property
    def is_whole(self) -> bool:
        return len(self.rows) == self.total


def part(rows: Sequence[Row], *, size: int, number: int = 1) -> RowPage[Row]:
    """One page; a number that is too high gives the last one."""
    number = min(max(number, 1), max(-(-len(rows) // size), 1))
    first = (number - 1) * size
    return RowPage(
        rows=tuple(rows[first : first + size]),
        total=len(rows),
        number=number,
        size=size,
    )


_ORDER = (
    PartitionState.FAULTED,
    PartitionState.CATCHING_UP,
    PartitionState.PAUSED,
    PartitionState.RUNNING,
)


def _rank(state: PartitionState) -> int:
    return _ORDER.index(state)


def topics(flows: Sequence[FlowStatus]) -> list[TopicRow]:
    """Those in trouble first, then those furthest behind."""
    found: list[TopicRow] = []
    for flow in flows:
        by_topic: dict[str, list[PartitionStatus]] = {}
        for each in flow.partitions:
            by_topic.setdefault(each.topic, []).append(each)
        found += [_topic(flow, some) for some in by_topic.values()]
    return sorted(
        found,
        key=lambda row: (
            tone(row.state) != "bad",
            -row.lag_seconds,
            -row.lag,
            row.flow,
            row.topic,
        ),
    )


def _topic(flow: FlowStatus, some: Sequence[PartitionStatus]) -> TopicRow:
    states = [each.state for each in some]
    worst = min(states, key=_rank)
    late = max(each.lag_seconds for each in some)
    return TopicRow(
        flow=flow.name,
        topic=some[0].topic,
        target_topic=some[0].target_topic,
        partitions=len(some),
        state=worst,
        in_state=states.count(worst),
        lag=sum(each.lag for each in some),
        lag_seconds=late,
        is_late=late > flow.sla_seconds,
        records=sum(each.counts.records for each in some),
        lost=sum(each.counts.lost for each in some),
        reason=next((each.reason for each in some if each.reason), ""),
    )


def partitions(
    flows: Sequence[FlowStatus], *, topic: str = "", word: str = "", state: str = ""
) -> list[Listed]:
    """Partitions with their flows: of one topic, or of topics that contain a word."""
    found = [
        (flow.name, each)
        for flow in flows
        for each in flow.partitions
        if (not topic or each.topic == topic)
        and word.lower() in each.topic.lower()
        and (not state or each.state == state)
    ]
    return sorted(
        found,
        key=lambda pair: (
            _rank(pair[1].state),
            -pair[1].lag_seconds,
            -pair[1].lag,
            pair[0],
            pair[1].topic,
            pair[1].partition,
        ),
    )


def groups(flows: Sequence[FlowStatus]) -> list[tuple[str, GroupStatus]]:
    """Groups with their flows; within a flow those in trouble come first."""
    found = [(flow.name, group) for flow in flows for group in flow.groups]
    return sorted(
        found,
        key=lambda pair: (not pair[1].reason, tone(pair[1].exactness) != "bad"),
    )
