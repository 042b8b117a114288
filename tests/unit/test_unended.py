"""The reason that a transaction does not end, from what its coordinator shows."""

from __future__ import annotations

from kafka.protocol.admin import DescribeTransactionsResponse
import pytest

from mirror.clusters import codes, unended

pytestmark = pytest.mark.unit

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
