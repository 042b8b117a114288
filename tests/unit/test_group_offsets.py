"""Offsets of groups that are set from outside, and the requests laid out for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka.protocol.consumer import OffsetCommitRequest
import pytest

from mirror.clusters import codes
from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.group_offsets import CommittedOffset

pytestmark = pytest.mark.unit

OFFSETS = {
    "app": {("t", 0): CommittedOffset(5), ("t", 1): CommittedOffset(7)},
    "other": {("t", 0): CommittedOffset(9)},
}


class Coordinators:
    """A cluster that keeps what it is sent, and refuses some partitions, some times."""

    def __init__(self, refusals: dict[tuple[str, int], list[int]]) -> None:
        self.sent: list[tuple[str, int]] = []
        self._refusals = refusals

    def group_coordinators(self, groups: Any) -> dict[str, int]:
        return dict.fromkeys(groups, 1)

    def connection(self, _node: int) -> Coordinators:
        return self

    def send(self, group: str, offsets: Any) -> Any:
        answers = []
        for _, partition in offsets:
            self.sent.append((group, partition))
            left = self._refusals.get((group, partition), [])
            code = left.pop(0) if left else codes.NONE
            answers.append(SimpleNamespace(partition_index=partition, error_code=code))
        topic = SimpleNamespace(name="t", partitions=answers)
        return SimpleNamespace(result=lambda: SimpleNamespace(topics=[topic]))


def test_a_coordinator_that_moves_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only for what it refused, until it takes it; what a group with members refuses
    is reported at once.
    """
    monkeypatch.setattr(group_offsets, "send", Coordinators.send)
    moving = [codes.NOT_COORDINATOR, codes.NOT_COORDINATOR]
    members = 25  # UNKNOWN_MEMBER_ID
    cluster: Any = Coordinators({("app", 1): moving, ("other", 0): [members]})

    refused = group_offsets.commit(cluster, OFFSETS)

    assert refused == {"other": {("t", 0): members}}
    assert cluster.sent == [
        ("app", 0), ("app", 1), ("other", 0), ("app", 1), ("app", 1),
    ]  # fmt: skip


def test_one_that_stays_away_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some seconds, with its code."""
    monkeypatch.setattr(group_offsets, "send", Coordinators.send)
    monkeypatch.setattr(group_offsets, "_PATIENCE_SECONDS", 0.1)
    gone = codes.NOT_COORDINATOR
    cluster: Any = Coordinators({("other", 0): [gone] * 100})

    assert group_offsets.commit(cluster, OFFSETS) == {"other": {("t", 0): gone}}


LAID_OUT = {
    ("orders", 0): (1 << 40, ""),
    ("bills", 7): (0, "wo ich war"),
    ("orders", 300): (5, "m" * 200),
}


class Sent:
    """A connection that keeps what is sent."""

    def __init__(self, version: int) -> None:
        self._newest = version
        self.sent_as = -1
        self.body = b""

    def version(self, _request: Any, *, at_most: int) -> int:
        return min(self._newest, at_most)

    def send_buffers(
        self, key: int, version: int, buffers: Any, *, flexible: bool, **_: Any
    ) -> None:
        assert (key, flexible) == (OffsetCommitRequest.API_KEY, True)
        self.sent_as, self.body = version, b"".join(buffers)


@pytest.mark.parametrize(("newest", "version"), [(8, 8), (9, 9), (10, 9)])
def test_bytes_are_those_of_the_library(newest: int, version: int) -> None:
    """kafka-python lays the same request out in the same bytes, in each version."""
    entry = OffsetCommitRequest.OffsetCommitRequestTopic
    place = entry.OffsetCommitRequestPartition
    topics = [
        entry(
            name=name,
            partitions=[
                place(
                    partition_index=number,
                    committed_offset=offset,
                    committed_leader_epoch=-1,
                    committed_metadata=metadata,
                )
                for (topic, number), (offset, metadata) in LAID_OUT.items()
                if topic == name
            ],
        )
        for name in ("orders", "bills")
    ]
    theirs = OffsetCommitRequest(
        group_id="app",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=topics,
    ).encode(version=version)
    sent: Any = Sent(newest)

    group_offsets.send(sent, "app", LAID_OUT)

    assert (sent.sent_as, sent.body) == (version, theirs)
