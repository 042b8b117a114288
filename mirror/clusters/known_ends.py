"""How transactions of one transactional id ended, as far as its owner knows.

Main type: `KnownEnds`. It holds what a coordinator said about an earlier owner's last
transaction, and the epochs in which this owner committed. `hanging` needs it to end a
transaction in partitions that missed its marker, which may be unreachable for weeks.
"""

from __future__ import annotations

from typing import Any

from mirror.clusters import codes

_MOST_IDS = 1_000
"""A producer id lasts for 32,767 transactions: at ten a second, these are 38 days."""

COMMITTED = {
    "PrepareCommit": True,
    "CompleteCommit": True,
    "PrepareAbort": False,
    "PrepareEpochFence": False,
    "CompleteAbort": False,
}
"""Whether the last transaction committed, by state; other states do not tell."""
_MEANS = (None, True, False)
"""What a byte of an epoch says."""


class KnownEnds:
    """By producer id and epoch. It holds all epochs of the last two ids, a byte each:
    the owner can end transactions of its present one alone (`hanging`), and only needs
    to recognize the earlier ones as its own.
    """

    def __init__(self) -> None:
        self._ends: dict[int, bytearray] = {}

    @property
    def ids(self) -> set[int]:
        """The producer ids of which something is known."""
        return set(self._ends)

    def was_committed(self, producer_id: int, epoch: int) -> bool | None:
        """Whether the transaction with this epoch was committed; None if unknown."""
        ends = self._ends.get(producer_id, b"")
        return _MEANS[ends[epoch]] if 0 <= epoch < len(ends) else None

    def add_committed(self, producer_id: int, epochs: range) -> None:
        """Every transaction with one of these epochs was."""
        self._add(producer_id, epochs, committed=True)

    def learn(self, shown: Any, *, v2: bool) -> None:
        """From how a coordinator describes the transactional id. A v2 transaction
        raises the epoch when it ends. Committed v1 transactions share one epoch;
        aborting the last one raises it. Only that one can be open anywhere, since no id
        is used again before (`relay.endings`).
        """
        committed = COMMITTED.get(shown.transaction_state)
        if shown.error_code != codes.NONE or committed is None:
            return
        epoch = shown.producer_epoch - (v2 or not committed)
        self._add(
            shown.producer_id, range(max(0, epoch), epoch + 1), committed=committed
        )

    def _add(self, producer_id: int, epochs: range, *, committed: bool) -> None:
        if producer_id not in self._ends:
            for former in list(self._ends)[:-1]:
                self._ends[former] = bytearray()
            for oldest in list(self._ends)[: 1 - _MOST_IDS]:
                del self._ends[oldest]
        ends = self._ends.setdefault(producer_id, bytearray())
        if epochs:
            ends.extend(bytes(max(0, epochs.stop - len(ends))))
            ends[epochs.start : epochs.stop] = bytes(
                [_MEANS.index(committed)] * len(epochs)
            )
