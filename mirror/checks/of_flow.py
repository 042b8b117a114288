"""Checks of one flow whose clusters answer: would it copy what it should?

Main functions: `findings`, and `schema_findings` about its schemas; main type:
`FlowFacts`, what is known about the flow when they begin. They check the clusters as
they will be (`plan`), have the brokers validate what would be created, and change
nothing but a registry's subject that a trial registers and removes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import time
from typing import TYPE_CHECKING
import uuid

from mirror.checks.finding import fail, ok, some, warn
from mirror.checks.of_cluster import IN_SYNC, LARGEST, OWN_TOPICS, REPLICAS
from mirror.checks.permissions.table import Operation
from mirror.checks.plan import COPY
from mirror.clusters import codes
from mirror.clusters.admin import acls, allowed, brokers, configs, groups, topic_admin
from mirror.clusters.admin.acls import NoAuthorizerError
from mirror.config import own_topics
from mirror.config.own_topics import TUNING
from mirror.errors import (
    AuthorizationError,
    ClusterError,
    FenceError,
    MirrorError,
    RegistryError,
)
from mirror.offsets import offset_syncs, progress, retention
from mirror.offsets.groups import COMMITS_TOPIC
from mirror.policy.naming import SCHEMAS
from mirror.policy.selection import GroupFilter
from mirror.schemas.registry.registry import Registry
from mirror.schemas.registry.values import TRIAL, Mode, Subject
from mirror.service import protecting
from mirror.topics import fences
from mirror.topics.topics import SCHEMAS_LEFT_OUT, TO_BE_CREATED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirror.checks.finding import Finding
    from mirror.checks.plan import RunPlan, TopicToCreate
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.schemas.registry.values import SchemaVersion
    from mirror.topics.merging import Merging
    from mirror.topics.sides import Foreseen
    from mirror.topics.topics import SurveyedFlow


_AHEAD_MS = 5000
"""More than synchronized clocks differ by."""
_NO_CLOCK_MS = 86_400_000
"""More than a clock is wrong by."""
_CLOCKS = 100
"""Partitions whose newest record is checked."""
_LARGEST = "max.message.bytes"
_STAMP_BYTES = 100
"""The most that the header and a larger batch around it may add."""
_FOLLOWING = "follow commits within a second"
_PROTECTION = "protection"
_SUPER_USERS = "super.users"
_TRIAL_VERSION = 3
"""Not the one that a registry would choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFacts:
    """What is known about a flow and its clusters."""

    flow: FlowConfig
    surveyed: SurveyedFlow
    plan: RunPlan
    merging: Merging
    source: Cluster
    target: Cluster
    source_side: Foreseen
    target_side: Foreseen
    settings: Mapping[str, str]
    """Settings of the target's brokers, as far as known."""
    appends: bool
    """Whether a run appends to copies that have records of others."""

    @property
    def where(self) -> str:
        return f"flow {self.flow.name}"

    @property
    def made(self) -> list[TopicToCreate]:
        """Topics that this flow would create, on either side."""
        return [each for each in self.plan.create if each.flow == self.flow.name]


def findings(facts: FlowFacts) -> list[Finding]:
    """All findings for a flow.

    Raises:
        ClusterError: a cluster no longer answers.
    """
    return [
        *_topics(facts),
        *_leaders(facts),
        *_rack(facts),
        *_refused(facts),
        *foreign(facts),
        *replicas(facts),
        *sizes(facts),
        *_map(facts),
        _clock(facts),
        *acls_of(facts),
        *groups_of(facts),
    ]


def _topics(facts: FlowFacts) -> list[Finding]:
    surveyed, where = facts.surveyed, facts.where
    found = []
    count = len(surveyed.topics)
    if count:
        partitions = sum(topic.partitions for topic in surveyed.topics)
        found.append(ok(where, "topics", f"{count} match, {partitions} partitions"))
    else:
        found.append(
            warn(
                where, "topics", f"no topic of {facts.flow.source} matches",
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


def _leaders(facts: FlowFacts) -> list[Finding]:
    names = [topic.topic for topic in facts.surveyed.topics]
    shown = facts.source.topics(names)
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
            facts.where, "leaders", f"no leader now: {some(without)}",
            "start their brokers; until then they are not copied",
        )
    ]  # fmt: skip


def _rack(facts: FlowFacts) -> list[Finding]:
    if facts.flow.rack is None:
        return []
    there = brokers.racks(facts.source)
    return [rack(facts.flow, facts.where, there)]


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


def _refused(facts: FlowFacts) -> list[Finding]:
    """What the brokers say to the topics that would be created or grown."""
    reasons: dict[tuple[str, str], list[str]] = {}
    without: dict[tuple[str, str], list[str]] = {}
    clusters = {facts.flow.source: facts.source, facts.flow.target: facts.target}
    for alias, cluster in clusters.items():
        made = [each for each in facts.made if each.cluster == alias]
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
    for grown in facts.plan.grow:
        if grown.flow != facts.flow.name:
            continue
        try:
            topic_admin.add_partitions(
                facts.target, grown.topic, count=grown.then, validate_only=True
            )
        except ClusterError as error:
            text = str(error).replace(grown.topic, "<topic>")
            reasons.setdefault((grown.cluster, text), []).append(grown.topic)
    return [
        *(
            fail(facts.where, "creation", _of_topics(text, names),
                 _way_out(text, facts))
            for (_, text), names in reasons.items()
        ),
        *(
            warn(facts.where, "creation",
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


def _way_out(text: str, facts: FlowFacts) -> str:
    brokers = facts.target.brokers
    if "eplication" in text and "REPLICATION_FACTOR" not in text:
        return "set replication_factor (and those of internal topics) as it asks"
    if "REPLICATION_FACTOR" in text:
        return (
            f"{facts.flow.target} has {brokers} brokers: set replication_factor (and "
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


def _clock(facts: FlowFacts) -> Finding:
    """Brokers do not tell their time, so only record timestamps reveal their clocks."""
    partitions = [
        (topic.topic, number)
        for topic in facts.surveyed.topics
        for number in range(topic.partitions)
    ][:_CLOCKS]
    there = facts.source.topics({topic for topic, _ in partitions})
    asked = [
        (topic, number)
        for topic, number in partitions
        if topic in there and number in there[topic].leaders
    ]
    newest = topic_admin.newest_timestamps(facts.source, asked)
    if not newest:
        return ok(facts.where, "clock", "not checked: no record to compare it with")
    (topic, number), last = max(newest.items(), key=lambda each: each[1])
    ahead = last - int(time.time() * 1000)
    if ahead > _NO_CLOCK_MS:
        return warn(
            facts.where, "clock",
            f"a record of {topic}-{number} has a timestamp {ahead / 86_400_000:,.0f} "
            "days in the future: its producer does not write milliseconds",
            "brokers refuse it with INVALID_TIMESTAMP unless "
            "message.timestamp.after.max.ms of the topic and of its copy allows it",
        )  # fmt: skip
    if ahead > _AHEAD_MS:
        return warn(
            facts.where, "clock",
            f"a record of {topic}-{number} has a timestamp {ahead / 1000:.0f} s ahead "
            "of this machine's time",
            "synchronize the clocks of producers, brokers and this machine (NTP): "
            "lag in seconds is off by as much",
        )  # fmt: skip
    return ok(
        facts.where, "clock",
        "no record has a timestamp ahead of this machine's time",
    )  # fmt: skip


# ---- whether copies take what will be written ----
#
# Copies that do not exist yet, or will change, are judged as they will be.


def foreign(facts: FlowFacts) -> list[Finding]:
    """Whether somebody else has made copies, and this flow has not adopted them."""
    theirs = offset_syncs.offsets_topic(facts.flow.source)
    begins = progress.topic_name(facts.flow.source) in {e.topic for e in facts.made}
    copies = [
        topic.target_topic
        for topic in facts.surveyed.topics
        if topic.copy != TO_BE_CREATED
    ]
    if not (begins and copies):
        return []
    if theirs not in facts.target_side.topics():
        return _filled(facts, copies)
    return [
        warn(
            facts.where, "MirrorMaker 2",
            f"it has copied into {some(copies)}, and a run would begin at "
            f"`start: {facts.flow.start}`",
            "stop it, and run mirror adopt before mirror run: the flow continues there",
        )
    ]  # fmt: skip


def _filled(facts: FlowFacts, copies: list[str]) -> list[Finding]:
    """Copies with records, although the flow has copied nothing yet: those of a
    MirrorMaker 2 in Connect or of Strimzi's, of another tool, or of producers.
    """
    shown = facts.target.topics(copies)
    places = [(name, n) for name in copies for n in shown[name].leaders]
    empty = topic_admin.empty(facts.target, places)
    filled = sorted({name for name, _ in set(places) - empty.keys()})
    if not filled:
        return []
    then = f"appends to them from `start: {facts.flow.start}` on"
    return [
        warn(
            facts.where, "copies",
            f"{some(filled)} has records, and this flow has copied nothing yet: a run "
            f"{then if facts.appends else 'leaves these topics out'}",
            "if MirrorMaker 2 copied them, stop it, and run mirror adopt before mirror "
            "run (with --offsets-topic where Connect or Strimzi runs it)"
            + ("" if facts.appends else "; else set append_to_existing"),
        )
    ]  # fmt: skip


def replicas(facts: FlowFacts) -> list[Finding]:
    """Whether writes can be acknowledged, and survive the loss of a broker."""
    where, settings = facts.where, facts.settings
    defaults = int(settings.get(REPLICAS, "1"))
    names = [each.topic for each in facts.made if each.cluster == facts.flow.target]
    there = [
        name
        for topic in facts.surveyed.topics
        if (name := topic.target_topic) not in names
    ]
    shown = facts.target_side.topics([*names, *there])
    configs = facts.target_side.configs([*names, *there])
    never, alone = [], []
    for name in (*names, *there):
        replicas = shown[name].replication_factor
        if shown[name].error != codes.NONE:
            continue
        replicas = defaults if replicas < 0 else replicas
        least = configs[name].configs.get(IN_SYNC)
        given = None if least is None else least.value
        if name in names and IN_SYNC not in facts.target_side.created[name].configs:
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
    if alone and facts.target.brokers > 1:
        found.append(
            warn(
                where, "replicas",
                f"{some(alone)} has one replica, and is lost with its broker",
                f"set replication_factor to {min(3, facts.target.brokers)}, and "
                "reassign existing topics",
            )
        )  # fmt: skip
    if not found:
        found.append(
            ok(where, "replicas", f"fit the target's {facts.target.brokers} brokers")
        )
    return found


def sizes(facts: FlowFacts) -> list[Finding]:
    """Whether the largest record of a topic fits its copy."""
    pairs = {topic.topic: topic.target_topic for topic in facts.surveyed.topics}
    theirs = facts.source_side.configs(pairs)
    ours = facts.target_side.configs(pairs.values())
    too_large, close = [], []
    for topic, copy in pairs.items():
        limit = theirs[topic].configs.get(_LARGEST)
        set_ = ours[copy].configs.get(_LARGEST)
        room = None if set_ is None else set_.value
        made = facts.target_side.created.get(copy)
        if made is not None and _LARGEST not in made.configs:
            room = facts.settings.get(LARGEST)
        if limit is None or limit.value is None or room is None:
            continue  # no right to see it
        if int(limit.value) > int(room):
            too_large.append(f"{topic} ({limit.value} bytes, copy {room})")
        elif facts.flow.provenance and int(limit.value) + _STAMP_BYTES > int(room):
            close.append(topic)
    if too_large:
        return [
            warn(
                facts.where, "message size",
                f"batches may be larger than the copy accepts: {some(too_large)}",
                f"raise {_LARGEST} of the copy or {LARGEST} of the target's brokers; "
                "partitions with larger batches are set aside",
            )
        ]  # fmt: skip
    note = "; a batch within 100 bytes of the limit may not fit" if close else ""
    return [ok(facts.where, "message size", f"copies allow what topics allow{note}")]


def _map(facts: FlowFacts) -> list[Finding]:
    """Whether the flow's offset map is kept as long as the copies that are there."""
    topic = own_topics.OFFSET_MAP.of(facts.flow)
    copies = [each.target_topic for each in facts.surveyed.topics]
    found = {
        name: {key: config.value for key, config in shown.configs.items()}
        for name, shown in facts.target_side.configs([topic.name, *copies]).items()
    }
    the_map = found.pop(topic.name)
    there = [each for each in found.values() if each]
    present = int(the_map.get(own_topics.RETENTION) or retention.FOR_EVER)
    if not there or retention.is_enough(present, retention.longest(there)):
        return []
    return [
        warn(
            facts.where, OWN_TOPICS,
            f"{topic.name}: retention.ms is {present}, less than that of copies",
            "a run sets it as long as theirs",
        )
    ]  # fmt: skip


# ---- whether consumers of the copies find their rights and groups ----


def acls_of(facts: FlowFacts) -> list[Finding]:
    where, flow = facts.where, facts.flow
    if not flow.sync_topic_acls:
        return []
    kept: dict[str, int | None] = {}
    for cluster in (facts.source, facts.target):
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
    changes = [each for each in facts.plan.acls if each.flow == flow.name]
    return [ok(where, "ACLs", f"{len(changes)} to add or remove now")]


def protection(facts: FlowFacts, config: MirrorConfig) -> Iterator[Finding]:
    """Whether ACLs can keep others from writing to the copies that are there, and who
    may write all the same.

    Raises:
        ClusterError: a cluster no longer answers.
    """
    if facts.flow.protect == "none":
        return
    copies = protecting.copies_of(facts.source, facts.target, facts.flow)
    reasons = set[str]()
    try:
        known = protecting.known_grants(facts.target, config, copies, probe=False)
    except (FenceError, AuthorizationError) as error:
        reasons = {str(error)}
    else:
        bare = fences.without_acls(known.acls, copies)
        if bare and known.everyone is None:
            told = f"no ACL is about {some([*bare])}: a run tries who may write there"
            yield ok(facts.where, _PROTECTION, told)
            known = replace(known, everyone=False)
        instead = protecting.INSTEAD
        reasons.update(fences.obstacles(known, copies, instead=instead).values())
    for why in sorted(reasons):
        yield fail(facts.where, _PROTECTION, why, f"do so, or use {protecting.INSTEAD}")
    yield ok(facts.where, _PROTECTION, _super_users(facts.target))


def _super_users(target: Cluster) -> str:
    """Brokers of Apache Kafka only say whether there are any."""
    try:
        named = brokers.settings(target, [_SUPER_USERS]).get(_SUPER_USERS)
        if not (named or brokers.is_set(target, _SUPER_USERS)):
            return f"no super user may write: {target.alias} has none"
    except AuthorizationError:
        named = None
    if named:
        return f"super users may still write: {', '.join(named.split(';'))}"
    return (
        f"super users may still write, and {target.alias} does not show who they are: "
        f"look at {_SUPER_USERS} of its brokers"
    )


def groups_of(facts: FlowFacts) -> list[Finding]:
    where, flow = facts.where, facts.flow
    if not flow.emit_checkpoints:
        return []
    wanted = GroupFilter(include=flow.groups, exclude=flow.groups_exclude)
    matching = [name for name in groups.list_groups(facts.source) if
                wanted.matches(name)]  # fmt: skip
    found = [ok(where, "groups", f"{len(matching)} match"), _checkpoints(facts)]
    if not flow.sync_group_offsets:
        return found
    there = groups.list_groups(facts.target)
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
    merged = _merged(facts)
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


def _checkpoints(facts: FlowFacts) -> Finding:
    """How old they get; `of_cluster` names a right that is missing for `on`."""
    flow, topic = facts.flow, COMMITS_TOPIC
    told = allowed.of_topics(facts.source, [topic])[topic]
    why = ""
    if flow.follow_commits == "off":
        why = "follow_commits is off"
    elif told is not None and Operation.READ not in told:
        why = f"to follow commits we need READ on topic {topic} of {flow.source}"
    how = f"every {flow.emit_checkpoints_seconds:g} s: {why}" if why else _FOLLOWING
    return ok(facts.where, "checkpoints", how)


def _merged(facts: FlowFacts) -> list[str]:
    return [
        topic.target_topic
        for topic in facts.surveyed.topics
        if not facts.merging.is_alone(facts.flow, topic.topic)
        and facts.merging.back(facts.flow, topic.topic) is None
        and not facts.merging.beside(facts.flow, topic.topic)
    ]


# ---- whether schemas can follow: both registries, and who else writes there ----
#
# What would be written is in the plan.


def schema_findings(facts: FlowFacts, config: MirrorConfig) -> list[Finding]:
    """All findings about a flow's schemas."""
    found = _topic(facts)
    if facts.flow.schemas == "off":
        return found
    where, flow = facts.where, facts.flow
    try:
        with (
            Registry(config.clusters[flow.source]) as source,
            Registry(config.clusters[flow.target]) as target,
        ):
            source.level(Subject("", ""))  # whether Confluent's API is there
            if flow.translates_ids:
                target.level(Subject("", ""))
            elif wrong := [*trial(facts, source, target)]:
                return [*found, *wrong]
            else:
                found += _open(facts, target)
    except MirrorError as error:
        fix = "check schema_registry of that cluster, and mirror's rights there"
        return [*found, fail(where, "schemas", str(error), fix)]
    writes = [each for each in facts.plan.schemas if each.flow == flow.name]
    return [*found, ok(where, "schemas", f"{len(writes)} to write now")]


def _topic(facts: FlowFacts) -> list[Finding]:
    """A registry's own topic among those that are copied, or would be."""
    what, _, fix = SCHEMAS_LEFT_OUT.partition("; ")
    if SCHEMAS_LEFT_OUT in facts.surveyed.problems:
        return [warn(facts.where, "schemas", what, fix)]
    for topic in facts.surveyed.topics:
        if topic.topic == SCHEMAS == topic.target_topic:
            text = f"{SCHEMAS} is copied under its own name"
            fix = f"leave it out, unless the registry of {facts.flow.target} is a "
            fix += "follower that never becomes the leader"
            if max(topic.partitions, topic.target_partitions) > 1:
                text += ", and has more than one partition, which registries refuse"
                fix = "delete the copy, and let mirror create it again"
            else:
                text += f": a registry of {facts.flow.target} that registers schemas "
                text += "itself writes to the same log"
            return [warn(facts.where, "schemas", text, fix)]
    return []


def _open(facts: FlowFacts, target: Registry) -> list[Finding]:
    flow = facts.flow
    mode = target.mode(Subject(flow.schemas_context, ""))
    if mode is not Mode.READWRITE:
        return []
    return [
        warn(
            facts.where, "schemas",
            f"the registry of {flow.target} is in mode {mode}: what applications "
            f"register there may take ids that {flow.source} issues later",
            "register on the source only, or use schemas_context",
        )
    ]  # fmt: skip


# ---- tries whether a registry can be the target, on a subject of its own ----
#
# Lists and versions do not tell whether a registry keeps ids, or is the source's under
# another address. It registers what the flow is about to copy anyway, so no id is used
# up, and removes the subject.


def trial(facts: FlowFacts, source: Registry, target: Registry) -> Iterator[Finding]:
    """What is wrong.

    Raises:
        RegistryError: a registry does not answer.
    """
    flow, where = facts.flow, facts.where
    subject = Subject(flow.schemas_context, f"{TRIAL}{uuid.uuid4().hex}")
    unfit = (
        "set schemas: require and schemas_ids: translate, or use a registry for it "
        "that takes Confluent's mode IMPORT (docs: What each registry can do)"
    )
    try:
        target.set_mode(subject, Mode.IMPORT)
    except RegistryError as error:
        if error.retriable:
            _removed(target, subject)  # it may have been set without an answer
            raise
        text = f"UNSUPPORTED: a subject cannot be put into mode IMPORT: {error}"
        if error.status in {401, 403}:
            text, unfit = str(error), "give mirror the right to set modes there"
        yield fail(where, "schemas", text, unfit)
        return
    try:
        if _is_there(source, subject):
            yield fail(
                where, "schemas",
                f"{flow.source} and {flow.target} have one registry under two "
                "addresses, so there is nothing to copy",
                "set schemas to off", mistake=True,
            )  # fmt: skip
        elif said := _tried(target, subject, _next(facts, source)):
            yield fail(where, "schemas", f"UNSUPPORTED: {said}", unfit)
    finally:
        left = _removed(target, subject)
    if left:
        fix = "remove it with the registry's own API"
        yield warn(where, "schemas", f"{subject} was tried and is left: {left}", fix)


def _is_there(source: Registry, subject: Subject) -> bool:
    """Whether the other registry has the mode that was set here."""
    try:
        return source.mode(subject) is Mode.IMPORT
    except RegistryError as error:
        if error.retriable:
            raise
        return False  # it has no modes, so it is another one


def _next(facts: FlowFacts, source: Registry) -> SchemaVersion | None:
    """A version that the flow is about to write; None: all are there, so the registry
    has shown what it can do, or those that are left refer to others.
    """
    flow = facts.flow
    for each in facts.plan.schemas:
        if each.flow == flow.name and each.change == "register":
            place = Subject.parse(each.subject)
            found = source.schema(place.from_below(flow.schemas_context), each.version)
            if found is not None and not found.references:
                return found
    return None


def _tried(target: Registry, subject: Subject, given: SchemaVersion | None) -> str:
    """What the registry made of it, if that is not what it was given."""
    if given is None:
        return ""
    wanted = replace(
        given, context=subject.context, subject=subject.name, version=_TRIAL_VERSION
    )
    try:
        target.register(wanted)
    except RegistryError as error:
        if error.retriable:
            raise
        return f"a schema with an id and a version is refused: {error}"
    there = target.schema(wanted.full_subject, wanted.version)
    if there is None or there.id != wanted.id:
        return "the registry chooses ids or version numbers itself"
    if there.text != wanted.text:
        return "the registry does not keep texts byte for byte"
    return ""


def _removed(target: Registry, subject: Subject) -> str:
    """Remove the subject; why it could not be."""
    try:
        target.remove(subject)
    except RegistryError as error:
        return str(error)
    return ""
