"""MirrorMaker 2's two policies, name for name.

Main types: `DefaultPolicy`, which puts the source's alias before a topic's name, and
`IdentityPolicy`, which keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirror.policy.names import HEARTBEATS, NameRange, is_heartbeats


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
