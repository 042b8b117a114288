"""Producers and transactions at a model's broker: the requests that change something.

A handler fills in the answer and returns whether it is to be sent now. Whether a
transaction may go on is up to `coordinator`, whether a batch fits to `partition`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tests.simulation import coordinator
from tests.simulation.requests import (
    COORDINATOR_NOT_AVAILABLE,
    NOT_LEADER,
    TIMED_OUT,
    TRANSACTIONAL_ID_NOT_FOUND,
    UNKNOWN_TOPIC,
    knows,
    leads,
    not_coordinator,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.requests import Request


def find_coordinator(request: Request) -> bool:
    cluster, broker = request.cluster, request.broker
    found = []
    for key in request.body.coordinator_keys:
        node = (
            broker.old_coordinators.get(key, -1)
            if broker.isolated
            else cluster.coordinator(key)
        )
        host, port = cluster.broker(node).address if node > 0 else ("", -1)
        found.append(
            request.kind.Coordinator(
                key=key, node_id=node, host=host, port=port,
                error_code=0 if node > 0 else COORDINATOR_NOT_AVAILABLE,
                error_message=None,
            )
        )  # fmt: skip
    request.answer.coordinators = found
    return True


def init(request: Request) -> bool:
    body, answer = request.body, request.answer
    transactions = request.cluster.transactions
    answer.producer_id = answer.producer_epoch = -1
    if body.transactional_id is None:
        answer.error_code = 0
        answer.producer_id, answer.producer_epoch = transactions.new_producer(), 0
    elif error := not_coordinator(request, body.transactional_id):
        answer.error_code = error
    else:
        answer.error_code, answer.producer_id, answer.producer_epoch = (
            transactions.init(body.transactional_id, body.transaction_timeout_ms / 1000)
        )
    return True


def add(request: Request) -> bool:
    body = request.body
    name = body.v3_and_below_transactional_id
    where = [
        (topic.name, number)
        for topic in body.v3_and_below_topics
        for number in topic.partitions
    ]
    missing = {key for key in where if not knows(request, key)}
    error = not_coordinator(request, name)
    if not error and not missing:
        error = request.cluster.transactions.add(
            name, body.v3_and_below_producer_id, body.v3_and_below_producer_epoch, where
        )
    added(
        request,
        lambda key: (
            error or ((UNKNOWN_TOPIC if key in missing else 55) if missing else 0)
        ),
    )
    return True


def added(request: Request, code: Callable[[tuple[str, int]], int]) -> None:
    """The answer to AddPartitionsToTxn, given the error of each partition."""
    entry = request.kind.AddPartitionsToTxnTopicResult
    result = entry.AddPartitionsToTxnPartitionResult
    request.answer.results_by_topic_v3_and_below = [
        entry(
            name=topic.name,
            results_by_partition=[
                result(
                    partition_index=number,
                    partition_error_code=code((topic.name, number)),
                )
                for number in topic.partitions
            ],
        )
        for topic in request.body.v3_and_below_topics
    ]


def end(request: Request) -> bool:
    body, answer = request.body, request.answer
    answer.producer_id = answer.producer_epoch = -1
    if error := not_coordinator(request, body.transactional_id):
        answer.error_code = error
        return True
    error, pid, epoch = request.cluster.transactions.end(
        body.transactional_id,
        body.producer_id,
        body.producer_epoch,
        commit=body.committed,
        v2=request.version >= 5,
    )
    if error == coordinator.FENCED and request.version < 2:
        error = coordinator.INVALID_EPOCH
    answer.error_code = error
    if request.version >= 5 and not error:
        answer.producer_id, answer.producer_epoch = pid, epoch
    return True


def produce(request: Request) -> bool:
    body, cluster = request.body, request.cluster
    if request.broker.isolated:
        # It cannot replicate what it takes: nothing is acknowledged.
        cluster.world.after(body.timeout_ms / 1000, lambda: _refuse(request, TIMED_OUT))
        return False
    name = body.transactional_id
    entry = request.kind.TopicProduceResponse
    done = []
    for topic in body.topic_data:
        parts = []
        for part in topic.partition_data:
            error, base = _write(request, name, topic.name, part)
            parts.append(
                entry.PartitionProduceResponse(
                    index=part.index, error_code=error, base_offset=base,
                    log_append_time_ms=-1, log_start_offset=0, record_errors=[],
                    error_message=None,
                )
            )  # fmt: skip
        done.append(entry(name=topic.name, partition_responses=parts))
    request.answer.responses = done
    request.answer.throttle_time_ms = 0
    cluster.stir()
    slow = [
        partition
        for topic in body.topic_data
        for part in topic.partition_data
        if (partition := cluster.partition((topic.name, part.index))) is not None
        and partition.log.replicated is not None
    ]
    if not slow:
        return True
    epochs = [each.epoch for each in slow]
    until = cluster.world.now + body.timeout_ms / 1000

    def look() -> None:
        """Answer once all followers have it, or another leader has taken over."""
        if epochs != [each.epoch for each in slow]:
            _refuse(request, NOT_LEADER)
        elif all(each.log.replicated is None for each in slow):
            request.send()
        elif cluster.world.now > until:
            _refuse(request, TIMED_OUT)
        else:
            cluster.world.after(0.05, look)

    look()
    return False


def _refuse(request: Request, error: int) -> None:
    entry = request.kind.TopicProduceResponse
    request.answer.responses = [
        entry(
            name=topic.name,
            partition_responses=[
                entry.PartitionProduceResponse(
                    index=part.index, error_code=error, base_offset=-1,
                    log_append_time_ms=-1, log_start_offset=-1, record_errors=[],
                    error_message=None,
                )
                for part in topic.partition_data
            ],
        )
        for topic in request.body.topic_data
    ]  # fmt: skip
    request.send()


def _write(
    request: Request, name: str | None, topic: str, part: Any
) -> tuple[int, int]:
    cluster = request.cluster
    if error := request.refused.get((topic, part.index), 0):
        return error, -1
    if error := leads(request, topic, part.index):
        return error, -1
    log = cluster.topics[topic].partitions[part.index].log
    data = bytes(part.records)
    pid, epoch = struct.unpack_from(">qh", data, 43)
    if name is not None:
        transactions = cluster.transactions
        where = (topic, part.index)
        if request.version >= 12:
            error = transactions.add(name, pid, epoch, [where])
            if error == coordinator.FENCED:
                error = coordinator.INVALID_EPOCH
        elif not log.is_open(pid):
            error = transactions.has(name, pid, epoch, where)
        else:
            error = 0
        if error:
            return error, -1
    strict = name is not None and request.version >= 12
    done = log.append(data, cluster.world.now, strict=strict)
    return done.error, done.base


def refuse(answer: Any, parts: Iterable[tuple[str, int]], code: int) -> None:
    """Let the answer to a Produce say that these partitions refused."""
    refused = set(parts)
    for topic in answer.responses:
        for part in topic.partition_responses:
            if (topic.name, part.index) in refused:
                part.error_code, part.base_offset = code, -1


def describe_transactions(request: Request) -> bool:
    entry = request.kind.TransactionState
    found = []
    for name in request.body.transactional_ids:
        error = 0
        if not request.broker.isolated:
            error = not_coordinator(request, name)
        known = None if error else request.broker.transaction(name)
        if known is None:
            found.append(
                entry(
                    error_code=error or TRANSACTIONAL_ID_NOT_FOUND,
                    transactional_id=name, transaction_state="", topics=[],
                    transaction_timeout_ms=0, transaction_start_time_ms=-1,
                    producer_id=-1, producer_epoch=-1,
                )
            )  # fmt: skip
            continue
        found.append(
            entry(
                error_code=0, transactional_id=name, transaction_state=known.state,
                transaction_timeout_ms=int(known.timeout * 1000),
                transaction_start_time_ms=int(known.began * 1000),
                producer_id=known.producer, producer_epoch=known.epoch, topics=[],
            )
        )  # fmt: skip
    request.answer.transaction_states = found
    return True
