"""`mirror switch` and `mirror failover`: make a pair's other cluster the active one.

Both do the steps of `recovery` and can be stopped and run again anywhere; the journal
on the clusters says where they go on.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
import gc
from importlib import import_module
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
from mirror.clusters.reach import Reach, begun
from mirror.config.section_names import scoped_flow
from mirror.errors import ClusterError, MirrorError, UnreachableError
from mirror.host import operator_name
from mirror.offsets import progress
from mirror.pairs.journal import JournalReader, Kind
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager
    from pathlib import Path

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.pairs.journal import Entry
    from mirror.recovery.failback import Returned
    from mirror.recovery.procedure import Known
    from mirror.recovery.runner import Operator
    from mirror.recovery.stage import Stage

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
    flow = flow_of(chosen, ends)
    pair = pair_of(chosen, flow, scope)
    asked = replace(asked, flow=pair.way(flow.source, flow.target))
    with Reach(chosen.clusters, client_id="mirror.switch") as reach:
        work = _Work(asked, chosen, pair, flow, reach)
        with interrupts.telling(work.interrupted):
            work.do()


def _require_together(asked: _Asked) -> None:
    if asked.force and asked.kind is Kind.SWITCH and not asked.abort:
        raise typer.BadParameter("a switch has it with --abort", param_hint="--force")
    if asked.role_only and (asked.abort or asked.dry_run or asked.force):
        raise typer.BadParameter(
            "it goes without --abort, --dry-run and --force", param_hint="--role-only"
        )


@dataclass(slots=True)
class _Work:
    """What a command does, and how far it has come."""

    asked: _Asked
    config: MirrorConfig
    pair: PairConfig
    flow: FlowConfig
    """As the configuration has it, also where the pair has only some of its topics."""
    reach: Reach
    clusters: dict[str, Cluster] = field(default_factory=dict)
    """Those that answered."""
    silent: dict[str, str] = field(default_factory=dict)
    """Why others did not."""
    lines: StepLines = field(init=False)
    operator: Operator | None = None
    prepares: str = ""
    """What it may have changed before it begins a run."""

    def __post_init__(self) -> None:
        self.lines = StepLines(self.asked.output)

    def do(self) -> None:
        """
        Raises:
            MirrorError: it is refused, or fails.
        """
        asking = self._ask_clusters()
        # Brokers answer while Python loads what does the steps.
        import_module("mirror.recovery.runner")
        known = self._meet(asking)
        if nothing := self._answer(known):
            self._settle_beside(known)
            complain(nothing)
            return
        stage = self._stage(self._copying())
        if self.asked.role_only:
            self._declare(stage)
        elif self.asked.abort:
            self._abort(known, stage)
        else:
            self._forward(known, stage)

    # ---- what the clusters answer at first ----

    def _ask_clusters(self) -> dict[str, Future[_Answered]]:
        """Both clusters by alias, or the one that is to be asked, as they answer; each
        with its journal, if that could be read at once.
        """

        def connected(alias: str) -> _Answered:
            servers = len(self.config.clusters[alias].bootstrap_servers)
            most = min(self.asked.step_timeout, _FIRST * servers)
            with patience.until(time.monotonic() + most):
                made = self.reach(alias)
            with patience.until(0.0), suppress(ClusterError):  # `_meet` reads it again
                return made, JournalReader(made).read(wait=False, seconds=0.0)
            return made, None

        source, target = self.flow.source, self.flow.target
        aliases = [target] if self.asked.spares_source else [target, source]
        return {alias: begun([partial(connected, alias)])[0] for alias in aliases}

    def _meet(self, asking: Mapping[str, Future[_Answered]]) -> Known:
        """What is so before anything waits.

        Raises:
            MirrorError: too few clusters answer, or journals have lost entries.
        """
        from mirror.recovery import procedure
        from mirror.service import ownership

        asked = self.asked
        journals: dict[str, tuple[Entry, ...]] = {}
        waiting = {future: alias for alias, future in asking.items()}
        while waiting and not self._is_decided(journals):
            for each in wait(waiting, return_when=FIRST_COMPLETED).done:
                alias = waiting.pop(each)
                try:
                    self.clusters[alias], read = each.result()
                except ClusterError as error:
                    self.silent[alias] = str(error)
                    continue
                if read is not None:
                    journals[alias] = read
        if waiting:
            patience.end_at(time.monotonic())  # no one waits for a silent cluster
        if not self.clusters:
            raise MirrorError("; ".join(self.silent.values()))
        for alias in self.clusters.keys() - journals.keys():
            if asked.kind is not Kind.FAILOVER or alias == self.flow.target:
                with self._in_time():
                    journals[alias] = JournalReader(self.clusters[alias]).read(
                        wait=False
                    )
        known = procedure.known(self.pair, journals)
        if not asked.role_only:
            with self._in_time():
                ownership.require_whole_journals(
                    self.pair, known.entries, self.clusters.values()
                )
        return known

    def _is_decided(self, journals: Mapping[str, Sequence[Entry]]) -> bool:
        """Whether there is nothing to do, whatever further journals say."""
        from mirror.recovery import procedure

        if self.asked.abort or self.asked.role_only:
            return False
        known = procedure.known(self.pair, journals)
        return known.decides and known.role.active == self.flow.target

    def _answer(self, known: Known) -> str:
        """Why there is nothing to do; empty if there is.

        Raises:
            MirrorError: the command is refused, or a cluster that it needs is silent.
        """
        from mirror.recovery import procedure
        from mirror.recovery.procedure import Asks

        asked, source, target = self.asked, self.flow.source, self.flow.target
        if asked.role_only:
            complain(*self.silent.values())
            return ""
        asks = Asks.FAILBACK if asked.failback else Asks(asked.kind.lower())
        try:
            if asked.abort:
                nothing = procedure.undo_answer(asked.kind, source, target, known)
            else:
                nothing = procedure.answer(
                    asks, source, target, known, restores=asked.restore
                )
        except MirrorError:
            complain(*self.silent.values())
            raise
        if asked.abort or nothing:
            complain(*self.silent.values())
            return nothing
        why = self.silent
        if target not in self.clusters:
            raise MirrorError(why[target])
        if asked.kind is Kind.SWITCH and source not in self.clusters:
            raise MirrorError(
                f"{why[source]}. If {source} is gone, use "
                f"`mirror failover '{asked.flow}'`"
            )
        if asked.kind is Kind.FAILOVER and source in self.clusters:
            raise procedure.source_answers(source, known, asked.flow)
        if asked.spares_source:
            complain(
                f"--force: {source} was not asked. If it answers, stop its producers: "
                "what they write from now on is not copied"
            )
        elif source in why:
            complain(
                f"{why[source]}: the failover goes on without it. If it is only slow, "
                f"stop here, and use `mirror switch '{asked.flow}'`"
            )
        return ""

    # ---- what the command is about ----

    def _stage(self, config: MirrorConfig) -> Stage:
        from mirror.recovery.stage import Stage, both_flows

        asked, lines, ends = (
            self.asked,
            self.lines,
            (self.flow.source, self.flow.target),
        )
        flow, reverse = both_flows(config, self.pair, *ends)
        source, target = map(self.clusters.get, ends)
        return Stage(
            kind=asked.kind,
            config=config,
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

    def _copying(self) -> MirrorConfig:
        """The configuration without flows that rest now."""
        from mirror.pairs import flow_roles

        def answering(alias: str) -> Cluster:
            if alias == self.flow.source and alias not in self.clusters:
                # Also with --force.
                raise UnreachableError(f"cluster {alias} does not answer")
            return self.reach(alias)

        return flow_roles.copying(self.config, answering, self.flow.name)

    def _operate(self, stage: Stage, *, declares: bool = False) -> Operator:
        from mirror.recovery.runner import Operator, Terms

        seconds, lines = self.asked.step_timeout, self.lines
        terms = Terms(step_seconds=seconds, tell=lines.tell, did=lines.did)
        with self._in_time():
            self.operator = Operator(stage, terms, declares=declares)
        return self.operator

    def _in_time(self) -> AbstractContextManager[None]:
        return patience.until(time.monotonic() + self.asked.step_timeout)

    def _agree(self, what: str) -> None:
        kind = self.asked.kind.lower()
        which = "its" if self.pair.scope else "all"
        question = f"{what} the {kind} {self.asked.flow}, of {which} topics and groups?"
        agreed(question, yes=self.asked.yes)

    # ---- what it does ----

    def _abort(self, known: Known, stage: Stage) -> None:
        from mirror.pairs import roles
        from mirror.recovery import procedure

        asked = self.asked
        lost = asked.force and stage.target_or_none is None
        if known.run is not None:
            answers = lost or stage.target_or_none is not None
            procedure.require_undoable(known.run, known.role, answers=answers)
        if asked.dry_run:
            runs = reversed(roles.to_undo(known.entries, self.pair))
            names = dict.fromkeys(step for run in runs for step in run.left)
            show_undo([*names], asked.output)
            return
        operator = self._operate(stage)
        self._agree("Undo")
        done = operator.abort(target_lost=lost)
        complain(*(f"{step} {text}" for step, text in done))
        if operator.left:
            complain(operator.left)

    def _declare(self, stage: Stage) -> None:
        """Note the role, and do what follows from it on clusters that answer.

        Raises:
            MirrorError: the journals lack nothing, or a cluster refuses.
        """
        name, active = self.pair.name, self.flow.target
        operator = self._operate(stage, declares=True)
        if not operator.due:
            raise MirrorError(
                f"the journals of {name} lack nothing: {operator.role.active} is the "
                f"active cluster. To make {active} active, leave out --role-only"
            )
        question = f"Note that {active} is the active cluster of {name}?"
        agreed(question, yes=self.asked.yes)
        operator.declare()
        complain(f"{active} is the active cluster of {name} now")
        self._settle(operator)

    def _forward(self, known: Known, stage: Stage) -> None:
        asked = self.asked
        _require_selection(stage)
        home: Home | None = None
        if asked.failback:
            home = Home(
                stage, asked.output, seconds=asked.step_timeout, restores=asked.restore
            )
        if asked.dry_run:
            self._plan(known, stage, home)
            return
        operator = self._operate(stage)
        # Not if a switch home is under way.
        if home is not None and operator.due and operator.run is None:
            home.look()
        self._agree("Begin or go on with")
        if asked.kind is Kind.SWITCH and operator.run is None:
            self._settle(operator)
        if operator.due:
            self._carry_out(operator, home)
        if not operator.due:
            complain(f"{stage.flow.target} is the active cluster now: nothing to do")
        elif asked.output is Form.TABLE:
            show_end(operator, self.lines)

    def _plan(self, known: Known, stage: Stage, home: Home | None) -> None:
        if (run := known.run) is not None:
            complain(f"{run.text}: without --dry-run it goes on from there")
        planned = stage if home is None else home.plan()
        if planned is not None:
            show_plan(planned, self.asked.output)

    def _carry_out(self, operator: Operator, home: Home | None) -> None:
        if home is not None:
            self.prepares = "topics may have been filled, or been given partitions"
            if operator.run is None:
                home.prepare()
        operator.carry_out()

    def _settle_beside(self, known: Known) -> None:
        """A fence is pending also where there is nothing to switch."""
        from mirror.pairs import roles

        asked = self.asked
        changes = asked.kind is Kind.SWITCH and not (asked.abort or asked.dry_run)
        acl = self.pair.fence == "acl"
        pending = roles.owed(known.entries) if acl else None
        if changes and (pending or asked.yes):
            if pending:
                agreed(f"Fence producers on {pending.source} now?", yes=asked.yes)
            self._settle(self._operate(self._stage(self.config)))

    def _settle(self, operator: Operator) -> None:
        """Lay the fence that an earlier failover owes, and undo what is pending.

        Raises:
            MirrorError: that cannot be done.
        """
        from mirror.recovery.pending import settle_fence

        if self.pair.fence == "acl":
            self.prepares = "fences may have been laid or lifted"
        with self._in_time():
            for alias, cluster in self.clusters.items():
                if settle_fence(
                    self.config, self.pair, cluster, operator.entries,
                    by=operator_name(),
                ):  # fmt: skip
                    complain(f"producers are fenced on {alias} now: that was pending")

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


# ---- what `mirror failback` says and does before the switch home ----


COLUMNS = ("TOPIC", "STATE", "PARTITIONS", "PARTITIONS-ACTIVE")


@dataclass(frozen=True, slots=True)
class Home:
    """The look at the cluster that is back, and what the switch needs."""

    stage: Stage
    form: Form
    seconds: float
    """How long a look may wait for a cluster that is silent."""
    restores: bool = False
    """Whether to fill topics that were re-created."""

    def plan(self) -> Stage | None:
        """Show what would be done first; returns what the switch would begin with, None
        if it would be refused as it is now.

        Raises:
            MirrorError: it is refused.
        """
        stage, found = self.stage, self.look()
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
        return None if found.restorable else replace(stage, growing=found.larger)

    def look(self) -> Returned:
        """Say what the cluster is like, before anything changes. Raises as `plan`."""
        from mirror.recovery import failback

        found = self._found()
        self._show(found)
        failback.require_ready(self.stage, found, restores=self.restores)
        return found

    def prepare(self) -> None:
        """Look again, now that producers are fenced, fill topics that were re-created,
        and give topics their partitions. Raises as `plan`.
        """
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

    def _show(self, found: Returned) -> None:
        if self.form is Form.JSON:
            told = {
                "step": "survey",
                **asdict(found),
                "rebuilt": found.rebuilt,
                "text": found.text,
            }
            sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
            sys.stdout.flush()
            return
        tail = "is not known" if found.tail < 0 else f"has {some(found.tail, 'record')}"
        complain(found.text, f"its tail {tail}")
        if found.fence_owed:
            complain(f"fence of {found.alias} pending: producers may write there")
        table(
            COLUMNS,
            [(t.topic, str(t.kind), t.here, t.there) for t in found.topics],
        )


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
