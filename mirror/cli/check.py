"""`mirror check`, whether a run would work, and `mirror plan`, what it would create.

`mirror check` checks this machine, every cluster and every flow, and shows what it
found and what would be copied; `mirror plan` shows what a run would change. Both change
nothing on any cluster, and leave nothing in a schema registry. `checks` decides.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from mirror.checks.finding import State
from mirror.cli.options import ConfigFile, read_usable
from mirror.cli.output import (
    EXIT_FAILED,
    EXIT_USAGE,
    Form,
    Output,
    blank_line,
    complain,
    document,
    end,
    table,
)
from mirror.status.wording import config_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.checks.check import Checked
    from mirror.checks.finding import Finding
    from mirror.checks.plan import RunPlan, TopicToCreate
    from mirror.checks.schema_writes import SchemaToWrite


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
                "checks": list(map(asdict, found.findings)),
                "flows": list(map(asdict, found.flows)),
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
    table(CHECK_COLUMNS, map(_finding_row, found.findings))
    if not any(flow.topics for flow in found.flows):
        return
    blank_line()
    table(
        COLUMNS,
        (
            {"flow": flow.name, **asdict(topic)}
            for flow in found.flows
            for topic in flow.topics
        ),
    )


def _finding_row(each: Finding) -> tuple[object, ...]:
    detail = f"{each.detail}; {each.fix}" if each.fix else each.detail
    return each.where, each.check, each.state, detail


# ---- `mirror plan` ----


PLAN_COLUMNS = ("CLUSTER", "CHANGE", "NAME", "FLOW", "DETAIL")
NOTHING_TO_DO = "nothing to do: a run would only copy records"


def plan(config: ConfigFile, *, output: Output = Form.TABLE) -> None:
    """Show what a run would create and change besides copying records.

    The plan lists missing topics with partitions, replicas and configs; copies that get
    more partitions; configs, ACLs and group offsets to set; schemas to write, where
    subjects that exist are forced into mode IMPORT; and mirror's own topics. It
    includes topics that one flow would create and the next would copy. Changes nothing.
    Exit status 1 if a cluster does not answer, or a topic cannot be copied.

    \b
    Examples:
      mirror plan -c mirror.yaml
      mirror plan -c mirror.yaml -o json | jq '.create[].topic'
    """
    from mirror.checks import plan as preflight

    chosen = read_usable(config)
    found = preflight.plan(chosen)
    if output is Form.JSON:
        document(_document(found))
    elif not found.is_empty:
        table(PLAN_COLUMNS, _rows(found))
        counts = preflight.summary(found).items()
        complain(", ".join(f"{number} {what}" for what, number in counts))
    elif not found.failures:
        complain(NOTHING_TO_DO)
    complain(*(f"note: {text}" for text in found.notes))
    end([*found.failures, *found.problems])


def _rows(found: RunPlan) -> Iterator[tuple[object, ...]]:
    for topic in found.create:
        yield topic.cluster, "create topic", topic.topic, topic.flow, _made(topic)
    for grown in found.grow:
        detail = f"{grown.partitions} to {grown.then} partitions"
        yield grown.cluster, "add partitions", grown.topic, grown.flow, detail
    for config in found.configs:
        then = "" if config.then is None else f"={config_value(config.then)}"
        what = "remove config" if config.then is None else "set config"
        detail = f"{config.config}{then} (now {config_value(config.now)})"
        yield config.cluster, what, config.topic, config.flow, detail
    for acl in found.acls:
        what = f"{acl.change} ACL"
        yield acl.cluster, what, acl.binding.topic, acl.flow, str(acl.binding)
    for schema in found.schemas:
        what = f"{schema.change} schema" if schema.version else "set schema level"
        yield schema.cluster, what, schema.subject, schema.flow, _schema(schema)
    for move in found.groups:
        now = "none" if move.now < 0 else move.now
        detail = f"{move.topic}-{move.partition} to {move.then} (now {now})"
        yield move.cluster, "set group offset", move.group, move.flow, detail


def _schema(each: SchemaToWrite) -> str:
    if not each.version:
        return f"level {config_value(each.level or None)}"
    detail = f"version {each.version}, id {each.id}"
    return f"{detail}, forced into mode IMPORT" if each.force else detail


def _made(topic: TopicToCreate) -> str:
    some = "partition" if topic.partitions == 1 else "partitions"
    parts = [f"{topic.purpose}: {topic.partitions} {some}"]
    if topic.replication_factor >= 0:
        parts.append(f"{topic.replication_factor} replicas")
    parts += [f"{name}={config_value(text)}" for name, text in topic.configs]
    return ", ".join(parts)


def _document(found: RunPlan) -> dict[str, Any]:
    made = asdict(found)
    for topic in made["create"]:
        topic["configs"] = dict(topic["configs"])
    return made
