"""`mirror switch` and `mirror failover`: make a pair's other cluster the active one.

Both do the steps of `switching` and can be stopped and run again anywhere; the journal
on the clusters says where they go on.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
import time
from typing import TYPE_CHECKING, Annotated

import typer

from mirror import patience
from mirror.cli.failback_output import Home
from mirror.cli.options import (
    ConfigFile,
    DryRun,
    FlowName,
    Yes,
    agreed,
    flow_of,
    read_config,
)
from mirror.cli.output import Form, Output, complain
from mirror.cli.pace import quicken
from mirror.cli.switch_output import StepLines, show_end
from mirror.clusters.at_once import begun
from mirror.clusters.reach import Reach
from mirror.config.pair_settings import pair_name
from mirror.config.section_names import scoped_flow
from mirror.errors import ClusterError, ConfigError, MirrorError, UnreachableError
from mirror.host import operator_name
from mirror.offsets import progress
from mirror.recovery.journal import JournalReader, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.recovery.journal import Entry

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
        typer.Option("--force", help="Although A answers: do not ask it anything."),
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

    \b
    Examples:
      mirror failover 'A->B' -c mirror.yaml --dry-run
      mirror failover A/B -c mirror.yaml --yes -o json
    """
    asked = _Asked(
        kind=Kind.FAILOVER, flow=flow, config=config, abort=abort, dry_run=dry_run,
        yes=yes, output=output, step_timeout=step_timeout, force=force,
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


def pair_of(config: MirrorConfig, flow: FlowConfig, scope: str | None) -> PairConfig:
    """The pair of a flow's clusters, or the one of several with this name.

    Raises:
        ConfigError: there is none.
    """
    name = pair_name(flow.source, flow.target, scope)
    if (found := config.recovery.get(name)) is None:
        if known := config.pairs_of(flow.source, flow.target):
            names = ", ".join(each.name for each in known)
            raise ConfigError([f"recovery: {name} is not a pair; there are {names}"])
        raise ConfigError(
            [f'recovery: {name} is not a pair; add "{name}": {{active: {flow.source}}}']
        )
    return found


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
    abort_transactions: bool = False
    failback: bool = False
    """Whether to look first what the cluster is like to which it goes."""
    restore: bool = False


@progress.reading_once()
def _run(asked: _Asked) -> None:
    quicken()
    kind = asked.kind
    if asked.force and kind is Kind.SWITCH and not asked.abort:
        raise MirrorError("--force of a switch goes with --abort")
    chosen = read_config(asked.config)
    ends, scope = scoped_flow(asked.flow)
    given = flow_of(chosen, ends)
    pair = pair_of(chosen, given, scope)
    asked = replace(asked, flow=f"{given.name}/{scope}" if scope else given.name)
    with Reach(chosen.clusters, client_id="mirror.switch") as reach:
        asking = _asking(asked, given, chosen, reach)
        # Brokers answer while Python loads these.
        from mirror.recovery import roles
        from mirror.switching.runner import Operator, Terms
        from mirror.switching.stage import Stage, both_flows
        from mirror.switching.steps import STEPS

        flow, reverse = both_flows(chosen, pair, given.source, given.target)
        lines = StepLines(asked.output, {s: n for n, s in enumerate(roles.STEPS, 1)})
        source, target = _ends(asked, flow, asking)
        stage = Stage(
            kind=kind,
            config=_as_it_is(chosen, flow, source, reach),
            pair=pair,
            flow=flow,
            reverse=reverse,
            source_or_none=source,
            target_or_none=target,
            notes={},
            note=lambda _notes: None,
            tell=lambda text: lines.tell("assess", text),
            show=lines.show,
            deadline=time.monotonic() + asked.step_timeout,
            abort_transactions=asked.abort_transactions,
            agree=lambda question: asked.yes or typer.confirm(question, err=True),
        )
        home = Home(
            stage,
            asked.output,
            seconds=asked.step_timeout,
            wanted=asked.failback and not asked.abort,
            restores=asked.restore,
        )
        if asked.dry_run:
            home.plan()
            return
        with patience.until(time.monotonic() + asked.step_timeout):
            operator = Operator(
                pair, kind, (flow.source, source), (flow.target, target)
            )
        home.look(operator)
        what = "Undo" if asked.abort else "Begin or go on with"
        which = "its" if scope else "all"
        question = (
            f"{what} the {kind.lower()} {asked.flow}, of {which} topics and groups?"
        )
        agreed(question, yes=asked.yes)
        if kind is Kind.SWITCH and not asked.abort and operator.run is None:
            clusters = [each for each in (source, target) if each is not None]
            with patience.until(time.monotonic() + asked.step_timeout):
                _settle(chosen, pair, clusters, operator.entries)
        if not operator.due:
            complain(f"{flow.target} is the active cluster already: nothing to do")
            return
        home.prepare(operator)
        terms = Terms(step_seconds=asked.step_timeout, tell=lines.tell, did=lines.did)
        if asked.abort:
            lost = asked.force and kind is Kind.SWITCH and target is None
            for step, text in operator.abort(STEPS, stage, terms, target_lost=lost):
                complain(f"{step} undone: {text}")
            if operator.left:
                complain(operator.left)
            return
        operator.carry_out(STEPS, stage, terms)
        if not operator.due:
            complain(f"{flow.target} is the active cluster now: nothing to do")
            return
    if asked.output is Form.TABLE:
        show_end(operator, lines)


def _as_it_is(
    config: MirrorConfig, flow: FlowConfig, source: Cluster | None, reach: Reach
) -> MirrorConfig:
    """The configuration without flows that rest now."""
    from mirror.recovery import resting

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
    """Lay the fence that an earlier failover owes.

    Raises:
        MirrorError: that cannot be done.
    """
    from mirror.switching import owed

    if pair.fence != "acl":
        return
    for cluster in clusters:
        if owed.settle_fence(config, pair, cluster, entries, by=operator_name()):
            complain(f"producers are fenced on {cluster.alias} now: that was owed")


def _asking(
    asked: _Asked, flow: FlowConfig, config: MirrorConfig, reach: Reach
) -> dict[str, Future[Cluster]]:
    """Both clusters by alias, or the one that is to be asked, as they answer."""

    def connected(alias: str) -> Cluster:
        servers = len(config.clusters[alias].bootstrap_servers)
        most = min(asked.step_timeout, _FIRST * servers)
        with patience.until(time.monotonic() + most):
            made = reach(alias)
        with patience.until(0.0), suppress(ClusterError):  # `Operator` meets it, too
            JournalReader(made).read(wait=False, seconds=0.0)
        return made

    spared = asked.force and asked.kind is Kind.FAILOVER
    aliases = [flow.target] if spared else [flow.target, flow.source]
    return {alias: begun([partial(connected, alias)])[0] for alias in aliases}


def _ends(
    asked: _Asked, flow: FlowConfig, asking: Mapping[str, Future[Cluster]]
) -> tuple[Cluster | None, Cluster | None]:
    """Both clusters, as far as they answer.

    Raises:
        MirrorError: that is not enough.
    """
    found: dict[str, Cluster] = {}
    why = {}
    for alias, each in asking.items():
        try:
            found[alias] = each.result()
        except ClusterError as error:
            why[alias] = str(error)
    source, target = found.get(flow.source), found.get(flow.target)
    if asked.abort:
        if source is None and target is None:
            raise MirrorError("; ".join(why.values()))
        complain(*why.values())
        return source, target
    if target is None:
        raise MirrorError(why[flow.target])
    if asked.kind is Kind.SWITCH and source is None:
        raise MirrorError(
            f"{why[flow.source]}. If {flow.source} is gone, use `mirror failover "
            f"'{asked.flow}'`"
        )
    if asked.kind is Kind.FAILOVER and source is not None:
        raise MirrorError(
            f"cluster {flow.source} answers, so this is a switch, which loses nothing: "
            f"`mirror switch '{asked.flow}'`; --force fails over all the same"
        )
    if flow.source in why:
        complain(f"{why[flow.source]}: taken for gone. If it is only slow, stop here")
    return source, target
