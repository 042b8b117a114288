"""Steps 7 and 8: the other cluster becomes active, and applications move to it.

Step 7 is the point of no return. Producers and consumers get there what rights they
had, and the flow back begins behind what the flow there has copied, so it never reads
that. That this step is done, in the target's journal, is what makes the cluster active:
services read it within two seconds, let the flow rest and start the one back.
"""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING, Any

from mirror.config import scopes
from mirror.config.schema import principals
from mirror.errors import MirrorError
from mirror.offsets import progress, standby, starting
from mirror.pairs import access, risk, roles
from mirror.pairs.roles import BEGINS, noted_begins
from mirror.recovery import hooks, outcome, rights, schemas
from mirror.recovery.stage import Done, Stage, StepError
from mirror.recovery.steps import checks, drain, fence, positions
from mirror.service.ownership import Generation, take_ownership
from mirror.service.positions import behind_copies, both_write, pass_copies
from mirror.status.wording import some
from mirror.topics import fences
from mirror.topics.acl_notes import AclNotes
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Position
    from mirror.topics.acl_notes import AclPlan


_FENCED = "fenced"
"""Noted if producers could not write to the target, which was passive: its topics."""
_UNGRANTED = "ungranted"
"""Noted if the role moves before rights are granted."""


def move_role(stage: Stage) -> Done:
    warnings: tuple[str, ...] = ()
    text = ""
    if notes := dict(_before(stage)):
        stage.note(notes)
    # First: what is written once there are rights belongs to the flow back.
    if stage.planned:
        _begin_back(stage)
    else:
        _note_beginnings(stage)
    if stage.planned and stage.flow.offsets == "same":
        # What is written before this step is done would have offsets that records of
        # the source get, if the step is undone.
        stage.note({_UNGRANTED: True})
    elif stage.pair.fence == "acl":
        try:
            text, warnings = _grant(stage)
        except MirrorError as error:
            if stage.planned:
                raise
            # Without rights some producers wait; without a switch all of them do.
            stage.note({_UNGRANTED: True})
            text = f"rights on {stage.flow.target} are still to be granted: {error}; "
    if stage.planned:
        _require_made(stage)
        positions.require_settled(stage)
        fence.require_cut(stage)
    elif drain.stop_again(stage):
        positions.require_settled(stage)
    return Done(
        text=f"{text}{stage.flow.target} is active; {_turned(stage)}",
        warnings=warnings,
    )


def _before(stage: Stage) -> Iterator[tuple[str, Any]]:
    """What is not known any more once the step has changed something."""
    if stage.planned and outcome.ENDS not in stage.notes[roles.ROLE]:
        topics = fence.topics_of(stage.source, stage.flow)
        yield outcome.ENDS, outcome.ends(stage.target, topics)
    if stage.planned and stage.pair.fence == "acl":
        yield from _fenced(stage)


def _fenced(stage: Stage) -> Iterator[tuple[str, Any]]:
    """The topics of the target's fence, if there is one: who undoes the step may have a
    configuration that selects less.
    """
    laid = AclNotes(stage.target).noted(fences.fence_name(stage.pair.name)).changes
    if laid:
        yield _FENCED, sorted({a.name for a in laid if a.pattern == "LITERAL"})


def _require_made(stage: Stage) -> None:
    """Wait for copies of what came since everything was copied: the flow goes on until
    the role moves. Not longer than producers may be blocked.
    """
    began, _ = stage.times["fence"]
    left = began + stage.pair.block_seconds - time.time()
    deadline = min(stage.deadline, time.monotonic() + left)
    replace(stage, deadline=deadline).wait(lambda: checks.unmade(stage), every=0.5)


def _turned(stage: Stage) -> str:
    back, out = stage.reverse.name, stage.flow.name
    if stage.pair.scope is not None:
        return f"{back} takes the topics up, {out} leaves them"
    fed = "".join(f", {stage.flow.target} feeds {each}" for each in stage.pair.feeds)
    return f"{back} starts, {out} rests{fed}"


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
    stage.note({BEGINS: noted_begins(found)})


def _partitions_back(stage: Stage, reverse: FlowConfig) -> dict[TopicPartition, str]:
    """What the flow back copies, with the topics' ids in hex."""
    return {
        (topic.topic, number): topic.topic_id
        for topic in select(stage.target, reverse).topics
        for number in range(topic.partitions)
    }


def _grant(stage: Stage) -> tuple[str, tuple[str, ...]]:
    """Let applications do on the target what they may do on the source."""
    target = stage.target
    if not stage.planned and (fenced := dict(_fenced(stage))):
        stage.note(fenced)
    fences.lift(target, fences.fence_name(stage.pair.name), hold=stage.hold)
    plan = rights_plan(stage, stage.notes["positions"][positions.SUMS])
    stage.note({})
    fences.lay(target, plan, hold=stage.hold)
    principals = {acl.principal for acl in plan.adds}
    return f"{some(len(principals), 'principal')} got rights; ", plan.remarks


def grant_late(stage: Stage) -> str:
    """Grant what was not granted before the role moved; says what it did.

    Raises:
        StepError: it cannot.
    """
    if stage.pair.fence != "acl" or _UNGRANTED not in stage.notes[roles.ROLE]:
        return ""
    try:
        return _grant(stage)[0]
    except MirrorError as error:
        where = stage.flow.target
        raise StepError(f"rights on {where} were not granted: {error}") from error


def rights_plan(stage: Stage, groups: Collection[str]) -> AclPlan:
    """What applications, and the members of these groups, may do on the source and not
    yet on the target.

    Raises:
        FenceError: it is not known whom brokers take mirror for.
        ClusterError: a cluster does not answer.
    """
    target, alias = stage.target, stage.flow.source
    if stage.planned:
        there, here = fences.look_at(stage.config, stage.source, target)
        known = there.acls
        topics = list(fence.topics_of(stage.source, stage.flow))
    else:
        here = fences.look(target, stage.config, ())
        kept = standby.read(target, alias, {*access.KINDS, risk.ENDS})
        known = frozenset() if kept is None else access.read(kept, alias).acls
        copied = progress.read(target, progress.topic_name(alias)).positions
        # Also topics of which nothing was copied yet.
        seen = () if kept is None else risk.read_ends(kept, alias)
        names = {*seen, *(topic for topic, _ in copied)}
        topics = sorted(
            each for each in names if scopes.has_topic(stage.pair, each, stage.reverse)
        )
    return rights.plan(
        stage.flow,
        pair=stage.pair.name,
        topics=topics,
        groups=groups,
        there=known,
        here=here,
        own=principals(stage.config, alias).values(),
    )


def _begin_back(stage: Stage) -> None:
    """The flow back has its positions before anyone may write to the target: if it has
    never run, what `start` says now; and where both flows write one topic, the first
    record that was not copied from there.
    """
    reverse = stage.reverse
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
    pass_copies(
        *(stage.config, stage.flow, reverse, stage.target, stage.source),
        renewed=True,
        fresh=_begin_now(stage) if named else {},
    )


def _begin_now(stage: Stage) -> Mapping[TopicPartition, Position]:
    """Where the flow back, which copies for other pairs, begins with topics that it has
    never copied, as its `start` says.
    """
    reverse = stage.reverse
    if reverse.start == "earliest":
        return {}
    copies = both_write(stage.config, stage.flow, reverse, stage.source)
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


def starts_back(stage: Stage) -> dict[TopicPartition, tuple[int | None, int | None]]:
    """Where the flow back stands, and where it would begin if the step were done now,
    by the target's partition. None: it has no position, or a log does not answer.
    Without the source, as if it had never run. Changes nothing.
    """
    reverse = stage.reverse
    known: Mapping[TopicPartition, Position] = {}
    place = starting.start_point(reverse.start)
    name = progress.topic_name(reverse.source)
    if stage.planned and stage.source.topic(name) is not None:
        reached = progress.read(stage.source, name, wait=False)
        known = reached.positions
        if Generation.parse(reached.generation).begun and stage.pair.scope is None:
            place = starting.StartPoint()
    copies: Mapping[TopicPartition, TopicPartition] = {}
    if stage.planned:
        copies = both_write(stage.config, stage.flow, reverse, stage.source)
    # In the topics of a pair with a name it passes copies instead, as in `_begin_now`.
    passed = copies if stage.pair.scope is not None else ()
    partitions = _partitions_back(stage, reverse)
    begins = {
        key: each
        for key, each in partitions.items()
        if key not in known and key not in passed
    }
    found = {**known, **starting.find(stage.target, begins, place)}
    if copies:
        found |= behind_copies(stage.flow, stage.target, copies, found)

    def offset(position: Position | None) -> int | None:
        return None if position is None else position.offset

    return {key: (offset(known.get(key)), offset(found.get(key))) for key in partitions}


def take_role_back(stage: Stage) -> str:
    if stage.pair.fence == "acl":
        stage.note({})
        fences.lift(stage.target, rights.name(stage.pair.name), hold=stage.hold)
        if (fenced := stage.notes[roles.ROLE].get(_FENCED)) is not None:
            # An earlier version noted no topics.
            more = set(fenced if isinstance(fenced, list) else ())
            more &= stage.target.topics().keys()
            fence.lay(stage, stage.target, stage.reverse, more=more)
    return f"{stage.flow.target} is passive, as before"


# ---- step 8: applications move ----


def redirect(stage: Stage) -> Done:
    granted = ""
    if stage.planned and stage.pair.fence == "acl":
        stage.note({})
        granted = grant_late(stage)
        # What an earlier switch to this cluster granted there.
        fences.lift(stage.source, rights.name(stage.pair.name), hold=stage.hold)
    opened, warnings = schemas.open_target(stage, brief=True)
    producers = hooks.call(stage, hooks.REDIRECT_PRODUCERS)
    consumers = hooks.call(stage, hooks.START_CONSUMERS)
    if warnings:  # such as thousands of subjects, which take longer
        opened, warnings = schemas.open_target(stage, brief=False)
    texts = (
        producers or f"producers may write to {stage.flow.target}: point them at it",
        consumers or f"consumers go on at {stage.flow.target}: start them there",
    )
    return Done(text=granted + opened + "; ".join(texts), warnings=warnings)
