"""What every naming policy can do: name a copy, and read a copy's name backwards.

Main type: `ReplicationPolicy`. Callers know this protocol alone; `choice` knows which
policies there are. Loops of records are stopped by the provenance header; the rule
here only looks at names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mirror.policy.names import NameRange


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
