"""Whether the target has the replicas, brokers and disk to take over.

Main function: `judge`, over what was seen of the copies and of both clusters' disks.
The target should have room for what the source keeps of these topics now, in as many
replicas as the copies have. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirror.drilling.findings import DrillFinding, FindingLevel
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirror.clusters.admin.disks import Disk, Replicas

_LEAST_SHARE = 0.05
"""Of a disk that should be free."""
_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySeen:
    """What was looked at."""

    target: str
    brokers: int
    """Of the target, that are up."""
    replication_factor: int
    """For new copies; -1: the brokers' default."""
    copies: Mapping[str, str]
    """By source topic."""
    here: Mapping[str, Replicas]
    """Of the copies."""
    there: Mapping[str, Replicas]
    """Of the topics on the source."""
    needed_in_sync: Mapping[str, int] = field(default_factory=dict)
    """`min.insync.replicas` of each copy."""
    disks_here: Collection[Disk] = ()
    disks_there: Collection[Disk] = ()


def judge(seen: CapacitySeen) -> Iterator[DrillFinding]:
    """What is missing."""
    if seen.replication_factor > seen.brokers:
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=f"cluster {seen.target}",
            reason=f"replication_factor is {seen.replication_factor}, and "
            f"{some(seen.brokers, 'broker')} are up: no copy can be created",
            cure="start the brokers, or lower replication_factor",
        )
    for topic, copy in sorted(seen.copies.items()):
        if (found := seen.here.get(copy)) is not None:
            yield from _of_copy(seen, topic, copy, found)
    yield from _disks(seen)


def _of_copy(
    seen: CapacitySeen, topic: str, copy: str, found: Replicas
) -> Iterator[DrillFinding]:
    subject = f"topic {copy}"
    if found.leaderless:
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=subject,
            reason=f"{some(found.leaderless, 'partition')} without a leader on "
            f"{seen.target}",
            cure="start the brokers that have its replicas",
        )
    elif found.out_of_sync:
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=subject,
            reason=f"{some(found.out_of_sync, 'partition')} on {seen.target} with "
            "replicas that are not in sync, or offline",
            cure="start the brokers that have them, and wait until they are in sync",
        )
    if found.least < (needed := seen.needed_in_sync.get(copy, 1)):
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=subject,
            reason=f"min.insync.replicas is {needed}, and it has "
            f"{some(found.least, 'replica')}: producers with acks=all are refused",
            cure="add replicas, or lower min.insync.replicas of the copy",
            command="kafka-reassign-partitions.sh",
        )
    model = seen.there.get(topic)
    if model is not None and found.least < min(model.least, seen.brokers):
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=subject,
            reason=f"{some(found.least, 'replica')} on {seen.target}, {model.least} on "
            "the source",
            cure="add replicas",
            command="kafka-reassign-partitions.sh",
        )


def _disks(seen: CapacitySeen) -> Iterator[DrillFinding]:
    cluster = f"cluster {seen.target}"
    for disk in seen.disks_here:
        if disk.failed:
            yield DrillFinding(
                level=FindingLevel.NOT_READY,
                subject=cluster,
                reason=f"a log directory of broker {disk.node} has failed",
                cure="replace the disk",
            )
        elif 0 <= disk.usable < _LEAST_SHARE * disk.total:
            yield DrillFinding(
                level=FindingLevel.DEGRADED,
                subject=cluster,
                reason=f"a disk of broker {disk.node} has {_gb(disk.usable)} left of "
                f"{_gb(disk.total)}",
                cure="add disk, or shorten retention",
            )
    known = [disk for disk in seen.disks_here if disk.usable >= 0]
    if not known or not seen.disks_there:
        return
    growth = 0.0
    for topic, copy in seen.copies.items():
        if topic in seen.there and copy in seen.here:
            factor = seen.here[copy].least / seen.there[topic].least
            wanted = sum(d.sizes.get(topic, 0) for d in seen.disks_there) * factor
            had = sum(d.sizes.get(copy, 0) for d in seen.disks_here)
            growth += max(wanted - had, 0.0)
    if growth > (usable := sum(disk.usable for disk in known)):
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=cluster,
            reason=f"the copies have {_gb(growth)} to grow until they are as large as "
            f"their topics, and {_gb(usable)} of disk are left",
            cure="add disk, or shorten retention",
        )


def _gb(size: float) -> str:
    return f"{size / _GB:,.1f} GB"
