"""What one schema id means in the registries on both sides of a flow.

Main function: `trace`, which asks and changes nothing. Its result names the subjects
and versions that have the id, what refers to them, and both texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirror.schemas import schema_claims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.schemas.registry.registry import Registry
    from mirror.schemas.registry.values import SchemaVersion, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlace:
    """A version that has the id, or refers to one that has it."""

    cluster: str
    subject: Subject
    version: int
    deleted: bool
    role: str
    """`has it`, or `refers to it`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What the id means on both sides."""

    places: tuple[SchemaPlace, ...]
    topics: tuple[str, ...]
    """Topics of the source after which subjects with this id are named."""
    texts: Mapping[str, str]
    """By the alias of the cluster; without those that do not know the id."""
    target_id: int
    """Its id on the target; -1: nothing was copied under it."""
    same: bool
    """Whether both know it, as the same text."""
    said: str
    """The same in words."""


def trace(
    registries: tuple[Registry, Registry],
    flow: FlowConfig,
    context: str,
    number: int,
    *,
    reach: Callable[[str], Cluster],
) -> Traced:
    """`registries`: the source's and the target's; `context`: that of the id on the
    source; `reach`: the target's cluster is asked if ids are translated.

    Raises:
        MirrorError: a registry or the target does not answer.
    """
    source, target = registries
    places: list[SchemaPlace] = []
    texts = {}
    there, copy = flow.schemas_context + context, number
    if flow.translates_ids:
        known = schema_claims.translations(reach(flow.target), flow.source, there)
        copy = known.get(number, -1)
    for registry, where, own in (
        (source, context, number),
        (target, there, copy),
    ):
        schema = None if own < 0 else registry.by_id(where, own)
        if schema is not None:
            texts[registry.alias] = schema.text
            places += _places(registry, where, own)
    one, other = texts.get(source.alias), texts.get(target.alias)
    topics = {
        topic
        for each in places
        if each.cluster == source.alias and (topic := each.subject.topic)
    }
    return Traced(
        places=tuple(places),
        topics=tuple(sorted(topics)),
        texts=texts,
        target_id=copy,
        same=one is not None and one == other,
        said=_said(
            number, copy, {source.alias: one, target.alias: other}, sorted(topics)
        ),
    )


def to_json(found: Traced) -> dict[str, Any]:
    return {
        "same": found.same,
        "target_id": found.target_id,
        "topics": list(found.topics),
        "texts": dict(found.texts),
        "places": [
            {
                "cluster": each.cluster,
                "context": each.subject.context,
                "subject": each.subject.name,
                "version": each.version,
                "deleted": each.deleted,
                "role": each.role,
            }
            for each in found.places
        ],
    }


def _said(
    number: int, copy: int, texts: Mapping[str, str | None], topics: list[str]
) -> str:
    without = [alias for alias, text in texts.items() if text is None]
    if copy < 0:
        said = f"id {number} has no copy that {[*texts][1]} has answered"
    elif without:
        said = f"id {number} is not in the registry of {' or '.join(without)}"
    elif len(set(texts.values())) == 1:
        said = f"id {number} is the same text on {' and '.join(texts)}"
    else:
        said = f"id {number} is another text on {' than on '.join(texts)}"
    if copy not in {-1, number}:
        said += f"; it is id {copy} on {[*texts][1]}"
    return said + (f"; by their names, of topics {', '.join(topics)}" if topics else "")


def _places(registry: Registry, context: str, number: int) -> Iterator[SchemaPlace]:
    versions = registry.versions(context)  # some registries list other contexts, too
    having = {
        each.key for each in versions if (each.context, each.id) == (context, number)
    }
    for each in versions:
        if each.key in having:
            yield _place(registry, each, "has it")
    for each in versions:
        if having.intersection(each.refers_to):
            yield _place(registry, each, "refers to it")


def _place(registry: Registry, version: SchemaVersion, role: str) -> SchemaPlace:
    return SchemaPlace(
        cluster=registry.alias,
        subject=version.full_subject,
        version=version.version,
        deleted=version.deleted,
        role=role,
    )
