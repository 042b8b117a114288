"""How `mirror tail list` shows a tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.cli.output import Form, complain, document, moment, table
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.schema import FlowConfig
    from mirror.tails.readers import Conflicts
    from mirror.tails.tail import Tail, TailPartition

FORMAT_VERSION = 1
COLUMNS = ("TOPIC", "RECORDS", "BYTES", "FIRST", "LAST", "CONFLICTS", "SETTLED")


def show_tail(
    flow: FlowConfig,
    tail: Tail,
    conflicts: Mapping[str, Conflicts],
    groups: Mapping[str, Mapping[tuple[str, int], int]],
    output: Form,
) -> None:
    """Show all of it, as a document or as a table by topic."""
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "flow": flow.name,
                "records": tail.records,
                "bytes": tail.bytes,
                "settled": tail.settled,
                "partitions": [_fields(each) for each in tail.partitions],
                "conflicts": {
                    name: {"keys": each.keys, "first": list(each.shown)}
                    for name, each in conflicts.items()
                },
                "groups": {
                    name: [
                        {"topic": key[0], "partition": key[1], "read": count}
                        for key, count in read.items()
                    ]
                    for name, read in groups.items()
                },
            }
        )
        return
    _show(tail, conflicts)
    for name, read in groups.items():
        count = some(sum(read.values()), "record")
        complain(f"group {name} has read {count} of the tail on {flow.source}")
    if tail.settled:
        complain(f"{flow.name}: nothing is left to settle")


def _show(tail: Tail, conflicts: Mapping[str, Conflicts]) -> None:
    by_topic: dict[str, list[TailPartition]] = {}
    for each in tail.partitions:
        by_topic.setdefault(each.topic, []).append(each)
    table(
        COLUMNS,
        (
            (
                topic,
                sum(each.records for each in parts),
                sum(each.bytes for each in parts),
                *_span(parts),
                conflicts[topic].keys if topic in conflicts else 0,
                sum(each.replayed + each.written_off for each in parts),
            )
            for topic, parts in sorted(by_topic.items())
        ),
    )
    for each in tail.partitions:
        if each.open:
            complain(
                f"{each.topic}-{each.partition}: a transaction is open there, and may "
                "hide more: wait until it ends"
            )
        if each.unmoved:
            complain(
                f"{each.topic}-{each.partition}: nothing is left, but the position did "
                "not move: replay, export or skip moves it"
            )


def _span(parts: list[TailPartition]) -> tuple[str, str]:
    times = [each.times for each in parts if each.records]
    if not times:
        return "", ""
    first = min(int(each.min()) for each in times)
    last = max(int(each.max()) for each in times)
    return moment(first / 1000), moment(last / 1000)


def _fields(part: TailPartition) -> dict[str, Any]:
    first, last = _span([part])
    return {
        "topic": part.topic,
        "partition": part.partition,
        "target_topic": part.target_topic,
        "position": part.position,
        "end": part.end,
        "records": part.records,
        "bytes": part.bytes,
        "first": first,
        "last": last,
        "replayed": part.replayed,
        "written_off": part.written_off,
        "open_transaction": part.open,
    }
