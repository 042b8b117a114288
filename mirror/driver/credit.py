"""Which slots of a run may copy between its leases, and what that forbids.

Main type: `Credit`. The successor of a slot on credit fences it, or is the same process
where nothing fences; another slot that gets one of its partitions does neither. So
assignments change only after a lease at whose end no slot copies on: `must_end` asks
for one. It knows neither Spark nor brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.relay.report import PartitionReport


class Credit:
    """The credit of all slots of one run."""

    def __init__(self, *, possible: bool) -> None:
        """`possible`: whether a slot stops once its successor copies."""
        self.possible = possible
        self.given = False
        """Whether a slot may copy between the last lease and the next one."""

    def must_end(self, *, before: bool) -> bool:
        """Whether the next lease must end the credit and do nothing else; `before`
        something that only a lease without credit may precede.
        """
        return self.given and before

    def learn(self, reports: Iterable[PartitionReport]) -> None:
        """Note what a lease's reports say."""
        self.given = self.possible and any(each.slot_copies_on for each in reports)
