"""Whether consumers could read what is on the target: the schemas of the last records.

Main function: `judge`. It takes the ids from the last records of each copy, asks both
registries for their texts and for those that they refer to, and decodes a record of
each id with what the target answers. It changes nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.clusters.registry.pace import RequestPace
from mirror.clusters.registry.registry import Registry
from mirror.drilling.decoding import decode
from mirror.drilling.schemas_in_use import in_use
from mirror.errors import BoundsError, ContentError, RegistryError
from mirror.metadata import schema_claims
from mirror.metadata.schema_names import references_of, referred
from mirror.switching.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirror.clusters.registry.values import Schema, SchemaVersion
    from mirror.metadata.schema_names import Key
    from mirror.switching.steps.checks import Seen

_DECODE_SECONDS = 30.0
"""In all: each record may ask for half a second of walking."""
_UNDECODED = (
    "have its producer write what the schema says; where records only look like a "
    "registry's, leave the topic out of schemas_topics"
)


def judge(seen: Seen, *, records: int) -> Iterator[Finding]:
    """For so many last records of each partition.

    Raises:
        ClusterError: the target does not answer.
    """
    flow = seen.flow
    if flow.schemas == "off":
        return
    pace = RequestPace(flow.schemas_requests_per_second)
    clusters = seen.stage.config.clusters
    meant = _meant(seen)
    decoder = _Decoder()
    with (
        Registry(clusters[flow.source], pace=pace) as source,
        Registry(clusters[flow.target], pace=pace) as target,
    ):
        for number, used in sorted(in_use(seen, records).items()):
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
                held = target.by_id(flow.schemas_context, number)
                what, needed = _compared(
                    target, wanted, needs, held, flow.schemas_context
                )
            except RegistryError as error:
                yield Finding(
                    level=Level.NOT_READY,
                    subject=f"registry of {flow.target}",
                    reason=f"consumers could not read {used.topic}: {error}",
                    fix="make it answer",
                )
                return
            where = f"{used.topic}-{used.partition} at offset {used.offset}"
            fix = "copy it, or remove what is in the way"
            if what or held is None:
                reason = f"records of {used.topic} have this id, which the registry of "
                reason += f"{flow.target} {what}"
            elif not (why := decoder.problem(held, needed, used.content)):
                continue
            elif isinstance(why, BoundsError):
                seen.unseen.append(f"schema {number} in {where}: {why}")
                continue
            else:
                reason = f"{where} has this id, and cannot be decoded with what the "
                reason += f"registry of {flow.target} answers: {why}"
                fix = _UNDECODED
            yield Finding(
                level=Level.NOT_READY,
                subject=f"schema {number}",
                reason=reason,
                fix=fix,
                command=f"mirror schema trace --flow '{flow.name}' --id {asked}",
            )


class _Decoder:
    """Decodes records, for some seconds in all."""

    def __init__(self) -> None:
        self._left = _DECODE_SECONDS

    def problem(
        self, held: Schema, needed: Sequence[Schema], content: bytes | None
    ) -> ContentError | BoundsError | None:
        """Why it is not decoded; None: it is, or there is nothing to decode."""
        if content is None:
            return None
        if self._left <= 0:
            return BoundsError("those before it took too long to decode")
        began = time.monotonic()
        try:
            decode(held, needed, content)
        except (ContentError, BoundsError) as error:
            return error
        finally:
            self._left -= time.monotonic() - began
        return None


def _meant(seen: Seen) -> dict[int, int]:
    """The source's id for each of the target's that the flow has translated to."""
    flow = seen.flow
    if not flow.translates_ids:
        return {}
    found = schema_claims.translations(
        seen.stage.target, flow.source, flow.schemas_context
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


def _compared(
    target: Registry,
    wanted: Schema,
    needs: dict[Key, SchemaVersion],
    held: Schema | None,
    context: str,
) -> tuple[str, list[Schema]]:
    """What keeps the target's registry from answering what the source's does, and what
    it has of what the schema refers to; `needs` is emptied.
    """
    needed: list[Schema] = []
    if held is None:
        return "does not have", needed
    if not _is_alike(wanted, held):
        return "has another schema for", needed
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
                what = f"{place[0]} version {each.version}"
                return f"has, but not {what}, which it needs", needed
            needed.append(there)
            pairs.append((here, here.context, there, there.context))
    return "", needed


def _is_alike(one: Schema, other: Schema) -> bool:
    return (one.kind, one.text) == (other.kind, other.text)
