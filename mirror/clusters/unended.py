"""What keeps a transaction from ending, in words for a reason.

Main function: `where`. A coordinator that has decided on a transaction answers "wait"
until every partition has its marker, and names the partitions that lack it. Markers are
acknowledged by all replicas in sync, of which there have to be enough.
"""

from __future__ import annotations

from typing import Any

_ENDING = frozenset({"PrepareCommit", "PrepareAbort"})
_MOST = 3


def where(shown: Any) -> str:
    """Where a transaction that `DescribeTransactions` shows does not end; empty if it
    is not ending, or nothing is missing.
    """
    if shown.transaction_state not in _ENDING:
        return ""
    names = [
        f"{each.topic}-{n}" for each in shown.topics or () for n in each.partitions
    ]
    if not names:
        return ""
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return (
        f", whose last transaction cannot end in {', '.join(names[:_MOST])}{more}: "
        "look for leaders, and for replicas in sync below min.insync.replicas"
    )
