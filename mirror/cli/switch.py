"""`mirror switch` and `mirror failover`: make a pair's other cluster the active one.

Both do the steps of `recovery` and can be stopped and run again anywhere; the journal
on the clusters says where they go on.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
import gc
from importlib import import_module
import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

from rich.filesize import decimal
import typer

from mirror import patience
from mirror.cli import interrupts
from mirror.cli.options import (
    Change,
    ConfigFile,
    FlowName,
    confirmed,
    flow_of,
    pair_of,
    read_config,
)
from mirror.cli.output import (
    NOTHING,
    Form,
    blank_line,
    complain,
    duration,
    json_line,
    table,
)
from mirror.cli.spread import spread
from mirror.clusters.reach import Reach, begun
from mirror.config.section_names import scoped_flow
from mirror.errors import ClusterError, FenceError, MirrorError, UnreachableError
from mirror.host import operator_name
from mirror.offsets import progress
from mirror.pairs.journal import JournalReader, Kind
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
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
    from mirror.recovery.stage import Done, Finding, Stage

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


@spread
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
    change: Change,
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
    _run(_Asked(
        kind=Kind.SWITCH, flow=flow, config=config, abort=abort, force=force,
        abort_transactions=abort_transactions, step_timeout=step_timeout,
        change=change,
    ))  # fmt: skip


@spread
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
    change: Change,
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
    _run(_Asked(
        kind=Kind.FAILOVER, flow=flow, config=config, abort=abort, force=force,
        role_only=role_only, step_timeout=step_timeout, change=change,
    ))  # fmt: skip


@spread
def failback(
    flow: FlowName,
    *,
    config: ConfigFile,
    abort: Abort = False,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore",
            help="First fill topics of A from B that are gone, were re-created or have "
            "diverged.",
        ),
    ] = False,
    step_timeout: StepTimeout = 60.0,
    change: Change,
) -> None:
    """Go home to A after a failover from A to B: write the flow as B/A.

    First it says what A is like: as it was, empty, rebuilt, with re-created topics or
    with more partitions, and how many of its records B does not have (its tail). It
    refuses unless A has the topics that were copied and its tail is settled. Where A
    has more partitions, B gets as many, and the command says from when on keys are
    spread differently. Where topics of A are gone or were re-created, or A has another
    cluster id, --restore creates or empties them and fills them from B: what was born
    on A comes home as it was. With offsets: same, topics of A with records of their own
    (DIVERGED) are deleted, once their tail is settled, and B->A copies them again. Then
    it makes the switch B->A: nothing is lost, and nothing is read or copied twice.

    Until step 7 a failure undoes the switch, and so does --abort; partitions that were
    added stay. Whatever stops the command, run it again, on any machine.

    \b
    Examples:
      mirror failback 'B->A' -c mirror.yaml --dry-run
      mirror failback B/A -c mirror.yaml
      mirror failback B/A -c mirror.yaml --restore
    """
    _run(_Asked(
        kind=Kind.SWITCH, flow=flow, config=config, abort=abort, failback=True,
        restore=restore, step_timeout=step_timeout, change=change,
    ))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The command line."""

    kind: Kind
    flow: str
    config: Path
    abort: bool
    step_timeout: float
    change: Change
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
    if asked.role_only and (asked.abort or asked.change.dry_run or asked.force):
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
        self.lines = StepLines(self.asked.change.output)

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

        asked, lines = self.asked, self.lines
        ends = (self.flow.source, self.flow.target)
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
            agree=lambda question: asked.change.yes or confirmed(question),
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
        self.asked.change.agreed(question)

    # ---- what it does ----

    def _abort(self, known: Known, stage: Stage) -> None:
        from mirror.pairs import roles
        from mirror.recovery import procedure

        asked = self.asked
        lost = asked.force and stage.target_or_none is None
        if known.run is not None:
            answers = lost or stage.target_or_none is not None
            procedure.require_undoable(known.run, known.role, answers=answers)
        if asked.change.dry_run:
            runs = reversed(roles.to_undo(known.entries, self.pair))
            names = dict.fromkeys(step for run in runs for step in run.left)
            show_undo([*names], asked.change.output)
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
        self.asked.change.agreed(question)
        operator.declare()
        complain(f"{active} is the active cluster of {name} now")
        self._settle(operator)

    def _forward(self, known: Known, stage: Stage) -> None:
        asked = self.asked
        _require_selection(stage)
        home = Home(stage, asked) if asked.failback else None
        if asked.change.dry_run:
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
        elif asked.change.output is Form.TABLE:
            show_end(operator, self.lines)

    def _plan(self, known: Known, stage: Stage, home: Home | None) -> None:
        if (run := known.run) is not None:
            complain(f"{run.text}: without --dry-run it goes on from there")
        planned = stage if home is None else home.plan()
        if planned is not None:
            show_plan(planned, self.asked.change.output)

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
        changes = asked.kind is Kind.SWITCH and not (
            asked.abort or asked.change.dry_run
        )
        acl = self.pair.fence == "acl"
        pending = roles.owed(known.entries) if acl else None
        if changes and (pending or asked.change.yes):
            if pending:
                asked.change.agreed(f"Fence producers on {pending.source} now?")
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
                try:
                    laid = settle_fence(
                        self.config, self.pair, cluster, operator.entries,
                        by=operator_name(),
                    )  # fmt: skip
                except FenceError as error:
                    if not (operator.due and alias == self.flow.target):
                        raise
                    # It is to become active, and its fence to go.
                    complain(
                        f"the fence of {alias}, which was pending, is left: {error}"
                    )
                    continue
                if laid:
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
    asked: _Asked

    def plan(self) -> Stage | None:
        """Show what would be done first; returns what the switch would begin with, None
        if it would be refused as it is now.

        Raises:
            MirrorError: it is refused.
        """
        stage, found = self.stage, self.look()
        for topic in found.restorable:
            what = "created" if topic in found.missing else "emptied"
            if found.copied_again.get(topic):
                what = "deleted, created"
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
        failback.require_ready(self.stage, found, restores=self.asked.restore)
        return found

    def prepare(self) -> None:
        """Look again, now that producers are fenced, fill topics that were re-created,
        and give topics their partitions. Raises as `plan`.
        """
        from mirror.recovery import failback

        found = self._found()
        if self.asked.restore and found.restorable:
            failback.require_ready(self.stage, found, restores=True)
            failback.restore(self.stage, found, show=complain)
            found = self._found()
        failback.require_ready(self.stage, found)
        with patience.until(time.monotonic() + self.asked.step_timeout):
            complain(*failback.grow(self.stage, found))

    def _found(self) -> Returned:
        from mirror.recovery import failback

        with patience.until(time.monotonic() + self.asked.step_timeout):
            return failback.look(self.stage)

    def _show(self, found: Returned) -> None:
        if self.asked.change.output is Form.JSON:
            told = {"rebuilt": found.rebuilt, "text": found.text}
            json_line({"step": "survey", **asdict(found), **told})
            return
        tail = "is not known" if found.tail < 0 else f"has {some(found.tail, 'record')}"
        complain(found.text, f"its tail {tail}")
        if found.fence_owed:
            complain(f"fence of {found.alias} pending: producers may write there")
        table(COLUMNS, [(t.topic, str(t.kind), t.here, t.there) for t in found.topics])


# ---- what is printed: steps, plans, and what it cost ----


LOST_COLUMNS = ("TOPIC", "PARTITION", "NOT-COPIED", "BYTES", "SECONDS", "REASON")
STANDING_COLUMNS = ("GROUP", "POSITION-AGE", "READS-AGAIN-AT-MOST", "UNKNOWN")
STEP_COLUMNS = ("STEP", "SECONDS")
CHANGE_COLUMNS = ("STEP", "CLUSTER", "CHANGE")
_MOST_SHOWN = 20
PLACE_COLUMNS = ("GROUP", "READ", "GOES-ON-IN", "FROM", "TO", "EXACTNESS", "AGAIN")


@dataclass(slots=True)
class StepLines:
    """Prints a line for each step."""

    form: Form
    waiting: str = ""
    last: Done | None = None

    def tell(self, step: str, text: str) -> None:
        if self.form is Form.TABLE and text != self.waiting:
            self.waiting = text
            complain(f"   {step}: waiting: {text}")

    def show(self, found: Sequence[Finding], unseen: Sequence[str]) -> None:
        """What step 1 finds, also where it refuses."""
        if self.form is Form.JSON:
            findings = [asdict(each) for each in found]
            json_line({"step": "checks", "findings": findings, "unseen": [*unseen]})
        else:
            warn(found, unseen)

    def did(self, step: str, done: Done, seconds: float) -> None:
        self.last = done
        if self.form is Form.JSON:
            json_line(
                {
                    "step": step,
                    "state": "DONE",
                    "text": done.text,
                    "seconds": round(seconds, 3),
                    "warnings": list(done.warnings),
                    "notes": dict(done.notes),
                }
            )
            return
        line = f"{_number(step):2} {step:10} {done.text:78} {seconds:6.1f} s"
        sys.stdout.write(line.rstrip() + "\n")
        sys.stdout.flush()
        complain(*(f"   warning: {each}" for each in done.warnings))


def _number(step: str) -> int:
    from mirror.pairs import roles

    return roles.STEPS.index(step) + 1


def show_undo(steps: Sequence[str], output: Form) -> None:
    """What --abort would undo, in its order; changes nothing."""
    for step in steps:
        if output is Form.JSON:
            json_line({"step": step, "state": "PLANNED UNDO"})
        else:
            sys.stdout.write(f"{_number(step):2} {step:10} would be undone\n")


def warn(found: Sequence[Finding], unseen: Sequence[str]) -> None:
    """Of many findings the most serious ones."""
    complain(*(f"{each.level}: {each}" for each in found[:_MOST_SHOWN]))
    if (more := len(found) - _MOST_SHOWN) > 0:
        complain(f"and {some(more, 'finding')} more: `-o json` prints all")
    complain(*(f"not looked at: {each}" for each in unseen))


def show_plan(stage: Stage, output: Form) -> None:
    """What each step of a switch would change; changes nothing.

    Raises:
        MirrorError: it cannot be made now.
    """
    from mirror.recovery.stage import StepError, verdict
    from mirror.recovery.steps.assess import assessed, left_open
    from mirror.recovery.steps.changes import changes

    if opened := [*left_open(stage)]:
        stage.show(opened, ())
        raise StepError(str(opened[0]))
    level = ""

    def show(found: Sequence[Finding], unseen: Sequence[str]) -> None:
        nonlocal level
        level = verdict(found)
        stage.show(found, unseen)

    done, places = assessed(replace(stage, show=show), waits=False)
    planned = changes(stage, places)
    if output is Form.JSON:
        for step, each in planned.items():
            told: dict[str, Any] = {
                "step": step,
                "state": "PLANNED",
                "warnings": list(each.warnings),
                "changes": list(each.changes),
            }
            if step == "assess":
                told |= {"text": done.text, "notes": dict(done.notes)}
            json_line(told)
        return
    sys.stdout.write(f"{level}: {done.text}\n")
    rows = []
    for number, (step, each) in enumerate(planned.items(), 1):
        complain(*(f"warning: step {number} {step}: {text}" for text in each.warnings))
        rows += [(f"{number} {step}", *row) for row in _change_rows(each.changes)]
    blank_line()
    table(CHANGE_COLUMNS, rows)
    if offsets := [
        {**each, "goes_on_in": f"{each['topic']}-{each['partition']}"}
        for each in planned["positions"].changes
    ]:
        blank_line()
        table(PLACE_COLUMNS, offsets)


def _change_rows(changes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The cluster, and what changes there; offsets are summed up."""
    starts = [each for each in changes if each["change"] == "flow_start"]
    offsets = [each for each in changes if each["change"] == "group_offset"]
    for each in changes:
        if each["change"] == "acl":
            kind = each["kind"].lower().replace("_", " ")
            star = "*" if each["pattern"] == "PREFIXED" else ""
            host = "" if each["host"] == "*" else f" from {each['host']}"
            who = f"{each['permission']} {each['principal']} {each['operation']}{host}"
            what = f"{kind} {each['name']}{star}"
            yield each["cluster"], f"{each['action']} ACL: {who} on {what}"
        elif each["change"] == "hook":
            what = each.get("url") or shlex.join(each["command"])
            yield NOTHING, f"call {each['hook']}: {what}"
        elif each["change"] == "state":
            yield NOTHING, each["text"]
        elif starts and each is starts[0]:
            yield NOTHING, _starts(starts)
        elif offsets and each is offsets[0]:
            moved = [each for each in offsets if each["from"] != each["to"]]
            groups = {each["group"] for each in moved}
            what = f"{some(len(moved), 'offset')} of {some(len(groups), 'group')}"
            there = f"{len(offsets) - len(moved)} are set already"
            yield each["cluster"], f"set {what}; {there}"


def _starts(starts: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(
        "where the log does not answer"
        if each["to"] is None
        else "for the first time"
        if each["from"] is None
        else "where it stopped"
        if each["from"] == each["to"]
        else "behind what was copied"
        for each in starts
    )
    told = ", ".join(f"{count} {where}" for where, count in counts.most_common())
    return f"{starts[0]['flow']} begins in {some(len(starts), 'partition')}: {told}"


def show_end(operator: Operator, lines: StepLines) -> None:
    """How long it took, and what a failover cost."""
    from mirror.recovery.procedure import way_back

    assert operator.run is not None
    first, last = operator.run.first, operator.run.last
    seconds = last.at - first.at
    back = f"mirror switch '{way_back(first)}'"
    if first.kind is Kind.SWITCH:
        complain(f"Done in {seconds:.1f} s. To go back: {back}")
        return
    notes = lines.last.notes if lines.last is not None else {}
    for columns, rows in (
        (LOST_COLUMNS, [_lost_row(each) for each in notes.get("lost", ())]),
        (STANDING_COLUMNS, [_standing_row(each) for each in notes.get("groups", ())]),
        (
            STEP_COLUMNS,
            [(s, f"{n:.1f}") for s, n in notes.get("step_seconds", {}).items()],
        ),
    ):
        if rows:
            blank_line()
            table(columns, rows)
    rpo = duration(notes.get("rpo_seconds", -1))
    complain(
        f"{first.target} is active after {seconds:.1f} s; {notes.get('text', '')}",
        f"RTO {notes.get('rto_seconds', seconds):.1f} s, RPO {rpo}",
    )


def _lost_row(each: Mapping[str, Any]) -> tuple[object, ...]:
    known = not each["reason"]
    return (
        *(each["topic"], each["partition"]),
        f"{each['records']:,}" if known else None,
        decimal(each["bytes"]) if each["bytes"] >= 0 else None,
        *(duration(each["seconds"]), each["reason"]),
    )


def _standing_row(each: Mapping[str, Any]) -> tuple[object, ...]:
    again = f"{each['may_read_again']:,}"
    age = duration(each["position_age_seconds"])
    return each["group"], age, again, each["unknown_partitions"]


# ---- how Python spends its time in a command that producers wait for ----


_SWITCH_INTERVAL = 0.0005
"""Seconds for which a thread that compares holds up a step that has its answer."""
_NEW_OBJECTS = 100_000
"""After which Python looks for garbage in cycles, in place of 700: such a command makes
little, and each look goes through all modules, kernels and places of groups."""


def quicken() -> None:
    """Let threads take turns more often, and collect garbage less often."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.set_threshold(_NEW_OBJECTS)
