"""OffsetCommit requests that are laid out by hand."""

from __future__ import annotations

from typing import Any

from kafka.protocol.consumer import OffsetCommitRequest
import pytest

from mirror.clusters.admin import group_offsets

OFFSETS = {
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
                for (topic, number), (offset, metadata) in OFFSETS.items()
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

    group_offsets.send(sent, "app", OFFSETS)

    assert (sent.sent_as, sent.body) == (version, theirs)
