"""`mirror loss list`: what the source lost, and what was skipped on purpose.

It reads the flows' loss ledgers on their targets, and needs neither the sources nor a
running service.
"""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from mirror.cli.options import ConfigFile, flow_of, read_config
from mirror.cli.output import Form, Output, document, moment, table
from mirror.clusters.cluster import Cluster
from mirror.pairs import losses

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show what could not be copied."
)

FORMAT_VERSION = 1
COLUMNS = (
    *("TIME", "FLOW", "CAUSE", "TOPIC", "PARTITION", "FIRST", "LAST", "COUNT"),
    "TARGET-TOPIC",
)


@app.callback()
def _group() -> None: ...


@app.command("list", short_help="List the offsets that will not be copied.")
def list_(
    *,
    config: ConfigFile,
    flow: Annotated[
        str | None,
        typer.Option("--flow", metavar="FLOW", help="Only this flow, as in A->B."),
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """List the ranges of source offsets that will not be copied, oldest first.

    CAUSE is DELETED if retention or a person deleted them before they were copied;
    TRUNCATED if the source lost them in an unclean election (what had been copied stays
    in the copy); RECREATED if the topic was deleted and re-created (LAST is the end
    that was seen last, empty if none was: records written after it are lost as well);
    SKIPPED by `mirror flow reset`; FAILOVER if `mirror tail` exported or skipped them
    after a failover. COUNT is in offsets, some of which may have been transaction
    markers or aborted records.

    \b
    Examples:
      mirror loss list -c mirror.yaml
      mirror loss list -c mirror.yaml -o json | jq '.losses[] | select(.count > 0)'
    """
    chosen = read_config(config)
    flows = [each for each in chosen.flows.values() if each.enabled]
    if flow is not None:
        flows = [flow_of(chosen, flow)]
    found: list[losses.Loss] = []
    for each in flows:
        with contextlib.closing(Cluster(chosen.clusters[each.target])) as target:
            ledger = losses.read(target.connect(), each.source)
        found += [loss for loss in ledger if loss.flow == each.name]
    found.sort(key=lambda loss: loss.at)
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "losses": [loss.document() for loss in found],
            }
        )
        return
    table(
        COLUMNS,
        (
            (
                moment(loss.at),
                loss.flow,
                loss.cause.value,
                loss.topic,
                loss.partition,
                loss.first,
                "" if loss.last is None else loss.last,
                "" if loss.count is None else loss.count,
                loss.target_topic,
            )
            for loss in found
        ),
    )
