"""What a flow's service selects: the kind `selection` of the standby topic.

A command with an older file, or without a variable of the environment, would move or
judge a part of what the service copies, and take it for the whole. So the service notes
on the flow's target, before it copies, which topics and groups it selects and what
copies are called; `require` compares a command with that, before it changes anything.
Each note also has the flow back, whose own target may be gone. Notes outlive the
service. `differences` is pure: what counts is the effect on known names, not the text.

Layout of `selection/<flow>`: `by`; `settings` of the flow by name; `pairs` of its
clusters by name, each with its `topics` and `groups`.
"""

from __future__ import annotations

from dataclasses import asdict
import re
import time
from typing import TYPE_CHECKING, Any

from mirror.clusters.admin import groups
from mirror.config import own_topics, scopes
from mirror.errors import MALFORMED, MirrorError
from mirror.host import process_name
from mirror.offsets import checkpoints, progress, standby
from mirror.offsets.checkpoints import checkpoints_topic
from mirror.offsets.standby import StandbyEntry
from mirror.pairs import risk
from mirror.policy.choice import Rule
from mirror.policy.selection import GroupFilter, select_topics
from mirror.records.writing import append, ensure_topic
from mirror.status.wording import moment, named

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.standby import Fields, Standby

KIND = "selection"
_PATTERNS = ("topics", "topics_exclude", "groups", "groups_exclude")
_NAMES = ("policy", "separator", "rename")
"""What copies are called."""
_SCHEMAS = ("schemas_subjects", "schemas_exclude", "schemas_context")
_SETTINGS = (*_PATTERNS, "policy", "separator", "schemas", *_SCHEMAS)
"""Beside `rename`, whose rules are no JSON."""


def noted(config: MirrorConfig, flow: str) -> dict[str, Fields]:
    """The notes of this process about a flow, and about the one back, by flow."""
    flows = _flows(config)
    back = f"{flows[flow].target}->{flows[flow].source}"
    return {
        name: _fields(config, flows[name]) for name in (flow, back) if name in flows
    }


def write(target: Cluster, flow: FlowConfig, notes: Mapping[str, Fields]) -> None:
    """Write these notes to the flow's target.

    Raises:
        MirrorError: they may not be written.
    """
    topic = standby.topic_name(flow.source)
    ensure_topic(
        target,
        own_topics.STANDBY,
        topic,
        replication_factor=flow.replication_factor,
    )
    at = time.time()
    append(
        target,
        topic,
        [
            standby.encode(KIND, name, StandbyEntry(at=at, fields=fields))
            for name, fields in notes.items()
        ],
    )


def require(
    config: MirrorConfig,
    flow: str,
    pair: PairConfig | None,
    clusters: Iterable[Cluster | None],
) -> tuple[str, ...]:
    """Check that this configuration selects of a flow what its service does; if there
    is a pair, what belongs to that, with its groups. `clusters`: those of the flow that
    answer. Returns warnings where no service has noted anything.

    Raises:
        MirrorError: it selects less, or calls copies something else.
        ClusterError: a cluster does not answer, or a note is damaged.
    """
    there = {each.alias: each for each in clusters if each is not None}
    own = _flows(config)[flow]
    kept = _kept(there.get(own.target), own.source)
    note, topic = _note(kept, flow), standby.topic_name(own.source)
    if note is None and pair is not None:  # the service of the flow back knows it, too
        back = _kept(there.get(own.source), own.target)
        note, topic = _note(back, flow), standby.topic_name(own.target)
    if note is None:
        return _evident(own, kept)
    if _same(note.fields, _fields(config, own)):
        return ()
    topics = _topics(own, there)
    names = () if pair is None else _groups(own, there)
    try:
        found = differences(own, pair, note.fields, topics=topics, groups=names)
        who = note.fields["by"]
    except MALFORMED as error:
        raise standby.damaged(topic, f"{KIND}/{flow}", error) from error
    if found:
        raise MirrorError(
            f"flow {flow}: this configuration {'; '.join(found)}. The service {who} "
            f"noted at {moment(note.at)} what it selects: use its file and environment "
            "(MIRROR_...). If less is to be selected from now on, run the service with "
            "this configuration first. Nothing was changed"
        )
    return ()


def known_topics(flow: FlowConfig, target: Cluster) -> set[str]:
    """The names of source topics that the flow's target knows: of the last look, and of
    all that was copied.

    Raises:
        ClusterError: the target does not answer.
    """
    found = set(_seen(_kept(target, flow.source)))
    name = progress.topic_name(flow.source)
    known = progress.read_existing(target, name)
    return found.union(topic for topic, _ in known.positions)


def applied(
    flow: FlowConfig, pair: PairConfig | None, told: Mapping[str, Any]
) -> FlowConfig:
    """The flow as a note has it, with what belongs to the pair. Raises one of
    `MALFORMED` if the note is damaged.
    """
    return _within(*_as_noted(flow, pair, told))


def as_noted(flow: FlowConfig, target: Cluster) -> FlowConfig:
    """The flow as its service has noted it; as given if it has noted nothing.

    Raises:
        ClusterError: the target does not answer, or the note is damaged.
    """
    note = _note(_kept(target, flow.source), flow.name)
    try:
        return flow if note is None else applied(flow, None, note.fields)
    except MALFORMED as error:
        topic = standby.topic_name(flow.source)
        raise standby.damaged(topic, f"{KIND}/{flow.name}", error) from error


def others_noted(flow: FlowConfig, target: Cluster) -> tuple[str, ...]:
    """The flows, but this one and the one back, that services have noted beside it.
    Raises as `as_noted`.
    """
    kept = _kept(target, flow.source)
    names = set() if kept is None else set(kept.entries[KIND])
    return tuple(sorted(names - {flow.name, f"{flow.target}->{flow.source}"}))


def differences(
    flow: FlowConfig,
    pair: PairConfig | None,
    told: Mapping[str, Any],
    *,
    topics: Collection[str],
    groups: Collection[str],
) -> tuple[str, ...]:
    """What a note selects of these names and the flow does not, copies that it calls
    something else, and what belongs to a named pair here alone; in words, by setting.
    `flow`: with what belongs to no pair, too. Raises as `applied`.
    """
    if pair is not None and pair.name not in told["pairs"]:
        known = " and ".join(sorted(told["pairs"])) or "no pair"
        return (f"has the pair {pair.name}, and the service {known}",)
    whole, their_pair = _as_noted(flow, pair, told)
    ours, theirs = _within(flow, pair), _within(whole, their_pair)
    here, there, of_flow = (_copies(each, topics) for each in (ours, theirs, whole))
    selected = {
        "topics": [set(here), set(there), set(of_flow)],
        "groups": [
            set(filter(_groups_of(each).matches, groups))
            for each in (ours, theirs, whole)
        ],
    }
    found: dict[tuple[str, str], list[str]] = {}
    for what, (of_ours, of_theirs, of_whole) in selected.items():
        for name in sorted(of_theirs - of_ours):
            why = _why_not(flow, pair, what, name)
            found.setdefault((f"leaves out {what}", why), []).append(name)
        more = sorted((of_ours - of_theirs) & of_whole)
        if more and pair is not None:  # of another pair there, which does not move
            found[f"adds {what}", f"{what} of {pair.name}"] = more
    others = [n for n in sorted(here.keys() & there.keys()) if here[n] != there[n]]
    if others:
        names = [f"{here[n]} instead of {there[n]}" for n in others]
        found["calls copies", _renames(flow, whole)] = names
    return (
        *(f"{what} {named(names)} ({why})" for (what, why), names in found.items()),
        *(() if pair is None else _schemas(flow, told)),
    )


def _flows(config: MirrorConfig) -> dict[str, FlowConfig]:
    """By name, also those that another instance runs (`mirror run --clusters`)."""
    return {**config.flows, **{each.name: each for each in config.enabled_flows}}


def _fields(config: MirrorConfig, flow: FlowConfig) -> Fields:
    return {
        "by": process_name(),
        "settings": {
            **{name: _json(getattr(flow, name)) for name in _SETTINGS},
            "rename": [asdict(each) for each in flow.rename],
        },
        "pairs": {
            each.name: {"topics": list(each.topics), "groups": list(each.groups)}
            for each in config.pairs_of(flow.source, flow.target)
        },
    }


def _json(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _same(told: Mapping[str, Any], own: Fields) -> bool:
    return all(told.get(each) == own[each] for each in ("settings", "pairs"))


def _as_noted(
    flow: FlowConfig, pair: PairConfig | None, told: Mapping[str, Any]
) -> tuple[FlowConfig, PairConfig | None]:
    settings = told["settings"]
    whole = flow.model_copy(
        update={
            **{name: tuple(map(str, settings[name])) for name in _PATTERNS},
            "policy": str(settings["policy"]),
            "separator": str(settings["separator"]),
            "rename": tuple(Rule(**each) for each in settings["rename"]),
        }
    )
    if pair is None:
        return whole, pair
    scope = told["pairs"][pair.name]
    names = {each: tuple(map(str, scope[each])) for each in ("topics", "groups")}
    return whole, pair.model_copy(update=names)


def _within(flow: FlowConfig, pair: PairConfig | None) -> FlowConfig:
    return flow if pair is None else scopes.within(flow, pair)


def _copies(flow: FlowConfig, names: Collection[str]) -> dict[str, str]:
    """The topics that a flow copies, with their copies; no application reads on in
    heartbeats.
    """
    selected = select_topics(
        (each for each in names if not flow.is_heartbeats(each)),
        flow.topic_filter,
        flow.replication_policy,
        flow.target,
    )
    return {each.topic: each.target_topic for each in selected.mappings}


def _groups_of(flow: FlowConfig) -> GroupFilter:
    return GroupFilter(include=flow.groups, exclude=flow.groups_exclude)


def _why_not(flow: FlowConfig, pair: PairConfig | None, what: str, name: str) -> str:
    """The setting that leaves a name out."""

    def is_in(patterns: Iterable[str]) -> bool:
        return any(re.fullmatch(each, name) for each in patterns)

    if is_in(getattr(flow, f"{what}_exclude")):
        return f"{what}_exclude of {flow.name}"
    if not is_in(getattr(flow, what)):
        return f"{what} of {flow.name}"
    if pair is not None and pair.scope is not None and not is_in(getattr(pair, what)):
        return f"{what} of {pair.name}"
    return f"policy of {flow.name}"


def _renames(flow: FlowConfig, theirs: FlowConfig) -> str:
    """The setting that gives copies other names."""
    name = next(each for each in _NAMES if getattr(flow, each) != getattr(theirs, each))
    if name == "rename":
        return f"rename of {flow.name}"
    ours, wanted = getattr(flow, name), getattr(theirs, name)
    return f"{name} of {flow.name}: {ours} instead of {wanted}"


def _schemas(flow: FlowConfig, told: Mapping[str, Any]) -> Iterator[str]:
    """Which subjects there are, only registries know: so texts count."""
    theirs = told["settings"]
    if theirs["schemas"] == "off":
        return
    if flow.schemas == "off":
        yield f"leaves out schemas (schemas of {flow.name})"
        return
    for name in _SCHEMAS:
        if _json(getattr(flow, name)) != theirs[name]:
            yield f"selects other subjects ({name} of {flow.name})"


def _kept(cluster: Cluster | None, source: str) -> Standby | None:
    """What a cluster keeps about another one; None if it does not answer either."""
    if cluster is None:
        return None
    return standby.read(cluster, source, {KIND, risk.ENDS})


def _note(kept: Standby | None, flow: str) -> StandbyEntry | None:
    return None if kept is None else kept.entries[KIND].get(flow)


def _evident(flow: FlowConfig, kept: Standby | None) -> tuple[str, ...]:
    """What an older service, which has noted nothing, has looked at and this flow does
    not select. It may be so on purpose, so it is no more than a warning.
    """
    seen = _seen(kept)
    ours = _copies(flow, seen)
    left = [each for each in seen if each not in ours]
    left = sorted(each for each in left if not flow.is_heartbeats(each))
    if not left:
        return ()
    text = f"flow {flow.name}: this configuration leaves out {named(left)}, which an "
    return (f"{text}older version of the service has copied",)


def _seen(kept: Standby | None) -> Collection[str]:
    return () if kept is None else kept.entries[risk.ENDS]


def _topics(flow: FlowConfig, there: Mapping[str, Cluster]) -> set[str]:
    """The names of the source's topics, as far as they are known: it may be gone, or
    back without some of them.
    """
    found: set[str] = set()
    if (target := there.get(flow.target)) is not None:
        found.update(known_topics(flow, target))
    if (source := there.get(flow.source)) is not None:
        found.update(source.topics())
    return found


def _groups(flow: FlowConfig, there: Mapping[str, Cluster]) -> set[str]:
    """The names of the source's groups, likewise."""
    found: set[str] = set()
    if (source := there.get(flow.source)) is not None:
        found.update(groups.list_groups(source))
    if (target := there.get(flow.target)) is not None:
        topic = checkpoints_topic(flow.source, flow.mm2_separator)
        found.update(checkpoints.read(target, topic))
    return found
