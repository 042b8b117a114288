"""`mirror plan`: what would a run create and change?

It reads the clusters and changes nothing on them. `checks.plan` works out the plan.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from mirror.cli.options import ConfigFile
from mirror.cli.output import EXIT_FAILED, Form, Output, complain, document, table
from mirror.cli.transforms import read_usable
from mirror.status.drift import value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.checks.plan import RunPlan, TopicToCreate
    from mirror.checks.schema_writes import SchemaToWrite

FORMAT_VERSION = 1
COLUMNS = ("CLUSTER", "CHANGE", "NAME", "FLOW", "DETAIL")
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
        table(COLUMNS, _rows(found))
        counts = ", ".join(
            f"{n} {what}" for what, n in preflight.summary(found).items()
        )
        complain(counts)
    elif not found.failures:
        complain(NOTHING_TO_DO)
    complain(*(f"note: {text}" for text in found.notes))
    complain(*found.failures, *found.problems)
    if found.failures or found.problems:
        raise typer.Exit(EXIT_FAILED)


def _rows(found: RunPlan) -> Iterator[tuple[object, ...]]:
    for topic in found.create:
        yield topic.cluster, "create topic", topic.topic, topic.flow, _made(topic)
    for grown in found.grow:
        detail = f"{grown.partitions} to {grown.then} partitions"
        yield grown.cluster, "add partitions", grown.topic, grown.flow, detail
    for config in found.configs:
        then = "" if config.then is None else f"={value(config.then)}"
        what = "remove config" if config.then is None else "set config"
        detail = f"{config.config}{then} (now {value(config.now)})"
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
        return f"level {value(each.level or None)}"
    detail = f"version {each.version}, id {each.id}"
    return f"{detail}, forced into mode IMPORT" if each.force else detail


def _made(topic: TopicToCreate) -> str:
    some = "partition" if topic.partitions == 1 else "partitions"
    parts = [f"{topic.purpose}: {topic.partitions} {some}"]
    if topic.replication_factor >= 0:
        parts.append(f"{topic.replication_factor} replicas")
    parts += [f"{name}={value(text)}" for name, text in topic.configs]
    return ", ".join(parts)


def _document(found: RunPlan) -> dict[str, Any]:
    made = asdict(found)
    for topic in made["create"]:
        topic["configs"] = dict(topic["configs"])
    return {"format_version": FORMAT_VERSION, **made}
