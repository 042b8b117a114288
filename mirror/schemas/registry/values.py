"""What a schema registry holds: subjects, versions of them, references and modes.

Main types: `Subject`, `SchemaVersion`, `Schema` and `Mode`. All are frozen and say
nothing about how they travel. A `Key` is a subject and the number of a version. The
default context is the empty text here and "." in some registries' answers; every other
context begins with a dot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
import hashlib
import re
from typing import NamedTuple

HIGHEST_ID = 2**31 - 1
"""The highest id that a registry issues; asked for a higher one, it refuses, or answers
that the address is wrong."""
RESERVED = "mirror-reserved-ids"
"""The subject that keeps ids free (`sync.reserve`), which is never copied."""
TRIAL = "mirror-check-"
"""How the subjects begin on which `check` tries registries; never copied either."""
_NO_NAME = re.compile(r"\.{0,2}|:[.*].*", re.DOTALL)
"""In an address these lead to the whole context, or to another one."""
_QUALIFIED = re.compile(r":(\.[^:]*):(.*)", re.DOTALL)
_DEFAULT = frozenset({"", "."})


class Mode(StrEnum):
    """What a subject, or a whole context, lets its clients do."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    """Only schemas that bring their id and version along."""
    FORWARD = "FORWARD"


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """A subject in its context; without a name, the whole context."""

    context: str
    """Empty, or with a leading dot."""
    name: str

    @property
    def qualified(self) -> str:
        """As addresses and references spell it: `:.context:name`, or the name alone."""
        return f":{self.context}:{self.name}" if self.context else self.name

    @classmethod
    def parse(cls, text: str) -> Subject:
        """The reverse of `qualified`."""
        if (found := _QUALIFIED.fullmatch(text)) is None:
            return cls("", text)
        context, name = found.groups()
        return cls("" if context in _DEFAULT else context, name)

    @property
    def has_address(self) -> bool:
        """Whether requests about it are about nothing else."""
        elsewhere = self.context == ".." or "/" in self.context
        return not elsewhere and _NO_NAME.fullmatch(self.name) is None

    @property
    def topic(self) -> str | None:
        """The topic after which it is named: TOPIC-key or TOPIC-value."""
        topic, _, ending = self.name.rpartition("-")
        return topic if topic and ending in {"key", "value"} else None

    def below(self, context: str) -> Subject:
        """Where a flow that has this context of its own copies it to."""
        return Subject(context + self.context, self.name)

    def from_below(self, context: str) -> Subject:
        """The reverse of `below`."""
        return Subject(self.context.removeprefix(context), self.name)

    def __str__(self) -> str:
        return self.qualified


class Key(NamedTuple):
    """One version's place in a registry."""

    subject: Subject
    number: int

    def __str__(self) -> str:
        return f"{self.subject} version {self.number}"


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A schema that another one uses."""

    name: str
    """As the text of the other one calls it."""
    subject: str
    """As the registry spells it: without a context, it is the referrer's own."""
    version: int

    def key(self, context: str) -> Key:
        """What it refers to; `context`: of the schema that has the reference."""
        if self.subject.startswith(":."):
            return Key(Subject.parse(self.subject), self.version)
        return Key(Subject(context, self.subject), self.version)

    def below(self, context: str) -> Reference:
        """The same in a copy below this context."""
        if not self.subject.startswith(":."):
            return self  # its referrer's context, which moves as well
        moved = Subject.parse(self.subject).below(context)
        return replace(self, subject=moved.qualified)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A text and what it means, without a place."""

    kind: str
    """AVRO, JSON or PROTOBUF; a registry may know others."""
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str = ""
    """JSON with sorted keys; empty: none."""
    rule_set: str = ""
    """JSON with sorted keys; empty: none."""

    @property
    def sha256(self) -> str:
        """Of the text as the registry holds it, byte for byte."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    def has_text_of(self, other: Schema) -> bool:
        """Whether both are the same text, of the same kind."""
        return (self.kind, self.text) == (other.kind, other.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion(Schema):
    """A schema at its place: a version of a subject."""

    context: str = ""
    subject: str
    """Its name within the context."""
    version: int
    id: int
    deleted: bool = False
    """Softly: it can still be read by its id, and no longer be found."""

    @property
    def full_subject(self) -> Subject:
        return Subject(self.context, self.subject)

    @property
    def key(self) -> Key:
        return Key(self.full_subject, self.version)

    @property
    def refers_to(self) -> tuple[Key, ...]:
        """In the registry where it is, in the order of its references."""
        return tuple(each.key(self.context) for each in self.references)

    def is_same(self, other: SchemaVersion) -> bool:
        """Whether both are one schema: kind, text and what they refer to."""
        return self.has_text_of(other) and self._named() == other._named()

    def _named(self) -> set[tuple[str, Key]]:
        return {(each.name, each.key(self.context)) for each in self.references}

    def below(self, context: str) -> SchemaVersion:
        """As it should be on the target, below this context; empty: where it is on the
        source.
        """
        if not context:
            return self
        return replace(
            self,
            context=context + self.context,
            references=tuple(each.below(context) for each in self.references),
        )
