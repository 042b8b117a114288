"""The search for a key, where the cluster does not say all."""

from __future__ import annotations

from typing import Any
import uuid

import pytest

from mirror.clusters.admin import topic_admin
from mirror.clusters.topics import Leader, Topic
from mirror.errors import NoLeaderError
from mirror.proofs.hops import find_by_key

pytestmark = pytest.mark.unit

TOPIC = Topic(
    name="t", topic_id=uuid.UUID(int=1), error=0, replication_factor=1,
    leaders={0: Leader(node=1, epoch=1), 1: Leader(node=-1, epoch=1)},
)  # fmt: skip


@pytest.mark.parametrize("silent_about", ["starts", "ends"])
def test_a_partition_without_a_leader(
    monkeypatch: pytest.MonkeyPatch, silent_about: str
) -> None:
    """It may have the key, so there is no answer; one without records that are so new
    has not, and is passed over.
    """
    known: dict[tuple[str, int], int] = {("t", 0): -1}

    def listed(_: Any, __: Any, *, timestamp: int) -> dict[tuple[str, int], int]:
        is_end = timestamp == topic_admin.LATEST
        silent = is_end == (silent_about == "ends")
        return known if silent else {("t", 0): -1, ("t", 1): -1}

    monkeypatch.setattr(topic_admin, "list_offsets", listed)
    cluster: Any = type("C", (), {"alias": "A"})()

    def tell(_: str) -> None:
        pass

    with pytest.raises(NoLeaderError, match="no leader answers for t-1"):
        find_by_key(cluster, TOPIC, b"k", 5, tell)
    known["t", 1] = -1
    assert find_by_key(cluster, TOPIC, b"k", 5, tell) is None
