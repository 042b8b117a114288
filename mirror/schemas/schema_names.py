"""Places of schemas: where a source's version stands in the target's registry.

A `Key` is a subject and a version's number. `place` moves a version into a flow's
context, `references_of` says what it needs, `is_same` whether two are one schema, byte
for byte, `has_address` whether a request can be about a subject, `topic_of` of which
topic it is.
"""

from __future__ import annotations

from dataclasses import replace
import re
from typing import TYPE_CHECKING

from mirror.schemas.registry.values import Subject

if TYPE_CHECKING:
    from mirror.schemas.registry.values import Reference, SchemaVersion

Key = tuple[Subject, int]
RESERVED = "mirror-reserved-ids"
"""The subject that keeps ids free (`schemas`), which is never copied."""
TRIAL = "mirror-check-"
"""How the subjects begin on which `check` tries registries; never copied either."""
_NO_NAME = re.compile(r"\.{0,2}|:[.*].*", re.DOTALL)
"""In an address these lead to the whole context, or to another one."""


def key_of(version: SchemaVersion) -> Key:
    return version.full_subject, version.version


def shown(key: Key) -> str:
    """As people read it."""
    return f"{key[0]} version {key[1]}"


def has_address(subject: Subject) -> bool:
    """Whether requests about a subject are about nothing else."""
    elsewhere = subject.context == ".." or "/" in subject.context
    return not elsewhere and _NO_NAME.fullmatch(subject.name) is None


def topic_of(subject: str) -> str | None:
    """The topic after which a subject is named: TOPIC-key or TOPIC-value."""
    topic, _, ending = subject.rpartition("-")
    return topic if topic and ending in {"key", "value"} else None


def place(version: SchemaVersion, context: str) -> SchemaVersion:
    """The version as it should be on the target, below this context; empty: where it is
    on the source.
    """
    if not context:
        return version
    return replace(
        version,
        context=context + version.context,
        references=tuple(_moved(each, context) for each in version.references),
    )


def _moved(reference: Reference, context: str) -> Reference:
    if not reference.subject.startswith(":."):
        return reference  # its referrer's context, which moves as well
    subject = Subject.parse(reference.subject)
    moved = Subject(context + subject.context, subject.name)
    return replace(reference, subject=moved.qualified)


def references_of(version: SchemaVersion) -> tuple[Key, ...]:
    """What it refers to, in the registry where it is."""
    return tuple(referred(each, version.context) for each in version.references)


def is_same(one: SchemaVersion, other: SchemaVersion) -> bool:
    """Whether both are one schema: kind, text and what they refer to."""
    return (one.kind, one.text, _named(one)) == (other.kind, other.text, _named(other))


def _named(version: SchemaVersion) -> set[tuple[str, Key]]:
    return {(r.name, referred(r, version.context)) for r in version.references}


def referred(reference: Reference, context: str) -> Key:
    """What it refers to; `context`: of the schema that has the reference."""
    if reference.subject.startswith(":."):
        return Subject.parse(reference.subject), reference.version
    return Subject(context, reference.subject), reference.version
