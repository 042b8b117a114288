"""Follows the journals of pairs: which flows may copy, and which jobs a switch holds.

Main type: `PairFollower`, with a thread per cluster that reads its journal every
second. A flow may copy once its target's journal was read and says, together with the
other one, that its source is active; while a switch is under way, jobs that would
change what it moves wait. It gives a new pair its first role, and brings to each
journal what only the other one has, except what an operator is about to write there.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
import itertools
import threading
import time
from typing import TYPE_CHECKING, Self

import structlog

from mirror import retry
from mirror.clusters.cluster import Cluster
from mirror.config import feeding, own_topics, scopes
from mirror.errors import MirrorError
from mirror.host import process_name
from mirror.log import LogThrottle
from mirror.offsets import progress
from mirror.pairs import journal, roles
from mirror.pairs.journal import JournalReader, Kind
from mirror.pairs.roles import Epochs
from mirror.service import ownership
from mirror.service.ownership import RoleNote
from mirror.service.topics import corrected
from mirror.status.events import Event, EventKind
from mirror.status.values import (
    DrillStatus,
    MemberStatus,
    PairStatus,
    PassiveStatus,
    RunStatus,
)
from mirror.topics import guarding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirror.clusters.topics import TopicPartition
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.errors import UnknownRoleError
    from mirror.offsets.progress import Position
    from mirror.pairs.journal import Entry
    from mirror.pairs.roles import KeptDrill, Role, Run, WriteBlock
    from mirror.status.store import StatusStore


log = structlog.get_logger()

_PAUSE_SECONDS = 1.0
_AGAIN = retry.Backoff(0.5, 2.0)
"""After a failure: roles are followed within seconds of a cluster's first answer."""


class PairFollower:
    """Knows the roles of all pairs. Thread-safe."""

    def __init__(
        self,
        config: MirrorConfig,
        store: StatusStore,
        *,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when a journal says something new."""
        self._changed = changed
        self._pairs = dict(config.recovery)
        self._pairs_of = config.pairs_of
        self._feeding = config.pair_feeding
        self._rested: dict[tuple[str, str], int] = {}
        """Since which role flows rest that a pair feeds with, as their target says."""
        self._clusters = config.clusters
        self._store = store
        self._by = f"service {process_name()}"
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._members = {
            alias: PairMember()
            for pair in self._pairs.values()
            for alias in pair.members
        }
        self._noted: dict[str, RoleNote] = {}
        """What flows know of pairs, by their names."""
        self._known = {
            each.name: KnownPair.read(each, {}) for each in self._pairs.values()
        }
        """What the journals together say, worked out once per entry that is new."""
        self._incomplete = set(self._members)
        """Whose journals may lack something: not looked for in each round."""
        self._passive: dict[tuple[str, str], PassiveStatus] = {}
        self._began = time.time()
        self._told: dict[str, float] = {}
        """Until when the drills of each pair were looked at for events."""
        self._threads = [
            threading.Thread(
                target=self._follow, args=(alias,), name=f"mirror-journal-{alias}"
            )
            for alias in self._members
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def adopt(self, clusters: Mapping[str, ClusterConfig]) -> None:
        """Connect as these say from now on."""
        self._clusters = clusters

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def may_copy(self, source: str, target: str) -> bool | None:
        """Whether the flow between these clusters may copy now; None while the target's
        journal was never read, or a pair has no role yet. Where pairs have names, it
        may copy all but what belongs to those that it `rests_in`.
        """
        pairs = self._pairs_of(source, target)
        fed_by = self._feeding(source, target)
        if not pairs and fed_by is None:
            return True
        with self._lock:
            if fed_by is not None:
                return self._may_feed(fed_by, source, target)
            if not self._members[target].read_at:
                return None
            if pairs[0].scope is None:
                return self._may_copy(pairs[0], source, target)
            known = [self._known[pair.name] for pair in pairs]
            if not all(each.role.epoch or each.problem for each in known):
                return None
            # While one fails over, no service may come back and write for the flow.
            return not any(self._fails_over(pair, source) for pair in pairs)

    def rests_in(self, source: str, target: str) -> tuple[PairConfig, ...]:
        """The pairs with names whose topics and groups the flow leaves alone now."""
        with self._lock:
            return tuple(
                pair
                for pair in self._pairs_of(source, target)
                if pair.scope is not None and not self._may_copy(pair, source, target)
            )

    def narrowed(self, flow: FlowConfig) -> FlowConfig:
        """The flow with what it copies now."""
        return scopes.without(flow, self.rests_in(flow.source, flow.target))

    def _may_copy(self, pair: PairConfig, source: str, target: str) -> bool | None:
        run = self._known[pair.name].run
        if run is not None and run.stops(source, target):
            return False
        role = self._known[pair.name].role
        if not role.epoch:  # a service with another configuration may be first
            return None
        return pair.both_ways or role.active == source

    def _may_feed(self, pair: PairConfig, source: str, target: str) -> bool | None:
        known = self._known[pair.name]
        may = known.may_feed(source, self._rested.get((source, target), 0))
        active = known.role.active == source
        return None if may and active and not self._members[source].read_at else may

    def epochs(self, source: str, target: str) -> Mapping[str, Epochs]:
        """What the journals know, by pair of these clusters; of runs what the target's
        own knows, since a note there has to fit that one, too, where the source is
        lost. Of pairs with names those that have lost entries are missing: the flow
        leaves them alone.
        """
        with self._lock:
            return {
                pair.name: self._epochs(pair, target)
                for pair in self._pairs_of(source, target)
                if pair.scope is None or not self._known[pair.name].problem
            }

    def _epochs(self, pair: PairConfig, alias: str) -> Epochs:
        role = roles.epochs(self._known[pair.name].entries).role
        here = roles.merged(self._members[alias].entries, pair=pair.name)
        return Epochs(role=role, begun=max(role, roles.epochs(here).begun))

    def note_unknown_role(self, flow: str, error: UnknownRoleError) -> None:
        """A run of the flow found that earlier ones knew more of a pair."""
        epochs = Epochs(role=error.role, begun=error.begun)
        with self._lock:
            self._note(RoleNote(epochs=epochs, flow=flow), error.pair)
            self._work_out(self._pairs[error.pair])
        self._changed()

    def _note(self, noted: RoleNote, name: str) -> None:
        self._noted[name] = self._noted.get(name, RoleNote()) | noted

    def note_rest(self, source: str, target: str, epoch: int) -> None:
        """Another flow feeds the target instead of this one since this role."""
        with self._lock:
            known = self._rested.get((source, target), 0)
            self._rested[source, target] = max(known, epoch)

    def resting(self) -> frozenset[str]:
        """The names of the flows out of passive clusters to those that pairs feed."""
        with self._lock:
            active = {name: each.role.active for name, each in self._known.items()}
        return feeding.resting(self._pairs.values(), active)

    def copying(self, config: MirrorConfig, own: str) -> MirrorConfig:
        """The configuration as the flow `own` sees it: without others that rest."""
        return feeding.copying(config, self.resting(), own)

    def why_rests(self, source: str, target: str) -> str:
        """In words, of a flow that a pair feeds with; else empty."""
        pair = self._feeding(source, target)
        if pair is None:
            return ""
        active = self.role(pair).active
        return f"{active} is active in {pair.name} and feeds {target}"

    def _fails_over(self, pair: PairConfig, source: str) -> bool:
        run = self._known[pair.name].run
        if run is None or run.moved:
            return False
        return run.first.kind is Kind.FAILOVER and run.first.source == source

    def trouble(self, source: str, target: str) -> str:
        """Why a journal cannot be read, first the target's, or has lost entries; empty
        if nothing is wrong.
        """
        with self._lock:
            pairs = (*self._pairs_of(source, target), self._feeding(source, target))
            members = (self._members.get(alias) for alias in (target, source))
            errors = [each.error for each in members if each is not None]
            errors += [self._known[each.name].problem for each in pairs if each]
            return next(filter(None, errors), "")

    def switching(self, source: str, target: str) -> bool:
        """Whether a switch or failover of these clusters is under way."""
        with self._lock:
            pairs = self._pairs_of(source, target)
            return any(self._known[pair.name].run is not None for pair in pairs)

    def cut(self, pair: PairConfig) -> dict[TopicPartition, int] | None:
        """Where the logs of the cluster ended that was active before, by topic and
        partition; None if its role did not come from a planned switch.
        """
        entries = self.entries(pair)
        made = roles.newest_role(entries)
        if made is None or made.kind is not Kind.SWITCH:
            return None
        return roles.cut(roles.run_of(made, entries).details(roles.BLOCKS[0])) or {}

    def entries(self, pair: PairConfig) -> tuple[Entry, ...]:
        """What both journals say about a pair, as of their last looks."""
        with self._lock:
            return self._known[pair.name].entries

    def role(self, pair: PairConfig) -> Role:
        """Which cluster is active, as of the last looks."""
        with self._lock:
            return self._known[pair.name].role

    def drills(self, pair: PairConfig) -> tuple[KeptDrill, ...]:
        """Those of a failover from the active cluster, oldest first."""
        with self._lock:
            return self._known[pair.name].drilled

    def show_passive(
        self,
        pair: PairConfig,
        alias: str,
        *,
        error: str = "",
        writes: int | None = None,
        tail: int | None = None,
    ) -> None:
        """Show what a look at a cluster of a pair found. `writes` and `tail`: None if
        they were not counted this time.
        """
        with self._lock:
            last = self._passive.get((pair.name, alias), PassiveStatus())
            self._passive[pair.name, alias] = PassiveStatus(
                error=error,
                writes=last.writes if writes is None else writes,
                tail=last.tail if tail is None else tail,
            )

    def passive(self) -> frozenset[str]:
        """The names of the flows into the active clusters of all pairs that have no
        names; what belongs to the others is copied one way anyhow.
        """
        with self._lock:
            return frozenset(
                f"{pair.other_than(active)}->{active}"
                for pair in self._pairs.values()
                if pair.scope is None
                for active in [self._known[pair.name].role.active]
            )

    def begins(
        self, source: str, target: str
    ) -> Mapping[TopicPartition, Position] | None:
        """Where the flow between these clusters begins if it has never run; None: where
        its `start` says.
        """
        found: dict[TopicPartition, Position] | None = None
        for pair in self._pairs_of(source, target):
            entries = self.entries(pair)
            made = roles.newest_role(entries)
            if made is None or made.target != source:
                continue
            of_run = roles.run_of(made, entries).details(roles.ROLE)
            if (noted := roles.read_begins(of_run)) is None:
                continue
            known = found or {}
            first = {k: min(known.get(k, p), p, key=_offset) for k, p in noted.items()}
            found = {**known, **first}
        return found

    def failed_over(self, source: str, target: str) -> float:
        """When the last failover made the source of this flow active (epoch seconds),
        so that nothing could move the flow's positions; 0 if its role comes from
        elsewhere.
        """
        made = (
            roles.newest_role(self.entries(pair))
            for pair in self._pairs_of(source, target)
        )
        return max(
            (
                each.at
                for each in made
                if each is not None
                and (each.kind, each.target) == (Kind.FAILOVER, source)
            ),
            default=0.0,
        )

    def _follow(self, alias: str) -> None:
        pause = 0.0
        config = self._clusters[alias]
        cluster = Cluster(config, client_id="mirror.pairs")
        member = self._members[alias]
        try:
            reader = JournalReader(cluster)
            while not self._closing.is_set():
                if config != self._clusters[alias]:
                    cluster.close()
                    config = self._clusters[alias]
                    cluster = Cluster(config, client_id="mirror.pairs")
                    reader = JournalReader(cluster)
                try:
                    if not cluster.cluster_id:
                        cluster.connect()
                        self._guard(cluster)
                    if not member.read_at:
                        self._read_role_notes(alias, cluster)
                    there = reader.read(wait=False, seconds=0.0)
                    self._learn(alias, there)
                    self._complete_journal(alias, cluster)
                    pause = _PAUSE_SECONDS
                    member.throttle.clear()
                except MirrorError as error:
                    pause = _AGAIN.after(pause)
                    self._failed(member, str(error))
                except Exception as error:
                    log.exception("reading the journal failed", cluster=alias)
                    pause = _AGAIN.after(pause)
                    self._failed(member, f"{type(error).__name__}: {error}"[:300])
                self._show()
                self._closing.wait(pause)
        finally:
            cluster.close()

    def _guard(self, cluster: Cluster) -> None:
        """Flows look each minute, and tell what is left, but wait for their role."""
        topic = own_topics.JOURNAL.on(
            cluster.alias, journal.TOPIC, cluster.own_replicas
        )
        with contextlib.suppress(MirrorError):
            for wrong in guarding.correct(cluster, [topic]).corrected:
                self._store.trail.add(corrected(cluster, wrong))

    def _learn(self, alias: str, there: tuple[Entry, ...]) -> None:
        with self._lock:
            member = self._members[alias]
            changed = there != member.there or not member.read_at
            lost = journal.missing(member.entries, there) if changed else ()
            if changed:  # no known role gives way to an older one
                member.entries = (*there, *lost)
            member.there, member.error = there, ""
            member.read_at, member.read_monotonic = time.time(), time.monotonic()
            for pair in self._pairs.values() if changed else ():
                if alias in pair.members:
                    self._work_out(pair)
                    self._incomplete.update(pair.members)
        if lost:
            log.warning(
                "the journal has lost entries", cluster=alias, entries=len(lost)
            )
        if changed:
            self._changed()

    def _work_out(self, pair: PairConfig) -> None:
        journals = {each: self._members[each].entries for each in pair.members}
        noted = self._noted.get(pair.name)
        self._known[pair.name] = KnownPair.read(pair, journals, noted)

    @progress.reading_once()
    def _read_role_notes(self, alias: str, cluster: Cluster) -> None:
        """Before the journal is read at first: what flows into this cluster know. A run
        that begins meanwhile is noted behind its entries.

        Raises:
            MirrorError: it does not answer now.
        """
        for pair in self._pairs.values():
            if alias not in pair.members:
                continue
            try:
                noted = ownership.read_role_notes(pair, [cluster])
                with self._lock:
                    self._note(noted, pair.name)
            except MirrorError as error:
                if error.retriable:
                    raise
                # The flow itself says what is wrong there, and copies nothing.
                log.warning("progress cannot be read", pair=pair.name, error=str(error))

    def _failed(self, member: PairMember, error: str) -> None:
        with self._lock:
            member.error = error
        if member.throttle.due(error):
            log.warning("the journal cannot be read", error=error)

    def _complete_journal(self, alias: str, cluster: Cluster) -> None:
        """Write to this cluster's journal what it is missing.

        Raises:
            MirrorError: the cluster does not let us.
        """
        with self._lock:
            incomplete = alias in self._incomplete
            self._incomplete.discard(alias)
        try:
            for pair in self._pairs.values() if incomplete else ():
                if alias in pair.members and (lacks := self._missing(pair, alias)):
                    journal.copy(cluster, lacks)
        except BaseException:
            with self._lock:
                self._incomplete.add(alias)
            raise

    def _missing(self, pair: PairConfig, alias: str) -> tuple[Entry, ...]:
        with self._lock:
            known, there = self._known[pair.name], self._members[alias].there
            read = all(self._members[each].read_at for each in pair.members)
        entries, run = known.entries, known.run
        if not entries:
            decides = read and not known.problem and alias == roles.first_member(pair)
            made = roles.first_role(pair, at=time.time(), by=self._by)
            return made if decides else ()
        if run is not None and run.first.kind is Kind.SWITCH and not run.moved:
            # Its operator writes both journals, and may still undo it.
            entries = tuple(each for each in entries if each.run != run.first.run)
        return journal.missing(entries, there)

    def _show(self) -> None:
        with self._lock:
            pairs = tuple(
                status_of(
                    pair,
                    self._known[pair.name],
                    self._members,
                    passive={
                        alias: self._passive.get((pair.name, alias), PassiveStatus())
                        for alias in pair.members
                    },
                )
                for pair in self._pairs.values()
            )
        self._store.pairs = pairs
        for pair in pairs:
            self._report_readiness(pair)

    def _report_readiness(self, pair: PairStatus) -> None:
        """An event for each new drill with a worse verdict than the one before."""
        with self._lock:
            known = self._told.get(pair.name, self._began)
            self._told[pair.name] = max(known, *(each.at for each in pair.drills), 0.0)
        for event in readiness_events(pair.name, pair.drills, since=known):
            self._store.trail.add(event)


def _offset(position: Position) -> int:
    return position.offset


# ---- whether a pair has become less ready for a failover, by its drills. Pure ----
#
# Main function: `readiness_events`, an event for each drill that is worse than the one
# before.


_VERDICTS = ("READY", "DEGRADED", "NOT READY")
_MOST_FINDINGS = 5


def readiness_events(
    pair: str, drills: Sequence[DrillStatus], *, since: float
) -> Iterator[Event]:
    """`drills`: the newest first; `since`: epoch seconds, those before are known."""
    for now, before in itertools.pairwise(drills):
        if now.at > since and _rank(now) > _rank(before):
            yield Event(
                kind=EventKind.READINESS_FELL,
                flow=f"{now.source}->{now.target}",
                subject=pair,
                text=f"was {before.verdict}; {now.text}",
                details={"findings": list(now.findings[:_MOST_FINDINGS])},
            )


def _rank(drill: DrillStatus) -> int:
    return _VERDICTS.index(drill.verdict) if drill.verdict in _VERDICTS else 0


# ---- what the status says about a pair, from what its journals say. Pure ----
#
# Main function: `status_of`; main types: `PairMember`, what one cluster's journal
# said at the last look, and `KnownPair`, what the journals of a pair say together.


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
    def read(
        cls,
        pair: PairConfig,
        journals: Mapping[str, tuple[Entry, ...]],
        noted: RoleNote | None = None,
    ) -> Self:
        """`journals`: by the alias of a cluster; `noted`: what flows know of them."""
        entries = roles.merged(*journals.values(), pair=pair.name)
        role = roles.role(entries, pair)
        problem = ownership.lost_entries(pair, entries, noted or RoleNote())
        both = [each for journal in journals.values() for each in journal]
        drilled = tuple(
            each
            for each in roles.read_drills(both, pair.name)
            if each.source == role.active
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
