"""`mirror drill`: whether a failover now would go well, without one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli import interrupts
from mirror.cli.options import (
    ConfigFile,
    DryRun,
    FlowName,
    Yes,
    agreed,
    flow_of,
    pair_of,
    read_config,
)
from mirror.cli.output import (
    EXIT_FAILED,
    Form,
    Output,
    complain,
    document,
    table,
)
from mirror.config.section_names import scoped_flow
from mirror.host import operator_name

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.clusters.reach import Reach
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.drilling.canaries.outcome import Leg
    from mirror.switching.findings import Finding
    from mirror.switching.stage import Done

FORMAT_VERSION = 1
COLUMNS = ("LEVEL", "SUBJECT", "REASON", "FIX", "COMMAND")
CANARY_COLUMNS = ("SWITCH", "BLOCK", "RTO", "RPO", "RPO-RECORDS")
_STEP_SECONDS = 60.0


def drill(
    flow: FlowName,
    *,
    config: ConfigFile,
    records: Annotated[
        int,
        typer.Option(
            "--records", min=1, help="Compare this many records from each position on."
        ),
    ] = 100,
    canary: Annotated[
        bool,
        typer.Option(
            "--canary",
            help="Really switch a topic and a group of mirror's own, there and back.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Rehearse a failover of the pair A<->B to B, and change nothing that applications
    see.

    It finds the position of every group as a failover does, reads the records that the
    group would read next on both sides, and compares them. Then it makes the checks of
    a failover and of a switch: topics, rights, replicas, proofs, hooks; and it compares
    configs, users, quotas and disks, and the schemas of the last records. It does not
    decode records. The first line has the verdict, which is the worst finding: READY,
    DEGRADED (a failover would go through, at a cost) or NOT READY. The journal of B
    keeps it: `mirror pair`.

    With --canary it looks at none of that. It switches the topic mirror-canary and the
    group of this name to B and back, with fences and with the hooks marked `canary:
    true`, and measures for how long producers are blocked. The pair's role stays as it
    is. It asks first; --dry-run shows what it would change.

    Exit status 0 if the pair is READY, or the canary has PASSED, else 1.

    \b
    Examples:
      mirror drill 'A->B' -c mirror.yaml
      mirror drill A/B -c mirror.yaml --records 1000
      mirror drill A/B -c mirror.yaml -o json | jq '.findings[] | .subject'
      mirror drill A/B -c mirror.yaml --canary --yes
    """
    if (dry_run or yes) and not canary:
        raise typer.BadParameter(
            "a drill without --canary changes nothing, so there is nothing to ask",
            param_hint="--dry-run" if dry_run else "--yes",
        )
    if canary:
        _canary(*_asked_for(config, flow), dry_run=dry_run, yes=yes, output=output)
        return
    _rehearse(*_asked_for(config, flow), records=records, output=output)


def _asked_for(config: Path, flow: str) -> tuple[MirrorConfig, PairConfig, FlowConfig]:
    chosen = read_config(config)
    ends, scope = scoped_flow(flow)
    found = flow_of(chosen, ends)
    return chosen, pair_of(chosen, found, scope), found


def _require_direction(
    asks: str, config: MirrorConfig, pair: PairConfig, flow: FlowConfig, reach: Reach
) -> None:
    """A configuration that selects less than the services do, and a wrong direction,
    are answered before all that a rehearsal needs is loaded.

    Raises:
        MirrorError: it selects less, the flow's source is not the active cluster,
            journals have lost entries, or a cluster does not answer.
    """
    from mirror.driver import role_notes
    from mirror.recovery import selection
    from mirror.recovery.journal import JournalReader
    from mirror.switching import answers
    from mirror.switching.stage import both_flows

    clusters = [reach(alias) for alias in (flow.source, flow.target)]
    for each in both_flows(config, pair, flow.source, flow.target):
        complain(*selection.require(config, each.name, pair, clusters))
    journals = {each.alias: JournalReader(each).read(wait=False) for each in clusters}
    known = answers.known(pair, journals)
    role_notes.require(pair, known.entries, clusters)
    answers.answer(answers.Asks(asks), flow.source, flow.target, known)


def _rehearse(
    chosen: MirrorConfig,
    pair: PairConfig,
    found: FlowConfig,
    *,
    records: int,
    output: Form,
) -> None:
    from mirror.clusters import cpu_share
    from mirror.clusters.reach import Reach

    with (
        interrupts.telling(lambda: ["interrupted: nothing was changed"]),
        Reach(chosen.clusters, client_id="mirror.drill") as reach,
    ):
        _require_direction("drill", chosen, pair, found, reach)
        with cpu_share.throughout():
            from mirror.drilling.runner import rehearse
            from mirror.switching.findings import Level

            done, not_kept = rehearse(
                chosen, pair, found, reach, by=operator_name(), records=records
            )
    if output is Form.JSON:
        document({"format_version": FORMAT_VERSION, **done.document()})
    else:
        typer.echo(done.text)
        if done.findings:
            table(COLUMNS, map(_row, done.findings))
    complain(*(f"not looked at: {each}" for each in done.unseen))
    if not_kept:
        complain(f"the journal does not keep this drill: {not_kept}")
    if done.verdict is not Level.READY:
        raise typer.Exit(EXIT_FAILED)


def _row(each: Finding) -> tuple[str, ...]:
    return str(each.level), each.subject, each.reason, each.fix, each.command


def _warn(step: str, done: Done, _seconds: float) -> None:
    complain(*(f"{step}: warning: {each}" for each in done.warnings))


def _leg_row(each: Leg) -> tuple[object, ...]:
    return (
        f"{each.source}->{each.target}",
        f"{each.block_seconds:.1f} s",
        f"{each.rto_seconds:.1f} s",
        f"{each.rpo_seconds:.1f} s",
        each.rpo_records,
    )


def _canary(
    config: MirrorConfig,
    pair: PairConfig,
    flow: FlowConfig,
    *,
    dry_run: bool,
    yes: bool,
    output: Form,
) -> None:
    from mirror.clusters.reach import Reach

    with Reach(config.clusters, client_id="mirror.canary") as reach:
        _require_direction("drill --canary", config, pair, flow, reach)
        from mirror.cli.switch_output import StepLines, warn
        from mirror.drilling.canaries import rehearsal
        from mirror.recovery import roles
        from mirror.switching.runner import Terms

        found = rehearsal.ready(config, pair, flow, reach)
        if dry_run:
            if output is Form.JSON:
                document(
                    {"format_version": FORMAT_VERSION, "changes": list(found.changes)}
                )
            else:
                typer.echo("\n".join(found.changes))
            return
        question = (
            f"Switch topic and group mirror-canary {flow.source}->{flow.target} and "
            "back?"
        )
        agreed(question, yes=yes)
        numbers = {step: number for number, step in enumerate(roles.STEPS, 1)}
        lines = StepLines(output, numbers)
        terms = Terms(
            step_seconds=_STEP_SECONDS,
            tell=lines.tell,
            # As JSON there is one document, not a line for each step.
            did=lines.did if output is Form.TABLE else _warn,
        )
        with interrupts.telling(
            lambda: ["interrupted: the canary is ended, and what it made is taken back"]
        ):
            staged = replace(found, stage=replace(found.stage, show=warn))
            done, not_kept = rehearsal.rehearse(staged, terms, by=operator_name())
    if output is Form.JSON:
        document({"format_version": FORMAT_VERSION, **done.document()})
    else:
        typer.echo(done.text)
        if done.switches:
            table(CANARY_COLUMNS, map(_leg_row, done.switches))
    complain(*(f"an earlier canary: {each}" for each in done.cleared))
    if not_kept:
        complain(f"the journals do not keep this canary: {not_kept}")
    if not done.passed:
        raise typer.Exit(EXIT_FAILED)
