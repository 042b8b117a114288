"""The steps of a switch and of a failover, and what follows from a run's journal.

Pure. Main functions: `left`, the steps that are to be done, and `require_undoable`,
whether the run can be given up. Until the step `open` is done nothing has moved for
good; from there on the only way is forward.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror.errors import MirrorError
from mirror.pairs import roles
from mirror.pairs.journal import Kind, StepState
from mirror.status.wording import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.pairs.journal import Entry
    from mirror.pairs.roles import Role, Run

ON_SOURCE = ("hold", "fence")
"""Steps that change the cluster that is left."""


def left(run: Run | None) -> tuple[str, ...]:
    """The steps that are not done, in order."""
    if run is None:
        return roles.STEPS
    return tuple(step for step in roles.STEPS if run.state(step) is not StepState.DONE)


def require_undoable(run: Run, role: Role, *, answers: bool) -> None:
    """Check that an open run can be given up. `answers`: whether its target does, or is
    lost and never will.

    Raises:
        MirrorError: the other cluster is active, or may be.
    """
    first, kind = run.first, run.first.kind
    if run.moved and not overruled(run, role):
        back = way_back(first)
        text = (
            f"{first.target} is active since {kind.lower()} {run.name}: finish it, "
            f"then go back with `mirror switch '{back}'`"
        )
        if not answers:
            text += (
                f"; if {first.target} is gone, go back with `mirror failover '{back}'`"
            )
        raise MirrorError(text)
    if answers or not may_have_moved(run):
        return
    raise MirrorError(
        f"{first.target} may be active since {kind.lower()} {run.name}, which only its "
        "own journal tells, and it does not answer: try again once it does. If it is "
        f"lost for good, --force makes {first.source} active"
    )


def overruled(run: Run, role: Role) -> bool:
    """Whether the cluster that an open run leaves has become active again by a later
    role, as the other one was lost: it can only be undone.
    """
    first = run.first
    return role.active == first.source and role.epoch > first.epoch


def may_have_moved(run: Run) -> bool:
    """Whether the target may be active, by the journal of the source alone.

    A switch notes on both that `open` has begun before it is done, and that it is done
    on the target first: where it is not BEGUN here, it is not DONE there. A failover
    writes to the target's alone.
    """
    begun = run.state(roles.ROLE) is StepState.BEGUN
    return run.moved or begun or run.first.kind is not Kind.SWITCH


def blocked_since(run: Run) -> float | None:
    """When the run began to keep producers from writing, epoch seconds; None if it
    does not.
    """
    block = run.block
    return block.began if block is not None and block.ended is None else None


def times(run: Run) -> dict[str, tuple[float, float]]:
    """When each step began and when it was last heard of, epoch seconds."""
    found: dict[str, tuple[float, float]] = {}
    for entry in run.entries:
        began, _ = found.get(entry.step, (entry.at, entry.at))
        found[entry.step] = (began, entry.at)
    return found


def is_due(
    kind: Kind, source: str, target: str, *, role: Role, run: Run | None
) -> bool:
    """Whether there is something to begin, or to go on with; not if `target` is active
    already, as after the same command.

    A failover may take the place of a switch that the source's death stopped, or of a
    run that made the source active, or finish it if `target` is active already.

    Raises:
        MirrorError: another run is open, or `source` is not the active cluster.
    """
    if run is not None and not gives_way(run, kind, source):
        first = run.first
        finishes = run.moved and kind is Kind.FAILOVER and first.kind is Kind.SWITCH
        if (first.source, first.target) != (source, target) or not (
            first.kind is kind or finishes
        ):
            raise is_open(run)
        return True
    if role.active == target:
        return False
    if role.active != source:
        since = f" since {moment(role.since)}" if role.since else ""
        raise MirrorError(
            f"{role.active} is the active cluster{since}: the command for this is "
            f"`mirror {kind.lower()} '{role.active}->{source}'`"
        )
    return True


def is_overruled(run: Run) -> MirrorError:
    """Why an open run cannot be finished."""
    first = run.first
    verb, name = first.kind.lower(), roles.way(first)
    return MirrorError(
        f"{first.source} has become active again since {verb} {name} {run.name} began: "
        f"undo that with `mirror {verb} '{name}' --abort`"
    )


def is_open(run: Run) -> MirrorError:
    """Why nothing else can begin now."""
    first = run.first
    what, name = first.kind.lower(), roles.way(first)
    command = f"mirror {what} '{name}'"
    undo = "" if run.moved else f", or undo it with `{command} --abort`"
    return MirrorError(
        f"{what} {name} {run.name} is open, at step {run.last.step}, begun by "
        f"{first.by} at {moment(first.at)}: finish it with `{command}`{undo}"
    )


def way_back(first: Entry) -> str:
    """What the way back from a run moves, as `roles.way`."""
    return roles.way(replace(first, source=first.target, target=first.source))


def gives_way(run: Run, kind: Kind, source: str) -> bool:
    """Whether an open run ends where a failover from this source begins: a switch that
    the source's death stopped, or a run that made the source active, which then died.
    """
    if kind is not Kind.FAILOVER:
        return False
    if run.moved:
        return run.first.target == source
    return run.first.kind is Kind.SWITCH and run.first.source == source


def number(entries: Sequence[Entry]) -> int:
    """The number of a run's next entry."""
    return max((entry.number for entry in entries), default=-1) + 1
