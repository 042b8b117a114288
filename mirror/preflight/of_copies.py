"""Whether copies hold what will be written to them: replicas in sync, and sizes.

Functions from a flow's `Ground` to findings. Copies are judged as they will be, where
they are still to be made or changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.preflight.finding import fail, ok, some, warn
from mirror.preflight.of_cluster import IN_SYNC, LARGEST, REPLICAS

if TYPE_CHECKING:
    from mirror.preflight.finding import Finding
    from mirror.preflight.ground import Ground

_LARGEST = "max.message.bytes"
_STAMP_BYTES = 100
"""What the header and a wider batch around it may add, at most."""


def replicas(ground: Ground) -> list[Finding]:
    """Whether what is written can be acknowledged, and survives a broker."""
    where, settings = ground.where, ground.settings
    defaults = int(settings.get(REPLICAS, "1"))
    names = [each.topic for each in ground.made if each.cluster == ground.flow.target]
    there = [
        name
        for topic in ground.surveyed.topics
        if (name := topic.target_topic) not in names
    ]
    shown = ground.target_side.topics([*names, *there])
    configs = ground.target_side.configs([*names, *there])
    never, alone = [], []
    for name in (*names, *there):
        replicas = shown[name].replication_factor
        if shown[name].error != codes.NONE:
            continue
        replicas = defaults if replicas < 0 else replicas
        least = configs[name].configs.get(IN_SYNC)
        given = None if least is None else least.value
        if name in names and IN_SYNC not in ground.target_side.created[name].configs:
            given = settings.get(IN_SYNC)
        if int(given or settings.get(IN_SYNC, "1")) > replicas:
            never.append(name)
        elif replicas == 1:
            alone.append(name)
    found = []
    if never:
        found.append(
            fail(
                where, "in sync",
                f"{IN_SYNC} is more than the replicas of {some(never)}: nothing can "
                "be written there",
                "raise replication_factor and replicas, or lower min.insync.replicas",
            )
        )  # fmt: skip
    if alone and ground.target.brokers > 1:
        found.append(
            warn(
                where, "replicas",
                f"one replica of {some(alone)}: lost with its broker",
                f"set replication_factor to {min(3, ground.target.brokers)}, and "
                "reassign what is there",
            )
        )  # fmt: skip
    if not found:
        found.append(
            ok(where, "replicas", f"fit {ground.target.brokers} brokers of the target")
        )
    return found


def sizes(ground: Ground) -> list[Finding]:
    """Whether the largest record of a topic fits its copy."""
    pairs = {topic.topic: topic.target_topic for topic in ground.surveyed.topics}
    theirs = ground.source_side.configs(pairs)
    ours = ground.target_side.configs(pairs.values())
    too_large, close = [], []
    for topic, copy in pairs.items():
        limit = theirs[topic].configs.get(_LARGEST)
        set_ = ours[copy].configs.get(_LARGEST)
        room = None if set_ is None else set_.value
        made = ground.target_side.created.get(copy)
        if made is not None and _LARGEST not in made.configs:
            room = ground.settings.get(LARGEST)
        if limit is None or limit.value is None or room is None:
            continue  # not ours to see
        if int(limit.value) > int(room):
            too_large.append(f"{topic} ({limit.value} bytes, copy {room})")
        elif ground.flow.provenance and int(limit.value) + _STAMP_BYTES > int(room):
            close.append(topic)
    if too_large:
        return [
            warn(
                ground.where, "message size",
                f"may have larger batches than the copy takes: {some(too_large)}",
                f"raise {_LARGEST} of the copy or {LARGEST} of the target's brokers; "
                "partitions with larger ones are set aside",
            )
        ]  # fmt: skip
    note = "; a batch within 100 bytes of it may not, with its stamp" if close else ""
    return [ok(ground.where, "message size", f"copies take what topics take{note}")]
