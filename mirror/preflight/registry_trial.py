"""Tries whether a registry can be a flow's target, on a subject of its own.

Main function: `trial`. Lists and versions do not tell whether a registry keeps ids, or
is the source's under another address. It registers what the flow is about to copy
anyway, so no id is used up, and removes the subject.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
import uuid

from mirror.clusters.registry.values import Mode, Subject
from mirror.errors import RegistryError
from mirror.metadata.schema_names import TRIAL
from mirror.preflight.finding import fail, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.clusters.registry.registry import Registry
    from mirror.clusters.registry.values import SchemaVersion
    from mirror.preflight.finding import Finding
    from mirror.preflight.ground import Ground

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
            context = place.context.removeprefix(flow.schemas_context)
            found = source.schema(Subject(context, place.name), each.version)
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
