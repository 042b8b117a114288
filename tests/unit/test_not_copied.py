"""What explains that a record has no copy: dead letters, and the loss ledger."""

from __future__ import annotations

import pytest

from mirror.pairs.losses import Cause, Loss
from mirror.proofs import survey

pytestmark = pytest.mark.unit


def told(**changes: bytes | None) -> dict[bytes, bytes | None]:
    says: dict[str, bytes | None] = {
        "cluster": b"A", "topic": b"orders", "partition": b"3", "offset": b"88121",
    }  # fmt: skip
    says |= changes
    return {f"mirror.error.{name}".encode(): value for name, value in says.items()}


def test_it_says_where_the_record_stood() -> None:
    """Cluster, topic, partition and offset, of this source alone."""
    assert survey.origin(told(), "A") == (("orders", 3), 88121)
    assert survey.origin(told(), "B") is None


@pytest.mark.parametrize(
    "forged",
    [
        {"offset": b"9" * 5000}, {"offset": b"9" * 19}, {"offset": "²".encode()},
        {"offset": None}, {"offset": b"-1"}, {"partition": b"1" * 30},
        {"partition": b""}, {"cluster": b"\xff"},
    ],
)  # fmt: skip
def test_numbers_that_are_none_of_ours(forged: dict[str, bytes | None]) -> None:
    """They become no dead letters, and are no reason to give up."""
    assert survey.origin(told(**forged), "A") is None


@pytest.mark.parametrize(
    ("cause", "of_today"),
    [
        (Cause.DELETED, True), (Cause.SKIPPED, True), (Cause.RECREATED, True),
        (Cause.TRUNCATED, False),
    ],
)  # fmt: skip
def test_a_loss_of_another_topic_or_branch(cause: Cause, of_today: bool) -> None:
    """What a deleted topic lost, or an election cut off, does not explain why a record
    of today's topic at the same offset has no copy.
    """
    loss = Loss(
        at=0.0, flow="A->B", topic="t", partition=0, target_topic="A.t", cause=cause,
        first=3, last=5, topic_id="1" * 32,
    )  # fmt: skip
    assert loss.is_of("1" * 32) is of_today
    assert not loss.is_of("2" * 32)
    assert loss.is_of("0" * 32) is of_today, "brokers without ids"
