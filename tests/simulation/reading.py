"""What a model's broker says about its logs: fetches with sessions, offsets, epochs.

A handler fills in the answer and returns whether it is to be sent now: a fetch waits
until there is something new. Source: KIP-227 (sessions), KIP-320 and KIP-595 (epochs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.model import Session
from tests.simulation.requests import (
    OFFSET_OUT_OF_RANGE,
    SESSION_EPOCH,
    SESSION_UNKNOWN,
    UNKNOWN_TOPIC_ID,
    leads,
)

if TYPE_CHECKING:
    from tests.simulation.partition import PartitionLog
    from tests.simulation.requests import Request

_READ_COMMITTED = 1
_EARLIEST, _LATEST = -2, -1


def fetch(request: Request) -> bool:
    body, broker = request.body, request.broker
    answer = request.answer
    answer.error_code = answer.session_id = 0
    answer.throttle_time_ms = 0
    session = None
    asked = {
        _key(request, topic, part.partition): part
        for topic in body.topics
        for part in topic.partitions
    }
    if body.session_epoch > 0:
        session = broker.sessions.get(body.session_id)
        if session is None or session.epoch != body.session_epoch:
            answer.error_code = SESSION_UNKNOWN if session is None else SESSION_EPOCH
            answer.responses = []
            return True
        for topic in body.forgotten_topics_data:
            for number in topic.partitions:
                key = _key(request, topic, number)
                session.asked.pop(key, None)
                session.told.pop(key, None)
        for key, part in asked.items():
            session.asked.pop(key, None)
            session.asked[key] = part
        session.epoch += 1
        answer.session_id = body.session_id
    elif body.session_epoch == 0:
        broker.sessions.pop(body.session_id, None)
        session = Session(epoch=1, asked=dict(asked))
        answer.session_id = request.cluster.world.random.randrange(1, 1 << 30)
        broker.sessions[answer.session_id] = session
    began = request.cluster.world.now
    full = body.session_epoch <= 0

    def attempt() -> bool:
        """Answer, if there is something to answer, or time is over."""
        if not broker.up or request.wire.broken:
            return True
        over = request.cluster.world.now >= began + body.max_wait_ms / 1000
        parts = session.asked if session is not None else asked
        found, news = _parts(request, parts, session, full=full)
        if not (news or over):
            return False
        by_topic: dict[Any, list[Any]] = {}
        for key, part in found:
            by_topic.setdefault(key, []).append(part)
        entry = request.kind.FetchableTopicResponse
        answer.responses = [
            entry(topic=key, topic_id=None, partitions=parts)
            if isinstance(key, str)
            else entry(topic=None, topic_id=key, partitions=parts)
            for key, parts in by_topic.items()
        ]
        request.send()
        return True

    if not attempt():
        request.cluster.waiting.append(attempt)

        def give_up() -> None:
            if attempt in request.cluster.waiting:
                request.cluster.waiting.remove(attempt)
                attempt()

        request.cluster.world.after(body.max_wait_ms / 1000, give_up)
    return False


def _key(request: Request, topic: Any, number: int) -> tuple[Any, int]:
    if request.version >= 13:
        return topic.topic_id, number
    return topic.topic, number


def _parts(
    request: Request, asked: Any, session: Session | None, *, full: bool
) -> tuple[list[tuple[Any, Any]], bool]:
    """What to answer of each partition, and whether it is news enough."""
    entry = request.kind.FetchableTopicResponse.PartitionData
    names = {seen.id: name for name, seen in request.broker.view.items()}
    found, news, size = [], False, 0
    room = request.body.max_bytes
    for (key, number), part in asked.items():
        name = key if isinstance(key, str) else names.get(key)
        log: PartitionLog | None = None
        if name is None:
            error = UNKNOWN_TOPIC_ID
        else:
            error = leads(request, name, number, part.current_leader_epoch)
            log = None if error else request.broker.log(name, number)
        records, aborted, diverging = b"", None, None
        high = stable = start = -1
        if log is not None:
            high, stable, start = log.high, log.stable, log.start
            committed = request.body.isolation_level == _READ_COMMITTED
            limit = stable if committed else high
            last = getattr(part, "last_fetched_epoch", -1)
            epoch, end = (
                log.end_of_epoch(last)
                if last is not None and last >= 0
                else (0, part.fetch_offset)
            )
            if epoch < 0 or part.fetch_offset < start:
                error = OFFSET_OUT_OF_RANGE
            elif (
                last is not None
                and last >= 0
                and (epoch < last or end < part.fetch_offset)
            ):
                diverging = (epoch, end)
            elif part.fetch_offset > high:
                error = OFFSET_OUT_OF_RANGE
            elif room > 0:
                records = log.read(
                    part.fetch_offset,
                    limit=limit,
                    max_bytes=min(part.partition_max_bytes, room),
                )
                room -= len(records)
                if committed and records:
                    aborted = [
                        entry.AbortedTransaction(
                            producer_id=each.producer, first_offset=each.first
                        )
                        for each in log.aborted_in(part.fetch_offset, high)
                    ]
        state = (error, high, stable, start)
        told = session.told.get((key, number)) if session is not None else None
        if full or records or error or diverging is not None or told != state:
            made = entry(
                partition_index=number, error_code=error, high_watermark=high,
                last_stable_offset=stable, log_start_offset=start,
                aborted_transactions=aborted, preferred_read_replica=-1,
                records=records,
            )  # fmt: skip
            if diverging is not None:
                made.diverging_epoch = entry.EpochEndOffset(
                    epoch=diverging[0], end_offset=diverging[1]
                )
            found.append((key, made))
            news = news or bool(error) or diverging is not None
            size += len(records)
            if session is not None:
                session.told[key, number] = state
    return found, news or size >= request.body.min_bytes


def list_offsets(request: Request) -> bool:
    entry = request.kind.ListOffsetsTopicResponse
    committed = request.body.isolation_level == _READ_COMMITTED
    request.answer.topics = [
        entry(
            name=topic.name,
            partitions=[
                _listed(request, entry, topic.name, part, committed=committed)
                for part in topic.partitions
            ],
        )
        for topic in request.body.topics
    ]
    return True


def _listed(
    request: Request, entry: Any, topic: str, part: Any, *, committed: bool
) -> Any:
    number = part.partition_index
    error = leads(request, topic, number, part.current_leader_epoch)
    offset = -1
    log = None if error else request.broker.log(topic, number)
    if log is not None:
        if part.timestamp == _EARLIEST:
            offset = log.start
        elif part.timestamp == _LATEST:
            offset = log.stable if committed else log.high
    return entry.ListOffsetsPartitionResponse(
        partition_index=number, error_code=error, timestamp=-1, offset=offset,
        leader_epoch=log.epoch if log is not None else -1,
    )  # fmt: skip


def epoch_ends(request: Request) -> bool:
    entry = request.kind.OffsetForLeaderTopicResult
    found = []
    for topic in request.body.topics:
        parts = []
        for part in topic.partitions:
            error = leads(
                request, topic.topic, part.partition, part.current_leader_epoch
            )
            epoch = end = -1
            log = None if error else request.broker.log(topic.topic, part.partition)
            if log is not None:
                epoch, end = log.end_of_epoch(part.leader_epoch)
            parts.append(
                entry.EpochEndOffset(
                    error_code=error, partition=part.partition, leader_epoch=epoch,
                    end_offset=end,
                )
            )  # fmt: skip
        found.append(entry(topic=topic.topic, partitions=parts))
    request.answer.topics = found
    return True


def describe_producers(request: Request) -> bool:
    entry = request.kind.TopicResponse
    part_entry = entry.PartitionResponse
    found = []
    for topic in request.body.topics:
        parts = []
        for number in topic.partition_indexes:
            error = leads(request, topic.name, number)
            log = None if error else request.broker.log(topic.name, number)
            parts.append(
                part_entry(
                    partition_index=number,
                    error_code=error,
                    error_message=None,
                    active_producers=[
                        part_entry.ProducerState(
                            producer_id=pid, producer_epoch=epoch,
                            last_sequence=log.last_sequence(pid),
                            last_timestamp=log.newest_of(pid), coordinator_epoch=0,
                            current_txn_start_offset=first,
                        )
                        for pid, epoch, first in (
                            log.open_producers() if log is not None else ()
                        )
                    ],
                )
            )  # fmt: skip
        found.append(entry(name=topic.name, partitions=parts))
    request.answer.topics = found
    return True
