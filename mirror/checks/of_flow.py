"""Checks of one flow whose clusters answer: would it copy what it should?

Main function: `findings`. It checks the clusters as they will be (`plan`), has the
brokers validate what would be created, and changes nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.checks import of_own_topics
from mirror.checks.finding import fail, ok, some, warn
from mirror.checks.of_cluster import IN_SYNC, LARGEST, REPLICAS
from mirror.checks.permissions.table import Operation
from mirror.checks.plan import COPY
from mirror.clusters import codes
from mirror.clusters.admin import acls, allowed, configs, groups, racks, topic_admin
from mirror.clusters.admin.acls import NoAuthorizerError
from mirror.config.own_topics import TUNING
from mirror.errors import AuthorizationError, ClusterError
from mirror.offsets import offset_syncs, progress
from mirror.offsets.groups import COMMITS_TOPIC
from mirror.policy.selection import GroupFilter
from mirror.topics.survey import TO_BE_CREATED
from mirror.topics.topics import SCHEMAS_LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirror.checks.finding import Finding
    from mirror.checks.ground import Ground
    from mirror.checks.plan import TopicToCreate
    from mirror.config.schema import FlowConfig


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
        *foreign(ground),
        *replicas(ground),
        *sizes(ground),
        *of_own_topics.of_map(ground),
        _clock(ground),
        *acls_of(ground),
        *groups_of(ground),
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


# ---- whether copies take what will be written ----
#
# Functions from a flow's `Ground` to findings. Copies that do not exist yet, or
# will change, are judged as they will be.


_LARGEST = "max.message.bytes"
_STAMP_BYTES = 100
"""The most that the header and a larger batch around it may add."""


def foreign(ground: Ground) -> list[Finding]:
    """Whether somebody else has made copies, and this flow has not adopted them."""
    theirs = offset_syncs.offsets_topic(ground.flow.source)
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


# ---- whether consumers of the copies find their rights and groups ----
#
# Functions from a flow's `Ground` to findings. `held_rights` checks mirror's own
# rights.


_FOLLOWING = "follow commits within a second"


def acls_of(ground: Ground) -> list[Finding]:
    where, flow = ground.where, ground.flow
    if not flow.sync_topic_acls:
        return []
    kept: dict[str, int | None] = {}
    for cluster in (ground.source, ground.target):
        try:
            kept[cluster.alias] = len(acls.describe(cluster))
        except NoAuthorizerError:
            kept[cluster.alias] = None
        except AuthorizationError as error:
            return [
                warn(
                    where, "ACLs", str(error),
                    "allow us DESCRIBE (on the target ALTER) on the cluster, or set "
                    "sync_topic_acls to false",
                )
            ]  # fmt: skip
    if kept[flow.source] is None:
        return [ok(where, "ACLs", f"{flow.source} has no authorizer: no ACLs to sync")]
    if kept[flow.target] is None:
        return [
            warn(
                where, "ACLs",
                f"{flow.source} has an authorizer and {flow.target} has none: "
                "anyone can read and write the copies",
                f"set authorizer.class.name on the brokers of {flow.target}, or "
                "sync_topic_acls to false",
            )
        ]  # fmt: skip
    changes = [each for each in ground.plan.acls if each.flow == flow.name]
    return [ok(where, "ACLs", f"{len(changes)} to add or remove now")]


def groups_of(ground: Ground) -> list[Finding]:
    where, flow = ground.where, ground.flow
    if not flow.emit_checkpoints:
        return []
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    matching = [name for name in groups.list_groups(ground.source) if
                wanted.matches(name)]  # fmt: skip
    found = [ok(where, "groups", f"{len(matching)} match"), _checkpoints(ground)]
    if not flow.sync_group_offsets:
        return found
    there = groups.list_groups(ground.target)
    active = sorted(name for name in matching if name in there and not there[name].idle)
    if active:
        found.append(
            warn(
                where, "group offsets",
                f"{some(active)} of {flow.target} have members there: mirror leaves "
                "their offsets alone",
                "stop them there if their offsets should follow the source",
            )
        )  # fmt: skip
    merged = _merged(ground)
    if merged:
        found.append(
            warn(
                where, "group offsets",
                f"are not set in {some(merged)}: other flows write these too, in a way "
                "that leaves open where their records are from",
                "translate them when a group moves: mirror group translate",
            )
        )  # fmt: skip
    return found


def _checkpoints(ground: Ground) -> Finding:
    """How old they get; `held_rights` names a right that is missing for `on`."""
    flow, topic = ground.flow, COMMITS_TOPIC
    told = allowed.of_topics(ground.source, [topic])[topic]
    why = ""
    if flow.follow_commits == "off":
        why = "follow_commits is off"
    elif told is not None and Operation.READ not in told:
        why = f"to follow commits we need READ on topic {topic} of {flow.source}"
    how = f"every {flow.emit_checkpoints_seconds:g} s: {why}" if why else _FOLLOWING
    return ok(ground.where, "checkpoints", how)


def _merged(ground: Ground) -> list[str]:
    return [
        topic.target_topic
        for topic in ground.surveyed.topics
        if not ground.merging.is_alone(ground.flow, topic.topic)
        and ground.merging.back(ground.flow, topic.topic) is None
        and not ground.merging.beside(ground.flow, topic.topic)
    ]
