"""From the JSON of Confluent's API to values, and back.

Functions: `schema`, `version` and `uses` read, `body` writes. They raise what taking
values out of JSON raises (`errors.MALFORMED`) if it has another form. Texts are carried
byte for byte; what registries add to metadata by themselves is left out.
"""

from __future__ import annotations

import json
from typing import Any, Literal
from urllib.parse import quote

from mirror.schemas.registry.values import (
    Reference,
    Schema,
    SchemaVersion,
    Subject,
    Use,
)

_AVRO = "AVRO"
"""The kind of a schema that does not say its kind."""
_ADDED = "confluent:version"
"""A property of metadata that says again which version it is."""


def schema(said: Any) -> Schema:
    """A schema that was asked for by its id."""
    return Schema(**_content(said))


def version(said: Any, context: str, *, deleted: bool = False) -> SchemaVersion:
    """A version of a subject. Its own context wins over the one that was asked."""
    subject = Subject.parse(_text(said["subject"]))
    return SchemaVersion(
        **_content(said),
        context=subject.context or context,
        subject=subject.name,
        version=_whole(said["version"]),
        id=_whole(said["id"]),
        deleted=deleted,
    )


def uses(said: Any, context: str) -> tuple[Use, ...]:
    """The versions that have an id."""
    found = []
    for each in said:
        subject = Subject.parse(_text(each["subject"]))
        place = Subject(subject.context or context, subject.name)
        found.append(Use(place, _whole(each["version"])))
    return tuple(sorted(found))


def body(wanted: SchemaVersion, *, keeps: bool) -> dict[str, Any]:
    """What registers a version; `keeps`: with its id and number."""
    return {
        "schema": wanted.text,
        "schemaType": wanted.kind,
        "references": [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in wanted.references
        ],
        **({"id": wanted.id, "version": wanted.version} if keeps else {}),
        **({"metadata": json.loads(wanted.metadata)} if wanted.metadata else {}),
        **({"ruleSet": json.loads(wanted.rule_set)} if wanted.rule_set else {}),
    }


def _content(said: Any) -> dict[str, Any]:
    metadata = dict(said.get("metadata") or {})
    properties = {
        name: value
        for name, value in (metadata.pop("properties", None) or {}).items()
        if name != _ADDED
    }
    return {
        "kind": _text(said.get("schemaType") or _AVRO),
        "text": _text(said["schema"]),
        "references": tuple(
            Reference(
                _text(each["name"]), _text(each["subject"]), _whole(each["version"])
            )
            for each in said.get("references") or ()
        ),
        "metadata": _canonical({**metadata, "properties": properties}),
        "rule_set": _canonical(said.get("ruleSet") or {}),
    }


def _canonical(said: dict[str, Any]) -> str:
    """The same text for the same content; empty if there is none."""
    kept = {name: value for name, value in said.items() if value}
    return json.dumps(kept, sort_keys=True, separators=(",", ":")) if kept else ""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


# ---- where things are in Confluent's API ----
#
# Functions: `of_context`, `of_subject`, and `of_setting` for what subjects and
# contexts have, a mode and a level. Names may have any character, so they are
# quoted, but only where an address must: some registries take a quoted name for
# another one.


_PLAIN = ":+@,!$'()*~"
"""What a path may have as it is, and no server takes for something else."""


def of_context(context: str) -> str:
    """What the paths of a context begin with."""
    return f"/contexts/{_quoted(context)}" if context else ""


def of_subject(subject: Subject) -> str:
    return f"{of_context(subject.context)}/subjects/{_quoted(subject.name)}"


def of_setting(what: Literal["mode", "config"], subject: Subject) -> str:
    """The setting of a subject; of a context, if it has no name."""
    path = f"{of_context(subject.context)}/{what}"
    return f"{path}/{_quoted(subject.name)}" if subject.name else path


def _quoted(name: str) -> str:
    return quote(name, safe=_PLAIN)
