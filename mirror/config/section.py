"""What all sections of the configuration share: traits, base class and field types.

Main types: `Traits`, what mirror knows about a setting besides its type, default and
description, which `setting` gives each setting in its model; and `Section`, frozen,
which refuses unknown settings. The settings are in `schema` and in the modules that it
is made of. Loaders, the environment, reloads, the reader of MirrorMaker 2's files and
the generated pages ask the model through the functions here, so that a setting is
declared in one place. No setting is known by name here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, auto
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from mirror.config import values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    import re

    from pydantic.fields import FieldInfo


class Effect(Flag):
    """What a change of a setting asks of each flow that it reaches."""

    NONE = 0
    LOOK = auto()
    """Look for topics at once; leases go on."""
    JOBS = auto()
    """Restart its jobs, and look for topics; leases go on."""
    LEASES = auto()
    """Give its slots a new plan; the running lease ends early, within transactions."""
    RUN = auto()
    """End within its transactions and run again, which takes a third of a second."""
    RESTART = auto()
    """Only a restart of the service can do it: the change is refused."""


class Where(Flag):
    """Where MirrorMaker 2's file may hold a key."""

    CLUSTER = auto()
    """`A.key`; at the top level for all clusters."""
    CREDENTIAL = auto()
    """The same, for what `security` translates."""
    LOGIN = auto()
    """No key of its own: an option of OAuthBearerLoginModule in sasl.jaas.config."""
    FLOW = auto()
    """`A->B.key`; at the top level for all flows."""
    ONE_FLOW = auto()
    """`A->B.key` only."""
    SOURCE = auto()
    """`A.key` for flows from A, which wins over `A->B.key`."""
    TARGET = auto()
    """`B.key` for flows to B."""
    SERVICE = auto()
    """At the top level, for the process itself."""
    TOP_AS_MEANT = auto()
    """At the top level, where MirrorMaker 2 ignores it and guides expect that it does
    not. Only bytes on the wire differ, so mirror does what guides expect."""


@dataclass(frozen=True, slots=True)
class Key:
    """One of MirrorMaker 2's keys, and how its text becomes the setting's value."""

    name: str
    where: Where
    read: Callable[[str], Any] | None = None
    """None: a list with commas where the setting is a list, else the text itself."""


def keys(
    *names: str, where: Where = Where.FLOW, read: Callable[[str], Any] | None = None
) -> tuple[Key, ...]:
    return tuple(Key(name, where, read) for name in names)


@dataclass(frozen=True, slots=True)
class Differs:
    """MirrorMaker 2 has another default."""

    theirs: str
    ours: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """All that type, default and description do not say. Made by `setting`."""

    on_change: Effect | None = None
    """None: as its section says (`Section.on_change`)."""
    mm2: tuple[Key, ...] = ()
    """Its keys there. In each place the first is today's name, others are older."""
    mm2_default: Differs | None = None
    instead_of: str = ""
    """A variable that sets this one removes that other setting, and the reverse."""
    secret_keys: re.Pattern[str] | None = None
    """Of a mapping that may hold secrets: only the values of these keys are hidden."""
    from_key: bool = False
    """Not written as a setting: the section's key says it."""

    def __call__(self, schema: dict[str, Any]) -> None:
        """Add nothing to the JSON schema, which is where pydantic keeps this."""


def setting(
    *,
    description: str,
    on_change: Effect | None = None,
    mm2: tuple[Key, ...] = (),
    mm2_default: Differs | None = None,
    instead_of: str = "",
    secret_keys: re.Pattern[str] | None = None,
    from_key: bool = False,
    **field: Any,
) -> Any:
    """Pydantic's `Field` with traits. `repr=False`: it may hold secrets."""
    own = Traits(
        on_change=on_change,
        mm2=mm2,
        mm2_default=mm2_default,
        instead_of=instead_of,
        secret_keys=secret_keys,
        from_key=from_key,
    )
    return Field(description=description, json_schema_extra=own, **field)


HIDDEN = "***"
"""What people see instead of a secret."""
EXISTS = object()
"""Marks the type of paths that must lead to a file."""
FOLDERS = object()
"""Marks those of them that may lead to a folder instead."""


def settings(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """What a user may write in this section."""
    return {
        name: info
        for name, info in model.model_fields.items()
        if not traits(info).from_key
    }


def traits(info: FieldInfo) -> Traits:
    found = info.json_schema_extra
    assert isinstance(found, Traits), "settings are declared with `setting`"
    return found


def is_list(info: FieldInfo) -> bool:
    return get_origin(info.annotation) is tuple


def is_list_of_texts(info: FieldInfo) -> bool:
    return is_list(info) and get_args(info.annotation)[0] is str


def is_mapping(info: FieldInfo) -> bool:
    return get_origin(info.annotation) is Mapping


def is_file(info: FieldInfo) -> bool:
    """Whether it names a file that must exist."""
    return any(part is EXISTS for part in _parts(info.annotation))


def may_be_folder(info: FieldInfo) -> bool:
    return any(part is FOLDERS for part in _parts(info.annotation))


def section_of(info: FieldInfo) -> type[BaseModel] | None:
    """The section that a setting is, if it is one."""
    sections = [
        part
        for part in _parts(info.annotation)
        if isinstance(part, type) and issubclass(part, BaseModel)
    ]
    return sections[0] if sections else None


def with_inner(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A section, and the sections that are settings of it."""
    yield model
    for info in settings(model).values():
        if (inner := section_of(info)) is not None:
            yield from with_inner(inner)


def is_secret(info: FieldInfo) -> bool:
    return SecretStr in _parts(info.annotation)


def may_hide_secrets(info: FieldInfo) -> bool:
    """Whether it is a secret, or a mapping that may hold one."""
    return is_secret(info) or not info.repr


def _parts(annotation: Any) -> Iterator[Any]:
    """A type, and the types and marks that it is made of."""
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


# ---- the base class, and types of settings ----


Alias = Annotated[str, BeforeValidator(values.alias)]
Text = Annotated[str, Field(min_length=1)]
Secret = Annotated[SecretStr, BeforeValidator(values.secret)]
File = Annotated[Path, EXISTS]
FileOrFolder = Annotated[Path, EXISTS, FOLDERS]
Whole = Annotated[int, BeforeValidator(values.number)]
Number = Annotated[float, BeforeValidator(values.number)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(values.patterns)]
Aliases = Annotated[tuple[Alias, ...], BeforeValidator(values.patterns)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    on_change: ClassVar[Effect] = Effect.RUN
    """What changing a setting takes that this class declares, unless the setting's
    traits say otherwise. A new run is always right: it begins with everything."""

    @classmethod
    def effect(cls, name: str) -> Effect:
        """What a change of this setting takes."""
        own = traits(cls.model_fields[name]).on_change
        if own is not None:
            return own
        # The last class of the MRO that has it is the one that declares it.
        *_, declared = (
            each
            for each in cls.__mro__
            if issubclass(each, Section) and name in each.model_fields
        )
        return declared.on_change

    def filled(self, *names: str) -> list[str]:
        """Those of these settings that are set."""
        return [name for name in names if getattr(self, name) not in (None, {})]

    def one_of(self, name: str, file: str, *, what: str) -> list[str]:
        """`filled` of a secret and its file, of which only one may be set."""
        found = self.filled(name, file)
        if len(found) > 1:
            raise values.refusal(file, f"the {what} is set twice", "keep one")
        return found
