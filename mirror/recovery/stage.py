"""What a step of a switch gets to work with, what it finds, and what it returns.

Main types: `Stage`, `Done`, and `Step`, a module of `steps`. A step looks at the
clusters, does what is missing, and ends with a look from outside; so it can be done
again, by another machine, wherever the last one died. Before it changes what it could
not find out afterwards, it notes that in the journal.

A `Finding` is what a check of a pair finds: for a drill, a dry run and step 1 alike.
Its level is the same for everyone who meets it; which runs step 1 refuses because of
it, it says itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
import time
from typing import TYPE_CHECKING, Any

from mirror.config import scopes
from mirror.errors import MirrorError, UnreachableError
from mirror.pairs import journal, roles
from mirror.pairs.journal import JournalReader, Kind
from mirror.pairs.roles import Epochs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.group_survey import KnownMaps
    from mirror.pairs.journal import Entry
    from mirror.recovery.quiet import QuiesceCheck
    from mirror.recovery.tails.tail import Tail


Notes = Mapping[str, Any]
"""What a step keeps in the journal, as JSON has it."""

NOTHING = "nothing to undo"
"""What a step says that has changed nothing."""


class StepError(MirrorError):
    """A step cannot be done; the text says why, and what would be right."""


class CutMovedError(StepError):
    """Somebody wrote after the cut: the steps that work with it are done again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A step is done."""

    text: str
    """For people: what is so now."""
    notes: Notes = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The clusters, the pair and the terms of one run."""

    kind: Kind
    config: MirrorConfig
    """Without flows that rest, which write nothing now (`pairs.flow_roles`)."""
    pair: PairConfig
    flow: FlowConfig
    """From the cluster that was active to the one that is to be, with what belongs to
    the pair only (`both_flows`)."""
    reverse: FlowConfig
    source_or_none: Cluster | None
    target_or_none: Cluster | None
    """None: it does not answer, or is not asked."""
    notes: Mapping[str, Notes]
    """What the steps have noted so far, by step."""
    note: Callable[[Notes], None]
    """Notes something now, before it is done."""
    tell: Callable[[str], None]
    """Says what a step waits for."""
    deadline: float
    """Until when the step may wait, monotonic."""
    unasked: bool = False
    """Whether the source is left out although it may answer (--force)."""
    abort_transactions: bool = False
    """Whether transactions that do not end in time are aborted."""
    run: str = ""
    """The id of the run."""
    epochs: Epochs = field(default_factory=Epochs)
    """Of the role before the run, and of the run."""
    hold: Callable[[], None] = lambda: None
    """Raises `FencedError` if a later operator took over; before each round of changes
    within a step."""
    undone: Callable[[], bool] = lambda: False
    """Whether a later operator has undone this run, or does so within seconds."""
    times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """When each step began and when it was last heard of, epoch seconds."""
    agree: Callable[[str], bool] = lambda _question: True
    """Asks the user something; with --yes the answer is yes."""
    beside: dict[str, Future[Any]] = field(default_factory=dict)
    """What one step began for a later one to take, in this process."""
    maps: KnownMaps = field(default_factory=dict)
    """The offset maps that the steps have read, in this process."""
    ends: dict[str, QuiesceCheck] = field(default_factory=dict)
    """Where step 3 found that the logs of a cluster end, in this process, by alias."""
    tails: dict[str, Tail] = field(default_factory=dict)
    """What looks at the flows' tails have found, in this process: the next one goes on
    behind that."""
    show: Callable[[Sequence[Finding], Sequence[str]], None] = lambda *_: None
    """Gets what step 1 finds, and what it could not look at, with the reason."""
    growing: Mapping[str, int] = field(default_factory=dict)
    """For a plan: how many partitions topics of the source get before the run."""

    @property
    def planned(self) -> bool:
        return self.kind is Kind.SWITCH

    @property
    def way(self) -> str:
        """From the source to the target, as commands take it."""
        return self.pair.way(self.flow.source, self.flow.target)

    @property
    def way_back(self) -> str:
        return self.pair.way(self.flow.target, self.flow.source)

    @property
    def source(self) -> Cluster:
        """The cluster that was active.

        Raises:
            UnreachableError: it does not answer, or is not to be asked.
        """
        if self.source_or_none is None:
            raise UnreachableError(self.without_source)
        return self.source_or_none

    @property
    def without_source(self) -> str:
        """Why nothing is known from the source, and nothing was changed there."""
        if self.unasked:
            return f"--force: {self.flow.source} was not asked"
        return f"{self.flow.source} does not answer"

    @property
    def target(self) -> Cluster:
        """The cluster that is to be active.

        Raises:
            UnreachableError: it does not answer.
        """
        if self.target_or_none is None:
            raise UnreachableError(f"cluster {self.flow.target} does not answer")
        return self.target_or_none

    def entries(self) -> tuple[Entry, ...]:
        """What both journals say about the pair now.

        Raises:
            ClusterError: a cluster does not answer, or refuses.
        """
        left = min(self.deadline - time.monotonic(), journal.PATIENCE_SECONDS)
        journals = (
            JournalReader(each).read(wait=False, seconds=left)
            for each in (self.source, self.target)
        )
        return roles.merged(*journals, pair=self.pair.name)

    def wait(self, looks: Callable[[], str], *, every: float = 0.1) -> None:
        """Look until nothing is left to wait for; `looks` says what it is.

        Raises:
            StepError: it takes too long.
        """
        while left := looks():
            self.tell(left)
            if time.monotonic() > self.deadline:
                raise StepError(f"still waiting: {left}")
            time.sleep(every)


def both_flows(
    config: MirrorConfig, pair: PairConfig, source: str, target: str
) -> tuple[FlowConfig, FlowConfig]:
    """A stage's `flow` and `reverse`: those between two clusters, with what belongs to
    the pair.
    """
    # Also those that another instance runs (`mirror run --clusters`).
    flows = {flow.name: flow for flow in config.enabled_flows}
    flow, reverse = flows[f"{source}->{target}"], flows[f"{target}->{source}"]
    return scopes.within(flow, pair), scopes.within(reverse, pair)


def nothing_to_undo(_stage: Stage) -> str:
    """Of steps that change nothing, or nothing that matters once they are undone."""
    return NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How a step is done and undone."""

    do: Callable[[Stage], Done]
    undo: Callable[[Stage], str] = nothing_to_undo
    """Returns what is so now; may be called when nothing was done yet, and again."""


# ---- what a check of a pair finds ----


class Level(StrEnum):
    """How serious it is, from the least on."""

    READY = "READY"
    """Worth knowing; there is nothing to fix."""
    DEGRADED = "DEGRADED"
    """A failover goes through, at a cost."""
    NOT_READY = "NOT READY"
    """Some applications do not go on, or not where they stopped."""


_ORDER = tuple(Level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a switch or failover meets."""

    level: Level
    subject: str
    """Such as `group billing`."""
    reason: str
    fix: str
    command: str = ""
    """What to run for the fix; empty if no single command does it."""
    refuses: tuple[Kind, ...] = ()
    """The runs that step 1 refuses because of it."""

    def __str__(self) -> str:
        command = self.command and f": {self.command}"
        return f"{self.subject}: {self.reason}; {self.fix}{command}"


def verdict(found: Iterable[Finding]) -> Level:
    """The worst level."""
    return max((each.level for each in found), key=_ORDER.index, default=Level.READY)


def in_order(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each once, the most serious first, else as they came."""
    return tuple(
        sorted(dict.fromkeys(found), key=lambda each: -_ORDER.index(each.level))
    )
