"""`mirror check`: would a run work, and what would it mirror?

It checks this machine, every cluster and every flow, and shows what it found. It
changes nothing on any cluster, and leaves nothing in a schema registry. `checks.check`
decides what to check.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from mirror.checks.finding import State
from mirror.cli.options import ConfigFile
from mirror.cli.output import (
    EXIT_FAILED,
    EXIT_USAGE,
    Form,
    Output,
    blank_line,
    complain,
    document,
    table,
)
from mirror.cli.transforms import read_usable

if TYPE_CHECKING:
    from mirror.checks.check import Checked
    from mirror.checks.finding import Finding

FORMAT_VERSION = 1
CHECK_COLUMNS = ("WHERE", "CHECK", "STATE", "DETAIL")
COLUMNS = ("FLOW", "TOPIC", "PARTITIONS", "TARGET-TOPIC", "TARGET-PARTITIONS", "COPY")


def check(config: ConfigFile, *, output: Output = Form.TABLE) -> None:
    """Check everything that a run needs, and show what it would copy.

    This covers this machine, the clusters (connection, brokers, version, rights) and
    the flows (topics and copies, replicas, message sizes, clocks, ACLs, groups). STATE
    is ok, warn or fail, and DETAIL ends with how to fix it. Then come the topics: COPY
    says whether the copy exists, would be created or would get more partitions; mirror
    plan has the details. Changes nothing. Exit status 2 if the configuration needs a
    change, 1 if something else fails; warnings do not count as failures.

    \b
    Examples:
      mirror check -c mirror.yaml
      mirror check -c mm2.properties -o json | jq '.checks[] | select(.state != "ok")'
    """
    from mirror.checks import check as preflight

    chosen = read_usable(config)
    found = preflight.check(chosen)
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "checks": [asdict(each) for each in found.findings],
                "flows": [asdict(flow) for flow in found.flows],
            }
        )
    else:
        _show(found)
    failed, warned = found.count(State.FAIL), found.count(State.WARN)
    if failed or warned:
        complain(f"{failed} failed, {warned} warnings")
    if found.mistaken:
        raise typer.Exit(EXIT_USAGE)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _show(found: Checked) -> None:
    table(
        CHECK_COLUMNS,
        (
            (each.where, each.check, each.state, _detail(each))
            for each in found.findings
        ),
    )
    if not any(flow.topics for flow in found.flows):
        return
    blank_line()
    table(
        COLUMNS,
        (
            (
                flow.name,
                topic.topic,
                topic.partitions,
                topic.target_topic,
                topic.target_partitions,
                topic.copy,
            )
            for flow in found.flows
            for topic in flow.topics
        ),
    )


def _detail(each: Finding) -> str:
    return f"{each.detail}; {each.fix}" if each.fix else each.detail
