"""Settings of a flow about the schemas of the source's registry.

Main type: `SchemaSync`, a part of `FlowConfig`. `schemas.sync` applies them;
`rules` checks that both clusters have a registry.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from mirror.config import values
from mirror.config.section import Number, Patterns, Section, Whole
from mirror.config.traits import Effect, setting

_CONTEXT = re.compile(r"(\.[^:/\s.]+)*")


def context(value: Any) -> str:
    """The name of a context in a registry, which begins with a dot."""
    if not isinstance(value, str) or not _CONTEXT.fullmatch(value):
        values.refuse(
            f"{values.shown(value)} is not the name of a context: it begins with a "
            "dot, such as .a, and has no colon, slash or space"
        )
    return value


class SchemaSync(Section):
    """How the target's schema registry follows the source's."""

    on_change: ClassVar[Effect] = Effect.JOBS

    schemas: Literal["off", "copy", "require"] = setting(
        default="off",
        on_change=Effect.JOBS | Effect.LEASES,
        description="copy: keep the schemas of the source's registry in the target's, "
        "with their ids (schemas_ids), versions and texts; both clusters need "
        "schema_registry. require: the same, and no record is copied before its schema "
        "is in the target's registry. off: no schemas are copied.",
    )
    schemas_topics: Patterns = setting(
        default=(".*",),
        on_change=Effect.LEASES,
        description="Regular expressions that match the whole names of the source's "
        "topics in whose records to look for ids: with schemas: require, records of "
        "all others pass at once, and no drill looks at them. Empty: no records wait.",
    )
    schemas_subjects: Patterns = setting(
        default=(".*",),
        on_change=Effect.JOBS | Effect.LEASES,
        description="Regular expressions that must match a subject's whole name, "
        "with its context (:.context:name) or without. What such a subject refers to "
        "is copied too. Empty: no subject is copied.",
    )
    schemas_exclude: Patterns = setting(
        default=(),
        on_change=Effect.JOBS | Effect.LEASES,
        description="Subjects to leave out although `schemas_subjects` matches them, "
        "or another subject refers to them. Empty: none.",
    )
    schemas_context: Annotated[str, BeforeValidator(context)] = setting(
        default="",
        on_change=Effect.JOBS | Effect.LEASES,
        description="The context of the target's registry that gets the subjects, "
        "such as .a: where several sources use the same ids. Empty: each subject "
        "keeps its own context.",
    )
    schemas_ids: Literal["keep", "translate"] = setting(
        default="keep",
        on_change=Effect.JOBS | Effect.LEASES,
        description="keep: schemas have the same ids and version numbers in both "
        "registries; the target's must take mode IMPORT. translate: the target's "
        "registry chooses them, and records get its ids as they are copied. translate "
        "needs schemas: require, and no flow may lead back.",
    )
    schemas_id_gap: Whole = setting(
        default=1000,
        ge=0,
        description="How far above the source's highest id the target's registry goes "
        "on when it issues ids itself, so that it issues none that the source has "
        "used. Zero: right after the highest id that was copied. Without effect if "
        "schemas_ids is translate.",
    )
    schemas_deletes: bool = setting(
        default=True,
        description="Whether a version that is softly deleted on the source is "
        "deleted on the target too, if this flow has written it there. Off: it stays. "
        "Versions that are deleted for good always stay. Without effect if "
        "schemas_ids is translate: then all stay.",
    )
    schemas_seconds: Number = setting(
        default=10.0,
        gt=0,
        description="How often to look for new schemas; zero is refused, use schemas "
        "to turn it off.",
    )
    schemas_requests_per_second: Number = setting(
        default=1000.0,
        gt=0,
        description="How many requests each of the two registries gets at most, per "
        "second; zero is refused.",
    )

    @property
    def requires_schemas(self) -> bool:
        """Whether any record may wait for its schema."""
        return self.schemas == "require" and bool(self.schemas_topics)

    @property
    def translates_ids(self) -> bool:
        """Whether records get the ids of the target's registry."""
        return self.schemas_ids == "translate" and self.requires_schemas

    def needs_schemas(self, topic: str) -> bool:
        """Whether records of a topic of the source wait for their schemas."""
        return self.requires_schemas and self.may_have_schemas(topic)

    def may_have_schemas(self, topic: str) -> bool:
        """Whether to look for ids in records of a topic of the source."""
        return any(re.fullmatch(pattern, topic) for pattern in self.schemas_topics)
