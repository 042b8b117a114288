"""Which naming policies there are, by the name that a flow's setting `policy` gives.

Main functions: `make_policy`, and `why_unfit`, what keeps a policy from being made.
A further policy is a class behind `ReplicationPolicy`, and its name here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mirror.policy.mm2_policies import DefaultPolicy, IdentityPolicy
from mirror.policy.names import HEARTBEATS, NameRange

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
