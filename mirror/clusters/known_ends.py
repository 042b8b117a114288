"""How transactions of one producer identity ended, as far as its owner knows.

Main type: `KnownEnds`. It holds what a coordinator said about an earlier owner's last
transaction, and the epochs in which this owner committed. `hanging` needs it to end a
transaction in partitions that missed its marker.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from mirror.clusters import codes

_REMEMBERED = 64

COMMITTED = {
    "PrepareCommit": True,
    "CompleteCommit": True,
    "PrepareAbort": False,
    "PrepareEpochFence": False,
    "CompleteAbort": False,
}
"""Whether the last transaction committed, by state; other states do not tell."""


class KnownEnds:
    """By producer id and epoch."""

    def __init__(self) -> None:
        self._shown: dict[tuple[int, int], bool] = {}
        self._committed: deque[tuple[int, range]] = deque(maxlen=_REMEMBERED)

    @property
    def ids(self) -> set[int]:
        """The producer ids of which something is known."""
        return {pid for pid, _ in (*self._shown, *self._committed)}

    def was_committed(self, producer_id: int, epoch: int) -> bool | None:
        """Whether the transaction with this epoch was committed; None if unknown."""
        known = self._shown.get((producer_id, epoch))
        if known is None and any(
            pid == producer_id and epoch in epochs for pid, epochs in self._committed
        ):
            return True
        return known

    def add_committed(self, producer_id: int, epochs: range) -> None:
        """Every transaction with one of these epochs was."""
        self._committed.append((producer_id, epochs))

    def learn(self, shown: Any, *, v2: bool) -> None:
        """From how a coordinator describes the transactional id. A v2 transaction
        raises the epoch when it ends. Committed v1 transactions share one epoch;
        aborting the last one raises it. Only that one can be open anywhere, since no id
        is used again before (`relay.endings`).
        """
        committed = COMMITTED.get(shown.transaction_state)
        if shown.error_code != codes.NONE or committed is None:
            return
        raised = v2 or not committed
        self._shown[shown.producer_id, shown.producer_epoch - raised] = committed
