"""The keys of MirrorMaker 2 that we serve, and what they are called here.

Each table maps a key to our setting and to a function that turns the text into
what the schema reads. The tables differ in who may hold a key: see `mm2_properties`
for how they lie over one another. `answer` speaks of all other keys.
"""

from __future__ import annotations

from collections.abc import Callable
import re
from typing import Any

from mirror.config.mm2 import answers as mm2_answers
from mirror.config.values import near

Meaning = tuple[str, Callable[[str], Any]]

_POLICIES = {
    "org.apache.kafka.connect.mirror.DefaultReplicationPolicy": "default",
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy": "identity",
}
_OLDER_POLICIES = {
    # From before Kafka 3.0, which had none that keeps names.
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": "identity",
}


def _servers(value: str) -> list[str]:
    """Java allows a protocol before each host; `security.protocol` says it again."""
    return [part.strip().rpartition("://")[2] for part in value.split(",")]


def _policy(value: str) -> str:
    known = _POLICIES | _OLDER_POLICIES
    if value not in known:
        raise ValueError(
            f'there is no replication policy "{value}" here; '
            f"right would be {' or '.join(_POLICIES)}; what another class calls its "
            "copies can be said by policy rename in a YAML file"
        )
    return known[value]


def _exactly_once(value: str) -> bool:
    known = {"enabled": True, "preparing": True, "required": True, "disabled": False}
    if value.lower() not in known:
        raise ValueError(
            f'"{value}" is not one of enabled, preparing, disabled'
            f"{near(value, ('enabled', 'preparing', 'disabled'))}"
        )
    return known[value.lower()]


def _compression(value: str) -> str:
    return value.lower()


def _text(value: str) -> str:
    return value


def _list(value: str) -> list[str]:
    return value.split(",") if value else []


def _duration(value: str) -> str:
    """Guides write 30s, 1m or 2h; MirrorMaker 2 only knows seconds."""
    match = _DURATION.fullmatch(value)
    if not match:
        raise ValueError(f'"{value}" is not a duration; right would be 30s, 5m or 1h')
    number, unit = match.groups()
    return f"{float(number) * _SECONDS[unit or 's']:g}"


def _from_milliseconds(value: str) -> str:
    try:
        return f"{float(value) / 1000:g}"
    except ValueError as error:
        raise ValueError(f'"{value}" is not a number of milliseconds') from error


def _strategy(value: str) -> str:
    return value.lower()


def _start(value: str) -> str:
    return value.lower()


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}

CLUSTER: dict[str, Meaning] = {
    "bootstrap.servers": ("bootstrap_servers", _servers),
    "request.timeout.ms": ("request_timeout_seconds", _from_milliseconds),
}

_EXACTLY_ONCE: Meaning = ("exactly_once", _exactly_once)
_CONSUMER: dict[str, Meaning] = {
    "consumer.isolation.level": ("isolation_level", _text),
    "consumer.auto.offset.reset": ("start", _start),
}

FLOW: dict[str, Meaning] = {
    "topics": ("topics", _list),
    "topics.whitelist": ("topics", _list),
    "topics.exclude": ("topics_exclude", _list),
    "topics.blacklist": ("topics_exclude", _list),
    "tasks.max": ("tasks", _text),
    "replication.factor": ("replication_factor", _text),
    "replication.policy.class": ("policy", _policy),
    "replication.policy.separator": ("separator", _text),
    "refresh.topics.interval.seconds": ("refresh_topics_seconds", _text),
    "sync.topic.configs.enabled": ("sync_topic_configs", _text),
    "sync.topic.configs.interval.seconds": ("sync_topic_configs_seconds", _text),
    "config.properties.exclude": ("config_properties_exclude", _list),
    "config.properties.blacklist": ("config_properties_exclude", _list),
    "sync.topic.acls.enabled": ("sync_topic_acls", _text),
    "sync.topic.acls.interval.seconds": ("sync_topic_acls_seconds", _text),
    "exactly.once.source.support": _EXACTLY_ONCE,
    "exactly.once.support": _EXACTLY_ONCE,
    "groups": ("groups", _list),
    "groups.whitelist": ("groups", _list),
    "groups.exclude": ("groups_exclude", _list),
    "groups.blacklist": ("groups_exclude", _list),
    "emit.checkpoints.enabled": ("emit_checkpoints", _text),
    "emit.checkpoints.interval.seconds": ("emit_checkpoints_seconds", _text),
    "sync.group.offsets.enabled": ("sync_group_offsets", _text),
    "sync.group.offsets.interval.seconds": ("sync_group_offsets_seconds", _text),
    "emit.heartbeats.enabled": ("emit_heartbeats", _text),
    "emit.heartbeats.interval.seconds": ("emit_heartbeats_seconds", _text),
    "heartbeats.replication.enabled": ("heartbeats_replication", _text),
    "emit.offset-syncs.enabled": ("emit_offset_syncs", _text),
    "offset-syncs.topic.location": ("offset_syncs_location", _text),
    "checkpoints.topic.replication.factor": ("checkpoints_replication_factor", _text),
    "heartbeats.topic.replication.factor": ("heartbeats_replication_factor", _text),
    "offset-syncs.topic.replication.factor": ("offset_syncs_replication_factor", _text),
    # From here on only guides know them.
    "offsets.topic.replication.factor": ("offset_syncs_replication_factor", _text),
    "emit.checkpoints.interval": ("emit_checkpoints_seconds", _duration),
    "emit.heartbeats.interval": ("emit_heartbeats_seconds", _duration),
    "sync.topic.configs.interval": ("sync_topic_configs_seconds", _duration),
    "sync.topic.acls.interval": ("sync_topic_acls_seconds", _duration),
    "sync.group.offsets.interval": ("sync_group_offsets_seconds", _duration),
    "refresh.topics.interval": ("refresh_topics_seconds", _duration),
    "sync.acls.enabled": ("sync_topic_acls", _text),
    "sync.topic.configs.strategy": ("config_strategy", _strategy),
    "target.topic.creation.replication.factor": ("replication_factor", _text),
    "target.topic.creation.default.partitions": ("least_partitions", _text),
    "target.topic.creation.min.insync.replicas": ("min_insync_replicas", _text),
}
"""At the top level, for all flows, or with a flow before it."""

FLOW_ONLY: dict[str, Meaning] = {
    "enabled": ("enabled", _text),
    "use.defaults.from": ("use_defaults_from", _text),
    "producer.override.compression.type": ("compression", _compression),
    **{f"source.{key}": meaning for key, meaning in _CONSUMER.items()},
}
FLOW_BELOW_CLUSTER = _CONSUMER
"""MirrorMaker 2 lets A.consumer.x win over A->B.consumer.x."""
FROM_SOURCE = _CONSUMER
FROM_TARGET: dict[str, Meaning] = {
    "producer.compression.type": ("compression", _compression),
    "exactly.once.source.support": _EXACTLY_ONCE,
}

TAKEN_AS_MEANT: dict[str, Meaning] = {
    "producer.compression.type": ("compression", _compression),
    "compression.type": ("compression", _compression),
}
"""At the top level: MirrorMaker 2 passes over them, and guides expect that it does not.
Nothing but the bytes on the way differs, so what was expected is done."""

_SERVED = {*CLUSTER, *FLOW, *FLOW_ONLY, *FROM_SOURCE, *FROM_TARGET}

# Right in another format or another place: no misspellings of served ones.
_LOOKALIKES = {"ssl.enabled.protocols", "replication.policy"}


def answer(key: str, rest: str) -> str:
    """The one warning about a key that has no effect here."""
    if rest in _CONSUMER or rest in FROM_TARGET:
        return (
            f"{key}: has no effect here, nor in MirrorMaker 2; write it with a "
            f"cluster's alias, as in A.{rest}"
        )
    if rest == "use.defaults.from":
        return (
            f"{key}: has no effect here, nor in MirrorMaker 2; write it with a flow, "
            f"as in A->B.{rest}"
        )
    if rest in FLOW:
        return (
            f"{key}: has no effect with a cluster's alias, nor in MirrorMaker 2; "
            f"write {rest}, or A->B.{rest}"
        )
    if reason := mm2_answers.reason(rest):
        return f"{key}: not needed, ignored: {reason}"
    meant = "" if rest in _LOOKALIKES or "${" in key else _near_key(rest)
    return f"{key}: unknown, ignored{meant}"


def _near_key(rest: str) -> str:
    """A misspelling differs by a letter or two; other keys differ by a word."""
    same_shape = [
        known
        for known in _SERVED
        if known.count(".") == rest.count(".") and abs(len(known) - len(rest)) < 3
    ]
    return near(rest, same_shape, cutoff=0.85)
