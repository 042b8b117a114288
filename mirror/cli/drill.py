"""`mirror drill`: whether a failover now would go well, without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli import interrupts
from mirror.cli.options import ConfigFile, FlowName, flow_of, pair_of, read_config
from mirror.cli.output import EXIT_FAILED, Form, Output, complain, document, table
from mirror.config.section_names import scoped_flow
from mirror.host import operator_name

if TYPE_CHECKING:
    from mirror.clusters.reach import Reach
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.recovery.stage import Finding

FORMAT_VERSION = 1
COLUMNS = ("LEVEL", "SUBJECT", "REASON", "FIX", "COMMAND")


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

    Exit status 0 if the pair is READY, else 1.

    \b
    Examples:
      mirror drill 'A->B' -c mirror.yaml
      mirror drill A/B -c mirror.yaml --records 1000
      mirror drill A/B -c mirror.yaml -o json | jq '.findings[] | .subject'
    """
    chosen = read_config(config)
    ends, scope = scoped_flow(flow)
    found = flow_of(chosen, ends)
    pair = pair_of(chosen, found, scope)
    from mirror.clusters import cpu_share
    from mirror.clusters.reach import Reach

    with (
        interrupts.telling(lambda: ["interrupted: nothing was changed"]),
        Reach(chosen.clusters, client_id="mirror.drill") as reach,
    ):
        _require_direction(chosen, pair, found, reach)
        with cpu_share.throughout():
            from mirror.recovery.drilling.runner import rehearse
            from mirror.recovery.stage import Level

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


def _require_direction(
    config: MirrorConfig, pair: PairConfig, flow: FlowConfig, reach: Reach
) -> None:
    """A configuration that selects less than the services do, and a wrong direction,
    are answered before all that a rehearsal needs is loaded.

    Raises:
        MirrorError: it selects less, the flow's source is not the active cluster,
            journals have lost entries, or a cluster does not answer.
    """
    from mirror.pairs import selection
    from mirror.pairs.journal import JournalReader
    from mirror.recovery import procedure
    from mirror.recovery.stage import both_flows
    from mirror.service import role_notes

    clusters = [reach(alias) for alias in (flow.source, flow.target)]
    for each in both_flows(config, pair, flow.source, flow.target):
        complain(*selection.require(config, each.name, pair, clusters))
    journals = {each.alias: JournalReader(each).read(wait=False) for each in clusters}
    known = procedure.known(pair, journals)
    role_notes.require(pair, known.entries, clusters)
    procedure.answer(procedure.Asks.DRILL, flow.source, flow.target, known)


def _row(each: Finding) -> tuple[str, ...]:
    return str(each.level), each.subject, each.reason, each.fix, each.command
