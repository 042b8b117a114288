"""The pairs of a service: which cluster is active, and the run that is open.

Main type: `PairStatus`, a part of `/status`. The role comes from both journals; each
member also shows what its own journal says, which is what `/active` answers with.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """One cluster of a pair, by its own journal."""

    cluster: str
    active: str = ""
    """The active cluster; empty while the journal has no role."""
    read_at: float = 0.0
    """When its journal was last read, epoch seconds; 0 for never."""
    error: str = ""
    """Why it could not be read last time; empty if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatus:
    """One pair."""

    name: str
    active: str
    epoch: int
    """How many roles the pair has had; 0 while only the configuration says it."""
    since: float
    """Since when it is active, epoch seconds; 0 if not known."""
    run: str = ""
    """The open switch or failover, such as `SWITCH A->B: fence BEGUN`."""
    members: tuple[MemberStatus, ...] = ()
