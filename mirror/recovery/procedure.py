"""The steps of a switch and of a failover, and what the journals say about a command.

Pure. `left` has the steps that are to be done, `require_undoable` whether a run can be
given up. Until the step `open` is done nothing has moved for good; from there on the
only way is forward.

What a command answers at once, before it waits for anything: `answer`, from what the
journals say: go ahead, nothing to do, or why not and what to type instead;
`undo_answer`, the same for --abort; and `interrupted`, when a command is interrupted:
which run is open, how to go on and how to undo it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from mirror.errors import MirrorError
from mirror.pairs import roles
from mirror.pairs.journal import Kind, StepState
from mirror.status.wording import duration, moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.config.pair_settings import PairConfig
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


# ---- what a command answers ----


class Asks(StrEnum):
    """The command, as it is typed."""

    SWITCH = "switch"
    FAILOVER = "failover"
    FAILBACK = "failback"
    DRILL = "drill"
    TAIL = "tail"


_RUNS = (Kind.SWITCH, Kind.FAILOVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the journals of a pair say."""

    pair: PairConfig
    entries: tuple[Entry, ...]
    """As `roles.merged` has them."""
    beside: Run | None = None
    """The open run of another pair of the same clusters."""
    unread: tuple[str, ...] = ()
    """The clusters whose journal was not read: they are silent, or were not asked."""

    @property
    def role(self) -> Role:
        return roles.role(self.entries, self.pair)

    @property
    def run(self) -> Run | None:
        """The open run of the pair."""
        return roles.open_run(self.entries)

    @property
    def sure(self) -> bool:
        """Whether no unread journal can name another active cluster. A cluster becomes
        active by an entry in its own journal first: if the other one's says that it is,
        nothing newer is unread.
        """
        return not self.unread or (
            self.role.epoch > 0 and self.role.active in self.unread
        )

    @property
    def decides(self) -> bool:
        """Whether no unread journal could change that, and no run is to be finished."""
        return self.sure and self.run is None and self.beside is None

    @property
    def active(self) -> str:
        """Which cluster is active, since when, and how that is known."""
        role, made = self.role, roles.newest_role(self.entries)
        text = f"{role.active} is the active cluster"
        if made is None:
            text += f" by the configuration (recovery.{self.pair.name}.active)"
        elif made.kind in _RUNS:
            text += f" since {moment(made.at)} ({_name(made)} by {made.by})"
        else:
            text += f" since {moment(made.at)}"
        if not self.sure:
            unread = " and ".join(self.unread)
            text += f", as far as is known without the journal of {unread}"
        return text


def known(pair: PairConfig, journals: Mapping[str, Sequence[Entry]]) -> Known:
    """From the journals that were read, by cluster."""
    return Known(
        pair=pair,
        entries=roles.merged(*journals.values(), pair=pair.name),
        beside=roles.open_in_other_pair(pair, *journals.values()),
        unread=tuple(each for each in pair.members if each not in journals),
    )


def answer(
    asks: Asks, source: str, target: str, known: Known, *, restores: bool = False
) -> str:
    """Why there is nothing to do; empty if the command may go ahead. `restores`: of a
    failback.

    Raises:
        MirrorError: it is refused; the text says what to type instead.
    """
    pair, role, run = known.pair, known.role, known.run
    back = pair.way(target, source)
    if asks is Asks.DRILL:
        if role.active != source:
            raise MirrorError(f"{known.active}: rehearse with `mirror drill '{back}'`")
        return ""
    if asks is Asks.TAIL:
        _require_tail(source, target, known)
        return ""
    kind = Kind.FAILOVER if asks is Asks.FAILOVER else Kind.SWITCH
    if is_due(kind, source, target, role=role, run=run):
        if run is None and known.beside is not None:
            raise is_open(known.beside)
        if run is None and asks is Asks.FAILBACK and not restores:
            _require_failed_over(source, target, known)
        return ""
    text = (
        f"{known.active}: nothing to do. To make {source} the active one: "
        f"`mirror switch '{back}'`"
    )
    if known.sure or kind is Kind.FAILOVER:
        return text
    raise MirrorError(text)


def _require_tail(source: str, target: str, known: Known) -> None:
    pair, made = known.pair, roles.newest_role(known.entries)
    if known.role.active == source or pair.both_ways:
        way_out = "`mirror lag` shows it"
        if made is not None and (made.kind, made.source) == (Kind.FAILOVER, target):
            way_out += (
                f". The tail of {target} is shown by `mirror tail list "
                f"'{pair.way(target, source)}'`"
            )
        raise MirrorError(
            f"{known.active}, and flow {source}->{target} copies: what it has not "
            f"copied yet is lag, and no tail; {way_out}"
        )
    if known.run is not None:
        raise is_open(known.run)


def _require_failed_over(source: str, target: str, known: Known) -> None:
    """A failback goes home: the pair's last change is a failover from there."""
    if roles.leaves_tail(known.entries, target):
        return
    way = known.pair.way(source, target)
    raise MirrorError(
        f"{known.active}, and nothing was failed over from {target}: the command for "
        f"this is `mirror switch '{way}'`; if topics of {target} are gone or were "
        f"re-created, `mirror failback '{way}' --restore`"
    )


def undo_answer(kind: Kind, source: str, target: str, known: Known) -> str:
    """The same for --abort of a switch or failover: empty if a run is open.

    Raises:
        MirrorError: another run is open, or the last one is through.
    """
    if known.run is not None:
        is_due(kind, source, target, role=known.role, run=known.run)
        return ""
    if roles.pending(known.entries, known.pair):
        return ""
    unread = " and ".join(known.unread)
    where = f" in the journal that answers, without that of {unread}" if unread else ""
    text = f"no run of {known.pair.name} is open{where}"
    past = [run for run in roles.runs(known.entries) if run.first.kind in _RUNS]
    if not past:
        raise MirrorError(f"{text}, and none was ever begun: nothing to undo")
    first, last = past[-1].first, past[-1].last
    if last.state is StepState.UNDONE:
        text += f": {_name(first)} was undone at {moment(last.at)}: nothing to do"
        if not unread:
            return text
        raise MirrorError(text)
    raise MirrorError(
        f"{text}: {_name(first)} was completed at {moment(last.at)}. {known.active}; "
        f"to go back: `mirror switch '{way_back(first)}'`"
    )


def source_answers(source: str, known: Known, way: str) -> MirrorError:
    """Why this is no failover: its source answers. `way`: of the failover."""
    run = known.run
    if run is None or run.first.kind is not Kind.FAILOVER:
        return MirrorError(
            f"cluster {source} answers, so this is a switch, which loses nothing: "
            f"`mirror switch '{way}'`; --force fails over all the same"
        )
    command = f"mirror failover '{way}'"
    undo = "" if run.moved else f", or undo it with `{command} --abort`"
    return MirrorError(
        f"cluster {source} answers again, and {_name(run.first)} is open, at step "
        f"{run.last.step}: finish it without asking {source}, with `{command} --force`"
        f"{undo}"
    )


def interrupted(
    run: Run | None,
    pair: PairConfig,
    *,
    began: bool,
    undoes: bool,
    at: float,
    forward: str,
    undo: str,
) -> list[str]:
    """What to tell when a command is interrupted, by line. `run`: as far as it is known
    to be noted; `began`: whether this command noted something, or was about to;
    `undoes`: whether it was to undo the run; `at`: now, epoch seconds; `forward` and
    `undo`: the commands to type.
    """
    if run is None and not began:
        return ["interrupted: nothing was changed"]
    ways = [f"go on: {forward}", f"undo: {undo}"]
    if run is None:
        text = "interrupted as step 1 began: `mirror pair` shows whether a run is open"
        return [text, *ways]
    first = run.first
    if not run.open:
        ended = f"through, and {first.target} is active"
        if run.last.state is StepState.UNDONE:
            ended = "undone"
        return [f"interrupted at the end: {_name(first)} is {ended}"]
    if run.moved:
        ways[1] = f"to go back after that: mirror switch '{way_back(first)}'"
    elif run.state(roles.ROLE) is StepState.BEGUN:
        ways[1] = f"undo, unless {first.target} is active by then: {undo}"
    return [_how_far(run, began=began, undoes=undoes) + _effects(run, pair, at), *ways]


def _how_far(run: Run, *, began: bool, undoes: bool) -> str:
    step = run.last.step
    undoing = not run.moved and (undoes or run.last.state is not StepState.BEGUN)
    if undoing and began:
        step = next(iter(run.left), step)
    where = f"step {roles.STEPS.index(step) + 1} ({step})"
    if not began:
        return f"interrupted; {_name(run.first)} is open still, at {where}"
    if undoing:
        return f"interrupted while {where} was being undone; run {run.name} is open"
    return f"interrupted in {where}; run {run.name} is open"


def _effects(run: Run, pair: PairConfig, at: float) -> str:
    """What the run means for producers now."""
    if run.moved:
        return f", and {run.first.target} is active"
    since = blocked_since(run)
    if since is None or run.first.kind is not Kind.SWITCH:
        return ""
    how = "blocked" if pair.fence == "acl" else "stopped"
    sure = "have been" if run.state("fence") is StepState.DONE else "may have been"
    seconds = duration(max(at - since, 0.0))
    return f", and producers of {run.first.source} {sure} {how} for {seconds}"


def _name(entry: Entry) -> str:
    """A run, for people."""
    return f"{entry.kind.lower()} {roles.way(entry)} {entry.run[:8]}"
