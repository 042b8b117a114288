"""`mirror schema close` and `mirror schema open`: the registries' side of a switch.

Both work on one cluster's registry, for the flows that copy schemas between it and
others. `metadata.schema_modes` compares and changes; a switch does the same by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.options import ConfigFile, DryRun, Yes, agreed, read_config
from mirror.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    NOTHING,
    Form,
    Output,
    complain,
    document,
    table,
)
from mirror.clusters.reach import Reach
from mirror.clusters.registry.pace import RequestPace
from mirror.clusters.registry.registry import Registry
from mirror.config.values import near
from mirror.errors import ConfigError
from mirror.metadata import schema_modes
from mirror.metadata.schema_claims import SchemaClaims

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.metadata.schema_modes import ModeChange

FORMAT_VERSION = 1
COLUMNS = ("CLUSTER", "SUBJECT", "NOW", "THEN")

ClusterAlias = Annotated[
    str, typer.Argument(metavar="CLUSTER", help="The alias of the registry's cluster.")
]


def close_cluster(
    cluster: ClusterAlias,
    *,
    config: ConfigFile,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Keep applications from registering in a cluster's registry.

    The subjects that flows copy from there become READONLY. Where a flow copies every
    subject, their contexts do, which also keeps new subjects out. Everything stays
    readable. What the modes were is noted in mirror-schemas.<other cluster>.internal on
    the cluster, and `mirror schema open` gives them back. A switch does this by itself.
    Exit status 1 if the registry does not answer, has no modes, or refuses one.

    \b
    Examples:
      mirror schema close A -c mirror.yaml --dry-run
      mirror schema close A -c mirror.yaml --yes
    """
    _change(cluster, config, opens=False, dry_run=dry_run, yes=yes, output=output)


def open_cluster(
    cluster: ClusterAlias,
    *,
    config: ConfigFile,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """Let applications register in a cluster's registry again.

    Gives every subject and context the mode that it had before a flow put it into
    IMPORT, or before `mirror schema close`; also where mirror died in between. A mode
    that someone has changed since stays. It needs only this cluster and its registry,
    so it works while the other one is gone. A flow that still copies into the cluster
    puts a subject back into IMPORT when it writes to it. A switch and a failover do
    this by themselves. Exit status 1 if the registry does not answer or refuses.

    \b
    Examples:
      mirror schema open B -c mirror.yaml --dry-run
      mirror schema open B -c mirror.yaml --yes -o json
    """
    _change(cluster, config, opens=True, dry_run=dry_run, yes=yes, output=output)


def _change(
    alias: str, file: Path, *, opens: bool, dry_run: bool, yes: bool, output: Form
) -> None:
    config = read_config(file)
    others = dict(_others(config, alias, opens=opens))
    refused: list[str] = []
    shown: list[ModeChange] = []
    with (
        Reach(config.clusters, client_id="mirror.schema") as reach,
        Registry(config.clusters[alias], pace=_pace(others)) as registry,
    ):
        planned = []
        for other, flow in others.items():
            claims = SchemaClaims(
                reach(alias), other, replication_factor=flow.replication_factor
            )
            claims.refresh()
            changes = (
                schema_modes.to_open(registry, claims)
                if opens
                else schema_modes.to_close(
                    registry, *schema_modes.selected(registry, flow)
                )
            )
            new = [each for each in changes if opens or each not in shown]
            planned.append((claims, new))
            shown += [each for each in new if each.now is not each.then]
        rows = [_row(alias, each) for each in shown]
        if output is Form.JSON:
            document(
                {
                    "format_version": FORMAT_VERSION,
                    "changes": [
                        dict(zip(map(str.lower, COLUMNS), row, strict=True))
                        for row in rows
                    ],
                }
            )
        elif rows:
            table(COLUMNS, rows)
        if rows and not dry_run and agreed("Set these modes?", yes=yes):
            for claims, changes in planned:
                refused += schema_modes.apply(registry, claims, changes, opens=opens)
            word = "open" if opens else "closed"
            complain(f"{alias}: {len(rows) - len(refused)} of {len(rows)} {word} now")
    complain(*refused)
    raise typer.Exit(EXIT_FAILED if refused else EXIT_OK)


def _others(
    config: MirrorConfig, alias: str, *, opens: bool
) -> Iterator[tuple[str, FlowConfig]]:
    """The clusters at the other ends of flows that copy schemas, each with one."""
    if alias not in config.clusters:
        hint = near(alias, config.clusters)
        raise ConfigError([f'there is no cluster "{alias}" in the configuration{hint}'])
    found = False
    for flow in config.enabled_flows:
        if flow.schemas != "off" and alias == flow.source:
            found = True
            yield flow.target, flow
        elif flow.schemas != "off" and alias == flow.target and opens:
            found = True
            yield flow.source, flow
    if not found:
        where = "from or to" if opens else "from"
        raise ConfigError(
            [f"no enabled flow copies schemas {where} {alias}; set schemas: copy"]
        )


def _pace(others: dict[str, FlowConfig]) -> RequestPace:
    return RequestPace(
        min(each.schemas_requests_per_second for each in others.values())
    )


def _row(alias: str, change: ModeChange) -> tuple[str, ...]:
    return (
        alias,
        str(change.subject) or "(all)",
        *(mode or NOTHING for mode in (change.now, change.then)),
    )
