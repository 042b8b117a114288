"""Whether a flow's schemas can follow: both registries, and who else writes there.

Main function: `findings`, from a flow's `Ground`. What would be written is in the plan.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
import uuid

from mirror.checks.finding import fail, ok, warn
from mirror.errors import MirrorError, RegistryError
from mirror.policy.naming import SCHEMAS
from mirror.schemas.registry.registry import Registry
from mirror.schemas.registry.values import TRIAL, Mode, Subject
from mirror.topics.topics import SCHEMAS_LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.checks.finding import Finding
    from mirror.checks.ground import Ground
    from mirror.config.schema import MirrorConfig
    from mirror.schemas.registry.values import SchemaVersion


def findings(ground: Ground, config: MirrorConfig) -> list[Finding]:
    """All findings about a flow's schemas."""
    found = _topic(ground)
    if ground.flow.schemas == "off":
        return found
    where, flow = ground.where, ground.flow
    try:
        with (
            Registry(config.clusters[flow.source]) as source,
            Registry(config.clusters[flow.target]) as target,
        ):
            source.level(Subject("", ""))  # whether Confluent's API is there
            if flow.translates_ids:
                target.level(Subject("", ""))
            elif wrong := [*trial(ground, source, target)]:
                return [*found, *wrong]
            else:
                found += _open(ground, target)
    except MirrorError as error:
        fix = "check schema_registry of that cluster, and mirror's rights there"
        return [*found, fail(where, "schemas", str(error), fix)]
    writes = [each for each in ground.plan.schemas if each.flow == flow.name]
    return [*found, ok(where, "schemas", f"{len(writes)} to write now")]


def _topic(ground: Ground) -> list[Finding]:
    """A registry's own topic among those that are copied, or would be."""
    what, _, fix = SCHEMAS_LEFT_OUT.partition("; ")
    if SCHEMAS_LEFT_OUT in ground.surveyed.problems:
        return [warn(ground.where, "schemas", what, fix)]
    for topic in ground.surveyed.topics:
        if topic.topic == SCHEMAS == topic.target_topic:
            text = f"{SCHEMAS} is copied under its own name"
            fix = f"leave it out, unless the registry of {ground.flow.target} is a "
            fix += "follower that never becomes the leader"
            if max(topic.partitions, topic.target_partitions) > 1:
                text += ", and has more than one partition, which registries refuse"
                fix = "delete the copy, and let mirror create it again"
            else:
                text += f": a registry of {ground.flow.target} that registers schemas "
                text += "itself writes to the same log"
            return [warn(ground.where, "schemas", text, fix)]
    return []


def _open(ground: Ground, target: Registry) -> list[Finding]:
    flow = ground.flow
    mode = target.mode(Subject(flow.schemas_context, ""))
    if mode is not Mode.READWRITE:
        return []
    return [
        warn(
            ground.where, "schemas",
            f"the registry of {flow.target} is in mode {mode}: what applications "
            f"register there may take ids that {flow.source} issues later",
            "register on the source only, or use schemas_context",
        )
    ]  # fmt: skip


# ---- tries whether a registry can be a flow's target, on a subject of its own ----
#
# Main function: `trial`. Lists and versions do not tell whether a registry keeps
# ids, or is the source's under another address. It registers what the flow is about
# to copy anyway, so no id is used up, and removes the subject.


_VERSION = 3
"""Not the one that a registry would choose."""


def trial(ground: Ground, source: Registry, target: Registry) -> Iterator[Finding]:
    """What is wrong.

    Raises:
        RegistryError: a registry does not answer.
    """
    flow, where = ground.flow, ground.where
    subject = Subject(flow.schemas_context, f"{TRIAL}{uuid.uuid4().hex}")
    unfit = (
        "set schemas: require and schemas_ids: translate, or use a registry for it "
        "that takes Confluent's mode IMPORT (docs: What each registry can do)"
    )
    try:
        target.set_mode(subject, Mode.IMPORT)
    except RegistryError as error:
        if error.retriable:
            _removed(target, subject)  # it may have been set without an answer
            raise
        text = f"UNSUPPORTED: a subject cannot be put into mode IMPORT: {error}"
        if error.status in {401, 403}:
            text, unfit = str(error), "give mirror the right to set modes there"
        yield fail(where, "schemas", text, unfit)
        return
    try:
        if _is_there(source, subject):
            yield fail(
                where, "schemas",
                f"{flow.source} and {flow.target} have one registry under two "
                "addresses, so there is nothing to copy",
                "set schemas to off", mistake=True,
            )  # fmt: skip
        elif said := _tried(target, subject, _next(ground, source)):
            yield fail(where, "schemas", f"UNSUPPORTED: {said}", unfit)
    finally:
        left = _removed(target, subject)
    if left:
        fix = "remove it with the registry's own API"
        yield warn(where, "schemas", f"{subject} was tried and is left: {left}", fix)


def _is_there(source: Registry, subject: Subject) -> bool:
    """Whether the other registry has the mode that was set here."""
    try:
        return source.mode(subject) is Mode.IMPORT
    except RegistryError as error:
        if error.retriable:
            raise
        return False  # it has no modes, so it is another one


def _next(ground: Ground, source: Registry) -> SchemaVersion | None:
    """A version that the flow is about to write; None: all are there, so the registry
    has shown what it can do, or those that are left refer to others.
    """
    flow = ground.flow
    for each in ground.plan.schemas:
        if each.flow == flow.name and each.change == "register":
            place = Subject.parse(each.subject)
            found = source.schema(place.from_below(flow.schemas_context), each.version)
            if found is not None and not found.references:
                return found
    return None


def _tried(target: Registry, subject: Subject, given: SchemaVersion | None) -> str:
    """What the registry made of it, if that is not what it was given."""
    if given is None:
        return ""
    wanted = replace(
        given, context=subject.context, subject=subject.name, version=_VERSION
    )
    try:
        target.register(wanted)
    except RegistryError as error:
        if error.retriable:
            raise
        return f"a schema with an id and a version is refused: {error}"
    there = target.schema(wanted.full_subject, wanted.version)
    if there is None or there.id != wanted.id:
        return "the registry chooses ids or version numbers itself"
    if there.text != wanted.text:
        return "the registry does not keep texts byte for byte"
    return ""


def _removed(target: Registry, subject: Subject) -> str:
    """Remove the subject; why it could not be."""
    try:
        target.remove(subject)
    except RegistryError as error:
        return str(error)
    return ""
