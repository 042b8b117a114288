"""The group offsets that the service would set on the target now.

Main function: `group_moves`. It takes the same steps as the service's job: it reads the
groups' offsets on the source, translates them with the current offset map, and keeps
those that are ahead of idle groups' offsets on the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.offsets import checkpoints, group_sync
from mirror.offsets.group_survey import copies, known_of
from mirror.offsets.groups import look
from mirror.offsets.joint_map import JointMap
from mirror.offsets.merged_groups import MergedGroups, problems
from mirror.offsets.mm2_records import checkpoints_topic
from mirror.offsets.runs import topic_name
from mirror.policy.selection import GroupFilter

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.metadata.merging import Merging


_GROUPS = "__consumer_offsets"
NOWHERE = CommittedOffset(-1)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GroupMove:
    """One offset of one group."""

    cluster: str
    flow: str
    group: str
    topic: str
    partition: int
    now: int
    """-1: none."""
    then: int


def group_moves(
    flow: FlowConfig, merging: Merging, source: Cluster, target: Cluster
) -> tuple[list[GroupMove], list[str]]:
    """The offsets, and notes about them.

    Raises:
        ClusterError: a cluster does not answer.
    """
    topic = topic_name(flow.source, flow.separator)
    if target.topic(topic) is None:
        return [], [f"flow {flow.name}: group offsets follow once records are copied"]
    copied = copies(flow, source, merging)
    joint = JointMap(flow, known_of(flow, target), source, target, patient=True)
    joint.refresh(copied)
    standing = look(
        source,
        GroupFilter(include=flow.groups, exclude=flow.groups_exclude),
        copied,
        joint,
    )
    before = checkpoints.read(
        target, checkpoints_topic(flow.source, flow.mm2_separator)
    )
    _, known = checkpoints.decide(before, standing)
    settable = MergedGroups(target, cautious=False).settable(
        known, standing, copied, joint
    )
    wanted = settable.known
    # Brokers create the topic for groups when they are first asked for one.
    if target.topics([_GROUPS])[_GROUPS].error == codes.UNKNOWN_TOPIC_OR_PARTITION:
        steps = group_sync.first_steps(wanted)
    else:
        steps = group_sync.look(target, {g: p for g, p in wanted.items() if p})
    moves = [
        GroupMove(
            cluster=flow.target,
            flow=flow.name,
            group=group,
            topic=name,
            partition=partition,
            now=steps.present[group].get((name, partition), NOWHERE).offset,
            then=committed.offset,
        )
        for group, each in steps.wanted.items()
        for (name, partition), committed in each.items()
    ]
    notes = [
        f"flow {flow.name}: group {group} has members on {flow.target}: mirror leaves "
        "its offsets there alone"
        for group in sorted(steps.active)
    ]
    notes += [f"flow {flow.name}: {each}" for each in problems(settable.refused)]
    return moves, notes
