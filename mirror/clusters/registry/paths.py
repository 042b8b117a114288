"""Where things are in Confluent's API.

Functions: `of_context`, `of_subject`, and `of_setting` for what subjects and contexts
have, a mode and a level. Names may have any character, so they are quoted, but only
where an address must: some registries take a quoted name for another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

if TYPE_CHECKING:
    from mirror.clusters.registry.values import Subject

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
