"""Which naming policies there are, by the name that a flow's setting `policy` gives.

Main functions: `make_policy`, and `why_unfit`, what keeps a policy from being made.
A further policy is a class behind `ReplicationPolicy`, and its name here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mirror.policy.naming import HEARTBEATS, NameRange, is_heartbeats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.policy.naming import ReplicationPolicy
    from mirror.policy.rename_rule import Rule


PolicyName = Literal["default", "identity", "rename"]
DESCRIPTION = (
    "default: the copy is called <source><separator><topic>; "
    "identity: the copy has the topic's own name; rename: as `rename` says."
)


def make_policy(
    name: PolicyName,
    *,
    source_alias: str,
    separator: str = ".",
    rules: Sequence[Rule] = (),
    aliases: tuple[str, ...] | None = None,
) -> ReplicationPolicy:
    """The policy that a flow's settings name. `aliases`: see `is_heartbeats`.

    Raises:
        ValueError: as `why_unfit` says.
    """
    match name:
        case "default":
            return DefaultPolicy(source_alias=source_alias, separator=separator)
        case "identity":
            return IdentityPolicy(
                source_alias=source_alias, separator=separator, aliases=aliases
            )
        case "rename":
            if reason := why_unfit(name, rules):
                raise ValueError(reason)
            return RenamePolicy(
                source_alias=source_alias,
                separator=separator,
                rules=tuple(rules),
                aliases=aliases,
            )


def why_unfit(name: PolicyName, rules: Sequence[Rule]) -> str | None:
    """Why a policy does not go with these rules; None if it does."""
    if name == "rename" and not rules:
        return (
            "policy rename needs rules; give it rename, such as "
            "[{match: 'orders\\.(.*)', to: 'eu.\\1'}]"
        )
    if rules and name != "rename":
        return (
            f"policy {name} would not use rename; set policy to rename, or rename to []"
        )
    return None


# ---- the policy `rename`: the user's own rules name the copies ----
#
# Main type: `RenamePolicy`, which chooses between several rules and handles topics
# without one. `rename_rule` applies a single rule.


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


# ---- MirrorMaker 2's two policies, name for name ----
#
# Main types: `DefaultPolicy`, which puts the source's alias before a topic's name,
# and `IdentityPolicy`, which keeps it.


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPolicy:
    """The copy's name is the source's alias, the separator, and the topic's name.

    Any name with the separator in it looks like a copy: `prod.orders` is taken for
    a copy of `orders` from the cluster `prod`. MirrorMaker 2 reads it the same way.
    """

    source_alias: str
    separator: str = "."

    @property
    def names_source(self) -> bool:
        return True

    @property
    def patterns(self) -> tuple[str, ...]:
        return ()

    def target_topic(self, topic: str) -> str:
        return f"{self.source_alias}{self.separator}{topic}"

    def target_names(self, start: str) -> tuple[NameRange, ...]:
        return (NameRange(start=self.target_topic(start)),)

    def topic_source(self, name: str) -> str | None:
        alias, _, upstream = name.partition(self.separator)
        # Java's split drops empty parts at the end: "orders." is not a copy of "".
        return alias if upstream.replace(self.separator, "") else None

    def upstream_topic(self, name: str) -> str | None:
        if self.topic_source(name) is None:
            return None
        return name.partition(self.separator)[2]

    def original_topic(self, name: str) -> str:
        while (upstream := self.upstream_topic(name)) is not None:
            name = upstream
        return name

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        name: str | None = topic
        while name is not None:
            if self.topic_source(name) == target_alias:
                return True
            name = self.upstream_topic(name)
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityPolicy:
    """The copy has the topic's own name. Only `heartbeats` keep the prefix.

    Every topic may have come from the source, so names cannot reveal a loop.
    """

    source_alias: str
    separator: str = "."
    aliases: tuple[str, ...] | None = None
    """Clusters whose heartbeats these are; see `is_heartbeats`."""

    @property
    def names_source(self) -> bool:
        return False

    @property
    def patterns(self) -> tuple[str, ...]:
        return ()

    def target_topic(self, topic: str) -> str:
        if self.is_heartbeats(topic):
            return self._prefixing().target_topic(topic)
        return topic

    def target_names(self, start: str) -> tuple[NameRange, ...]:
        return (NameRange(start=start),)

    def topic_source(self, name: str) -> str | None:
        if self.is_heartbeats(name):
            return self._prefixing().topic_source(name)
        return self.source_alias

    def upstream_topic(self, name: str) -> str | None:
        if self.is_heartbeats(name):
            return self._prefixing().upstream_topic(name)
        return name

    def original_topic(self, name: str) -> str:
        return HEARTBEATS if self.is_heartbeats(name) else name

    def is_cycle(self, topic: str, target_alias: str) -> bool:
        if self.is_heartbeats(topic):
            return self._prefixing().is_cycle(topic, target_alias)
        return False

    def is_heartbeats(self, name: str) -> bool:
        return is_heartbeats(name, self.separator, self.aliases)

    def _prefixing(self) -> DefaultPolicy:
        return DefaultPolicy(source_alias=self.source_alias, separator=self.separator)
