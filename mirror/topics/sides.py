"""One side of a flow, as seen by the rules for copies.

Main types: `Side`, what the rules need from a cluster, `Live`, which asks it, and
`Foreseen`, which answers as if all decisions so far had been carried out. So the same
rules serve the service and the plan. Nothing here changes a cluster.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from mirror.clusters import codes
from mirror.clusters.admin import configs
from mirror.clusters.admin.configs import Config, Origin, TopicConfigs
from mirror.clusters.topics import NO_ID, Leader, Topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.admin.topic_admin import NewTopic
    from mirror.clusters.cluster import Cluster


class Side(Protocol):
    """A cluster's topics and their configs."""

    @property
    def alias(self) -> str:
        """The cluster's alias."""

    def topics(self, names: Iterable[str] | None = None) -> Mapping[str, Topic]:
        """All that we may see, or those named, with their errors."""

    def configs(self, names: Iterable[str]) -> Mapping[str, TopicConfigs]:
        """Their configs, or why they cannot be read."""


class Live:
    """A cluster as it is."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.alias = cluster.alias

    def topics(self, names: Iterable[str] | None = None) -> Mapping[str, Topic]:
        return self._cluster.topics(names)

    def configs(self, names: Iterable[str]) -> Mapping[str, TopicConfigs]:
        return configs.describe(self._cluster, names)


class Foreseen:
    """A cluster as it will be, asked about each topic once."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.alias = side.alias
        self._listed: dict[str, Topic] | None = None
        self._shown: dict[str, Topic] = {}
        self._configs: dict[str, TopicConfigs] = {}
        self._known: dict[str, Mapping[str, Config]] = {}
        self.created: dict[str, NewTopic] = {}
        """As they will be in the end."""
        self.grown: dict[str, int] = {}
        """Existing topics, with the partitions that they will have."""
        self.altered: dict[str, dict[str, str | None]] = {}
        """Configs of existing topics; None resets to the default."""

    def topics(self, names: Iterable[str] | None = None) -> Mapping[str, Topic]:
        if names is None:
            if self._listed is None:
                self._listed = dict(self._side.topics())
                self._shown.update(self._listed)
            wanted = [*self._listed, *self.created]
        else:
            wanted = list(names)
        ask = [n for n in wanted if n not in self._shown and n not in self.created]
        if ask:
            self._shown.update(self._side.topics(ask))
        return {name: self._topic(name) for name in wanted}

    def configs(self, names: Iterable[str]) -> Mapping[str, TopicConfigs]:
        wanted = list(names)
        ask = [n for n in wanted if n not in self._configs and n not in self.created]
        if ask:
            self._configs.update(self._side.configs(ask))
        return {name: self._configs_of(name) for name in wanted}

    def present(self, topic: str) -> tuple[Topic, Mapping[str, Config]]:
        """An existing topic, as it is now."""
        self.topics([topic])
        self.configs([topic])
        return self._shown[topic], self._configs[topic].configs

    def create(self, new: NewTopic, known: Mapping[str, Config] | None = None) -> None:
        """`known`: the configs that the brokers probably know."""
        self.created[new.name] = new
        self._known[new.name] = known or {}

    def grow(self, name: str, count: int) -> None:
        if name in self.created:
            self.created[name] = replace(self.created[name], partitions=count)
        else:
            self.grown[name] = count

    def alter(self, name: str, changes: Mapping[str, str | None]) -> None:
        if name not in self.created:
            self.altered.setdefault(name, {}).update(changes)
            return
        new = self.created[name]
        merged = {**new.configs, **changes}
        kept = {key: value for key, value in merged.items() if value is not None}
        self.created[name] = replace(new, configs=kept)

    def _topic(self, name: str) -> Topic:
        new = self.created.get(name)
        if new is None:
            there = self._shown[name]
            more = range(there.partitions, self.grown.get(name, 0))
            return replace(there, leaders={**there.leaders, **_led(more)})
        return Topic(
            name=name,
            topic_id=NO_ID,
            leaders=_led(range(new.partitions)),
            error=codes.NONE,
            replication_factor=new.replication_factor,
        )

    def _configs_of(self, name: str) -> TopicConfigs:
        new = self.created.get(name)
        if new is not None:
            defaults = {
                key: replace(config, origin=Origin.DEFAULT)
                for key, config in self._known[name].items()
            }
            return TopicConfigs(configs=_over(defaults, new.configs))
        there = self._configs[name]
        changes = self.altered.get(name, {})
        return replace(there, configs=_over(there.configs, changes))


def _led(partitions: Iterable[int]) -> dict[int, Leader]:
    return {number: Leader(node=0, epoch=0) for number in partitions}


def _over(
    present: Mapping[str, Config], changes: Mapping[str, str | None]
) -> dict[str, Config]:
    return dict(present) | {
        key: Config(
            value=value,
            origin=Origin.DEFAULT if value is None else Origin.TOPIC,
            settable=True,
        )
        for key, value in changes.items()
    }
