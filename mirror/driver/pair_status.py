"""What the status says about a pair, from what its journals say. Pure.

Main function: `status_of`; main types: `PairMember`, what one cluster's journal said at
the last look, and `KnownPair`, what the journals of a pair say together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
import time
from typing import TYPE_CHECKING, Self

from mirror.config import feeding
from mirror.driver import role_notes
from mirror.driver.role_notes import RoleNote
from mirror.log import LogThrottle
from mirror.recovery import canaries, drills, roles
from mirror.recovery.journal import Kind
from mirror.status.pairs import (
    CanaryStatus,
    DrillStatus,
    MemberStatus,
    PairStatus,
    PassiveStatus,
    RunStatus,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.pair_settings import PairConfig
    from mirror.recovery.drills import KeptDrill
    from mirror.recovery.journal import Entry
    from mirror.recovery.roles import Role, Run, WriteBlock

_MOST_RUNS = 5


@dataclass(slots=True, kw_only=True)
class PairMember:
    """What one cluster's journal says."""

    entries: tuple[Entry, ...] = ()
    """All that it has ever said here: nothing is deleted there on purpose."""
    there: tuple[Entry, ...] = ()
    """What it said at the last look."""
    read_at: float = 0.0
    read_monotonic: float = 0.0
    error: str = ""
    throttle: LogThrottle = field(default_factory=LogThrottle)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPair:
    """What the journals of a pair say together, worked out once per entry."""

    entries: tuple[Entry, ...]
    role: Role
    """Not known, with epoch 0, while there is a problem."""
    problem: str
    """Why the journals do not tell it: they have lost entries. Empty if they do."""
    switched: bool
    """Whether the role comes from a planned switch."""
    run: Run | None
    """The open one."""
    drilled: tuple[KeptDrill, ...]
    """The drills of a failover from the active cluster, oldest first."""
    block: WriteBlock | None
    """Of the last run that kept producers from writing."""
    status: PairStatus
    """All of it that only the journals decide."""
    active: Mapping[str, str]
    """The active cluster by each member's own journal; empty if it has no role."""

    @classmethod
    def of(
        cls,
        pair: PairConfig,
        journals: Mapping[str, tuple[Entry, ...]],
        noted: RoleNote | None = None,
    ) -> Self:
        """`journals`: by the alias of a cluster; `noted`: what flows know of them."""
        entries = roles.merged(*journals.values(), pair=pair.name)
        role = roles.role(entries, pair)
        problem = role_notes.problem(pair, entries, noted or RoleNote())
        both = [each for journal in journals.values() for each in journal]
        drilled = tuple(
            each for each in drills.read(both, pair.name) if each.source == role.active
        )
        run, runs = roles.open_run(entries), roles.runs(entries)
        blocks = (each.block for each in reversed(runs))
        owed = roles.owed(entries) if pair.fence == "acl" else None
        made = roles.newest_role(entries)
        return cls(
            entries=entries,
            role=replace(role, epoch=0) if problem else role,
            problem=problem,
            switched=made is not None and made.kind is Kind.SWITCH,
            run=run,
            drilled=drilled,
            block=next((each for each in blocks if each is not None), None),
            active={
                alias: "" if problem else _active(pair, each)
                for alias, each in journals.items()
            },
            status=PairStatus(
                name=pair.name,
                active=role.active,
                epoch=role.epoch,
                since=role.since,
                run=run.text if run is not None else "",
                remark=roles.remark(entries, pair),
                problem=problem,
                step=run.step if run is not None else 0,
                feeds=tuple(feeding.flows_from(pair, role.active)),
                fence_owed=owed.source if owed is not None else "",
                pending=roles.pending_text(entries, pair),
                runs=tuple(
                    RunStatus(
                        name=each.name,
                        text=each.text,
                        began=each.first.at,
                        by=each.first.by,
                    )
                    for each in runs[: -_MOST_RUNS - 1 : -1]
                ),
                drills=tuple(
                    DrillStatus(
                        source=each.source,
                        target=each.target,
                        at=each.at,
                        by=each.by,
                        verdict=each.verdict,
                        text=each.text,
                        ratio=each.ratio,
                        findings=each.findings,
                    )
                    for each in drilled[: -_MOST_RUNS - 1 : -1]
                ),
                drilled=pair.drill_every_seconds > 0,
                canary=next(
                    (
                        CanaryStatus(**asdict(each))
                        for each in canaries.read(both, pair.name)[-1:]
                    ),
                    None,
                ),
            ),
        )

    def may_feed(self, source: str, rests_since: int) -> bool | None:
        """Whether the flow out of this member to a cluster that the pair feeds may copy
        now; None while the pair has no role. `rests_since`: the role from which on the
        other flow copies, as their target says; 0 if nothing is known of that.
        """
        if not self.role.epoch:
            return None
        if rests_since > self.role.epoch:  # the journals are behind the target
            return False
        if self.role.active == source:
            return True
        # After a switch it copies up to the cut, until the other flow takes over.
        return self.switched and rests_since < self.role.epoch


def status_of(
    pair: PairConfig,
    known: KnownPair,
    members: Mapping[str, PairMember],
    *,
    passive: Mapping[str, PassiveStatus],
) -> PairStatus:
    """`members` and `passive`: by the alias of a cluster."""
    return replace(
        known.status,
        block_seconds=_block_seconds(known.block),
        passive=passive[pair.other_than(known.role.active)],
        members=tuple(
            MemberStatus(
                cluster=alias,
                active=known.active.get(alias, ""),
                read_at=members[alias].read_at,
                read_monotonic=members[alias].read_monotonic,
                error=members[alias].error,
            )
            for alias in pair.members
        ),
    )


def _block_seconds(block: WriteBlock | None) -> float:
    """-1 if there was none."""
    if block is None:
        return -1.0
    return max((block.ended or time.time()) - block.began, 0.0)


def _active(pair: PairConfig, entries: tuple[Entry, ...]) -> str:
    """The active cluster by one journal; empty if it has no role."""
    found = roles.role(roles.merged(entries, pair=pair.name), pair)
    return found.active if found.epoch else ""
