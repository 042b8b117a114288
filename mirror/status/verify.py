"""What a service has proven of a flow's copies, as values: a part of the status.

Main type: `VerifyStatus`. `proving.in_service` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OFF = "off"
RESULTS = (
    *("equal", "filtered", "removed", "dead_letters", "lost", "compacted", "expired"),
    "wrong",
)
"""What a source record may turn out to be; as in an account."""
UNPROVEN = "unproven"
"""It could not be compared, for now or ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingStatus:
    """One record that is missing or wrong, or consecutive ones with the same fate."""

    kind: str
    """What is wrong, such as `MISSING`."""
    topic: str
    """Its name on the source."""
    partition: int
    """Its number."""
    source: int | None
    """The first source offset."""
    target_topic: str
    """The name of the copy."""
    target: int | None
    """The first target offset."""
    count: int
    """How many records."""
    detail: str
    """What differs, in words."""
    found_at: float
    """Epoch seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyStatus:
    """The proofs of one flow. Counters are since the service started."""

    mode: str = OFF
    """The flow's setting."""
    proven_at: float = 0.0
    """Of all that was copied by then, `share` was compared; epoch seconds. Until that
    is so for the first time, when the service began to prove; 0: never."""
    share: float = -1.0
    """How much of what was copied lately was compared, 0 to 1; -1: nothing yet."""
    records: Mapping[str, int] = field(default_factory=dict)
    """Source records that were compared, by result."""
    read_bytes: int = 0
    """From both clusters."""
    findings: int = 0
    """Those that stand: nothing proved since that they are gone."""
    shown: tuple[FindingStatus, ...] = ()
    """The first of them, 100 at most."""
    waiting: str = ""
    """Why nothing is compared now, or some partitions are not; empty: no reason."""
    rounds: int = 0
    """With `rolling`: how often the whole past was compared."""
    round_share: float = -1.0
    """How much of it was compared in this round, 0 to 1; -1: not rolling."""

    @property
    def is_on(self) -> bool:
        return self.mode != OFF
