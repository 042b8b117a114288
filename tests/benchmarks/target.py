"""What a read_committed consumer finds on the target.

`committed_offsets` is cheap and used while a peer copies; `count_records` reads
everything and is used afterwards, because transaction markers take offsets too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self
import uuid

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.benchmarks.load import QUICK, QUIET, Place

if TYPE_CHECKING:
    from collections.abc import Iterable

_STALLED_SECONDS = 10


class Target:
    """One topic, which may not be there yet."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._partitions = [TopicPartition(topic, n) for n in range(partitions)]
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})

    @classmethod
    def of(cls, bootstrap: str, places: Iterable[Place]) -> Self:
        """Some partitions of some topics."""
        made = cls(bootstrap, "", partitions=0)
        made._partitions = [TopicPartition(*place) for place in places]
        return made

    @property
    def partitions(self) -> int:
        return len(self._partitions)

    def committed_offsets(self) -> int:
        """The sum of the last stable offsets; zero while any of them is missing."""
        answers = self._admin.list_offsets(
            dict.fromkeys(self._partitions, OffsetSpec.latest()),
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=10,
        )
        try:
            return sum(answer.result().offset for answer in answers.values())
        except KafkaException as error:
            if error.args[0].code() in _NOT_YET:
                return 0
            raise

    def consumer(self, offset: int = 0, *, quick: bool = False) -> Consumer:
        """An ordinary reader of committed data; of all partitions from an offset on.
        `quick`: it finds new leaders at once.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"bench-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **(QUICK if quick else {}),
                **QUIET,
            }
        )
        consumer.assign(
            [
                TopicPartition(each.topic, each.partition, offset)
                for each in self._partitions
            ]
        )
        return consumer

    def count_records(self, offset: int = 0) -> int:
        """How many records there are, lost and doubled ones included as they come; of
        all partitions from an offset on.
        """
        end = self.committed_offsets()
        consumer = self.consumer(offset)
        counted = 0
        quiet_since = time.monotonic()
        try:
            while time.monotonic() - quiet_since < _STALLED_SECONDS:
                messages = consumer.consume(num_messages=50_000, timeout=0.2)
                if messages:
                    counted += len(messages)
                    quiet_since = time.monotonic()
                elif _position(consumer, self._partitions) >= end:
                    return counted
        finally:
            consumer.close()
        return counted


def _position(consumer: Consumer, partitions: list[TopicPartition]) -> int:
    # A marker at the end of a partition is passed without ever being handed out.
    offsets = [each.offset for each in consumer.position(partitions)]
    return sum(offset for offset in offsets if offset > 0)


_NOT_YET = {
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._NOENT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
