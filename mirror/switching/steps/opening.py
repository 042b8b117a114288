"""Step 7, the point of no return: the other cluster becomes the active one.

Producers and consumers get there what rights they had, and the flow back begins behind
what the flow there has copied, so it never reads that. That this step is done, in the
target's journal, is what makes the cluster active: services read it within two seconds,
let the flow rest and start the one back.
"""

from __future__ import annotations

from mirror.driver.ownership import take_ownership
from mirror.driver.way_back import pass_copies
from mirror.errors import MirrorError
from mirror.metadata.acl_notes import AclNotes
from mirror.metadata.topics import select
from mirror.offsets import progress, starting
from mirror.recovery import access, ends, roles, standby
from mirror.recovery.beginnings import BEGINS, noted
from mirror.status.wording import some
from mirror.switching import arrivals, fences, fencing, rights
from mirror.switching.stage import Done, Stage, Step
from mirror.switching.steps import drain, fence, positions
from mirror.switching.steps.assess import places_of

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
        text=f"{text}{stage.flow.target} is active; {stage.reverse.name} starts, "
        f"{stage.flow.name} rests",
        warnings=warnings,
    )


def _note_beginnings(stage: Stage) -> None:
    """Where the flow back begins, unless it has run: its positions would be in the
    cluster that is gone.
    """
    reverse = stage.reverse
    if reverse.start == "earliest" or BEGINS in stage.notes[roles.ROLE]:
        return
    place = starting.start_point(reverse.start)
    found = starting.begin(stage.target, _partitions_back(stage), place)
    stage.note({BEGINS: noted(found)})


def _partitions_back(stage: Stage) -> dict[TopicPartition, str]:
    """What the flow back copies, with the topics' ids in hex."""
    return {
        (topic.topic, number): topic.topic_id
        for topic in select(stage.target, stage.reverse).topics
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
        topics = sorted({*seen, *(topic for topic, _ in copied)})
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
    reverse = stage.reverse
    stage.note({})
    if reverse.start != "earliest":
        take_ownership(
            reverse,
            stage.target,
            stage.source,
            slots=1,
            partitions=_partitions_back(stage),
        )
    pass_copies(stage.config, reverse, stage.target, stage.source, renewed=True)


def _take_back(stage: Stage) -> str:
    if stage.pair.fence == "acl":
        stage.note({})
        fences.lift(stage.target, rights.name(stage.pair.name))
        if stage.notes[roles.ROLE].get(_FENCED):
            fence.lay(stage, stage.target, stage.reverse)
    return f"{stage.flow.target} is passive, as before"


STEP = Step(do=_open, undo=_take_back)
