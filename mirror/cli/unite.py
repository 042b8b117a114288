"""`mirror flow unite`: end the parts of a flow, so that one service copies it alone."""

from __future__ import annotations

import contextlib

from mirror.cli.options import (
    ConfigFile,
    DryRun,
    FlowName,
    Yes,
    agreed,
    flow_of,
    read_config,
)
from mirror.cli.output import Form, Output, complain, document, table
from mirror.clusters.cluster import Cluster
from mirror.driver import uniting

FORMAT_VERSION = 1
COLUMNS = ("PART", "TOPICS", "LAST-RUN-BY")


def unite(
    flow: FlowName,
    *,
    config: ConfigFile,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Form.TABLE,
) -> None:
    """End the parts of a flow, so that a service without `part` copies all topics.

    Stop the services of all parts first: one that still runs begins its part again. The
    parts that are to go on need no more than that. Nothing moves: positions, offset map
    and ledger are the flow's.

    \b
    Examples:
      mirror flow unite 'A->B' -c mirror.yaml --dry-run
      mirror flow unite A/B -c mirror.yaml --yes
    """
    chosen = read_config(config)
    united = flow_of(chosen, flow)
    with contextlib.closing(Cluster(chosen.clusters[united.target])) as target:
        found = uniting.parts_of(united, target.connect())
        if output is Form.TABLE:
            table(
                COLUMNS, [(each.name, ",".join(each.topics), each.by) for each in found]
            )
        names = ", ".join(each.name for each in found) or "none"
        if not dry_run and agreed(
            f"End the parts of {united.name} ({names})?", yes=yes
        ):
            uniting.unite(united, target)
            complain(f"ended the parts of {united.name}: {names}")
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "flow": united.name,
                "dry_run": dry_run,
                "parts": [
                    {"name": each.name, "topics": list(each.topics), "by": each.by}
                    for each in found
                ],
            }
        )
