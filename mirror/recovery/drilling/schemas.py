"""Whether the target's registry has the schemas that the last records use.

Main function: `judge`. It takes the ids from the last records of each copy and asks
both registries for them: the target's must have the same type and text as the source's,
also of all that a schema refers to. It decodes no record, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirror.clusters.admin import topic_admin
from mirror.errors import CorruptBatchError, RegistryError
from mirror.records import to_columns
from mirror.records.listing import headers_of, listed
from mirror.records.reading import TopicReader
from mirror.records.schema_ids import ID_SIZE, KEY_HEADER, VALUE_HEADER
from mirror.recovery.stage import Finding, Level
from mirror.schemas import claims
from mirror.schemas.registry.registry import open_registries
from mirror.schemas.registry.values import HIGHEST_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.records.listing import Listed
    from mirror.recovery.steps.checks import Seen
    from mirror.schemas.registry.registry import Registry
    from mirror.schemas.registry.values import Key, Schema, SchemaVersion


_MOST_PARTITIONS = 1000
_PARTS = (
    (to_columns.KEY_AT, to_columns.KEY_SIZE),
    (to_columns.VALUE_AT, to_columns.VALUE_SIZE),
)
"""What may begin with an id."""
_HEADERS = (KEY_HEADER.tobytes(), VALUE_HEADER.tobytes())
"""What may have it instead."""


def judge(seen: Seen, *, records: int) -> Iterator[Finding]:
    """For so many last records of each partition.

    Raises:
        ClusterError: the target does not answer.
    """
    flow = seen.flow
    if flow.schemas == "off":
        return
    seen.unseen.append("contents of records: a drill does not decode them")
    clusters = seen.stage.config.clusters
    meant = _meant(seen)
    with open_registries(flow, clusters[flow.source], clusters[flow.target]) as (
        source,
        target,
    ):
        for number, topic in sorted(_in_use(seen, records).items()):
            asked = meant.get(number, number)
            try:
                wanted = source.by_id("", asked)
                needs = _needs(source, wanted) if wanted else {}
            except RegistryError as error:
                seen.unseen.append(f"schemas in use: {error}")
                return
            if wanted is None:
                continue  # binary data may begin with a zero, too
            try:
                why = _differs(target, number, flow.schemas_context, wanted, needs)
            except RegistryError as error:
                yield Finding(
                    level=Level.NOT_READY,
                    subject=f"registry of {flow.target}",
                    reason=f"consumers could not read {topic}: {error}",
                    fix="make it answer",
                )
                return
            if why:
                yield Finding(
                    level=Level.NOT_READY,
                    subject=f"schema {number}",
                    reason=f"records of {topic} have this id, which the registry of "
                    f"{flow.target} {why}",
                    fix="copy it, or remove what is in the way",
                    command=f"mirror schema trace --flow '{flow.name}' --id {asked}",
                )


def _meant(seen: Seen) -> dict[int, int]:
    """The source's id for each of the target's that the flow has translated to."""
    flow = seen.flow
    if not flow.translates_ids:
        return {}
    found = claims.translations(seen.stage.target, flow.source, flow.schemas_context)
    return {copy: number for number, copy in found.items()}


def _needs(source: Registry, wanted: Schema) -> dict[Key, SchemaVersion]:
    """What a schema refers to, and what that refers to."""
    found: dict[Key, SchemaVersion] = {}
    left = [each.key("") for each in wanted.references]
    while left:
        place = left.pop()
        if place not in found and (version := source.schema(*place)) is not None:
            found[place] = version
            left += version.refers_to
    return found


def _differs(
    target: Registry,
    number: int,
    context: str,
    wanted: Schema,
    needs: dict[Key, SchemaVersion],
) -> str:
    """How what the target's registry has under an id differs from what the source's
    has; empty: it does not. `needs` is emptied.
    """
    held = target.by_id(context, number)
    if held is None:
        return "does not have"
    if not held.has_text_of(wanted):
        return "has another schema for"
    pairs: list[tuple[Schema, str, Schema, str]] = [(wanted, "", held, context)]
    while pairs:
        one, of_one, other, of_other = pairs.pop()
        copies = {each.name: each for each in other.references}
        for each in one.references:
            place = each.key(of_one)
            if (here := needs.pop(place, None)) is None:
                continue  # compared, or not on the source either
            copy = copies.get(each.name)
            there = target.schema(*copy.key(of_other)) if copy else None
            if there is None or not there.has_text_of(here):
                what = f"{place[0]} version {each.version}"
                return f"has, but not {what}, which it needs"
            pairs.append((here, here.context, there, there.context))
    return ""


def _in_use(seen: Seen, records: int) -> dict[int, str]:
    """The ids in so many last records of each partition, each with a topic that has it.

    Raises:
        ClusterError: the target does not answer.
    """
    target, flow, unseen = seen.stage.target, seen.flow, seen.unseen
    keys = [
        (each.target_topic, number)
        for each in seen.topics
        if flow.may_have_schemas(each.topic)
        for number in range(each.partitions)
    ]
    if len(keys) > _MOST_PARTITIONS:
        unseen.append(f"schemas in use: looked at {_MOST_PARTITIONS} of {len(keys)} "
                      "partitions")  # fmt: skip
    keys = keys[:_MOST_PARTITIONS]
    starts = topic_admin.list_offsets(target, keys, timestamp=topic_admin.EARLIEST)
    ends = topic_admin.list_offsets(target, keys, timestamp=topic_admin.LATEST)
    found: dict[int, str] = {}
    for (topic, partition), end in ends.items():
        first = max(starts.get((topic, partition), 0), end - records)
        if first >= end:
            continue
        reader = TopicReader(target, topic, partition=partition, position=first)
        try:
            for buffer, rows in reader.batches(end):
                for part in listed(buffer, rows, first, end):
                    for number in _ids(part):
                        found.setdefault(number, topic)
        except CorruptBatchError as error:
            unseen.append(f"schemas in use of {topic}-{partition}: {error}")
    return found


def _ids(part: Listed) -> set[int]:
    """Those in keys, values and headers. A header may have a GUID instead."""
    found: set[int] = set()
    for at, size in _PARTS:
        places = part.places[part.places[:, size] >= ID_SIZE]
        head = part.buffer[places[:, at][:, None] + np.arange(ID_SIZE)]
        ids = np.ascontiguousarray(head[head[:, 0] == 0, 1:]).view(">u4")
        found.update(ids.ravel().tolist())
    for place in part.places[part.places[:, to_columns.HEADERS] > 0]:
        named = dict(headers_of(part.buffer, place))
        for header in _HEADERS:
            value = named.get(header) or b""
            if len(value) >= ID_SIZE and value[0] == 0:
                found.add(int.from_bytes(value[1:ID_SIZE]))
    return {number for number in found if number <= HIGHEST_ID}
