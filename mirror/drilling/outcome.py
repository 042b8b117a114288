"""What a drill found, and what follows: whether a failover now would go well.

Main type: `Drill`, all findings with the verdict, which is the worst one. Pure.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mirror.status.wording import duration, some
from mirror.switching import findings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.switching.findings import Finding, Level

MOST_KEPT = 20
"""Findings of a drill in the journal: the most serious ones."""
_MOST_TEXT = 300
_LONG = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """The outcome of a drill."""

    pair: str
    source: str
    target: str
    at: float
    """When it began, epoch seconds."""
    seconds: float
    """How long it took."""
    groups: int
    groups_exact: int
    """Groups that would go on at the very next record in all partitions."""
    partitions: int
    partitions_exact: int
    """Partitions whose next records are the same on both sides for every group."""
    lost_seconds: float
    """What a failover now would lose, by time; -1: not known."""
    lost_records: int
    findings: tuple[Finding, ...]
    """The most serious first."""
    unseen: tuple[str, ...] = ()
    """What could not be looked at, with the reason."""

    @property
    def verdict(self) -> Level:
        return findings.verdict(self.findings)

    @property
    def ratio(self) -> float:
        """The share of groups and partitions that would go on exactly."""
        of = self.groups + self.partitions
        return (self.groups_exact + self.partitions_exact) / of if of else 1.0

    @property
    def text(self) -> str:
        """The first line."""
        lost = (
            "what a failover now would lose is not known"
            if self.lost_seconds < 0
            else f"a failover now would lose up to {_seconds(self.lost_seconds)}"
            if self.lost_records
            else "a failover now would lose nothing"
        )
        return (
            f"{self.verdict}: {self.groups_exact} of {some(self.groups, 'group')} and "
            f"{self.partitions_exact} of {some(self.partitions, 'partition')} would go "
            f"on exactly; {lost}"
        )

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **asdict(self),
            "verdict": str(self.verdict),
            "ratio": round(self.ratio, 4),
            "text": self.text,
        }

    def kept(self) -> Mapping[str, Any]:
        """A few KB for the journal: the most serious findings, and how many more."""
        told = self.document()
        told["findings"] = [
            {
                "level": str(each.level),
                "subject": each.subject[:_MOST_TEXT],
                "reason": each.reason[:_MOST_TEXT],
            }
            for each in self.findings[:MOST_KEPT]
        ]
        told["more_findings"] = max(len(self.findings) - MOST_KEPT, 0)
        told["unseen"] = [each[:_MOST_TEXT] for each in self.unseen[:MOST_KEPT]]
        return told


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _LONG else duration(seconds)
