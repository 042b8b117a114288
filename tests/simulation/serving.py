"""What a model's broker answers: Kafka's protocol in front of `model`.

Main function: `serve`, which decodes a request by kafka-python's classes, has a handler
fill in the answer, and lets the faults have their say first. Each handler goes by the
broker's own view of the metadata.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any
import uuid

from kafka.protocol import admin, consumer, metadata, producer

from tests.simulation import coordinator
from tests.simulation.model import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.model import ModelBroker, ModelCluster
    from tests.simulation.network import Wire
    from tests.simulation.partition import PartitionLog

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER, TIMED_OUT = 1, 3, 6, 7
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 15, 16
TOPIC_EXISTS, SESSION_UNKNOWN, SESSION_EPOCH = 36, 70, 71
FENCED_EPOCH, UNKNOWN_EPOCH, UNKNOWN_TOPIC_ID = 74, 75, 100
TRANSACTIONAL_ID_NOT_FOUND = 105
_READ_COMMITTED = 1
_EARLIEST, _LATEST = -2, -1
_NO_ID = uuid.UUID(int=0)

_MODULES = (metadata, consumer, producer, admin)
_NEWEST = {
    "ApiVersions": 3, "Metadata": 12, "FindCoordinator": 4, "InitProducerId": 4,
    "AddPartitionsToTxn": 3, "EndTxn": 3, "Produce": 8, "Fetch": 11,
    "ListOffsets": 6, "OffsetForLeaderEpoch": 4, "DescribeProducers": 0,
    "DescribeTransactions": 0, "CreateTopics": 7, "DescribeConfigs": 4,
}  # fmt: skip
_NEWEST_V2 = {"EndTxn": 5, "Produce": 12}
_NEWEST_BY_ID = {"Fetch": 13}


def _class_of(name: str) -> Any:
    return next(getattr(m, name) for m in _MODULES if hasattr(m, name))


_REQUESTS = {
    (found := _class_of(f"{api}Request")).API_KEY: (api, found) for api in _NEWEST
}
_ANSWERS = {api: _class_of(f"{api}Response") for api in _NEWEST}


class Request:
    """A request that a broker handles, and its answer in the making."""

    def __init__(self, broker: ModelBroker, frame: bytes, wire: Wire) -> None:
        key, self.version, self._correlation = struct.unpack_from(">hhi", frame)
        self.api, kind = _REQUESTS[key]
        self.broker = broker
        self.cluster: ModelCluster = broker.cluster
        self.wire = wire
        self.body = kind.decode(frame, version=self.version, header=True)
        self.kind: Any = _ANSWERS[self.api]
        self.answer = self.kind[self.version]()
        self.silent = False
        """Do it, and do not answer."""
        self.delay = 0.0
        """Answer so many seconds late."""
        self.refused: dict[tuple[str, int], int] = {}
        """Of a Produce: partitions that refuse, each with its error."""
        self.spoil: Callable[[Any], None] = lambda _: None
        """Changes the answer."""

    def send(self) -> None:
        """The answer is complete."""
        self.spoil(self.answer)
        self.answer.with_header(correlation_id=self._correlation)
        frame = None if self.silent else bytes(self.answer.encode(header=True))
        if self.delay:
            self.cluster.world.after(self.delay, lambda: self.wire.answer(frame))
        else:
            self.wire.answer(frame)


def serve(broker: ModelBroker, frame: bytes, wire: Wire) -> None:
    """Handle one request; see `ModelCluster.serve`."""
    handle(Request(broker, frame, wire))


def handle(request: Request) -> None:
    """Do what is asked, and answer, now or later."""
    if _HANDLERS[request.api](request):
        request.send()


def answer_with(request: Request, code: int) -> None:
    """Refuse the whole request."""
    body, answer = request.body, request.answer
    if request.api == "CreateTopics":
        entry = request.kind.CreatableTopicResult
        answer.topics = [
            entry(
                name=topic.name, topic_id=_NO_ID, error_code=code, error_message=None,
                num_partitions=-1, replication_factor=-1, configs=[],
            )
            for topic in body.topics
        ]  # fmt: skip
    elif request.api == "AddPartitionsToTxn":
        _added(request, lambda _: code)
    else:
        answer.error_code = code
        answer.producer_id = answer.producer_epoch = -1
    request.send()


def refuse(answer: Any, parts: Iterable[tuple[str, int]], code: int) -> None:
    """Let the answer to a Produce say that these partitions refused."""
    refused = set(parts)
    for topic in answer.responses:
        for part in topic.partition_responses:
            if (topic.name, part.index) in refused:
                part.error_code, part.base_offset = code, -1


def _versions(request: Request) -> bool:
    cluster = request.cluster
    newest = dict(_NEWEST)
    if cluster.transactions.v2:
        newest |= _NEWEST_V2
    if cluster.by_id:
        newest |= _NEWEST_BY_ID
    request.answer.error_code = 0
    request.answer.api_keys = [
        request.kind.ApiVersion(api_key=key, min_version=0, max_version=newest[api])
        for key, (api, _) in _REQUESTS.items()
    ]
    request.answer.finalized_features_epoch = 0
    request.answer.finalized_features = (
        [
            request.kind.FinalizedFeatureKey(
                name="transaction.version", max_version_level=2, min_version_level=2
            )
        ]
        if cluster.transactions.v2
        else []
    )
    return True


def _metadata(request: Request) -> bool:
    cluster, broker = request.cluster, request.broker
    answer = request.answer
    # A broker that is cut off still lists those that it knew.
    answer.brokers = [
        request.kind.MetadataResponseBroker(
            node_id=b.node, host=b.address[0], port=b.address[1], rack=None
        )
        for b in cluster.brokers
        if b.up and (broker.isolated or not b.isolated or b is broker)
    ]
    answer.cluster_id, answer.controller_id = cluster.id, broker.node
    names = request.body.topics
    asked = list(broker.view) if names is None else [each.name for each in names]
    answer.topics = [_topic(request, name) for name in asked]
    return True


def _topic(request: Request, name: str) -> Any:
    entry = request.kind.MetadataResponseTopic
    partition = entry.MetadataResponsePartition
    seen = request.broker.view.get(name)
    if seen is None:
        return entry(
            error_code=UNKNOWN_TOPIC, name=name, topic_id=_NO_ID, is_internal=False,
            partitions=[],
        )  # fmt: skip
    return entry(
        error_code=0,
        name=name,
        topic_id=seen.id,
        is_internal=False,
        partitions=[
            partition(
                error_code=0 if leader >= 0 else 5, partition_index=index,
                leader_id=leader, leader_epoch=epoch, replica_nodes=[max(leader, 1)],
                isr_nodes=[max(leader, 1)], offline_replicas=[],
            )
            for index, (leader, epoch) in enumerate(seen.leaders)
        ],
    )  # fmt: skip


def _find_coordinator(request: Request) -> bool:
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


def _not_ours(request: Request, name: str) -> int:
    """Why this broker cannot coordinate the id; 0 if it can."""
    if request.broker.isolated:
        return COORDINATOR_NOT_AVAILABLE
    at = request.cluster.coordinator(name)
    return 0 if at == request.broker.node else NOT_COORDINATOR


def _init(request: Request) -> bool:
    body, answer = request.body, request.answer
    transactions = request.cluster.transactions
    answer.producer_id = answer.producer_epoch = -1
    if body.transactional_id is None:
        answer.error_code = 0
        answer.producer_id, answer.producer_epoch = transactions.new_producer(), 0
    elif error := _not_ours(request, body.transactional_id):
        answer.error_code = error
    else:
        answer.error_code, answer.producer_id, answer.producer_epoch = (
            transactions.init(body.transactional_id, body.transaction_timeout_ms / 1000)
        )
    return True


def _add(request: Request) -> bool:
    body = request.body
    name = body.v3_and_below_transactional_id
    where = [
        (topic.name, number)
        for topic in body.v3_and_below_topics
        for number in topic.partitions
    ]
    missing = {key for key in where if not _seen(request, key)}
    error = _not_ours(request, name)
    if not error and not missing:
        error = request.cluster.transactions.add(
            name, body.v3_and_below_producer_id, body.v3_and_below_producer_epoch, where
        )
    _added(
        request,
        lambda key: (
            error or ((UNKNOWN_TOPIC if key in missing else 55) if missing else 0)
        ),
    )
    return True


def _added(request: Request, code: Callable[[tuple[str, int]], int]) -> None:
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


def _seen(request: Request, where: tuple[str, int]) -> bool:
    seen = request.broker.view.get(where[0])
    return seen is not None and where[1] < len(seen.leaders)


def _end(request: Request) -> bool:
    body, answer = request.body, request.answer
    answer.producer_id = answer.producer_epoch = -1
    if error := _not_ours(request, body.transactional_id):
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


def _leads(request: Request, topic: str, number: int, epoch: int = -1) -> int:
    """The error of a broker that does not lead a partition, by its view; 0 if it does.
    `epoch`: the leader's epoch as the client knows it; -1: it does not say.
    """
    if not _seen(request, (topic, number)):
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


def _produce(request: Request) -> bool:
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
    return True


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
    if error := _leads(request, topic, part.index):
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


def _fetch(request: Request) -> bool:
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
    """What to answer of each partition, and whether any of it is news."""
    entry = request.kind.FetchableTopicResponse.PartitionData
    names = {seen.id: name for name, seen in request.broker.view.items()}
    found, news = [], False
    room = request.body.max_bytes
    for (key, number), part in asked.items():
        name = key if isinstance(key, str) else names.get(key)
        log: PartitionLog | None = None
        if name is None:
            error = UNKNOWN_TOPIC_ID
        else:
            error = _leads(request, name, number, part.current_leader_epoch)
            log = None if error else request.broker.log(name, number)
        records, aborted, diverging = b"", None, None
        high = stable = start = -1
        if log is not None:
            high, stable, start = log.end, log.stable, log.start
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
            news = news or bool(records) or bool(error) or diverging is not None
            if session is not None:
                session.told[key, number] = state
    return found, news


def _list_offsets(request: Request) -> bool:
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
    error = _leads(request, topic, number, part.current_leader_epoch)
    offset = -1
    log = None if error else request.broker.log(topic, number)
    if log is not None:
        if part.timestamp == _EARLIEST:
            offset = log.start
        elif part.timestamp == _LATEST:
            offset = log.stable if committed else log.end
    return entry.ListOffsetsPartitionResponse(
        partition_index=number, error_code=error, timestamp=-1, offset=offset,
        leader_epoch=log.epoch if log is not None else -1,
    )  # fmt: skip


def _epoch_ends(request: Request) -> bool:
    entry = request.kind.OffsetForLeaderTopicResult
    found = []
    for topic in request.body.topics:
        parts = []
        for part in topic.partitions:
            error = _leads(
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


def _describe_producers(request: Request) -> bool:
    entry = request.kind.TopicResponse
    part_entry = entry.PartitionResponse
    found = []
    for topic in request.body.topics:
        parts = []
        for number in topic.partition_indexes:
            error = _leads(request, topic.name, number)
            log = None if error else request.broker.log(topic.name, number)
            parts.append(
                part_entry(
                    partition_index=number,
                    error_code=error,
                    error_message=None,
                    active_producers=[
                        part_entry.ProducerState(
                            producer_id=pid, producer_epoch=epoch, last_sequence=0,
                            last_timestamp=0, coordinator_epoch=0,
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


def _describe_transactions(request: Request) -> bool:
    entry = request.kind.TransactionState
    found = []
    for name in request.body.transactional_ids:
        error = 0
        if not request.broker.isolated:
            error = _not_ours(request, name)
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


def _create(request: Request) -> bool:
    entry = request.kind.CreatableTopicResult
    found = []
    for topic in request.body.topics:
        error = 0
        if request.broker.isolated:
            error = TIMED_OUT
        elif topic.name in request.cluster.topics:
            error = TOPIC_EXISTS
        else:
            request.cluster.create(
                topic.name,
                max(topic.num_partitions, 1),
                {each.name: each.value for each in topic.configs},
            )
        found.append(
            entry(
                name=topic.name, topic_id=_NO_ID, error_code=error, error_message=None,
                num_partitions=topic.num_partitions, replication_factor=1, configs=[],
            )
        )  # fmt: skip
    request.answer.topics = found
    return True


def _describe_configs(request: Request) -> bool:
    entry = request.kind.DescribeConfigsResult
    request.answer.results = [
        entry(
            error_code=0, error_message=None, resource_type=each.resource_type,
            resource_name=each.resource_name,
            configs=[
                entry.DescribeConfigsResourceResult(
                    name="max.message.bytes", value="1048588", read_only=False,
                    config_source=5, is_sensitive=False, synonyms=[], config_type=0,
                    documentation=None,
                )
            ],
        )
        for each in request.body.resources
    ]  # fmt: skip
    return True


_HANDLERS: dict[str, Callable[[Request], bool]] = {
    "ApiVersions": _versions,
    "Metadata": _metadata,
    "FindCoordinator": _find_coordinator,
    "InitProducerId": _init,
    "AddPartitionsToTxn": _add,
    "EndTxn": _end,
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": _list_offsets,
    "OffsetForLeaderEpoch": _epoch_ends,
    "DescribeProducers": _describe_producers,
    "DescribeTransactions": _describe_transactions,
    "CreateTopics": _create,
    "DescribeConfigs": _describe_configs,
}
"""Each fills in the answer, and returns whether it is to be sent now."""
