"""Groups that read a copy while it is rebuilt: where they go on, there and back.

`committed` finds them, `kept` translates their offsets to the source, before the copy
is deleted, and `put_back` on the new copy. A group with members is never moved: its
members would go on where they were in the copy that is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.clusters import codes
from mirror.clusters.admin import allowed, group_offsets, groups
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.clusters.admin.groups import GroupKind
from mirror.errors import BrokerError, MirrorError
from mirror.pairs.control import KeptGroup
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.offsets.offset_map import OffsetMap

_MOST_NAMED = 10

Places = dict[str, dict[int, CommittedOffset]]
"""By group and partition: what it has committed in the copy."""


def committed(target: Cluster, copy: str) -> Places:
    """What groups have committed in a copy.

    Raises:
        MirrorError: a group that reads it has members, or it is not sure where a
            group goes on; all such groups are named.
        ClusterError: the target does not answer.
    """
    listed = {
        name: group
        for name, group in groups.list_groups(target).items()
        if group.kind is not GroupKind.SHARE
    }
    read = group_offsets.fetch(target, listed, require_stable=True)
    found: Places = {}
    for name, offsets in read.groups.items():
        if here := {key[1]: at for key, at in offsets.items() if key[0] == copy}:
            found[name] = here
    if read.refused:
        told = (f"{name}: {why}" for name, why in sorted(read.refused.items()))
        raise MirrorError(
            f"cluster {target.alias}: it is not known where groups go on: {_some(told)}"
        )
    open_ends = {name for name, topic, _ in read.unstable if topic == copy}
    active = [group for group in listed.values() if not group.idle]
    reading = {group.group for group in active if group.group in found} | {
        name
        for name, members in groups.members(target, active).items()
        if any(copy in member.topics for member in members)
    }
    if reading:
        raise MirrorError(
            f"cluster {target.alias}: groups that read {copy} have members: "
            f"{_some(sorted(reading))}: stop them first"
        )
    if open_ends:
        raise MirrorError(
            f"cluster {target.alias}: groups commit offsets in {copy} in transactions "
            f"that are open: {_some(sorted(open_ends))}: stop what they belong to first"
        )
    return found


def hidden(target: Cluster) -> bool:
    """Whether there may be groups that the cluster does not show us.

    Raises:
        ClusterError: the cluster does not answer.
    """
    rights = allowed.of_cluster(target)
    return rights is not None and "DESCRIBE" not in rights


def kept(
    places: Places, topic: str, rebuild_id: str, known: OffsetMap
) -> Iterator[KeptGroup]:
    """Where these groups go on, on the source.

    Raises:
        ClusterError: the target does not answer.
    """
    for group, offsets in places.items():
        back = {
            number: (known.reverse(topic, number, at.offset).offset, at.metadata)
            for number, at in offsets.items()
        }
        yield KeptGroup(topic=topic, group=group, id=rebuild_id, offsets=back)


def put_back(
    target: Cluster, group: KeptGroup, copy: str, known: OffsetMap | None
) -> Mapping[int, int]:
    """Commit a group's offsets in the new copy; returns them. Without `known`, it is
    the copy of another topic by now: the group begins at its first record.

    Raises:
        MirrorError: the group has members, or the target refuses.
        ClusterError: the target does not answer.
    """
    there: dict[int, int] = {}
    for number, (offset, _) in group.offsets.items():
        there[number] = 0
        if known is not None and offset >= 0:
            answer = known.translate(group.topic, number, offset)
            there[number] = max(answer.offset, 0)
    wanted = {
        group.group: {
            (copy, number): CommittedOffset(offset, group.offsets[number][1])
            for number, offset in there.items()
        }
    }

    def commit() -> None:
        for refused in group_offsets.commit(target, wanted).values():
            for (topic, number), code in refused.items():
                if code in codes.GROUP_IS_ACTIVE:
                    raise MirrorError(
                        f"cluster {target.alias}: group {group.group} has members: "
                        "stop them"
                    )
                raise BrokerError(
                    name=codes.name_of(code),
                    what=f"cluster {target.alias}: setting the offset of group "
                    f"{group.group} in {topic}-{number}",
                    retriable=codes.is_retriable(code),
                )

    patiently(commit)
    return there


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _MOST_NAMED
    shown = ", ".join(listed[:_MOST_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown
