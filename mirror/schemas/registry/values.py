"""What a schema registry holds: subjects, versions of them, references and modes.

Main types: `Subject`, `SchemaVersion`, `Schema` and `Mode`. All are frozen and say
nothing about how they travel. The default context is the empty text here and "." in
some registries' answers; every other context begins with a dot.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
import hashlib
import re

HIGHEST_ID = 2**31 - 1
"""The highest id that a registry issues; asked for a higher one, it refuses, or answers
that the address is wrong."""
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

    def __str__(self) -> str:
        return self.qualified


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A schema that another one uses."""

    name: str
    """As the text of the other one calls it."""
    subject: str
    """As the registry spells it: without a context, it is the referrer's own."""
    version: int


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


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """Where an id is used."""

    subject: Subject
    version: int
