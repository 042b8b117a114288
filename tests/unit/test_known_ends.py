"""What is known of how transactions ended, and why one does not end."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

from kafka.protocol.admin import DescribeTransactionsResponse
import pytest

from mirror.clusters import codes, unended
from mirror.clusters.transactions import KnownEnds

pytestmark = pytest.mark.unit

EPOCHS = 32_767
"""Epochs of one producer id; then brokers give another one."""


def shown(state: str, pid: int, epoch: int) -> SimpleNamespace:
    return SimpleNamespace(
        transaction_state=state, error_code=0, producer_id=pid, producer_epoch=epoch
    )


class Owner:
    """A slot's id that takes over again once a minute, as one with a partition that
    stays FAULTED does, after two commits; every third time with a transaction open.
    """

    def __init__(self) -> None:
        self.known = KnownEnds()
        self.ended: dict[tuple[int, int], bool] = {}
        """Every transaction of the present id."""
        self.former: list[int] = []
        self._id, self._epoch, self._first = 100, 0, 0

    def a_minute(self, number: int) -> None:
        for _ in range(2):
            self.ended[self._id, self._epoch] = True
            self._raise()
        state = "CompleteCommit"
        if number % 3 == 0:
            self.ended[self._id, self._epoch] = False
            self._raise()
            state = "CompleteAbort"
        self.known.learn(shown(state, self._id, self._epoch), v2=True)
        # A take-over raises the epoch as well.
        committed = self._epoch - (number % 3 == 0)
        self.known.add_committed(self._id, range(self._first, committed))
        self._raise()
        self._first = self._epoch

    def _raise(self) -> None:
        self._epoch += 1
        if self._epoch > EPOCHS - 10:
            self.known.add_committed(self._id, range(self._first, self._epoch))
            self.former.append(self._id)
            self._id, self._epoch, self._first = self._id + 1, 0, 0
            self.ended.clear()


def test_a_month_of_take_overs_is_remembered_in_constant_memory() -> None:
    """After 30 days of a take-over each minute the memory is what it was after two, and
    every transaction of the present id is known, and every id.
    """
    owner = Owner()
    tracemalloc.start()
    try:
        for minute in range(2 * 1440):
            owner.a_minute(minute)
        owner.ended.clear()
        after_two = tracemalloc.get_traced_memory()[0]
        for minute in range(2 * 1440, 30 * 1440):
            owner.a_minute(minute)
        wrong = {
            of: ended
            for of, ended in owner.ended.items()
            if owner.known.was_committed(*of) is not ended
        }
        ended, owner.ended = owner.ended, {}
        count = len(ended)
        del ended
        grown = tracemalloc.get_traced_memory()[0] - after_two
    finally:
        tracemalloc.stop()
    assert count > 1_000
    assert not wrong
    assert len(owner.former) > 3
    assert owner.known.ids >= set(owner.former)
    assert grown < 100_000


def test_ids_of_years_do_not_pile_up() -> None:
    """Of two thousand ids the newest are known."""
    known = KnownEnds()
    for pid in range(2_000):
        known.add_committed(pid, range(EPOCHS))
    assert len(known.ids) <= 1_000
    assert known.ids >= set(range(1_500, 2_000))


@pytest.mark.parametrize(
    ("state", "v2", "of", "committed"),
    [
        ("CompleteCommit", True, 6, True),
        ("PrepareCommit", True, 6, True),
        ("CompleteAbort", True, 6, False),
        ("PrepareEpochFence", True, 6, False),
        ("CompleteCommit", False, 7, True),
        ("PrepareAbort", False, 6, False),
        ("Ongoing", True, 6, None),
        ("Empty", True, 6, None),
    ],
)
def test_which_epoch_a_coordinator_speaks_of(
    state: str, v2: bool, of: int, committed: bool | None
) -> None:
    """The end of a v2 transaction raises the epoch, and so does the abort of a v1."""
    known = KnownEnds()
    known.learn(shown(state, 3, 7), v2=v2)
    assert known.was_committed(3, of) is committed
    assert known.was_committed(3, 13 - of) is None
    assert known.was_committed(4, of) is None


def test_the_last_of_several_v1_transactions_of_an_epoch_counts() -> None:
    """Committed v1 transactions share one epoch; only the last can be open anywhere."""
    known = KnownEnds()
    known.learn(shown("CompleteCommit", 3, 7), v2=False)
    known.learn(shown("CompleteAbort", 3, 8), v2=False)
    assert known.was_committed(3, 7) is False


_State = DescribeTransactionsResponse.TransactionState


@pytest.mark.parametrize(
    ("state", "numbers", "said"),
    [
        ("PrepareAbort", [0, 1], "cannot end in copy-0, copy-1: look"),
        ("PrepareCommit", [0, 1, 2, 3, 4], "copy-0, copy-1, copy-2 and 2 more: look"),
        ("PrepareCommit", [], ""),
        ("Ongoing", [0], ""),
    ],
)
def test_where_it_does_not_end(state: str, numbers: list[int], said: str) -> None:
    """Only a transaction that is ending waits, for the partitions that it still has;
    the first ones are named, the others counted.
    """
    topics = [_State.TopicData(topic="copy", partitions=numbers)] if numbers else []
    shown = _State(transaction_state=state, topics=topics)
    assert said in unended.where(shown)
    assert bool(unended.where(shown)) == bool(said)


def test_what_a_refusal_means() -> None:
    """A coordinator without its log names that; one that waits says for what; other
    refusals say all there is.
    """
    assert "in __transaction_state" in unended.hint(codes.COORDINATOR_NOT_AVAILABLE, "")
    assert unended.hint(codes.CONCURRENT_TRANSACTIONS, ", which") == ", which"
    assert unended.hint(codes.NOT_COORDINATOR, ", which") == ""
