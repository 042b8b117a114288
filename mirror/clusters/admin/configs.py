"""Topic configs of a cluster: read them, change single ones.

Functions over a connected `Cluster`; main type: `TopicConfigs`, one topic's configs and
where each value comes from. A refused topic is part of the result, so that it does not
hold up the others. `topics` decides which configs there should be.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    AlterConfigsRequest,
    IncrementalAlterConfigsRequest,
)

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.clusters.cluster import in_parts
from mirror.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirror.clusters.admin.topic_admin import Creation, NewTopic
    from mirror.clusters.cluster import Cluster
    from mirror.errors import ClusterError

_POLICY = "cleanup.policy"
_TOPICS_PER_REQUEST = 200
_SET, _DELETE = 0, 1
_ABOUT_CONFIGS = tuple(
    map(codes.name_of, (codes.INVALID_CONFIG, codes.POLICY_VIOLATION))
)


class Origin(IntEnum):
    """Where a value comes from, in Kafka's own numbers."""

    UNKNOWN = 0
    TOPIC = 1
    """Set on the topic itself: an override."""
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One config of one topic."""

    value: str | None
    """None if it has none, or if it is secret."""
    origin: Origin
    settable: bool
    """Neither read-only nor secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigs:
    """All configs of a topic, defaults included; none if there was an error."""

    configs: Mapping[str, Config] = field(default_factory=dict)
    error: ClusterError | None = None
    missing: bool = False
    """Whether the error is that the topic does not exist (yet)."""


def describe(
    cluster: Cluster, topics: Iterable[str], *, keys: list[str] | None = None
) -> dict[str, TopicConfigs]:
    """The configs of each topic: these, or all.

    Raises:
        ClusterError: the cluster does not answer.
    """
    return {
        result.resource_name: _described(cluster, result)
        for names in in_parts(topics, _TOPICS_PER_REQUEST)
        for result in topic_admin.describe_configs(cluster, names, keys)
    }


def is_compacted(configs: Mapping[str, Config]) -> bool:
    """Whether the log cleaner removes records of a topic that has these."""
    policy = configs.get(_POLICY)
    return policy is not None and "compact" in (policy.value or "")


def compacted(cluster: Cluster, topics: Collection[str]) -> set[str]:
    """Those of these topics that are compacted. One whose configs we may not read is
    not named; its broker refuses null keys.

    Raises:
        ClusterError: the cluster does not answer.
    """
    found = describe(cluster, topics, keys=[_POLICY]) if topics else {}
    return {name for name, each in found.items() if is_compacted(each.configs)}


def alter(
    cluster: Cluster,
    changes: Mapping[str, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
) -> dict[str, ClusterError]:
    """Change only these configs of these topics; None removes an override.

    A topic's changes are made together or not at all. Returns the refused topics. With
    `validate_only`, only ask whether that would be possible.

    Raises:
        ClusterError: the cluster does not answer.
    """
    if not changes:
        return {}
    if incremental(cluster):
        return _alter_incrementally(cluster, changes, validate_only=validate_only)
    return _replace(cluster, changes, validate_only=validate_only)


def create_accepted(
    cluster: Cluster,
    new: NewTopic,
    refusal: ClusterError,
    *,
    needed: Collection[str] = (),
    validate_only: bool = False,
) -> tuple[bool, list[ClusterError]]:
    """Create a topic that was refused, without the configs that the cluster refuses:
    with the `needed` ones, to which each other one is added alone. Returns whether it
    was created, and what was refused. With `validate_only`, only ask.

    Raises:
        ClusterError: the cluster does not answer.
    """
    others = {key: new.configs[key] for key in new.configs.keys() - set(needed)}
    if not others or not (
        isinstance(refusal, BrokerError) and refusal.name.startswith(_ABOUT_CONFIGS)
    ):
        return False, [refusal]
    least = {key: new.configs[key] for key in new.configs.keys() & set(needed)}

    def create(wanted: Mapping[str, str]) -> Creation:
        return topic_admin.create_topics(
            cluster, [replace(new, configs=wanted)], validate_only=validate_only
        )

    made = create(least)
    refused = list(made.refused.values())
    for key, value in sorted(others.items()) if made.created else ():
        if validate_only:
            refused += create({**least, key: value}).refused.values()
        else:
            refused += alter(cluster, {new.name: {key: value}}).values()
    return bool(made.created), refused


def incremental(cluster: Cluster) -> bool:
    """Whether single configs can be changed (since Kafka 2.3), not only all at once."""
    key = IncrementalAlterConfigsRequest.API_KEY
    return key in cluster.any_connection().versions


def _alter_incrementally(
    cluster: Cluster,
    changes: Mapping[str, Mapping[str, str | None]],
    *,
    validate_only: bool,
) -> dict[str, ClusterError]:
    config = IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig
    return _send(
        cluster,
        IncrementalAlterConfigsRequest,
        {
            name: [
                config(
                    name=key,
                    config_operation=_DELETE if value is None else _SET,
                    value=value,
                )
                for key, value in change.items()
            ]
            for name, change in changes.items()
        },
        validate_only=validate_only,
    )


def _replace(
    cluster: Cluster,
    changes: Mapping[str, Mapping[str, str | None]],
    *,
    validate_only: bool,
) -> dict[str, ClusterError]:
    """With the older request, which sets all overrides at once and drops the rest."""
    refused: dict[str, ClusterError] = {}
    complete = {}
    for name, present in describe(cluster, changes).items():
        what = f"cluster {cluster.alias}: configs of topic {name}"
        overrides = {
            key: config
            for key, config in present.configs.items()
            if config.origin is Origin.TOPIC
        }
        if present.error is not None:
            refused[name] = present.error
        elif secret := [k for k in overrides.keys() - changes[name].keys()
                        if overrides[k].value is None]:  # fmt: skip
            refused[name] = BrokerError(
                name=f"{min(secret)} is sensitive: unreadable, and would be lost",
                what=what,
                retriable=False,
            )
        else:
            merged = {key: config.value for key, config in overrides.items()}
            merged.update(changes[name])
            complete[name] = {k: v for k, v in merged.items() if v is not None}
    config = AlterConfigsRequest.AlterConfigsResource.AlterableConfig
    refused |= _send(
        cluster,
        AlterConfigsRequest,
        {
            name: [config(name=key, value=value) for key, value in merged.items()]
            for name, merged in complete.items()
        },
        validate_only=validate_only,
    )
    return refused


def _send(
    cluster: Cluster,
    request: Any,
    entries: Mapping[str, Sequence[Any]],
    *,
    validate_only: bool,
) -> dict[str, ClusterError]:
    """Request these changes per topic, with either request; returns the refused."""
    refused: dict[str, ClusterError] = {}
    for names in in_parts(entries, _TOPICS_PER_REQUEST):
        answer = cluster.call(
            request(
                resources=[
                    request.AlterConfigsResource(
                        resource_type=topic_admin.TOPIC,
                        resource_name=name,
                        configs=entries[name],
                    )
                    for name in names
                ],
                validate_only=validate_only,
            )
        )
        refused |= _refused(cluster, answer)
    return refused


def _described(cluster: Cluster, result: Any) -> TopicConfigs:
    if result.error_code != codes.NONE:
        what = f"cluster {cluster.alias}: reading configs of topic"
        return TopicConfigs(
            error=codes.error_for(result.error_code, f"{what} {result.resource_name}"),
            missing=result.error_code == codes.UNKNOWN_TOPIC_OR_PARTITION,
        )
    known = frozenset(Origin)
    return TopicConfigs(
        configs={
            config.name: Config(
                value=config.value,
                origin=Origin(config.config_source)
                if config.config_source in known
                else Origin.UNKNOWN,
                settable=not (config.read_only or config.is_sensitive),
            )
            for config in result.configs
        }
    )


def _refused(cluster: Cluster, answer: Any) -> dict[str, ClusterError]:
    return {
        result.resource_name: codes.error_of(
            result,
            f"cluster {cluster.alias}: changing configs of topic "
            f"{result.resource_name}",
        )
        for result in answer.responses
        if result.error_code != codes.NONE
    }
