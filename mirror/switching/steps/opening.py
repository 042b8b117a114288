"""Step 7, the point of no return: the other cluster becomes the active one.

Producers and consumers get there what rights they had, and the flow back begins behind
what the flow there has copied, so it never reads that. That this step is done, in the
target's journal, is what makes the cluster active: services read it within two seconds,
let the flow rest and start the one back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.config import scopes
from mirror.driver.ownership import Rewriting, rewrite_progress, take_ownership
from mirror.errors import MirrorError
from mirror.metadata.acl_notes import AclNotes
from mirror.metadata.merging import Merging
from mirror.metadata.topics import select
from mirror.offsets import progress, starting
from mirror.offsets.covers import find_starts
from mirror.offsets.progress import NO_ID, Position
from mirror.recovery import access, ends, roles, standby
from mirror.recovery.beginnings import BEGINS, noted
from mirror.status.wording import some
from mirror.switching import arrivals, fences, fencing, rights
from mirror.switching.stage import Done, Stage, Step
from mirror.switching.steps import drain, fence, positions
from mirror.switching.steps.assess import places_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirror.config.schema import FlowConfig

TopicPartition = tuple[str, int]

_FENCED = "fenced"
"""Noted if producers could not write to the target, which was passive."""


def _open(stage: Stage) -> Done:
    warnings: tuple[str, ...] = ()
    text = ""
    if stage.planned and arrivals.ENDS not in stage.notes[roles.ROLE]:
        topics = fence.topics_of(stage.source, stage.flow)
        stage.note({arrivals.ENDS: arrivals.ends(stage.target, topics)})
    if not stage.planned:
        _note_beginnings(stage)
    if stage.pair.fence == "acl":
        try:
            text, warnings = _grant(stage)
        except MirrorError as error:
            if stage.planned:
                raise
            # Without rights some producers wait; without a switch all of them do.
            warnings = (f"rights on {stage.flow.target} were not granted: {error}",)
    if stage.planned:
        _begin_back(stage)
        positions.require_settled(stage)
        fence.require_cut(stage)
    elif drain.stop_again(stage):
        positions.require_settled(stage)
    return Done(
        text=f"{text}{stage.flow.target} is active; {_turned(stage)}",
        warnings=warnings,
    )


def _turned(stage: Stage) -> str:
    back, out = stage.reverse.name, stage.flow.name
    if stage.pair.scope is not None:
        return f"{back} takes the topics up, {out} leaves them"
    return f"{back} starts, {out} rests"


def _note_beginnings(stage: Stage) -> None:
    """Where the flow back begins, unless it has run: its positions would be in the
    cluster that is gone.
    """
    # All that the flow copies, since it has one beginning, also where pairs have names.
    flows = {each.name: each for each in stage.config.enabled_flows}
    reverse = flows[stage.reverse.name]
    if reverse.start == "earliest" or BEGINS in stage.notes[roles.ROLE]:
        return
    place = starting.start_point(reverse.start)
    found = starting.begin(stage.target, _partitions_back(stage, reverse), place)
    stage.note({BEGINS: noted(found)})


def _partitions_back(stage: Stage, reverse: FlowConfig) -> dict[TopicPartition, str]:
    """What the flow back copies, with the topics' ids in hex."""
    return {
        (topic.topic, number): topic.topic_id
        for topic in select(stage.target, reverse).topics
        for number in range(topic.partitions)
    }


def _grant(stage: Stage) -> tuple[str, tuple[str, ...]]:
    """Let applications do on the target what they may do on the source."""
    target, alias = stage.target, stage.flow.source
    fenced = fencing.name(stage.pair.name)
    if AclNotes(target).noted(fenced).changes:
        stage.note({_FENCED: True})
        fences.lift(target, fenced)
    if stage.planned:
        settings = stage.config.clusters[alias]
        known = fences.look(stage.source, settings, ()).acls
        topics = list(fence.topics_of(stage.source, stage.flow))
    else:
        kept = standby.read(target, alias, {*access.KINDS, ends.KIND})
        known = frozenset() if kept is None else access.read(kept, alias).acls
        copied = progress.read(target, progress.topic_name(alias)).positions
        # Also topics of which nothing was copied yet.
        seen = () if kept is None else ends.read(kept, alias)
        names = {*seen, *(topic for topic, _ in copied)}
        topics = sorted(
            each for each in names if scopes.has_topic(stage.pair, each, stage.reverse)
        )
    plan = rights.plan(
        stage.flow,
        pair=stage.pair.name,
        topics=topics,
        groups=list(places_of(stage).places),
        there=known,
        here=fences.look(target, stage.config.clusters[stage.flow.target], ()),
        own=stage.config.clusters[alias].own_principal,
    )
    stage.note({})
    fences.lay(target, plan)
    principals = {acl.principal for acl in plan.adds}
    return f"{some(len(principals), 'principal')} got rights; ", plan.remarks


def _begin_back(stage: Stage) -> None:
    """The flow back has its positions before anyone may write to the target: if it has
    never run, what `start` says now; and where both flows write one topic, the first
    record that was not copied from there.
    """
    flow, reverse = stage.flow, stage.reverse
    named = stage.pair.scope is not None
    stage.note({})
    if reverse.start != "earliest" and not named:
        take_ownership(
            reverse,
            stage.target,
            stage.source,
            slots=1,
            partitions=_partitions_back(stage, reverse),
        )
    writers = Merging(stage.config.enabled_flows)
    copies = {
        (topic.target_topic, number): (topic.topic, number)
        for topic in select(stage.source, flow).topics
        if writers.back(flow, topic.topic) is not None
        for number in range(topic.partitions)
    }
    fresh = _begin_now(stage, copies) if named else {}
    if not (copies or fresh):
        return
    ids = {name: each.topic_id for name, each in stage.target.topics().items()}

    def decide(known: Mapping[TopicPartition, Position]) -> Rewriting:
        # A position in an earlier topic of this name says nothing.
        ours = {key: each for key, each in known.items() if key in copies}
        before = {
            key: each.offset
            for key, each in ours.items()
            if each.topic_id == NO_ID or each.topic_id == ids.get(key[0])
        }
        starts = find_starts(flow, stage.target, copies, before)
        return Rewriting(
            positions={
                key: Position(offset=start.offset, topic_id=ids[key[0]])
                for key, start in starts.items()
                if start.offset > before.get(key, 0) or key in ours.keys() - before
            }
            | {key: each for key, each in fresh.items() if key not in known}
        )

    rewrite_progress(reverse, stage.source, decide)


def _begin_now(
    stage: Stage, copies: Collection[TopicPartition]
) -> Mapping[TopicPartition, Position]:
    """Where the flow back, which copies for other pairs, begins with topics that it has
    never copied, as its `start` says.
    """
    reverse = stage.reverse
    if reverse.start == "earliest":
        return {}
    name = progress.topic_name(reverse.source)
    there = stage.source.topic(name) is not None
    known = progress.read(stage.source, name).positions if there else {}
    new = {
        key: topic_id
        for key, topic_id in _partitions_back(stage, reverse).items()
        if key not in known and key not in copies
    }
    place = starting.start_point(reverse.start)
    return starting.begin(stage.target, new, place) if new else {}


def _take_back(stage: Stage) -> str:
    if stage.pair.fence == "acl":
        stage.note({})
        fences.lift(stage.target, rights.name(stage.pair.name))
        if stage.notes[roles.ROLE].get(_FENCED):
            fence.lay(stage, stage.target, stage.reverse)
    return f"{stage.flow.target} is passive, as before"


STEP = Step(do=_open, undo=_take_back)
