"""Which cluster of a pair is active, and which run is open, from the journals.

Main functions: `role`, `open_run`, and `owed`, the failover whose fence is not laid
yet, over the entries of one journal or, by `merged`, of both. The role with the highest
epoch counts. `read_begins` finds in a run where a flow begins, and `read_drills` the
drills of a pair. Pure, but for `keep_drill`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any
import uuid

from mirror.config.pair_settings import pair_name
from mirror.offsets.progress import Position
from mirror.pairs import journal
from mirror.pairs.journal import Entry, Kind, StepState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.pair_settings import PairConfig


ROLE = "open"
"""The step that makes the other cluster active."""
FIRST_EPOCH = 1
_FIRST = "start"
"""The name of the run that gives a pair its first role."""
END = "end"
"""The last entry of a run: DONE, or UNDONE if it was aborted."""
INSTEAD = "instead"
"""In the last entry of a run: what took its place."""
OWED = "owed"
"""In what a failover's step `fence` noted: what to fence once the source answers."""
OWED_SELECTION, OWED_TOPICS = "selection", "topics"
"""Of that: what the flow selects, as `selection` notes it; and the names known then."""
_LAID = ("topics", "absent")
"""In the entry of a fence: what it covers, and known names that are not there."""
_CANARY = "mirror-canary"
"""The name of a pair with which earlier versions rehearsed switches: a run that one of
them left open keeps no other pair waiting."""
STEPS = (
    *("assess", "hold", "fence", "drain", "consumers", "positions"),
    *(ROLE, "redirect", "prove"),
)
OF_CUT = ("fence", "drain", "positions")
"""Those that find the cut, where the logs of the source end, and work with it."""
AGAIN = "again"
"""In what they noted: why they are done again, by the same run."""
BLOCKS = ("fence", ROLE)
"""Producers cannot write from the beginning of the first to the end of the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The active member, since when, and how often it has changed."""

    active: str
    epoch: int
    since: float
    """Epoch seconds; 0 for a role that only the configuration gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """How much somebody knows of a pair."""

    role: int = 0
    """The epoch of the newest role; 0: none."""
    begun: int = 0
    """That of the newest run, also one that was undone."""

    def lacks(self, known: Epochs) -> bool:
        """Whether somebody else has known a later one."""
        return known.role > self.role or known.begun > self.begun

    def __or__(self, other: Epochs) -> Epochs:
        """What both know together."""
        return Epochs(
            role=max(self.role, other.role), begun=max(self.begun, other.begun)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBlock:
    """For how long a run kept producers from writing; epoch seconds."""

    began: float
    ended: float | None = None
    """None: it still does."""


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
        return all(entry.step != END for entry in self.entries)

    @property
    def gave_way(self) -> bool:
        """Whether it ended where another run took its place, which undoes it as well,
        if that is given up.
        """
        return not self.moved and self._was_replaced

    @property
    def left_off(self) -> bool:
        """Whether another run took its place after it had made a cluster active: if
        that is given up, this one is to be finished.
        """
        return self.moved and self.first.step != ROLE and self._was_replaced

    @property
    def _was_replaced(self) -> bool:
        ends = [each for each in self.entries if each.step == END]
        return bool(ends) and INSTEAD in ends[-1].details

    @property
    def left(self) -> tuple[str, ...]:
        """The steps that were begun and are not undone, the last one first."""
        return tuple(
            step
            for step in reversed(STEPS)
            if self.state(step) not in {None, StepState.UNDONE}
        )

    @property
    def moved(self) -> bool:
        """Whether it has made the other cluster active: one journal is enough, and
        nothing that was noted later takes it back.
        """
        return self.state(ROLE) is StepState.DONE

    @property
    def text(self) -> str:
        """For a status: what runs, and how far it got."""
        last = self.last
        return f"{last.kind} {last.source}->{last.target}: {last.step} {last.state}"

    @property
    def step(self) -> int:
        """The number of its last step, from 1; 0 before the first and at the end."""
        step = self.last.step
        return STEPS.index(step) + 1 if step in STEPS else 0

    @property
    def block(self) -> WriteBlock | None:
        """The last block of producers; None if there was none."""
        fences = BLOCKS[0]
        found: WriteBlock | None = None
        for entry in self.entries:
            blocks = found is not None and found.ended is None
            if entry.step == fences and entry.state is not StepState.UNDONE:
                if not blocks:
                    found = WriteBlock(began=entry.at)
            elif (
                found is not None
                and blocks
                and (entry.step == fences or _makes_active(entry))
            ):  # undone, or through
                found = replace(found, ended=entry.at)
        return found

    def stops(self, source: str, target: str) -> bool:
        """Whether nothing may be copied between these clusters until the other one is
        active: into the one that is left, which must be quiet, and from one that is
        gone.
        """
        if self.moved:
            return False
        gone = self.first.kind is Kind.FAILOVER and self.first.source == source
        return gone or self.first.source == target

    def state(self, step: str) -> StepState | None:
        """What was last said about a step; of `ROLE`, DONE if that was ever said."""
        states = [entry.state for entry in self.entries if entry.step == step]
        if step == ROLE and StepState.DONE in states:
            return StepState.DONE
        return states[-1] if states else None

    def details(self, step: str) -> dict[str, object]:
        """What a step noted, later entries over earlier ones."""
        found: dict[str, object] = {}
        for entry in self.entries:
            if entry.step == step:
                found |= entry.details
        return found


def merged(*journals: Iterable[Entry], pair: str) -> tuple[Entry, ...]:
    """The entries of one pair from several journals, in order, each once. Of several
    first roles the one that was written first counts.
    """
    found: dict[object, Entry] = {}
    for entry in chain.from_iterable(journals):
        if entry.pair == pair:
            found.setdefault(entry.identity, entry)
    began: dict[str, float] = {}
    for entry in found.values():
        began[entry.run] = min(entry.at, began.get(entry.run, entry.at))
    return tuple(
        sorted(
            found.values(),
            key=lambda each: (
                *(each.epoch, began[each.run], each.run, each.number, each.at),
            ),
        )
    )


def role(entries: Sequence[Entry], pair: PairConfig) -> Role:
    """Of these entries of the pair; without any, as configured, with epoch 0."""
    newest = newest_role(entries)
    if newest is None:
        return Role(active=pair.active, epoch=0, since=0.0)
    return Role(active=newest.target, epoch=newest.epoch, since=newest.at)


def newest_role(entries: Sequence[Entry]) -> Entry | None:
    """The entry that gives the pair its role, if there is one."""
    made = [entry for entry in entries if _makes_active(entry)]
    return max(made, key=lambda entry: entry.epoch, default=None)


def epochs(entries: Sequence[Entry]) -> Epochs:
    """What these entries of a pair know."""
    made = newest_role(entries)
    return Epochs(
        role=0 if made is None else made.epoch,
        begun=max((entry.epoch for entry in entries), default=0),
    )


def leaves_tail(entries: Sequence[Entry], alias: str) -> bool:
    """Whether a cluster may have records that were not copied: only if the pair's role
    is that of a failover out of it.
    """
    made = newest_role(entries)
    return made is not None and (made.kind, made.source) == (Kind.FAILOVER, alias)


def former_epoch(entries: Sequence[Entry]) -> int:
    """The epoch of the role before this one; 0 if there was none. Runs that were undone
    have epochs, too.
    """
    made = sorted({entry.epoch for entry in entries if _makes_active(entry)})
    return made[-2] if len(made) > 1 else 0


def was_active(entries: Sequence[Entry], alias: str) -> bool:
    """Whether applications have written to a cluster of the pair, as far as these
    entries tell.
    """
    made = [entry for entry in entries if _makes_active(entry)]
    left = {each.source for each in made if each.kind is not Kind.START}
    return alias in left | {each.target for each in made}


def _makes_active(entry: Entry) -> bool:
    return entry.step == ROLE and entry.state is StepState.DONE


def run_of(made: Entry, entries: Sequence[Entry]) -> Run:
    """The run to which an entry belongs, which is one of these."""
    return Run(entries=tuple(each for each in entries if each.run == made.run))


def cut(noted: Mapping[str, object]) -> dict[tuple[str, int], int] | None:
    """Where each log ended when a switch made it stand still, by topic and partition,
    from what the step `fence` noted; None if no one looked.
    """
    found = noted.get("cut")
    if not isinstance(found, dict):
        return None
    return {
        (str(topic), number): int(end)
        for topic, ends in found.items()
        for number, end in enumerate(ends)
    }


def runs(entries: Sequence[Entry]) -> tuple[Run, ...]:
    """The runs of these entries of one pair, oldest first."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.run, []).append(entry)
    return tuple(Run(entries=tuple(each)) for each in found.values())


def open_run(entries: Sequence[Entry]) -> Run | None:
    """The run that is neither through nor undone, if there is one. One that another run
    has overtaken is not: the role has left its source by an epoch as high as its own.
    It began on a cluster that died, and who made the role did not know of it. One that
    made the active cluster, and then gave way to a run that was undone, is open again:
    applications may have no rights yet.
    """
    made = newest_role(entries)

    def overtaken(run: Run) -> bool:
        first = run.first
        return made is not None and (
            made.run != first.run
            and made.source == first.source
            and made.epoch >= first.epoch
        )

    known = runs(entries)
    found = (run for run in reversed(known) if run.open and not overtaken(run))
    if (run := next(found, None)) is not None or made is None:
        return run
    return next((r for r in known if r.first.run == made.run and r.left_off), None)


def to_undo(entries: Sequence[Entry], pair: PairConfig) -> tuple[Run, ...]:
    """The runs away from the active cluster whose steps are to be undone if the open
    one is given up, oldest first: the open one, those whose place it took, and those
    that were given up while a cluster did not answer. None is from before the cluster
    was last left.
    """
    active, last = role(entries, pair).active, open_run(entries)
    run = None if last is None else last.first.run
    moves = (e for e in entries if _makes_active(e) and e.run != run)
    left_at = max((e.epoch for e in moves if e.source == active), default=0)
    found: list[Run] = []
    for each in runs(entries):
        first = each.first
        if first.kind not in {Kind.SWITCH, Kind.FAILOVER}:
            continue
        if first.source != active or first.epoch <= left_at:
            continue
        found.append(each)
        if not (each.open or each.gave_way or any(one.left for one in found)):
            found = []
    return tuple(found) if any(each.open or each.left for each in found) else ()


def pending(entries: Sequence[Entry], pair: PairConfig) -> tuple[Run, ...]:
    """Runs that were given up, and have steps which are not undone as the cluster did
    not answer; none while a run is open, which undoes them itself.
    """
    if open_run(entries) is not None:
        return ()
    return tuple(run for run in to_undo(entries, pair) if run.left)


def pending_text(entries: Sequence[Entry], pair: PairConfig) -> str:
    """The same for people; empty if there is none."""
    found = pending(entries, pair)
    if not found:
        return ""
    first = found[-1].first
    steps = {step for run in found for step in run.left}
    named = ", ".join(step for step in STEPS if step in steps)
    verb = first.kind.lower()
    return (
        f"the {verb} {first.source}->{first.target} was given up while {first.source} "
        f"did not answer: undoing {named} is pending until it does, and a service or "
        f"`mirror {verb} '{way(first)}' --abort` does it"
    )


def undone(run: Run, step: str, *, at: float, by: str) -> Entry:
    """What says that a pending step of a run that ended is undone now; the same entry
    from every writer that knows the run as it is.
    """
    return replace(
        run.last,
        number=max(each.number for each in run.entries) + 1,
        step=step,
        state=StepState.UNDONE,
        at=at,
        by=by,
        details={},
    )


def way(first: Entry) -> str:
    """What a run moves, as commands take it: A->B, or A->B/orders."""
    _, named, scope = first.pair.partition("/")
    return f"{first.source}->{first.target}{named}{scope}"


def owed(entries: Sequence[Entry]) -> Entry | None:
    """The role of a failover whose source has no fence yet, or none of all that was to
    be fenced; None if nothing is owed, or another run is open: it lays and lifts fences
    itself.
    """
    made = newest_role(entries)
    if made is None or made.kind is not Kind.FAILOVER:
        return None
    laid = _fences(made, entries)
    covered = {name for e in laid for k in _LAID for name in e.details.get(k, ())}
    if laid and covered.issuperset(to_fence(made, entries).get(OWED_TOPICS, ())):
        return None
    run = open_run(entries)
    return made if run is None or run.first.run == made.run else None


def to_fence(made: Entry, entries: Sequence[Entry]) -> dict[str, Any]:
    """What the failover that gave this role noted under `OWED`; empty: nothing, as an
    earlier version.
    """
    found = run_of(made, entries).details(BLOCKS[0]).get(OWED)
    return found if isinstance(found, dict) else {}


def _fences(made: Entry, entries: Sequence[Entry]) -> list[Entry]:
    """What says of this role's fence that it is laid."""
    return [e for e in entries if e.kind is Kind.FENCE and e.epoch == made.epoch]


def open_in_other_pair(pair: PairConfig, *journals: Iterable[Entry]) -> Run | None:
    """The open run of another pair of the same clusters, if there is one."""
    members = pair_name(*pair.members)
    known = [tuple(entries) for entries in journals]
    names = {entry.pair for entries in known for entry in entries}
    names -= {pair.name, pair_name(*pair.members, _CANARY)}
    others = (each for each in sorted(names) if each.partition("/")[0] == members)
    runs = (open_run(merged(*known, pair=each)) for each in others)
    return next((run for run in runs if run is not None), None)


def leads_to(entries: Sequence[Entry], pair: PairConfig) -> str:
    """The cluster to which producers write, or will once the open run is done."""
    run = open_run(entries)
    return role(entries, pair).active if run is None else run.first.target


def fence_laid(
    made: Entry,
    entries: Sequence[Entry],
    topics: Collection[str],
    *,
    at: float,
    by: str,
) -> Entry:
    """What says that the fence which this role owed is laid on these topics; from every
    writer it is the same entry, unless an earlier one covers too little. `entries`: of
    the pair now.
    """
    absent = set(to_fence(made, entries).get(OWED_TOPICS, ())).difference(topics)
    return replace(
        made,
        run=f"fence-{made.epoch}",
        number=len(_fences(made, entries)),
        kind=Kind.FENCE,
        step=END,
        at=at,
        by=by,
        details=dict(zip(_LAID, (sorted(topics), sorted(absent)), strict=True)),
    )


def first_member(pair: PairConfig) -> str:
    """The cluster whose journal gets a pair's first role before the other one's."""
    return min(pair.members)


def remark(entries: Sequence[Entry], pair: PairConfig) -> str:
    """What is odd about the pair's first role; empty if nothing is."""
    found = role(entries, pair)
    if found.epoch != FIRST_EPOCH or found.active == pair.active:
        return ""
    by = next(entry.by for entry in entries if entry.run == _FIRST)
    return (
        f"this configuration says active: {pair.active}, but the pair began with "
        f"{found.active} ({by}), which counts"
    )


def first_role(pair: PairConfig, *, at: float, by: str) -> tuple[Entry, ...]:
    """The entries that give a pair its first role. The first to be written to the
    journal of `first_member` decide it, also if configurations differ.
    """
    return tuple(
        Entry(
            pair=pair.name,
            run=_FIRST,
            number=number,
            kind=Kind.START,
            epoch=FIRST_EPOCH,
            source=pair.other_than(pair.active),
            target=pair.active,
            step=step,
            state=StepState.DONE,
            at=at,
            by=by,
        )
        for number, step in enumerate((ROLE, END))
    )


# ---- where a flow begins that has never run ----
#
# Its own positions would be in the cluster that is gone when a failover makes its
# source active, so the step that moves the role notes them in the journal, before
# anyone may write. The flow takes them at its first start, instead of what `start`
# says by then.


BEGINS = "begins"
"""The detail of the entry. Per topic: `id` (hex), and for each partition in `places`
the offset and the leader epoch, as in `progress`."""


def noted_begins(positions: Mapping[TopicPartition, Position]) -> dict[str, Any]:
    """As JSON; `read_begins` reads it."""
    found: dict[str, Any] = {}
    for (topic, number), each in sorted(positions.items()):
        of_topic = found.setdefault(topic, {"id": each.topic_id.hex, "places": {}})
        of_topic["places"][str(number)] = [each.offset, each.leader_epoch]
    return found


def read_begins(details: Mapping[str, Any]) -> dict[TopicPartition, Position] | None:
    """What the details of an entry say; None if they say nothing."""
    if BEGINS not in details:
        return None
    return {
        (topic, int(number)): Position(
            offset=offset, leader_epoch=epoch, topic_id=uuid.UUID(of_topic["id"])
        )
        for topic, of_topic in details[BEGINS].items()
        for number, (offset, epoch) in of_topic["places"].items()
    }


# ---- drills ----
#
# They stand in the journal of the cluster that would take over. A drill is a run of its
# own of one entry, under the key `drill/<pair>`: as that is no pair, readers of roles
# and runs pass over it. Its `details` have the verdict and the most serious findings.


_DRILL = "drill/"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDrill:
    """What the journal says about one."""

    source: str
    target: str
    at: float
    """When it began, epoch seconds."""
    by: str
    verdict: str
    text: str
    ratio: float
    seconds: float
    findings: tuple[str, ...]
    """The most serious ones, in words."""


def keep_drill(
    cluster: Cluster,
    pair: str,
    source: str,
    *,
    epoch: int,
    at: float,
    by: str,
    details: Mapping[str, Any],
) -> None:
    """Add a drill of a failover from `source` to this cluster.

    Raises:
        ClusterError: it does not answer, or refuses.
    """
    entry = Entry(
        pair=f"{_DRILL}{pair}",
        run=uuid.uuid4().hex,
        number=0,
        kind=Kind.FAILOVER,
        epoch=epoch,
        source=source,
        target=cluster.alias,
        step=END,
        state=StepState.DONE,
        at=at,
        by=by,
        details=details,
    )
    journal.copy(cluster, [entry])


def read_drills(entries: Iterable[Entry], pair: str) -> tuple[KeptDrill, ...]:
    """The drills of a pair, oldest first; `entries` of one journal or both."""
    found = {e.identity: _drill_of(e) for e in entries if e.pair == f"{_DRILL}{pair}"}
    return tuple(sorted(found.values(), key=lambda each: each.at))


def _drill_of(entry: Entry) -> KeptDrill:
    details = entry.details
    return KeptDrill(
        source=entry.source,
        target=entry.target,
        at=entry.at,
        by=entry.by,
        verdict=str(details.get("verdict", "")),
        text=str(details.get("text", "")),
        ratio=float(details.get("ratio", 0.0)),
        seconds=float(details.get("seconds", 0.0)),
        findings=tuple(
            f"{each['level']} {each['subject']}: {each['reason']}"
            for each in details.get("findings", ())
        ),
    )
