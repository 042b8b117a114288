"""Groups of a cluster: their names, kinds, states and members.

Main type: `Group`. `list_groups` asks every broker, since each knows only the groups
that it coordinates; `members` describes some of them. For their offsets see
`group_offsets`. Callers decide which groups matter.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import StrEnum
import struct
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.api_message import ApiMessage

from mirror.clusters import codes
from mirror.clusters.cluster import in_parts
from mirror.retry import patiently

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirror.clusters.cluster import Cluster

_GROUPS_AT_ONCE = 200


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__package__):
    """From Kafka's own schema, in the file of this name: kafka-python has none."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__package__):
    """Its response; kafka-python finds it by its API key."""


class GroupKind(StrEnum):
    """The protocol by which a group's members work together."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    """KIP-848: the broker assigns partitions."""
    STREAMS = "streams"
    SHARE = "share"
    """KIP-932: records are delivered one by one; see `share_groups`."""
    UNKNOWN = "unknown"


EMPTY = "EMPTY"
DEAD = "DEAD"
ABSENT = ""
"""The state of a group that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group, as its coordinator lists it."""

    group: str
    kind: GroupKind
    state: str
    """In capitals, such as STABLE or EMPTY."""

    @property
    def idle(self) -> bool:
        """Whether it has no members, so that its offsets may be set from outside."""
        return self.state in (EMPTY, DEAD, ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One consumer of a group."""

    member_id: str
    client_id: str
    host: str
    assignment: bytes = b""
    """What the group's leader assigned to it; classic groups only."""
    topics: frozenset[str] = frozenset()
    """What it reads now, of classic groups of consumers and of the newer ones."""


def list_groups(cluster: Cluster) -> dict[str, Group]:
    """Every group that we may see, by name.

    Raises:
        ClusterError: a broker does not answer, so some groups would be missing.
    """
    cluster.refresh()
    pending = {
        node: cluster.connection(node).send(ListGroupsRequest(states_filter=[],
                                                              types_filter=[]))
        for node in cluster.nodes
    }  # fmt: skip
    found: dict[str, Group] = {}
    for node, each in pending.items():
        answer = each.result()
        if answer.error_code != codes.NONE:
            what = f"cluster {cluster.alias}: listing groups"
            raise codes.error_for(answer.error_code, what)
        stateless = [g.group_id for g in answer.groups if not g.group_state]
        states = _states(cluster, node, stateless)
        for listed in answer.groups:
            state = listed.group_state or states.get(listed.group_id)
            # While a coordinator moves, two brokers may list a group.
            if listed.group_id not in found or state not in (None, "Dead"):
                found[listed.group_id] = Group(
                    group=listed.group_id,
                    kind=_kind(listed.group_type),
                    state=_state(state),
                )
    return found


def members(cluster: Cluster, groups: Iterable[Group]) -> dict[str, tuple[Member, ...]]:
    """The members of each group; a group that is gone has none.

    Raises:
        ClusterError: a coordinator does not answer, or refuses.
    """
    by_request: dict[Any, list[str]] = {}
    for group in groups:
        is_consumer = group.kind is GroupKind.CONSUMER
        asked = ConsumerGroupDescribeRequest if is_consumer else DescribeGroupsRequest
        by_request.setdefault(asked, []).append(group.group)

    def ask() -> dict[str, tuple[Member, ...]]:
        found: dict[str, tuple[Member, ...]] = {}
        for request, names in by_request.items():
            for node, part in by_coordinator(cluster, names):
                found.update(_describe(cluster, node, request, part))
        return found

    return patiently(ask)  # a coordinator may be moving, or new on an empty cluster


def by_coordinator(
    cluster: Cluster, groups: Iterable[str]
) -> list[tuple[int, list[str]]]:
    """Groups by coordinator, in parts that fit into one request."""
    by_node: dict[int, list[str]] = {}
    for group, node in cluster.group_coordinators(groups).items():
        by_node.setdefault(node, []).append(group)
    return [
        (node, part)
        for node, names in by_node.items()
        for part in in_parts(names, _GROUPS_AT_ONCE)
    ]


def _kind(listed: str | None) -> GroupKind:
    if not listed:  # brokers before 3.7 know no others
        return GroupKind.CLASSIC
    try:
        return GroupKind(listed.lower())
    except ValueError:
        return GroupKind.UNKNOWN


def _states(cluster: Cluster, node: int, names: Sequence[str]) -> dict[str, str]:
    """Of groups of a broker before 2.6, which lists them without their states."""
    found = {}
    for part in in_parts(names, _GROUPS_AT_ONCE):
        request = DescribeGroupsRequest(part, False)
        for each in cluster.call(request, node=node).groups:
            if each.error_code == codes.NONE:
                found[each.group_id] = each.group_state
    return found


def _state(listed: str | None) -> str:
    """`PreparingRebalance` as PREPARING_REBALANCE; None: no broker tells."""
    text = "".join(f"_{c}" if c.isupper() else c for c in listed or "Unknown")
    return text.lstrip("_").upper()


def _describe(
    cluster: Cluster, node: int, request: Any, names: list[str]
) -> dict[str, tuple[Member, ...]]:
    # The two requests differ only in the name of their first field.
    found = {}
    for described in cluster.call(request(names, False), node=node).groups:
        _check(cluster, described.error_code, described.group_id)
        found[described.group_id] = tuple(
            Member(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host.removeprefix("/"),
                assignment=bytes(getattr(member, "member_assignment", None) or b""),
                topics=frozenset(_topics(member)),
            )
            for member in described.members
        )
    return found


def _topics(member: Any) -> Iterator[str]:
    """Those of its assignment. Source: ConsumerProtocolAssignment, of which all
    versions begin alike: version INT16, then for each topic its name, STRING, and an
    array of partitions, INT32. Members of other kinds say something else there.
    """
    if (given := getattr(member, "assignment", None)) is not None:
        yield from (each.topic_name for each in given.topic_partitions)
        return
    told = bytes(member.member_assignment or b"")
    at = 6
    with contextlib.suppress(struct.error, UnicodeDecodeError):
        for _ in range(struct.unpack_from(">i", told, 2)[0]):
            (size,) = struct.unpack_from(">h", told, at)
            (count,) = struct.unpack_from(">i", told, at + 2 + max(size, 0))
            yield told[at + 2 : at + 2 + max(size, 0)].decode()
            at += 6 + max(size, 0) + 4 * max(count, 0)


def _check(cluster: Cluster, error: int, group: str) -> None:
    if error not in (codes.NONE, codes.GROUP_ID_NOT_FOUND):
        what = f"cluster {cluster.alias}: describing group {group}"
        raise codes.error_for(error, what)
