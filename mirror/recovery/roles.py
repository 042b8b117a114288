"""Which cluster of a pair is active, and which run is open, from the journals.

Main functions: `role` and `open_run`, over the entries of one journal or, by `merged`,
of both. The role with the highest epoch counts. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.recovery.journal import Entry, Kind, StepState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.config.pair_settings import PairConfig

ROLE = "open"
"""The step that makes the other cluster active."""
_FIRST = "start"
"""The name of the run that gives a pair its first role."""
END = "end"
"""The last entry of a run: DONE, or UNDONE if it was aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The active member, since when, and how often it has changed."""

    active: str
    epoch: int
    since: float
    """Epoch seconds; 0 for a role that only the configuration gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A switch or failover, as far as it got."""

    entries: tuple[Entry, ...]
    """In order; at least one."""

    @property
    def first(self) -> Entry:
        return self.entries[0]

    @property
    def last(self) -> Entry:
        return self.entries[-1]

    @property
    def name(self) -> str:
        """Short, for people."""
        return self.first.run[:8]

    @property
    def open(self) -> bool:
        """Whether it is neither through nor undone."""
        return self.last.step != END

    @property
    def text(self) -> str:
        """For a status: what runs, and how far it got."""
        last = self.last
        return f"{last.kind} {last.source}->{last.target}: {last.step} {last.state}"

    def stops(self, source: str, target: str) -> bool:
        """Whether nothing may be copied between these clusters until the other one is
        active: into the one that is left, which must be quiet, and from one that is
        gone.
        """
        if self.state(ROLE) is StepState.DONE:
            return False
        gone = self.first.kind is Kind.FAILOVER and self.first.source == source
        return gone or self.first.source == target

    def state(self, step: str) -> StepState | None:
        """What was last said about a step."""
        said = [entry.state for entry in self.entries if entry.step == step]
        return said[-1] if said else None

    def details(self, step: str) -> dict[str, object]:
        """What a step noted, later entries over earlier ones."""
        found: dict[str, object] = {}
        for entry in self.entries:
            if entry.step == step:
                found |= entry.details
        return found


def merged(*journals: Iterable[Entry], pair: str) -> tuple[Entry, ...]:
    """The entries of one pair from several journals, in order, each once."""
    found: dict[tuple[str, int], Entry] = {}
    for journal in journals:
        for entry in journal:
            if entry.pair == pair:
                found.setdefault((entry.run, entry.number), entry)
    began: dict[str, float] = {}
    for entry in found.values():
        began[entry.run] = min(entry.at, began.get(entry.run, entry.at))
    return tuple(
        sorted(
            found.values(),
            key=lambda each: (each.epoch, began[each.run], each.run, each.number),
        )
    )


def role(entries: Sequence[Entry], pair: PairConfig) -> Role:
    """Of these entries of the pair; without any, as configured, with epoch 0."""
    made = [
        entry
        for entry in entries
        if entry.step == ROLE and entry.state is StepState.DONE
    ]
    if not made:
        return Role(active=pair.active, epoch=0, since=0.0)
    newest = max(made, key=lambda entry: entry.epoch)
    return Role(active=newest.target, epoch=newest.epoch, since=newest.at)


def runs(entries: Sequence[Entry]) -> tuple[Run, ...]:
    """The runs of these entries of one pair, oldest first."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.run, []).append(entry)
    return tuple(Run(entries=tuple(each)) for each in found.values())


def open_run(entries: Sequence[Entry]) -> Run | None:
    """The run that is neither through nor undone, if there is one."""
    return next((run for run in reversed(runs(entries)) if run.open), None)


def first_role(pair: PairConfig, *, at: float, by: str) -> tuple[Entry, ...]:
    """The entries that give a pair its first role, the same for every writer."""
    return tuple(
        Entry(
            pair=pair.name,
            run=_FIRST,
            number=number,
            kind=Kind.START,
            epoch=1,
            source=pair.other_than(pair.active),
            target=pair.active,
            step=step,
            state=StepState.DONE,
            at=at,
            by=by,
        )
        for number, step in enumerate((ROLE, END))
    )
