"""`mirror drill`: whether a failover now would go well, without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.options import ConfigFile, FlowName, flow_of, read_config
from mirror.cli.output import (
    EXIT_FAILED,
    Form,
    Output,
    complain,
    document,
    table,
)
from mirror.cli.switch import pair_of
from mirror.clusters.reach import Reach
from mirror.config.section_names import scoped_flow
from mirror.host import operator_name

if TYPE_CHECKING:
    from mirror.drilling.findings import Finding

FORMAT_VERSION = 1
COLUMNS = ("LEVEL", "SUBJECT", "REASON", "CURE", "COMMAND")


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
    group would read next on both sides, and compares them. Then it looks at topics,
    configs, rights, users, quotas, replicas, disks, proofs and hooks. The first line
    has the verdict, which is the worst finding: READY, DEGRADED (a failover would go
    through, at a cost) or NOT READY. The journal of B keeps it: `mirror pair`.

    Exit status 0 if the pair is READY, else 1.

    \b
    Examples:
      mirror drill 'A->B' -c mirror.yaml
      mirror drill A/B -c mirror.yaml --records 1000
      mirror drill A/B -c mirror.yaml -o json | jq '.findings[] | .subject'
    """
    from mirror.drilling.findings import Level  # noqa: PLC0415  loads kernels
    from mirror.drilling.history import rehearse  # noqa: PLC0415

    chosen = read_config(config)
    ends, scope = scoped_flow(flow)
    found = flow_of(chosen, ends)
    pair = pair_of(chosen, found, scope)
    with Reach(chosen.clusters, client_id="mirror.drill") as reach:
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
    return str(each.level), each.subject, each.reason, each.cure, each.command
