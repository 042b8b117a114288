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
    """Its alias."""
    active: str = ""
    """The active cluster; empty while the journal has no role, or has lost it."""
    read_at: float = 0.0
    """When its journal was last read, epoch seconds; 0 for never."""
    read_monotonic: float = 0.0
    """The same, monotonic."""
    error: str = ""
    """Why it could not be read last time; empty if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassiveStatus:
    """What the last look at the passive cluster found."""

    error: str = ""
    """Why it could not be looked at, or fenced; empty if it was."""
    writes: int = -1
    """Offsets that applications have used there since it is passive; -1: not known."""
    tail: int = -1
    """Records there that a failover left uncopied and no one has settled, as far as
    they are counted; -1: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run of the journal."""

    name: str
    """The run's id."""
    text: str
    """How far it got, such as `SWITCH A->B: end DONE`."""
    began: float
    """Epoch seconds."""
    by: str
    """Who ran it: user and host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillStatus:
    """One drill of the journal."""

    source: str
    """The cluster that would be left."""
    target: str
    """The cluster that would take over."""
    at: float
    """When it began, epoch seconds."""
    by: str
    """Who ran it: user and host."""
    verdict: str
    """READY, DEGRADED or NOT READY."""
    text: str
    """Its first line."""
    ratio: float
    """The share of groups and partitions that would go on exactly."""
    findings: tuple[str, ...] = ()
    """The most serious ones, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatus:
    """One pair."""

    name: str
    """As in the configuration, such as `A<->B`."""
    active: str
    """The active cluster's alias."""
    epoch: int
    """Grows with each role; 0 while only the configuration says it."""
    since: float
    """Since when it is active, epoch seconds; 0 if not known."""
    run: str = ""
    """The open switch or failover, such as `SWITCH A->B: fence BEGUN`."""
    step: int = 0
    """The number of that run's step, 1 to 9; 0 if no run is open."""
    block_seconds: float = -1.0
    """How long the open run has kept producers from writing, or else the last one did;
    -1 if none has."""
    feeds: tuple[str, ...] = ()
    """The flows out of the active cluster to those that the pair feeds; the flows out
    of the other one rest."""
    fence_owed: str = ""
    """The cluster that a failover left without a fence; empty if there is none."""
    pending: str = ""
    """What a switch or failover that was given up has left to undo, as a cluster did
    not answer; empty if nothing."""
    passive: PassiveStatus = PassiveStatus()
    """What the last look at the passive cluster found."""
    runs: tuple[RunStatus, ...] = ()
    """The last ones, the newest first."""
    drills: tuple[DrillStatus, ...] = ()
    """The last ones of a failover from the active cluster, the newest first."""
    drilled: bool = True
    """Whether the service is to drill the pair from time to time."""
    remark: str = ""
    """What is odd about its role, such as a configuration that says another."""
    problem: str = ""
    """Why it is not known which cluster is active, and what to type: the journals have
    lost entries. Empty if it is known."""
    members: tuple[MemberStatus, ...] = ()
    """Both clusters, each by its own journal."""
