"""Sets the offsets of groups on the target to their translated ones.

Main function: `set_offsets`: only of idle groups, and only forward unless the copy that
they read is gone. It leaves groups with members on the target alone; a coordinator
would refuse to set their offsets. It reads offsets right before it sets them, for few
groups at a time, so that a group that became active meanwhile is not rewound
(KAFKA-19794). `checkpoints` says what to set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import group_offsets, groups
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.admin.groups import GroupKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.offsets.checkpoints import Checkpoint

_GROUPS_AT_ONCE = 32
"""Few, since a group may become active between reading and setting its offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSyncResult:
    """What one round did."""

    moved: Mapping[str, int] = field(default_factory=dict)
    """Groups whose offsets were set, with the number of partitions."""
    active: frozenset[str] = frozenset()
    """Groups left alone because they have members on the target."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Groups whose offsets could not be read or set, with the reason."""
    waiting: frozenset[str] = frozenset()
    """Those of them that were refused for a temporary reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSteps:
    """The groups' offsets on the target, as they are and as they should be."""

    wanted: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
    """Offsets to set, of groups that are behind."""
    present: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
    """What idle groups have now."""
    active: frozenset[str]


def set_offsets(
    target: Cluster,
    known: Mapping[str, Mapping[TopicPartition, Checkpoint]],
    withdrawn: Mapping[str, Mapping[TopicPartition, int]] = MappingProxyType({}),
) -> GroupSyncResult:
    """Move groups on the target to their translated source offsets. `withdrawn` are
    offsets of withdrawn checkpoints: groups at those go back.

    Raises:
        ClusterError: the target does not answer.
    """
    idle, active, refused = _sort(target, known)
    waiting: set[str] = set()
    moved: dict[str, int] = {}
    for first in range(0, len(idle), _GROUPS_AT_ONCE):
        read = group_offsets.fetch(target, idle[first : first + _GROUPS_AT_ONCE])
        refused.update(read.refused)
        waiting |= read.waiting
        wanted = _behind(known, read.groups, withdrawn)
        answers = group_offsets.commit(target, wanted)
        for name, steps in wanted.items():
            wrong = answers.get(name, {})
            if codes.GROUP_IS_ACTIVE & set(wrong.values()):
                active.add(name)
                continue
            if wrong:
                key, code = next(iter(wrong.items()))
                refused[name] = f"{key[0]}-{key[1]}: {codes.name_of(code)}"
            if codes.WAIT_AND_ASK_AGAIN & set(wrong.values()):
                waiting.add(name)
            if len(steps) > len(wrong):
                moved[name] = len(steps) - len(wrong)
    return GroupSyncResult(
        moved=moved,
        active=frozenset(active),
        refused=refused,
        waiting=frozenset(waiting),
    )


def steps_due(
    target: Cluster, known: Mapping[str, Mapping[TopicPartition, Checkpoint]]
) -> GroupSteps:
    """What `set_offsets` would set now.

    Raises:
        ClusterError: the target does not answer.
    """
    idle, active, _ = _sort(target, known)
    present = group_offsets.fetch(target, idle).groups
    return GroupSteps(
        wanted=_behind(known, present), present=present, active=frozenset(active)
    )


def first_steps(
    known: Mapping[str, Mapping[TopicPartition, Checkpoint]],
) -> GroupSteps:
    """The same for a target without any groups."""
    present: dict[str, dict[TopicPartition, CommittedOffset]] = {
        name: {} for name in known
    }
    return GroupSteps(
        wanted=_behind(known, present), present=present, active=frozenset()
    )


def _sort(
    target: Cluster, known: Mapping[str, Mapping[TopicPartition, Checkpoint]]
) -> tuple[list[str], set[str], dict[str, str]]:
    """Groups that are idle on the target, or not there yet; those that are active; and
    why others cannot be set.
    """
    listed = groups.list_groups(target)
    idle, active, refused = [], set(), {}
    for name in known:
        group = listed.get(name)
        shared = group_offsets.are_of_share_group(known[name])
        if group is not None and (group.kind is GroupKind.SHARE) != shared:
            side = "source" if shared else "target"
            refused[name] = f"is a share group on the {side} only"
        elif group is None or group.idle:
            idle.append(name)
        else:
            active.add(name)
    return idle, active, refused


def _behind(
    known: Mapping[str, Mapping[TopicPartition, Checkpoint]],
    present: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    withdrawn: Mapping[str, Mapping[TopicPartition, int]] = MappingProxyType({}),
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """What to set, of those groups that are behind."""
    return {
        name: steps
        for name, places in present.items()
        if (steps := forward(known[name], places, withdrawn.get(name, {})))
    }


def forward(
    wanted: Mapping[TopicPartition, Checkpoint],
    present: Mapping[TopicPartition, CommittedOffset],
    withdrawn: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets to set so that a group is nowhere behind its checkpoints, nor at
    withdrawn ones.
    """
    return {
        key: CommittedOffset(checkpoint.downstream, checkpoint.metadata)
        for key, checkpoint in wanted.items()
        if key not in present
        or present[key].offset < checkpoint.downstream
        or checkpoint.downstream < present[key].offset <= withdrawn.get(key, -1)
    }
