"""Whether copies take what will be written: replicas in sync, sizes, who began them.

Functions from a flow's `Ground` to findings. Copies that do not exist yet, or will
change, are judged as they will be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import topic_admin
from mirror.metadata.survey import TO_BE_CREATED
from mirror.offsets import mm2_records, progress
from mirror.preflight.finding import fail, ok, some, warn
from mirror.preflight.of_cluster import IN_SYNC, LARGEST, REPLICAS

if TYPE_CHECKING:
    from mirror.preflight.finding import Finding
    from mirror.preflight.ground import Ground

_LARGEST = "max.message.bytes"
_STAMP_BYTES = 100
"""The most that the header and a larger batch around it may add."""


def foreign(ground: Ground) -> list[Finding]:
    """Whether somebody else has made copies, and this flow has not adopted them."""
    theirs = mm2_records.offsets_topic(ground.flow.source)
    begins = progress.topic_name(ground.flow.source) in {e.topic for e in ground.made}
    copies = [
        topic.target_topic
        for topic in ground.surveyed.topics
        if topic.copy != TO_BE_CREATED
    ]
    if not (begins and copies):
        return []
    if theirs not in ground.target_side.topics():
        return _filled(ground, copies)
    return [
        warn(
            ground.where, "MirrorMaker 2",
            f"it has copied into {some(copies)}, and a run would begin at "
            f"`start: {ground.flow.start}`",
            "stop it, and run mirror adopt before mirror run: the flow continues there",
        )
    ]  # fmt: skip


def _filled(ground: Ground, copies: list[str]) -> list[Finding]:
    """Copies with records, although the flow has copied nothing yet: those of a
    MirrorMaker 2 in Connect or of Strimzi's, of another tool, or of producers.
    """
    shown = ground.target.topics(copies)
    places = [(name, n) for name in copies for n in shown[name].leaders]
    empty = topic_admin.empty(ground.target, places)
    filled = sorted({name for name, _ in set(places) - empty.keys()})
    if not filled:
        return []
    then = f"appends to them from `start: {ground.flow.start}` on"
    return [
        warn(
            ground.where, "copies",
            f"{some(filled)} has records, and this flow has copied nothing yet: a run "
            f"{then if ground.appends else 'leaves these topics out'}",
            "if MirrorMaker 2 copied them, stop it, and run mirror adopt before mirror "
            "run (with --offsets-topic where Connect or Strimzi runs it)"
            + ("" if ground.appends else "; else set append_to_existing"),
        )
    ]  # fmt: skip


def replicas(ground: Ground) -> list[Finding]:
    """Whether writes can be acknowledged, and survive the loss of a broker."""
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
                f"{IN_SYNC} exceeds the number of replicas of {some(never)}: writes "
                "there fail",
                "raise replication_factor and replicas, or lower min.insync.replicas",
            )
        )  # fmt: skip
    if alone and ground.target.brokers > 1:
        found.append(
            warn(
                where, "replicas",
                f"{some(alone)} has one replica, and is lost with its broker",
                f"set replication_factor to {min(3, ground.target.brokers)}, and "
                "reassign existing topics",
            )
        )  # fmt: skip
    if not found:
        found.append(
            ok(where, "replicas", f"fit the target's {ground.target.brokers} brokers")
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
            continue  # no right to see it
        if int(limit.value) > int(room):
            too_large.append(f"{topic} ({limit.value} bytes, copy {room})")
        elif ground.flow.provenance and int(limit.value) + _STAMP_BYTES > int(room):
            close.append(topic)
    if too_large:
        return [
            warn(
                ground.where, "message size",
                f"batches may be larger than the copy accepts: {some(too_large)}",
                f"raise {_LARGEST} of the copy or {LARGEST} of the target's brokers; "
                "partitions with larger batches are set aside",
            )
        ]  # fmt: skip
    note = "; a batch within 100 bytes of the limit may not fit" if close else ""
    return [ok(ground.where, "message size", f"copies allow what topics allow{note}")]
