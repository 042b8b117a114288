"""Checks of one flow whose clusters answer: would it copy what it should?

Main function: `findings`. It checks the clusters as they will be (`plan`), has the
brokers validate what would be created, and changes nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import configs, racks, topic_admin
from mirror.config.own_topics import TUNING
from mirror.errors import ClusterError
from mirror.metadata.topics import SCHEMAS_LEFT_OUT
from mirror.preflight import of_copies, of_own_topics, of_readers
from mirror.preflight.finding import fail, ok, some, warn
from mirror.preflight.plan import COPY

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.config.schema import FlowConfig
    from mirror.preflight.finding import Finding
    from mirror.preflight.ground import Ground
    from mirror.preflight.plan import TopicToCreate

_AHEAD_MS = 5000
"""More than synchronized clocks differ by."""
_NO_CLOCK_MS = 86_400_000
"""More than a clock is wrong by."""
_CLOCKS = 100
"""Partitions whose newest record is checked."""


def findings(ground: Ground) -> list[Finding]:
    """All findings for a flow.

    Raises:
        ClusterError: a cluster no longer answers.
    """
    return [
        *_topics(ground),
        *_leaders(ground),
        *_rack(ground),
        *_refused(ground),
        *of_copies.foreign(ground),
        *of_copies.replicas(ground),
        *of_copies.sizes(ground),
        *of_own_topics.of_map(ground),
        _clock(ground),
        *of_readers.acls_of(ground),
        *of_readers.groups_of(ground),
    ]


def _topics(ground: Ground) -> list[Finding]:
    surveyed, where = ground.surveyed, ground.where
    found = []
    count = len(surveyed.topics)
    if count:
        partitions = sum(topic.partitions for topic in surveyed.topics)
        found.append(ok(where, "topics", f"{count} match, {partitions} partitions"))
    else:
        found.append(
            warn(
                where, "topics", f"no topic of {ground.flow.source} matches",
                "compare topics and topics_exclude with the existing topics; topics "
                "that we may not DESCRIBE are invisible",
            )
        )  # fmt: skip
    found += [
        warn(where, "topics", text, "correct it, or create the topic")
        for text in (surveyed.unmatched if count else ())
    ]
    kinds: dict[str, int] = {}
    for topic in surveyed.topics:
        kinds[topic.copy] = kinds.get(topic.copy, 0) + 1
    if kinds:
        shown = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        found.append(ok(where, "copies", shown))
    found += [
        fail(where, "topic", text, "fix it, or leave it out with topics_exclude")
        for text in surveyed.problems
        if text != SCHEMAS_LEFT_OUT
    ]
    if surveyed.came_from_target:
        found.append(
            ok(
                where, "left out",
                f"{some(list(surveyed.came_from_target))}: their names say that they "
                "came from the target",
            )
        )  # fmt: skip
    return found


def _leaders(ground: Ground) -> list[Finding]:
    names = [topic.topic for topic in ground.surveyed.topics]
    shown = ground.source.topics(names)
    without = [
        f"{name}-{number}"
        for name, topic in shown.items()
        for number, leader in topic.leaders.items()
        if leader.node < 0
    ]
    if not without:
        return []
    return [
        warn(
            ground.where, "leaders", f"no leader now: {some(without)}",
            "start their brokers; until then they are not copied",
        )
    ]  # fmt: skip


def _rack(ground: Ground) -> list[Finding]:
    if ground.flow.rack is None:
        return []
    there = racks.racks(ground.source)
    return [rack(ground.flow, ground.where, there)]


def rack(flow: FlowConfig, where: str, racks: Collection[str]) -> Finding:
    """Whether the source has brokers in the flow's `rack`; `racks` are theirs. One that
    no broker has is no error there: leaders serve, and the traffic that the setting is
    to save is paid for.
    """
    if flow.rack in racks:
        return ok(where, "rack", f"{flow.source} has brokers in {flow.rack}")
    if not racks:
        told = f"no broker of {flow.source} has a rack, so leaders are read"
        return warn(where, "rack", told, "set broker.rack there, or leave out rack")
    return warn(
        where,
        "rack",
        f"no broker of {flow.source} is in {flow.rack}, so leaders are read",
        f"use {' or '.join(sorted(racks))}, as broker.rack there says",
    )


def _refused(ground: Ground) -> list[Finding]:
    """What the brokers say to the topics that would be created or grown."""
    reasons: dict[tuple[str, str], list[str]] = {}
    without: dict[tuple[str, str], list[str]] = {}
    clusters = {ground.flow.source: ground.source, ground.flow.target: ground.target}
    for alias, cluster in clusters.items():
        made = [each for each in ground.made if each.cluster == alias]
        new = [_request_for(each) for each in made]
        answer = (
            topic_admin.create_topics(cluster, new, validate_only=True) if new else None
        )
        wanted = {each.name: each for each in new}
        copies = {each.topic for each in made if each.purpose == COPY}
        for name, error in (answer.refused if answer else {}).items():
            needed = () if name in copies else wanted[name].configs.keys() - TUNING
            there, refused = configs.create_accepted(
                cluster, wanted[name], error, needed=needed, validate_only=True
            )
            for each in refused:
                text = str(each).replace(name, "<topic>")
                kind = without if there else reasons
                kind.setdefault((alias, text), []).append(name)
    for grown in ground.plan.grow:
        if grown.flow != ground.flow.name:
            continue
        try:
            topic_admin.add_partitions(
                ground.target, grown.topic, count=grown.then, validate_only=True
            )
        except ClusterError as error:
            text = str(error).replace(grown.topic, "<topic>")
            reasons.setdefault((grown.cluster, text), []).append(grown.topic)
    return [
        *(
            fail(ground.where, "creation", _of_topics(text, names),
                 _way_out(text, ground))
            for (_, text), names in reasons.items()
        ),
        *(
            warn(ground.where, "creation",
                 f"created without a config: {_of_topics(text, names)}",
                 "leave it out with config_properties_exclude, or ask the cluster's "
                 "operator to allow it")
            for (_, text), names in without.items()
        ),
    ]  # fmt: skip


def _of_topics(text: str, names: list[str]) -> str:
    more = f"; the same for {some(names[1:])}" if names[1:] else ""
    return f"{text.replace('<topic>', names[0])}{more}"


def _request_for(topic: TopicToCreate) -> topic_admin.NewTopic:
    """The request that creates it."""
    return topic_admin.NewTopic(
        name=topic.topic,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=dict(topic.configs),
    )


def _way_out(text: str, ground: Ground) -> str:
    brokers = ground.target.brokers
    if "eplication" in text and "REPLICATION_FACTOR" not in text:
        return "set replication_factor (and those of internal topics) as it asks"
    if "REPLICATION_FACTOR" in text:
        return (
            f"{ground.flow.target} has {brokers} brokers: set replication_factor (and "
            "those of internal topics) to at most that, or add brokers"
        )
    if "AUTHORIZATION" in text:
        return "mirror config acls lists the required rights"
    if "collide" in text:
        return (
            "topic names that differ only in . and _ collide: leave one out, or rename "
            "it"
        )
    if "POLICY" in text:
        return "the cluster has a rule against it: do what it says, or ask its operator"
    if "CONFIG" in text:
        return "leave the config out with config_properties_exclude"
    return "fix what the brokers report"


def _clock(ground: Ground) -> Finding:
    """Brokers do not tell their time, so only record timestamps reveal their clocks."""
    partitions = [
        (topic.topic, number)
        for topic in ground.surveyed.topics
        for number in range(topic.partitions)
    ][:_CLOCKS]
    there = ground.source.topics({topic for topic, _ in partitions})
    asked = [
        (topic, number)
        for topic, number in partitions
        if topic in there and number in there[topic].leaders
    ]
    newest = topic_admin.newest_timestamps(ground.source, asked)
    if not newest:
        return ok(ground.where, "clock", "not checked: no record to compare it with")
    (topic, number), last = max(newest.items(), key=lambda each: each[1])
    ahead = last - int(time.time() * 1000)
    if ahead > _NO_CLOCK_MS:
        return warn(
            ground.where, "clock",
            f"a record of {topic}-{number} has a timestamp {ahead / 86_400_000:,.0f} "
            "days in the future: its producer does not write milliseconds",
            "brokers refuse it with INVALID_TIMESTAMP unless "
            "message.timestamp.after.max.ms of the topic and of its copy allows it",
        )  # fmt: skip
    if ahead > _AHEAD_MS:
        return warn(
            ground.where, "clock",
            f"a record of {topic}-{number} has a timestamp {ahead / 1000:.0f} s ahead "
            "of this machine's time",
            "synchronize the clocks of producers, brokers and this machine (NTP): "
            "lag in seconds is off by as much",
        )  # fmt: skip
    return ok(
        ground.where, "clock",
        "no record has a timestamp ahead of this machine's time",
    )  # fmt: skip
