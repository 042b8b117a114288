"""Checks whether MirrorMaker 2 is still running, and fences it.

Main functions: `look`, which reports members of its Connect group and logs that grow;
`shut_out`, which fences the producers of its exactly-once tasks, so that one that was
believed dead can no longer write. Heartbeats prove nothing: another connector writes
them, and so does mirror.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import groups, topic_admin, transactions
from mirror.clusters.admin.groups import Group, GroupKind
from mirror.errors import AuthorizationError, MirrorError, UnsupportedBrokerError
from mirror.records.reading import has_records
from mirror.status.wording import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mirror.clusters.admin.groups import Member
    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition


_WATCH_SECONDS = 3.0
_SESSION_SECONDS = 15.0
"""A killed worker stays a member for 10 s (Connect's session.timeout.ms)."""
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Signs that something still copies."""

    group: str = ""
    workers: tuple[str, ...] = ()
    """The hosts of the group's members."""
    growing: tuple[str, ...] = ()
    """Topics that grew while they were watched."""


def connect_group(source_alias: str) -> str:
    """The group of Connect workers in dedicated mode, on the target."""
    return f"{source_alias}-mm2"


def look(
    target: Cluster,
    *,
    group: str | None,
    watched: Iterable[TopicPartition],
    tell: Callable[[str], None],
) -> Activity:
    """Look for a few seconds; longer while there are members, which may be dead.

    `group`: that of the Connect workers, None if they also do other work.

    Raises:
        ClusterError: the target does not answer.
    """
    workers: tuple[str, ...] = ()
    if group is not None:
        workers = _workers(target, group)
        if workers:
            tell(
                f"group {group} has members ({', '.join(workers)}): waiting up to "
                f"{_SESSION_SECONDS:.0f} s, in case they were killed"
            )
        deadline = time.monotonic() + _SESSION_SECONDS
        while workers and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
            workers = _workers(target, group)
    if workers:
        return Activity(group=group or "", workers=workers)
    partitions = list(watched)
    before = _ends(target, partitions)
    time.sleep(_WATCH_SECONDS)
    after = _ends(target, partitions)
    growing = {
        key[0]
        for key, end in after.items()
        if end > (first := before.get(key, end))
        and has_records(target, key, first, end, committed=False)
    }
    return Activity(growing=tuple(sorted(growing)))


def require_rest(activity: Activity, *, source_alias: str) -> None:
    """Raises MirrorError if something still copies."""
    if activity.workers:
        raise MirrorError(
            f"MirrorMaker 2 is running: its group {activity.group} has members on "
            f"{', '.join(activity.workers)}; stop it first"
        )
    if activity.growing:
        raise MirrorError(
            f"something writes to {named(activity.growing)}: "
            f"stop what copies {source_alias} there; if other producers write to "
            "these topics, pass --although-written"
        )


def producers(
    target: Cluster, connector: str, group: str | None, *, tell: Callable[[str], None]
) -> tuple[str, ...]:
    """The transactional ids of a connector's tasks; none if we may not ask."""
    owner = ".+" if group is None else re.escape(group)
    try:
        return transactions.find_ids(target, rf"{owner}-{re.escape(connector)}-\d+")
    except UnsupportedBrokerError:
        tell(
            f"warning: the brokers of {target.alias}, before Kafka 3.0, do not list "
            "transactional ids, so MirrorMaker 2 is not fenced: make sure it stopped"
        )
        return ()
    except AuthorizationError:
        return ()


def shut_out(
    target: Cluster, ids: Iterable[str], *, tell: Callable[[str], None]
) -> None:
    """Fence producers, which also aborts their open transactions.

    Raises:
        ClusterError: the target does not answer.
    """
    for transactional_id in ids:
        try:
            transactions.fence(target, transactional_id)
        except AuthorizationError as error:
            tell(
                f"warning: {transactional_id} is not fenced ({error}); its open "
                "transaction times out by itself within a minute or so"
            )


def members_of(target: Cluster, group: str) -> Sequence[Member]:
    """The members of a classic group.

    Raises:
        ClusterError: the target does not answer.
    """
    # Asked by name: a list would leave out a group that we may not describe.
    asked = Group(group=group, kind=GroupKind.CLASSIC, state="")
    return groups.members(target, [asked]).get(group, ())


def _workers(target: Cluster, group: str) -> tuple[str, ...]:
    return tuple(sorted({member.host for member in members_of(target, group)}))


def _ends(
    cluster: Cluster, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    return topic_admin.list_offsets(
        cluster, partitions, timestamp=topic_admin.LATEST, committed=False
    )
