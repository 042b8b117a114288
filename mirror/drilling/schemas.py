"""Whether consumers could read what is on the target: the schemas of the last records.

Main function: `judge`. It takes the ids from the last records of each copy, and asks
both registries for their texts and for those that they refer to. With the same texts a
consumer of the target decodes what one of the source does; records themselves are not
decoded, since that needs a library for each kind of schema. It changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirror.batches import codecs, to_columns
from mirror.batches.listing import headers_of, listed
from mirror.batches.reading import TopicReader
from mirror.clusters.admin import topic_admin
from mirror.clusters.registry.pace import RequestPace
from mirror.clusters.registry.registry import Registry
from mirror.clusters.registry.values import HIGHEST_ID
from mirror.drilling.findings import DrillFinding, FindingLevel
from mirror.errors import CorruptBatchError, RegistryError
from mirror.metadata import schema_claims
from mirror.metadata.schema_names import references_of, referred

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.batches.listing import Listed
    from mirror.clusters.registry.values import Schema, SchemaVersion
    from mirror.drilling.looked import Looked
    from mirror.metadata.schema_names import Key

_MOST_PARTITIONS = 1000
_HEADERS = frozenset({b"__key_schema_id", b"__value_schema_id"})
_BEGINS = 5
"""Bytes before a record's content: a zero, and the id."""


def judge(looked: Looked, *, records: int, unseen: list[str]) -> Iterator[DrillFinding]:
    """For so many last records of each partition.

    Raises:
        ClusterError: the target does not answer.
    """
    flow = looked.flow
    if flow.schemas == "off":
        return
    pace = RequestPace(flow.schemas_requests_per_second)
    clusters = looked.config.clusters
    meant = _meant(looked)
    with (
        Registry(clusters[flow.source], pace=pace) as source,
        Registry(clusters[flow.target], pace=pace) as target,
    ):
        for number, topic in sorted(_in_use(looked, records, unseen).items()):
            try:
                wanted = source.by_id("", meant.get(number, number))
                needs = _needs(source, wanted) if wanted else {}
            except RegistryError as error:
                unseen.append(f"schemas in use: {error}")
                return
            if wanted is None:
                continue  # binary data may begin with a zero, too
            try:
                what = _missing(target, wanted, needs, number, flow.schemas_context)
            except RegistryError as error:
                yield DrillFinding(
                    level=FindingLevel.NOT_READY,
                    subject=f"registry of {flow.target}",
                    reason=f"consumers could not read {topic}: {error}",
                    cure="make it answer",
                )
                return
            if what:
                asked = meant.get(number, number)
                yield DrillFinding(
                    level=FindingLevel.NOT_READY,
                    subject=f"schema {number}",
                    reason=f"records of {topic} have this id, which the registry of "
                    f"{flow.target} {what}",
                    cure="copy it, or remove what is in the way",
                    command=f"mirror schema trace --flow '{flow.name}' --id {asked}",
                )


def _meant(looked: Looked) -> dict[int, int]:
    """The source's id for each of the target's that the flow has translated to."""
    flow = looked.flow
    if not flow.translates_ids:
        return {}
    found = schema_claims.translations(
        looked.stage.target, flow.source, flow.schemas_context
    )
    return {copy: number for number, copy in found.items()}


def _needs(source: Registry, wanted: Schema) -> dict[Key, SchemaVersion]:
    """What a schema refers to, and what that refers to."""
    found: dict[Key, SchemaVersion] = {}
    left = [referred(each, "") for each in wanted.references]
    while left:
        place = left.pop()
        if place not in found and (version := source.schema(*place)) is not None:
            found[place] = version
            left += references_of(version)
    return found


def _missing(
    target: Registry,
    wanted: Schema,
    needs: dict[Key, SchemaVersion],
    number: int,
    context: str,
) -> str:
    """What keeps the target's registry from answering what the source's does; `needs`
    is emptied.
    """
    held = target.by_id(context, number)
    if held is None:
        return "does not have"
    if not _is_alike(wanted, held):
        return "has another schema for"
    pairs: list[tuple[Schema, str, Schema, str]] = [(wanted, "", held, context)]
    while pairs:
        one, of_one, other, of_other = pairs.pop()
        copies = {each.name: each for each in other.references}
        for each in one.references:
            place = referred(each, of_one)
            if (here := needs.pop(place, None)) is None:
                continue  # compared, or not on the source either
            copy = copies.get(each.name)
            there = target.schema(*referred(copy, of_other)) if copy else None
            if there is None or not _is_alike(here, there):
                return f"has, but not {place[0]} version {each.version}, which it needs"
            pairs.append((here, here.context, there, there.context))
    return ""


def _is_alike(one: Schema, other: Schema) -> bool:
    return (one.kind, one.text) == (other.kind, other.text)


def _in_use(looked: Looked, records: int, unseen: list[str]) -> dict[int, str]:
    """The ids in the last records, each with a copy that has it."""
    target = looked.stage.target
    keys = [
        (each.target_topic, number)
        for each in looked.topics
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
                for part in listed(
                    buffer, rows, first, end, most_unpacked=codecs.MOST_UNPACKED
                ):
                    for number in _ids(part):
                        found.setdefault(number, topic)
        except CorruptBatchError as error:
            unseen.append(f"schemas in use of {topic}-{partition}: {error}")
    return found


def _ids(part: Listed) -> set[int]:
    """Of keys, values and headers. A header may have a GUID instead."""
    found: set[int] = set()
    for at, size in (
        (to_columns.KEY_AT, to_columns.KEY_SIZE),
        (to_columns.VALUE_AT, to_columns.VALUE_SIZE),
    ):
        begins = part.places[part.places[:, size] >= _BEGINS, at]
        head = part.buffer[begins[:, None] + np.arange(_BEGINS)]
        ids = np.ascontiguousarray(head[head[:, 0] == 0, 1:]).view(">u4")
        found.update(ids.ravel().tolist())
    for place in part.places[part.places[:, to_columns.HEADERS] > 0]:
        for name, value in headers_of(part.buffer, place):
            if name in _HEADERS and value and len(value) >= _BEGINS and value[0] == 0:
                found.add(int.from_bytes(value[1:_BEGINS]))
    return {number for number in found if number <= HIGHEST_ID}
