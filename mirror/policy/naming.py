"""What every naming policy can do: name a copy, and read a copy's name backwards.

Main type: `ReplicationPolicy`. Callers know this protocol alone; `choice` knows which
policies there are. Loops of records are stopped by the provenance header; the rule
here only looks at names.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection


class ReplicationPolicy(Protocol):
    """How copies are named, and what a name reveals about a topic's origin."""

    @property
    def names_source(self) -> bool:
        """Whether a copy's name says which cluster it is from, so that copies of two
        sources never meet in one topic.
        """

    @property
    def patterns(self) -> tuple[str, ...]:
        """Regular expressions for topics whose copies get names of their own."""

    def target_topic(self, topic: str) -> str:
        """The name of the copy."""

    def target_names(self, start: str) -> tuple[NameRange, ...]:
        """Where the copies of all topics that begin with `start` are; more than one
        range if the copies do not begin alike.
        """

    def topic_source(self, name: str) -> str | None:
        """Alias of the cluster that `name` was copied from; None if not a copy."""

    def upstream_topic(self, name: str) -> str | None:
        """The topic's name on the cluster it was copied from; None if not a copy."""

    def original_topic(self, name: str) -> str:
        """The name before the first hop."""

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        """Whether the name says that the topic already came through the target."""


# ---- names of topics: which ones Kafka accepts, and which are not for copying ----
#
# Functions: `why_illegal` and `is_internal`. `NameRange` is one name, or all that
# begin alike, which is what an ACL can say.


HEARTBEATS = "heartbeats"
SCHEMAS = "_schemas"
"""The topic in which Confluent's schema registry keeps everything."""
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
MAX_NAME_LENGTH = 249


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRange:
    """One name, or all names that begin alike."""

    start: str
    """Empty, and not whole: all names."""
    whole: bool = False
    """Whether `start` is the only name."""


def is_heartbeats(
    name: str, separator: str = ".", aliases: Collection[str] | None = None
) -> bool:
    """Whether a topic is `heartbeats`, or a copy of it over any number of hops.

    `aliases`: clusters that may be named before it: `app.heartbeats` is an
    application's unless a cluster is called `app`. None: MirrorMaker 2's rule, by which
    anything may be.
    """
    if not name.endswith(HEARTBEATS):  # each look asks about each topic
        return False
    if aliases is None:
        return name.rpartition(separator)[2] == HEARTBEATS
    marks = tuple(f"{alias}{separator}" for alias in aliases)
    while name.startswith(marks):
        name = name.removeprefix(next(m for m in marks if name.startswith(m)))
    return name == HEARTBEATS


def is_internal(name: str, separator: str = ".") -> bool:
    """Whether a topic belongs to brokers, to MirrorMaker 2 or to us."""
    if name.startswith("__"):
        return True
    for mark in {".", separator}:
        if name.endswith(
            (f"{mark}checkpoints{mark}internal", f"{mark}offset-map{mark}internal")
        ):
            return True
        if name.endswith(f"{mark}internal") and name.startswith(("mm2", "mirror-")):
            return True
    return False


def why_illegal(name: str) -> str | None:
    """Why no cluster would accept `name` for a topic; None if one would."""
    if name in {"", ".", ".."}:
        return f'a topic cannot be named "{name}"'
    if len(name) > MAX_NAME_LENGTH:
        return (
            f'the target name "{name}" has {len(name)} characters; '
            f"Kafka allows {MAX_NAME_LENGTH}"
        )
    if not LEGAL_NAME.fullmatch(name):
        return (
            f'the target name "{name}" has characters that Kafka does not allow; '
            "letters, digits, dot, underscore and hyphen are allowed"
        )
    return None
