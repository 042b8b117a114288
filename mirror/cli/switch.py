"""`mirror switch` and `mirror failover`: make a pair's other cluster the active one.

Both do the steps of `switching` and can be stopped and run again anywhere; the journal
on the clusters says where they go on.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
import gc
import json
import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from mirror import patience
from mirror.cli import interrupts
from mirror.cli.options import (
    ConfigFile,
    DryRun,
    FlowName,
    Yes,
    agreed,
    confirmed,
    flow_of,
    pair_of,
    read_config,
)
from mirror.cli.output import Form, Output, complain, table
from mirror.cli.switch_output import StepLines, show_end, show_plan, show_undo
from mirror.clusters.at_once import begun
from mirror.clusters.reach import Reach
from mirror.config.section_names import scoped_flow
from mirror.errors import ClusterError, MirrorError, UnreachableError
from mirror.host import operator_name
from mirror.offsets import progress
from mirror.pairs.journal import JournalReader, Kind
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.pairs.journal import Entry
    from mirror.recovery.failback import Returned
    from mirror.recovery.procedure import Known
    from mirror.recovery.runner import Operator, Terms
    from mirror.recovery.stage import Stage, Step

    _Answered = tuple[Cluster, tuple[Entry, ...] | None]


_FIRST = 10.0
"""How many seconds each of a cluster's bootstrap servers may take to answer at all."""

StepTimeout = Annotated[
    float,
    typer.Option("--step-timeout", min=1.0, help="Seconds that each step may wait."),
]
Abort = Annotated[
    bool, typer.Option("--abort", help="Undo an open run instead of going on with it.")
]


def switch(
    flow: FlowName,
    *,
    config: ConfigFile,
    abort: Abort = False,
    abort_transactions: Annotated[
        bool,
        typer.Option(
            "--abort-transactions",
            help="In step 3, abort transactions that are still open after half of the "
            "step's time. What they wrote is lost, also what Flink has prepared.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="With --abort: B is lost for good, A is active."),
    ] = False,
    step_timeout: StepTimeout = 60.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Make B the active cluster of the pair A<->B, with A still there.

    Producers are stopped on A, everything is copied, consumers are stopped, their
    positions are set on B, and B becomes active: then the flow A->B rests and B->A
    copies. Nothing is lost, and consumers go on at the very next record.

    Unless hooks do it, stop the producers of A when step 3 waits for that, and the
    consumers when step 5 does; then start them at B. Until step 7 a failure undoes what
    was done, and so does --abort; from step 7 on the only way is forward. Whatever
    stops the command, the same command goes on where it was, on any machine.

    If B dies, --abort needs only A. Once step 7 has begun, B may be active: then
    --abort needs B's journal, or --force if B is lost for good.

    \b
    Examples:
      mirror switch 'A->B' -c mirror.yaml --dry-run
      mirror switch A/B -c mirror.yaml
      mirror switch A/B -c mirror.yaml --abort
      mirror switch A/B/orders -c mirror.yaml
    """
    asked = _Asked(
        kind=Kind.SWITCH, flow=flow, config=config, abort=abort, dry_run=dry_run,
        yes=yes, output=output, step_timeout=step_timeout, force=force,
        abort_transactions=abort_transactions,
    )  # fmt: skip
    _run(asked)


def failover(
    flow: FlowName,
    *,
    config: ConfigFile,
    abort: Abort = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Although A answers: do not ask it anything. With --abort: B is lost "
            "for good, A is active.",
        ),
    ] = False,
    role_only: Annotated[
        bool,
        typer.Option(
            "--role-only",
            help="B is active in fact, and journals that have lost entries do not say "
            "so: only note that.",
        ),
    ] = False,
    step_timeout: StepTimeout = 60.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Make B the active cluster of the pair A<->B, because A is gone.

    The copy A->B is stopped and fenced, consumers' positions are set on B from what is
    there, and B becomes active. At the end the command shows what was not copied, as of
    the service's last look at A, and how old the positions are. Such records stay in
    A's logs.

    If A answers, this is a switch, which loses nothing: --force does it all the same.
    Whatever stops the command, the same command goes on where it was.

    If a journal has lost entries, the pair stops, and `mirror pair` says so. Then
    --role-only says that B is the active cluster: it changes nothing but the role.

    \b
    Examples:
      mirror failover 'A->B' -c mirror.yaml --dry-run
      mirror failover A/B -c mirror.yaml --yes -o json
    """
    asked = _Asked(
        kind=Kind.FAILOVER, flow=flow, config=config, abort=abort, dry_run=dry_run,
        yes=yes, output=output, step_timeout=step_timeout, force=force,
        role_only=role_only,
    )  # fmt: skip
    _run(asked)


def failback(
    flow: FlowName,
    *,
    config: ConfigFile,
    abort: Abort = False,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore",
            help="First fill topics of A from B that are gone or were re-created.",
        ),
    ] = False,
    step_timeout: StepTimeout = 60.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Go home to A after a failover from A to B: write the flow as B/A.

    First it says what A is like: as it was, empty, rebuilt, with re-created topics or
    with more partitions, and how many of its records B does not have (its tail). It
    refuses unless A has the topics that were copied and its tail is settled. Where A
    has more partitions, B gets as many, and the command says from when on keys are
    spread differently. Where topics of A are gone or were re-created, or A has another
    cluster id, --restore creates or empties them and fills them from B: what was born
    on A comes home as it was. Then it makes the switch B->A: nothing is lost, and
    nothing is read or copied twice.

    Until step 7 a failure undoes the switch, and so does --abort; partitions that were
    added stay. Whatever stops the command, run it again, on any machine.

    \b
    Examples:
      mirror failback 'B->A' -c mirror.yaml --dry-run
      mirror failback B/A -c mirror.yaml
      mirror failback B/A -c mirror.yaml --restore
    """
    asked = _Asked(
        kind=Kind.SWITCH, flow=flow, config=config, abort=abort, dry_run=dry_run,
        yes=yes, output=output, step_timeout=step_timeout, failback=True,
        restore=restore,
    )  # fmt: skip
    _run(asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The command line."""

    kind: Kind
    flow: str
    config: Path
    abort: bool
    dry_run: bool
    yes: bool
    output: Form
    step_timeout: float
    force: bool = False
    role_only: bool = False
    abort_transactions: bool = False
    failback: bool = False
    """Whether to look first what the cluster is like to which it goes."""
    restore: bool = False

    @property
    def spares_source(self) -> bool:
        """Whether the source is not asked, although it may answer."""
        return self.force and self.kind is Kind.FAILOVER and not self.abort


@progress.reading_once()
def _run(asked: _Asked) -> None:
    quicken()
    _require_together(asked)
    chosen = read_config(asked.config)
    ends, scope = scoped_flow(asked.flow)
    given = flow_of(chosen, ends)
    pair = pair_of(chosen, given, scope)
    asked = replace(asked, flow=pair.way(given.source, given.target))
    with Reach(chosen.clusters, client_id="mirror.switch") as reach:
        work = _Work(asked, chosen, pair, given)
        with interrupts.telling(work.interrupted):
            work.do(reach)


@dataclass(slots=True)
class _Work:
    """What a command does, and how far it has come."""

    asked: _Asked
    config: MirrorConfig
    pair: PairConfig
    given: FlowConfig
    operator: Operator | None = None
    prepares: str = ""
    """What it may have changed before it begins a run."""

    def do(self, reach: Reach) -> None:
        """
        Raises:
            MirrorError: it is refused, or fails.
        """
        asked = self.asked
        asking = _asking(asked, self.given, self.config, reach)
        # Brokers answer while Python loads these.
        from mirror.pairs import roles
        from mirror.recovery.steps import STEPS

        met = _meet(asked, self.pair, self.given, asking)
        if met.nothing:
            self._settle_beside(met)
            complain(met.nothing)
            return
        lines = StepLines(asked.output, {s: n for n, s in enumerate(roles.STEPS, 1)})
        stage = self._stage(met, lines, reach)
        if asked.role_only:
            self._declare(met, lines)
        elif asked.abort:
            self._abort(met, stage, STEPS, lines)
        else:
            self._forward(met, stage, STEPS, lines)

    def _stage(self, met: _Met, lines: StepLines, reach: Reach) -> Stage:
        from mirror.recovery.stage import Stage, both_flows

        asked, ends = self.asked, (self.given.source, self.given.target)
        flow, reverse = both_flows(self.config, self.pair, *ends)
        source, target = map(met.clusters.get, ends)
        return Stage(
            kind=asked.kind,
            config=_as_it_is(self.config, flow, source, reach),
            pair=self.pair,
            flow=flow,
            reverse=reverse,
            source_or_none=source,
            target_or_none=target,
            notes={},
            note=lambda _notes: None,
            tell=lambda text: lines.tell("assess", text),
            show=lines.show,
            deadline=time.monotonic() + asked.step_timeout,
            unasked=asked.spares_source,
            abort_transactions=asked.abort_transactions,
            agree=lambda question: asked.yes or confirmed(question),
        )

    def _abort(
        self, met: _Met, stage: Stage, steps: Mapping[str, Step], lines: StepLines
    ) -> None:
        from mirror.pairs import roles
        from mirror.recovery import procedure

        asked, known = self.asked, met.known
        lost = asked.force and stage.target_or_none is None
        if known.run is not None:
            answers = lost or stage.target_or_none is not None
            procedure.require_undoable(known.run, known.role, answers=answers)
        if asked.dry_run:
            runs = reversed(roles.to_undo(known.entries, self.pair))
            names = dict.fromkeys(step for run in runs for step in run.left)
            show_undo([*names], lines)
            return
        operator = self._operate(met)
        self._ask("Undo")
        done = operator.abort(steps, stage, self._terms(lines), target_lost=lost)
        complain(*(f"{step} {text}" for step, text in done))
        if operator.left:
            complain(operator.left)

    def _declare(self, met: _Met, lines: StepLines) -> None:
        """Note the role, and do what follows from it on clusters that answer.

        Raises:
            MirrorError: the journals lack nothing, or a cluster refuses.
        """
        name, active = self.pair.name, self.given.target
        operator = self._operate(met, declares=True)
        if not operator.due:
            raise MirrorError(
                f"the journals of {name} lack nothing: {operator.role.active} is the "
                f"active cluster. To make {active} active, leave out --role-only"
            )
        question = f"Note that {active} is the active cluster of {name}?"
        agreed(question, yes=self.asked.yes)
        operator.declare(self._terms(lines))
        complain(f"{active} is the active cluster of {name} now")
        self._settle(operator, met)

    def _forward(
        self, met: _Met, stage: Stage, steps: Mapping[str, Step], lines: StepLines
    ) -> None:
        asked = self.asked
        _require_selection(stage)
        home = Home(
            stage, asked.output, seconds=asked.step_timeout, wanted=asked.failback,
            restores=asked.restore,
        )  # fmt: skip
        if asked.dry_run:
            if (run := met.known.run) is not None:
                complain(f"{run.text}: without --dry-run it goes on from there")
            home.plan()
            return
        operator = self._operate(met)
        home.look(operator)
        self._ask("Begin or go on with")
        if asked.kind is Kind.SWITCH and operator.run is None:
            self._settle(operator, met)
        if operator.due:
            if asked.failback:
                self.prepares = "topics may have been filled, or been given partitions"
            home.prepare(operator)
            operator.carry_out(steps, stage, self._terms(lines))
        if not operator.due:
            complain(f"{stage.flow.target} is the active cluster now: nothing to do")
        elif asked.output is Form.TABLE:
            show_end(operator, lines)

    def _operate(self, met: _Met, *, declares: bool = False) -> Operator:
        from mirror.recovery.runner import Operator

        source, target = self.given.source, self.given.target
        with patience.until(time.monotonic() + self.asked.step_timeout):
            self.operator = Operator(
                self.pair,
                self.asked.kind,
                (source, met.clusters.get(source)),
                (target, met.clusters.get(target)),
                declares=declares,
            )
        return self.operator

    def _ask(self, what: str) -> None:
        kind = self.asked.kind.lower()
        which = "its" if self.pair.scope else "all"
        question = f"{what} the {kind} {self.asked.flow}, of {which} topics and groups?"
        agreed(question, yes=self.asked.yes)

    def _terms(self, lines: StepLines) -> Terms:
        from mirror.recovery.runner import Terms

        seconds = self.asked.step_timeout
        return Terms(step_seconds=seconds, tell=lines.tell, did=lines.did)

    def _settle_beside(self, met: _Met) -> None:
        """A fence is pending also where there is nothing to switch."""
        from mirror.pairs import roles

        asked = self.asked
        changes = asked.kind is Kind.SWITCH and not (asked.abort or asked.dry_run)
        acl = self.pair.fence == "acl"
        pending = roles.owed(met.known.entries) if acl else None
        if changes and (pending or asked.yes):
            if pending:
                agreed(f"Fence producers on {pending.source} now?", yes=asked.yes)
            self._settle(self._operate(met), met)

    def _settle(self, operator: Operator, met: _Met) -> None:
        if self.pair.fence == "acl":
            self.prepares = "fences may have been laid or lifted"
        clusters = tuple(met.clusters.values())
        with patience.until(time.monotonic() + self.asked.step_timeout):
            _settle(self.config, self.pair, clusters, operator.entries)

    def interrupted(self) -> list[str]:
        """Which run is open, how to go on and how to undo it; by line."""
        from mirror.recovery import procedure

        operator = self.operator
        forward = [word for word in interrupts.typed() if word != "--abort"]
        run = None if operator is None else operator.run
        began = operator is not None and operator.began
        if run is None and not began and self.prepares:
            return [
                f"interrupted: {self.prepares}, and no run has begun",
                f"go on: {shlex.join(forward)}",
            ]
        return procedure.interrupted(
            run,
            self.pair,
            began=began,
            undoes=self.asked.abort,
            at=time.time(),
            forward=shlex.join(forward),
            undo=shlex.join([*forward, "--abort"]),
        )


def _require_selection(stage: Stage) -> None:
    """Refuse a configuration that selects less than the services do, of both flows,
    before anything else: all services follow the role, so what it leaves out would
    change sides without being fenced, drained or translated. Also where an open run
    goes on with a later step; to undo, notes are enough.
    """
    from mirror.pairs import selection

    ends = (stage.source_or_none, stage.target_or_none)
    with patience.until(stage.deadline):
        for flow in (stage.flow.name, stage.reverse.name):
            complain(*selection.require(stage.config, flow, stage.pair, ends))


def _require_together(asked: _Asked) -> None:
    if asked.force and asked.kind is Kind.SWITCH and not asked.abort:
        raise typer.BadParameter("a switch has it with --abort", param_hint="--force")
    if asked.role_only and (asked.abort or asked.dry_run or asked.force):
        raise typer.BadParameter(
            "it goes without --abort, --dry-run and --force", param_hint="--role-only"
        )


def _as_it_is(
    config: MirrorConfig, flow: FlowConfig, source: Cluster | None, reach: Reach
) -> MirrorConfig:
    """The configuration without flows that rest now."""
    from mirror.pairs import resting

    def answering(alias: str) -> Cluster:
        if alias == flow.source and source is None:  # also with --force
            raise UnreachableError(f"cluster {alias} does not answer")
        return reach(alias)

    return resting.copying(config, answering, flow.name)


def _settle(
    config: MirrorConfig,
    pair: PairConfig,
    clusters: Sequence[Cluster],
    entries: Callable[[], Sequence[Entry]],
) -> None:
    """Lay the fence that an earlier failover owes, and undo what is pending.

    Raises:
        MirrorError: that cannot be done.
    """
    from mirror.recovery import pending

    for cluster in clusters:
        if pending.settle_fence(config, pair, cluster, entries, by=operator_name()):
            complain(f"producers are fenced on {cluster.alias} now: that was pending")


def _asking(
    asked: _Asked, flow: FlowConfig, config: MirrorConfig, reach: Reach
) -> dict[str, Future[_Answered]]:
    """Both clusters by alias, or the one that is to be asked, as they answer; each with
    its journal, if that could be read at once.
    """

    def connected(alias: str) -> _Answered:
        servers = len(config.clusters[alias].bootstrap_servers)
        most = min(asked.step_timeout, _FIRST * servers)
        with patience.until(time.monotonic() + most):
            made = reach(alias)
        with patience.until(0.0), suppress(ClusterError):  # `_meet` reads it again
            return made, JournalReader(made).read(wait=False, seconds=0.0)
        return made, None

    aliases = [flow.target] if asked.spares_source else [flow.target, flow.source]
    return {alias: begun([partial(connected, alias)])[0] for alias in aliases}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Met:
    """What the clusters answered at first."""

    clusters: Mapping[str, Cluster]
    known: Known
    nothing: str
    """Why there is nothing to do; empty if there is."""


def _meet(
    asked: _Asked,
    pair: PairConfig,
    flow: FlowConfig,
    asking: Mapping[str, Future[_Answered]],
) -> _Met:
    """What is so before anything waits.

    Raises:
        MirrorError: the command is refused, or too few clusters answer.
    """
    from mirror.recovery import procedure
    from mirror.service import role_notes

    clusters: dict[str, Cluster] = {}
    journals: dict[str, tuple[Entry, ...]] = {}
    why: dict[str, str] = {}
    waiting = {future: alias for alias, future in asking.items()}
    while waiting and not _decided(asked, pair, flow, journals):
        for each in wait(waiting, return_when=FIRST_COMPLETED).done:
            alias = waiting.pop(each)
            try:
                clusters[alias], read = each.result()
            except ClusterError as error:
                why[alias] = str(error)
                continue
            if read is not None:
                journals[alias] = read
    if waiting:
        patience.end_at(time.monotonic())  # no one waits for a silent cluster
    if not clusters:
        raise MirrorError("; ".join(why.values()))
    for alias in clusters.keys() - journals.keys():
        if asked.kind is not Kind.FAILOVER or alias == flow.target:
            with patience.until(time.monotonic() + asked.step_timeout):
                journals[alias] = JournalReader(clusters[alias]).read(wait=False)
    known = procedure.known(pair, journals)
    if not asked.role_only:
        with patience.until(time.monotonic() + asked.step_timeout):
            role_notes.require(pair, known.entries, clusters.values())
    nothing = _answer(asked, flow, known, clusters, why)
    return _Met(clusters=clusters, known=known, nothing=nothing)


def _decided(
    asked: _Asked,
    pair: PairConfig,
    flow: FlowConfig,
    journals: Mapping[str, Sequence[Entry]],
) -> bool:
    """Whether there is nothing to do, whatever further journals say."""
    from mirror.recovery import procedure

    if asked.abort or asked.role_only:
        return False
    known = procedure.known(pair, journals)
    return known.decides and known.role.active == flow.target


def _answer(
    asked: _Asked,
    flow: FlowConfig,
    known: Known,
    clusters: Mapping[str, Cluster],
    why: Mapping[str, str],
) -> str:
    """Why there is nothing to do; empty if there is. Raises as `_meet`."""
    from mirror.recovery import procedure

    source, target = flow.source, flow.target
    if asked.role_only:
        complain(*why.values())
        return ""
    asks = (
        procedure.Asks.FAILBACK
        if asked.failback
        else procedure.Asks(asked.kind.lower())
    )
    try:
        if asked.abort:
            nothing = procedure.undo_answer(asked.kind, source, target, known)
        else:
            restores = asked.restore
            nothing = procedure.answer(asks, source, target, known, restores=restores)
    except MirrorError:
        complain(*why.values())
        raise
    if asked.abort or nothing:
        complain(*why.values())
        return nothing
    if target not in clusters:
        raise MirrorError(why[target])
    if asked.kind is Kind.SWITCH and source not in clusters:
        raise MirrorError(
            f"{why[source]}. If {source} is gone, use `mirror failover '{asked.flow}'`"
        )
    if asked.kind is Kind.FAILOVER and source in clusters:
        raise procedure.source_answers(source, known, asked.flow)
    if asked.spares_source:
        complain(
            f"--force: {source} was not asked. If it answers, stop its producers: what "
            "they write from now on is not copied"
        )
    elif source in why:
        complain(
            f"{why[source]}: the failover goes on without it. If it is only slow, stop "
            f"here, and use `mirror switch '{asked.flow}'`"
        )
    return ""


# ---- what `mirror failback` says and does before the switch home ----


COLUMNS = ("TOPIC", "STATE", "PARTITIONS", "PARTITIONS-ACTIVE")


@dataclass(frozen=True, slots=True)
class Home:
    """The look at the cluster that is back, and what the switch needs."""

    stage: Stage
    form: Form
    seconds: float
    """How long a look may wait for a cluster that is silent."""
    wanted: bool
    """Off: this is no way home but a switch, which needs nothing of this."""
    restores: bool = False
    """Whether to fill topics that were re-created."""

    def plan(self) -> None:
        """Show what would be done.

        Raises:
            MirrorError: it is refused.
        """
        stage = self.stage
        if self.wanted:
            from mirror.recovery import failback

            found = self._look()
            failback.require_ready(stage, found, restores=self.restores)
            for topic in found.restorable:
                what = "created" if topic in found.missing else "emptied"
                complain(
                    f"{topic} on {found.alias} would be {what} and filled from "
                    f"{stage.flow.source}"
                )
            for topic, count in sorted(found.larger.items()):
                complain(
                    f"{topic} on {stage.flow.source} would get {count} partitions "
                    "first: keys are spread differently from then on"
                )
            if found.restorable:
                return  # as it is now, the switch would be refused
            stage = replace(stage, growing=found.larger)
        show_plan(stage, self.form)

    def look(self, operator: Operator) -> None:
        """Say what the cluster is like, before anything changes; not if a switch home
        is under way. Raises as `plan`.
        """
        if self.wanted and operator.due and operator.run is None:
            from mirror.recovery import failback

            found = self._look()
            failback.require_ready(self.stage, found, restores=self.restores)

    def prepare(self, operator: Operator) -> None:
        """Look again, now that producers are fenced, fill topics that were re-created,
        and give topics their partitions. Raises as `plan`.
        """
        if self.wanted and operator.run is None:
            from mirror.recovery import failback

            found = self._found()
            if self.restores and found.restorable:
                failback.require_ready(self.stage, found, restores=True)
                failback.restore(self.stage, found.restorable, show=complain)
                found = self._found()
            failback.require_ready(self.stage, found)
            with patience.until(time.monotonic() + self.seconds):
                complain(*failback.grow(self.stage, found))

    def _found(self) -> Returned:
        from mirror.recovery import failback

        with patience.until(time.monotonic() + self.seconds):
            return failback.look(self.stage)

    def _look(self) -> Returned:
        found = self._found()
        if self.form is Form.JSON:
            told = {
                "step": "survey",
                **asdict(found),
                "rebuilt": found.rebuilt,
                "text": found.text,
            }
            sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
            sys.stdout.flush()
            return found
        tail = "is not known" if found.tail < 0 else f"has {some(found.tail, 'record')}"
        complain(found.text, f"its tail {tail}")
        if found.fence_owed:
            complain(f"fence of {found.alias} pending: producers may write there")
        table(
            COLUMNS,
            [(t.topic, str(t.kind), t.here, t.there) for t in found.topics],
        )
        return found


# ---- how Python spends its time in a command that producers wait for ----
#
# Main function: `quicken`, for a process that soon ends.


_SWITCH_INTERVAL = 0.0005
"""Seconds for which a thread that compares holds up a step that has its answer."""
_NEW_OBJECTS = 100_000
"""After which Python looks for garbage in cycles, in place of 700: such a command makes
little, and each look goes through all modules, kernels and places of groups."""


def quicken() -> None:
    """Let threads take turns more often, and collect garbage less often."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.set_threshold(_NEW_OBJECTS)
