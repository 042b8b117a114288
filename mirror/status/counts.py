"""What was done to the records of a partition: every counter, declared once.

Main type: `Counts`. It is made where records are handled, travels with the transaction,
the progress and the report, and is part of the partition's status. A further counter is
a field here, at the end; `metrics.catalogue` gives it a name for Prometheus.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
import operator

_STATUS_NAME = "name in the status"


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of one partition, over some time.

    The progress topic has them in this order: new ones come last, and none ever goes.
    """

    records: int = 0
    """Copied."""
    bytes: int = 0
    """Of record batches sent to the target."""
    skipped: int = 0
    """Records of aborted transactions, and transaction markers."""
    looped: int = field(default=0, metadata={_STATUS_NAME: "filtered"})
    """Records left out because they came through the target before."""
    unexplained: int = 0
    """How many of these no flow of this configuration can have brought there."""
    lost: int = 0
    """Offsets that vanished at the source; the loss ledger has their ranges."""
    removed: int = 0
    """Records that the flow's transform left out."""
    dead_letters: int = 0
    """Records on which it failed, which went to the dead-letter topic."""
    away: int = 0
    """Records left out because they were written away from the home of their key."""
    unknown_ids: int = 0
    """Records copied that begin like a registry's, with an id that none knows."""
    translated: int = 0
    """Records copied with the target's ids of schemas instead of the source's."""

    def __add__(self, other: Counts) -> Counts:
        if self is NOTHING:
            return other
        return Counts(*map(operator.add, self.each, other.each))

    @classmethod
    def of(cls, *each: int) -> Counts:
        """In the order of declaration; zero where there are fewer, and what a later
        release counts besides is left out.
        """
        return cls(*each[: len(NAMES)])

    def beyond(self, other: Counts) -> Counts:
        """By how much each of these is greater; zero where it is not."""
        pairs = zip(self.each, other.each, strict=True)
        return Counts(*(max(mine - its, 0) for mine, its in pairs))

    @property
    def each(self) -> tuple[int, ...]:
        """In the order of declaration."""
        return _each(self)

    @property
    def by_status_name(self) -> dict[str, int]:
        """As `/status` calls them."""
        return dict(zip(_STATUS_NAMES, self.each, strict=True))


TRANSFORM = "TRANSFORM"
"""Why dead letters, and records that wait for a better transform, failed."""
NOTHING = Counts()
NAMES = tuple(each.name for each in fields(Counts))
_each = operator.attrgetter(*NAMES)
_STATUS_NAMES = tuple(
    each.metadata.get(_STATUS_NAME, each.name) for each in fields(Counts)
)
