"""What keeps a transaction from ending, in words for a reason.

Functions: `where`, of a state that a coordinator shows, and `hint`, of its refusal. A
coordinator that has decided on a transaction answers "wait" until every partition has
its marker, and names the partitions that lack it. Markers, and what it writes to its
own log, are acknowledged by all replicas in sync, which may be too few.
"""

from __future__ import annotations

from typing import Any

from mirror.clusters import codes

_ENDING = frozenset({"PrepareCommit", "PrepareAbort"})
_MOST = 3
_LOOK = "look for leaders, and for replicas in sync below min.insync.replicas"


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
        f"{_LOOK}"
    )


def hint(error: int, shown: str) -> str:
    """What to look at after a coordinator's refusal; empty if that says it all.
    `shown`: what `where` said.
    """
    if error == codes.CONCURRENT_TRANSACTIONS:
        return shown
    if error == codes.COORDINATOR_NOT_AVAILABLE:
        return f", whose coordinator cannot serve it: in __transaction_state, {_LOOK}"
    return ""
