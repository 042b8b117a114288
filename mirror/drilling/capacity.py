"""Whether the target has the disk to take over.

Main function: `judge`, over what was seen of both clusters' disks. The target should
have room for what the source keeps of these topics now, in as many replicas as the
copies have. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.switching.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mirror.clusters.admin.disks import Disk, Replicas

_LEAST_SHARE = 0.05
"""Of a disk that should be free."""
_GB = 1e9


def judge(
    target: str,
    copies: Mapping[str, str],
    *,
    here: Mapping[str, Replicas],
    there: Mapping[str, Replicas],
    disks_here: Collection[Disk],
    disks_there: Collection[Disk],
) -> Iterator[Finding]:
    """What is missing. `copies`: by source topic; `here`: on the target, of the copies,
    and `there`: on the source, of the topics.
    """
    cluster = f"cluster {target}"
    for disk in disks_here:
        if disk.failed:
            yield Finding(
                level=Level.NOT_READY,
                subject=cluster,
                reason=f"a log directory of broker {disk.node} has failed",
                fix="replace the disk",
            )
        elif 0 <= disk.usable < _LEAST_SHARE * disk.total:
            yield Finding(
                level=Level.DEGRADED,
                subject=cluster,
                reason=f"a disk of broker {disk.node} has {_gb(disk.usable)} left of "
                f"{_gb(disk.total)}",
                fix="add disk, or shorten retention",
            )
    known = [disk for disk in disks_here if disk.usable >= 0]
    if not known or not disks_there:
        return
    growth = 0.0
    for topic, copy in copies.items():
        if topic in there and copy in here:
            factor = here[copy].least / there[topic].least
            wanted = sum(d.sizes.get(topic, 0) for d in disks_there) * factor
            had = sum(d.sizes.get(copy, 0) for d in disks_here)
            growth += max(wanted - had, 0.0)
    if growth > (usable := sum(disk.usable for disk in known)):
        yield Finding(
            level=Level.NOT_READY,
            subject=cluster,
            reason=f"the copies have {_gb(growth)} to grow until they are as large as "
            f"their topics, and {_gb(usable)} of disk are left",
            fix="add disk, or shorten retention",
        )


def _gb(size: float) -> str:
    return f"{size / _GB:,.1f} GB"
