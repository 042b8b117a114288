"""A request on its way through a model's broker, and what all handlers ask first.

Main types: `Request`, decoded by kafka-python's classes, with its answer in the making.
`knows` and `leads` go by the broker's own view of the metadata, which may be old.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any

from tests.harness import protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.model import ModelBroker, ModelCluster
    from tests.simulation.network import Wire

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, TIMED_OUT = 1, 3, 6, 7
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 15, 16
TOPIC_EXISTS, SESSION_UNKNOWN, SESSION_EPOCH = 36, 70, 71
FENCED_EPOCH, UNKNOWN_EPOCH, UNKNOWN_TOPIC_ID = 74, 75, 100
TRANSACTIONAL_ID_NOT_FOUND = 105

NEWEST = {
    "ApiVersions": 3, "Metadata": 12, "FindCoordinator": 4, "InitProducerId": 4,
    "AddPartitionsToTxn": 3, "EndTxn": 3, "Produce": 8, "Fetch": 11,
    "ListOffsets": 6, "OffsetForLeaderEpoch": 4, "DescribeProducers": 0,
    "DescribeTransactions": 0, "CreateTopics": 7, "DescribeConfigs": 4,
    "ListGroups": 5, "OffsetFetch": 8, "OffsetCommit": 9, "CreatePartitions": 3,
    "IncrementalAlterConfigs": 1, "DescribeAcls": 3,
    "CreateAcls": 3, "DeleteAcls": 3, "DescribeCluster": 1, "DescribeGroups": 5,
    "DescribeLogDirs": 4, "JoinGroup": 9, "SyncGroup": 5, "Heartbeat": 4,
    "LeaveGroup": 5, "DeleteTopics": 6,
}  # fmt: skip
NEWEST_V2 = {"EndTxn": 5, "Produce": 12}
NEWEST_BY_ID = {"Fetch": 13}
REQUESTS, _ANSWERS = protocol.tables(NEWEST)


@functools.lru_cache(4096)
def _decoded(kind: Any, version: int, frame: bytes) -> Any:
    """Clients ask the same again and again, so handlers change nothing in it. The
    correlation id is left out.
    """
    return kind.decode(frame, version=version, header=True)


class Request:
    """A request that a broker handles, and its answer in the making."""

    def __init__(self, broker: ModelBroker, frame: bytes, wire: Wire) -> None:
        key, self.version, self._correlation = struct.unpack_from(">hhi", frame)
        self.api, kind = REQUESTS[key]
        self.broker = broker
        self.cluster: ModelCluster = broker.cluster
        self.wire = wire
        self.body = _decoded(kind, self.version, frame[:4] + bytes(4) + frame[8:])
        self.kind: Any = _ANSWERS[self.api]
        self.answer = self.kind[self.version]()
        self.silent = False
        """Do it, and do not answer."""
        self.delay = 0.0
        """By how many seconds the answer is late."""
        self.throttle = 0.0
        """How many seconds the client is to rest, as the answer says."""
        self.refused: dict[tuple[str, int], int] = {}
        """Of a Produce: partitions that refuse, each with its error."""
        self.spoil: Callable[[Any], None] = lambda _: None
        """Changes the answer."""

    def send(self) -> None:
        """The answer is complete."""
        self.spoil(self.answer)
        if self.throttle:
            self.answer.throttle_time_ms = int(self.throttle * 1000)
        self.answer.with_header(correlation_id=self._correlation)
        frame = None if self.silent else bytes(self.answer.encode(header=True))
        if self.delay:
            self.cluster.world.after(self.delay, lambda: self.wire.answer(frame))
        else:
            self.wire.answer(frame, rest=self.throttle)


def leads(request: Request, topic: str, number: int, epoch: int = -1) -> int:
    """The error of a broker that does not lead a partition, by its view; 0 if it does.
    `epoch`: the leader's epoch as the client knows it; -1: it does not say.
    """
    if not knows(request, (topic, number)):
        return UNKNOWN_TOPIC
    seen = request.broker.view[topic]
    leader, known = seen.leaders[number]
    if epoch >= 0 and epoch < known:
        return FENCED_EPOCH
    if epoch > known:
        return UNKNOWN_EPOCH
    if leader != request.broker.node:
        return NOT_LEADER
    if request.broker.isolated:
        return 0 if (topic, number) in request.broker.old_logs else NOT_LEADER
    truth = request.cluster.topics.get(topic)
    if truth is None or truth.id != seen.id:
        return UNKNOWN_TOPIC
    if truth.partitions[number].leader != leader:
        return NOT_LEADER
    return 0


def not_coordinator(request: Request, name: str) -> int:
    """Why this broker cannot coordinate a transactional id or a group; 0 if it can."""
    if request.broker.isolated:
        return COORDINATOR_NOT_AVAILABLE
    at = request.cluster.coordinator(name)
    return 0 if at == request.broker.node else NOT_COORDINATOR


def knows(request: Request, where: tuple[str, int]) -> bool:
    seen = request.broker.view.get(where[0])
    return seen is not None and where[1] < len(seen.leaders)
