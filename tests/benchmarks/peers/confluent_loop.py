"""The consume-produce loop of a Python user: `SOURCE TARGET ALIAS TOPIC COMPRESSION`.

Exactly once: a transaction on the target holds the records and, in a topic of its own,
the source positions behind them. A restart goes on from the last of these. Any error
ends the script; what is open then is aborted by the next start.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

_RECORDS = 20_000
_SECONDS = 0.05
"""A transaction takes no more of both; in a trickle it takes what is there."""


def main(source: str, target: str, alias: str, topic: str, compression: str) -> None:
    remote, progress = f"{alias}.{topic}", f"{alias}.confluent.progress"
    partitions = _create_topics(source, target, topic, remote, progress)
    producer = Producer(
        {
            "bootstrap.servers": target,
            "transactional.id": f"{alias}.confluent",
            "compression.type": compression,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions()  # what a former start left open ends here
    positions = dict.fromkeys(partitions, OFFSET_BEGINNING)
    positions |= _last_positions(target, progress)
    consumer = Consumer(
        {
            "bootstrap.servers": source,
            "group.id": f"{alias}.confluent",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 8 << 20,
            "queued.max.messages.kbytes": 64 << 10,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign(
        [TopicPartition(topic, number, at) for number, at in positions.items()]
    )
    while True:
        if messages := consumer.consume(_RECORDS, _SECONDS):
            _copy(producer, messages, remote, progress, positions)


def _copy(
    producer: Producer,
    messages: list[Message],
    remote: str,
    progress: str,
    positions: dict[int, int],
) -> None:
    header = ("mirror.via", f"{remote.partition('.')[0]}/bench".encode())
    producer.begin_transaction()
    for message in messages:
        if error := message.error():
            raise KafkaException(error)
        producer.produce(
            remote,
            value=message.value(),
            key=message.key(),
            partition=message.partition(),
            timestamp=message.timestamp()[1],
            headers=[*(message.headers() or ()), header],
            on_delivery=_require_delivery,
        )
        positions[message.partition()] = message.offset() + 1
    producer.produce(
        progress,
        json.dumps(positions),
        key=remote,
        on_delivery=_require_delivery,
    )
    producer.commit_transaction()  # flushes first


def _require_delivery(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def _create_topics(
    source: str, target: str, topic: str, remote: str, progress: str
) -> list[int]:
    described = AdminClient({"bootstrap.servers": source}).list_topics(topic, 30)
    partitions = sorted(described.topics[topic].partitions)
    new = [
        NewTopic(remote, num_partitions=len(partitions)),
        NewTopic(progress, num_partitions=1, config={"cleanup.policy": "compact"}),
    ]
    admin = AdminClient({"bootstrap.servers": target})
    for future in admin.create_topics(new).values():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return partitions


def _last_positions(target: str, progress: str) -> dict[int, int]:
    reader = Consumer(
        {
            "bootstrap.servers": target,
            "group.id": progress,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    reader.assign([TopicPartition(progress, 0, OFFSET_BEGINNING)])
    last: dict[int, int] = {}
    while True:
        message = reader.poll(1)
        if message is None:
            continue
        if error := message.error():
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            reader.close()
            return last
        last = {
            int(key): at for key, at in json.loads(message.value() or b"{}").items()
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
