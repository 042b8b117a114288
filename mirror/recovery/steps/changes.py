"""What each step of a switch would change, for `--dry-run`; it changes nothing.

Main function: `changes`, made of the same plans as the steps: ACLs, group offsets,
where the flow back begins, and hooks. It is what is so now: a switch looks again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mirror.clusters import codes
from mirror.clusters.admin import acls, group_offsets
from mirror.clusters.topics import same_topic
from mirror.errors import MirrorError
from mirror.offsets import runs
from mirror.offsets.joint import again, again_born
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM
from mirror.offsets.translation import Exactness
from mirror.pairs import roles
from mirror.records.reading import TopicReader
from mirror.recovery import hooks, rights, schemas
from mirror.recovery.steps import fence, opening
from mirror.topics import fences
from mirror.topics.merging import Merging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig
    from mirror.offsets.runs import Block, RunArray
    from mirror.recovery.stage import Stage
    from mirror.recovery.steps.positions import GroupPlaces
    from mirror.topics.acl_notes import AclPlan

ACL, GROUP_OFFSET, FLOW_START, HOOK = "acl", "group_offset", "flow_start", "hook"
STATE = "state"
"""What `change` says of a change; a state is one in words."""

Change = dict[str, Any]

_NONE_AGAIN = (Exactness.EXACT, Exactness.TIP, Exactness.BEHIND)
"""Where one flow alone writes the copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChanges:
    """Of one step."""

    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def changes(stage: Stage, found: GroupPlaces) -> Mapping[str, StepChanges]:
    """By step, in their order. `found`: where groups go on.

    Raises:
        FenceError: ACLs cannot fence the source.
        ClusterError: a cluster does not answer.
    """
    flow, back = stage.flow.name, stage.reverse.name
    source, target = stage.flow.source, stage.flow.target
    held = f"group offsets, configs and ACLs of {flow} and {back} are held"
    per_step = {
        "hold": StepChanges(
            changes=(_state(held), *_registry(stage, source, stage.planned))
        ),
        "fence": _fence(stage),
        "consumers": StepChanges(changes=(*_hooks(stage, hooks.STOP_CONSUMERS),)),
        "positions": StepChanges(changes=(*_offsets(stage, found),)),
        roles.ROLE: _open(stage, found),
        "redirect": StepChanges(
            changes=(
                *_taken_back(stage.source_or_none, stage, rights.name),
                *_registry(stage, target),
                *_hooks(stage, hooks.REDIRECT_PRODUCERS, hooks.START_CONSUMERS),
            )
        ),
    }
    if not stage.planned:
        text = f"{flow} is stopped, and what it has open on {target} is aborted"
        per_step["drain"] = StepChanges(changes=(_state(text),))
        if stage.pair.fence == "acl":
            left = _state(f"{stage.without_source}: its fence is pending")
            per_step["fence"] = StepChanges(changes=(*per_step["fence"].changes, left))
    return {step: per_step.get(step, StepChanges()) for step in roles.STEPS}


def _fence(stage: Stage) -> StepChanges:
    called = tuple(_hooks(stage, hooks.STOP_PRODUCERS))
    if not stage.planned or stage.pair.fence != "acl":
        return StepChanges(changes=called)
    topics = fence.topics_of(stage.source, stage.flow)
    known = fence.known_of(stage, stage.source, stage.flow, topics, probe=False)
    # Where that is not known, only the step finds out, as `checks` says.
    known = replace(known, everyone=bool(known.everyone))
    plan = fences.plan_fence(known, topics, pair=stage.pair.name)
    return StepChanges(changes=(*called, *_acls(stage.source, plan)))


def _open(stage: Stage, found: GroupPlaces) -> StepChanges:
    warnings: tuple[str, ...] = ()
    granted: tuple[Change, ...] = ()
    if stage.pair.fence == "acl":
        try:
            plan = opening.rights_plan(stage, found.places)
            granted = (
                *_taken_back(stage.target, stage, fences.fence_name),
                *_acls(stage.target, plan),
            )
        except MirrorError:
            if stage.planned:
                raise
            # As in the step: without rights some producers wait. `checks` says why.
    starts = opening.starts_back(stage)
    if starts and not stage.planned:
        text = f"{stage.reverse.name} begins as shown if it has never run; else it goes"
        text += f" on where it stopped, which only {stage.flow.source} knows"
        warnings = (*warnings, text)
    return StepChanges(
        changes=(
            *granted,
            *(
                {
                    "change": FLOW_START,
                    "flow": stage.reverse.name,
                    "topic": topic,
                    "partition": number,
                    "from": before,
                    "to": after,
                }
                for (topic, number), (before, after) in sorted(starts.items())
            ),
            _state(
                f"{stage.flow.target} is active: {stage.reverse.name} copies, "
                f"{stage.flow.name} {'goes on' if stage.pair.both_ways else 'rests'}"
            ),
            *(
                _state(
                    f"{stage.flow.target}->{alias} goes on for "
                    f"{stage.flow.source}->{alias}, which rests"
                )
                for alias in stage.pair.feeds
            ),
        ),
        warnings=warnings,
    )


def _offsets(stage: Stage, found: GroupPlaces) -> Iterator[Change]:
    """Also those that are set already: they say where the group goes on."""
    there = group_offsets.fetch(stage.target, found.places).groups
    again = _again(stage, found)
    for group, places in sorted(found.places.items()):
        for (topic, number), place in sorted(places.items()):
            now = there.get(group, {}).get((topic, number))
            yield {
                "change": GROUP_OFFSET,
                "cluster": stage.flow.target,
                "group": group,
                "read": place.came_from,
                "topic": topic,
                "partition": number,
                "from": None if now is None else now.offset,
                "to": place.offset if place.offset >= 0 else None,
                "exactness": str(place.exactness),
                "again": again.get((group, topic, number)),
            }


def _again(stage: Stage, found: GroupPlaces) -> dict[tuple[str, str, int], int]:
    """How many records each group reads again, by its place; one that is not known is
    missing. A failover's report has what its groups may read again.
    """
    if not stage.planned:
        return {}
    ends = (stage.flow.name, stage.reverse.name)
    writers = Merging(stage.config.enabled_flows, pair=ends)
    counts: dict[tuple[str, str, int], int] = {}
    moves: dict[tuple[str, str, int], OffsetMove] = {}
    backs = set()
    for group, places in found.places.items():
        for (topic, number), place in places.items():
            move = place.along
            if move is None or writers.is_alone(stage.flow, move.topic):
                if place.exactness in _NONE_AGAIN:
                    counts[group, topic, number] = 0
            elif place.offset >= 0:
                moves[group, topic, number] = OffsetMove(
                    *(group, move.topic, number, move.upstream),
                    *(topic, place.offset),
                )
                backs.add(writers.back(stage.flow, move.topic) is not None)
    if moves:
        back = stage.reverse if True in backs else None
        found_of = predict_repeats(
            stage.flow, back, stage.source, stage.target, [*moves.values()]
        )
        counts |= {key: found_of[move] for key, move in moves.items()}
    return counts


def _acls(cluster: Cluster, plan: AclPlan) -> Iterator[Change]:
    """What is missing of the plan."""
    present = acls.describe_all(cluster)
    wanted = [("add", acl) for acl in plan.adds if acl not in present]
    unwanted = [("remove", acl) for acl in plan.removes if acl in present]
    for action, acl in (*wanted, *unwanted):
        yield {
            "change": ACL,
            "cluster": cluster.alias,
            "action": action,
            "principal": acl.principal,
            "operation": acl.operation,
            "permission": acl.permission,
            "kind": acl.kind,
            "name": acl.name,
            "pattern": acl.pattern,
            "host": acl.host,
        }


def _taken_back(
    cluster: Cluster | None, stage: Stage, by: Callable[[str], str]
) -> Iterator[Change]:
    """What an earlier switch changed there, and this one takes back."""
    if cluster is not None and stage.pair.fence == "acl":
        yield from _acls(cluster, fences.lifting_of(cluster, by(stage.pair.name)))


def _hooks(stage: Stage, *names: str) -> Iterator[Change]:
    for name in names:
        if called := hooks.shown(stage, name):
            yield {"change": HOOK, "hook": name, **called}


def _registry(stage: Stage, alias: str, closes: bool | None = None) -> list[Change]:
    if closes is False or not schemas.move(stage):
        return []
    word = "takes no new schemas" if closes else "is opened to applications"
    return [_state(f"the registry of {alias} {word}")]


def _state(text: str) -> Change:
    return {"change": STATE, "text": text}


# ---- how many records groups read again after they move, before they do ----
#
# Main function: `predict_repeats`, one pass over the map of the flow there, and one
# over that of the flow back. Answers come from `joint_map`; this counts what the
# group has read on its side and stands at its answer or behind it on the other one.


class OffsetMove(NamedTuple):
    """A group's offset in one partition, and where it goes on."""

    group: str
    topic: str
    """On its side."""
    partition: int
    offset: int
    copy: str
    """The topic on the other side."""
    answer: int


def predict_repeats(
    flow: FlowConfig,
    back: FlowConfig | None,
    source: Cluster,
    target: Cluster,
    moves: Sequence[OffsetMove],
) -> dict[OffsetMove, int]:
    """For each move along `flow` the number of records that come again: exactly so
    many, unless compaction has removed some of them, or records were copied twice. What
    the group has read and is not copied yet comes on top. `back`: the flow that copies
    the copies back, if there is one.

    Raises:
        ClusterError: a cluster does not answer.
    """
    found = dict.fromkeys(moves, 0)
    by_topic: dict[TopicPartition, list[OffsetMove]] = defaultdict(list)
    by_copy: dict[TopicPartition, list[OffsetMove]] = defaultdict(list)
    for move in moves:
        by_topic[move.topic, move.partition].append(move)
        by_copy[move.copy, move.partition].append(move)
    _add(found, by_topic, _blocks(flow, target, by_topic), DOWNSTREAM, again)
    if back is not None:
        _add(found, by_copy, _blocks(back, source, by_copy), UPSTREAM, again_born)
    return found


def _add(
    found: dict[OffsetMove, int],
    by_key: dict[TopicPartition, list[OffsetMove]],
    blocks: Iterator[Block],
    column: int,
    count: Callable[..., int],
) -> None:
    """`column` is that of the log in which the groups go on."""
    least = {key: min(move.answer for move in of) for key, of in by_key.items()}
    for block in blocks:
        key = (block.topic, block.partition)
        if key in least and _end(block.runs, column) > least[key]:
            for move in by_key[key]:
                found[move] += count(block.runs, read=move.offset, answer=move.answer)


def _end(found: RunArray, column: int) -> int:
    return int((found[:, column] + found[:, COUNT]).max())


def _blocks(
    flow: FlowConfig, cluster: Cluster, wanted: dict[TopicPartition, list[OffsetMove]]
) -> Iterator[Block]:
    """What the flow's map says of these source partitions and the present copies."""
    name = runs.topic_name(flow.source, flow.separator)
    if cluster.topics([name])[name].error == codes.UNKNOWN_TOPIC_OR_PARTITION:
        return
    only = {topic for topic, _ in wanted}.__contains__
    there = {}
    for _, late, value in TopicReader(cluster, name).read():
        for part in filter(None, (value, late)):
            for block in runs.decode(part, only=only):
                copy = block.target_topic
                if copy not in there:
                    there[copy] = cluster.topics([copy])[copy].topic_id
                if same_topic(there[copy], block.copy_id):
                    yield block
