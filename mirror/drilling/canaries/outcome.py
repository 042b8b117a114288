"""What a canary found: the seconds of both switches, and what the group read.

Main types: `Canary`, and `Leg`, one of its switches. Pure.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mirror.status.wording import some

_MOST_TEXT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One switch of the canary that went through."""

    source: str
    target: str
    block_seconds: float
    """For how long producers could not write."""
    rto_seconds: float
    """From the beginning of the block to the first record on the other cluster."""
    rpo_seconds: float
    """What a failover right before the block would have lost, by time."""
    rpo_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """There and back, as far as it got."""

    pair: str
    source: str
    target: str
    at: float
    """When it began, epoch seconds."""
    seconds: float
    switches: tuple[Leg, ...]
    written: int
    read: int
    lost: int
    repeated: int
    failure: str = ""
    cleared: tuple[str, ...] = ()
    """What was left of an earlier one."""

    @property
    def passed(self) -> bool:
        return not (self.failure or self.lost or self.repeated)

    @property
    def text(self) -> str:
        """The first line."""
        blocked = " and ".join(f"{each.block_seconds:.1f}" for each in self.switches)
        parts = [f"producers were blocked for {blocked} s"] if self.switches else []
        if self.failure:
            parts.append(self.failure)
        else:
            parts.append(
                f"{some(self.written, 'record')}, {self.lost} lost, {self.repeated} "
                "repeated"
            )
        verdict = "PASSED" if self.passed else "NOT PASSED"
        return f"{verdict}: {'; '.join(parts)}"

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**asdict(self), "passed": self.passed, "text": self.text}

    def kept(self) -> dict[str, Any]:
        """The same for the journal."""
        told = self.document()
        told["text"] = told["text"][:_MOST_TEXT]
        told["failure"] = told["failure"][:_MOST_TEXT]
        told["cleared"] = list(self.cleared)
        return told
