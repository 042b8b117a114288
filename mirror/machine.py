"""What this process may use of the machine: its cores, also inside a container.

Main function: `usable_cores`. A container's limit on CPU time is no limit on the
number of cores that it sees, so the limit is read from the control group as well; who
has two cores' worth of time shall not start a slot for each of sixty-four. It sets
no limit, and knows nothing of Spark's cores on other machines.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")


def usable_cores(groups: Path = _GROUPS) -> int:
    """Cores that the scheduler lets this process run on, and has time for."""
    if hasattr(os, "sched_getaffinity"):
        seen = len(os.sched_getaffinity(0))
    else:
        seen = os.cpu_count() or 1
    return allowed(seen, _limit(groups))


def allowed(seen: int, limit: str) -> int:
    """Of so many cores, those that a limit leaves: "QUOTA PERIOD", or none.

    Part of a core counts as one: a slot at rest does not need it.
    """
    quota, _, period = limit.strip().partition(" ")
    if not (quota.isdigit() and period.isdigit() and int(quota) and int(period)):
        return seen  # "max", -1, or nothing that limits
    return max(1, min(seen, math.ceil(int(quota) / int(period))))


def _limit(groups: Path) -> str:
    """The control group's own words: of version 2, or put together from version 1's."""
    try:
        return (groups / "cpu.max").read_text()
    except OSError:
        pass  # not version 2, or the root group, which has no limit
    try:
        first = groups / "cpu"
        quota = (first / "cpu.cfs_quota_us").read_text().strip()
        return f"{quota} {(first / 'cpu.cfs_period_us').read_text().strip()}"
    except OSError:
        return ""
