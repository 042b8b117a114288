"""The policy `rename`: the user's own rules name the copies.

Main type: `RenamePolicy`, which chooses between several rules and handles topics
without one. `rename_rule` applies a single rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.policy.mm2_policies import IdentityPolicy
from mirror.policy.names import HEARTBEATS, NameRange

if TYPE_CHECKING:
    from mirror.policy.rename_rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamePolicy:
    """The first rule that fits names the copy; a topic that none fits keeps its name.

    Only `heartbeats` keep the prefix. Read backwards, a name is what the first rule
    that could have made it says, or the topic's own where no rule touches it. Names
    cannot reveal a loop.
    """

    source_alias: str
    rules: tuple[Rule, ...]
    separator: str = "."
    aliases: tuple[str, ...] | None = None
    """Clusters whose heartbeats these are; see `is_heartbeats`."""

    @property
    def names_source(self) -> bool:
        return False

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(rule.match for rule in self.rules)

    def target_topic(self, topic: str) -> str:
        if self._unruled().is_heartbeats(topic):
            return self._unruled().target_topic(topic)
        for rule in self.rules:
            if (name := rule.apply(topic)) is not None:
                return name
        return topic

    def target_names(self, start: str) -> tuple[NameRange, ...]:
        # A topic that no rule fits keeps its name.
        return (NameRange(start=start), *(rule.names() for rule in self.rules))

    def topic_source(self, name: str) -> str | None:
        if self._unruled().is_heartbeats(name):
            return self._unruled().topic_source(name)
        return None if self.upstream_topic(name) is None else self.source_alias

    def upstream_topic(self, name: str) -> str | None:
        if self._unruled().is_heartbeats(name):
            return self._unruled().upstream_topic(name)
        for rule in self.rules:
            topic = rule.undo(name)
            # An earlier rule may have taken that topic for itself.
            if topic is not None and self.target_topic(topic) == name:
                return topic
        return name if self.target_topic(name) == name else None

    def original_topic(self, name: str) -> str:
        if self._unruled().is_heartbeats(name):
            return HEARTBEATS
        return self.upstream_topic(name) or name

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        return self._unruled().is_cycle(topic, target_alias)

    def _unruled(self) -> IdentityPolicy:
        return IdentityPolicy(
            source_alias=self.source_alias,
            separator=self.separator,
            aliases=self.aliases,
        )
