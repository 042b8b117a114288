"""A producer of whole batches with an identity that can be fenced.

Main type: `Producer`. With a transactional id it writes transactions, v2 (KIP-890)
where the cluster has it, else v1; without one it is idempotent. It is synchronous
and never repairs: after any error its owner calls `take_over` again, which aborts
what is open, and starts from committed progress. Batches of one partition are
sent in order, several requests in flight.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

from mirror.clusters import codes, produce
from mirror.errors import ClusterError, PartitionError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.clusters.cluster import Cluster, Topic
    from mirror.clusters.connection import Pending
    from mirror.clusters.produce import EncodedBatch

TopicPartition = tuple[str, int]

_PURPOSE = "produce"
# A broker keeps the last five batches per producer and partition to sort out
# repeats; more requests in flight could not be told apart.
_IN_FLIGHT = 5
_REQUEST_BYTES = 16 << 20
"""Brokers refuse requests above `socket.request.max.bytes`, 100 MiB by default."""
_PATIENCE_SECONDS = 30.0
_SEQUENCES = 1 << 31
_V1_AT_MOST = 3
_INIT_AT_MOST = 4


class Producer:
    """One producer identity on one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        request_timeout_ms: int = 30_000,
    ) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._transaction_timeout_ms = transaction_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._coordinator = -1
        self._v2 = False
        self._id = self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._sent: list[Pending] = []
        self._ending: Pending | None = None

    def take_over(self) -> None:
        """Become the only owner: whoever held this id is fenced, an open
        transaction of it is aborted, a committing one is waited for.
        """
        self._sent, self._ending = [], None
        if self.transactional_id is not None:
            self._v2 = self._cluster.feature("transaction.version") >= 2
            self._coordinator = self._cluster.transaction_coordinator(
                self.transactional_id
            )
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = self._ask(request, "taking over", at_most=_INIT_AT_MOST)
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences = {}

    def write(
        self,
        batches: Mapping[TopicPartition, Sequence[EncodedBatch]],
        topics: Mapping[str, Topic],
    ) -> None:
        """Write batches, opening a transaction if this producer has them; return
        when all are acknowledged.

        Raises:
            UnreachableError: a partition has no leader, or its leader is gone.
            PartitionError: one partition refuses what we sent.
            ClusterError: anything else; take over before writing again.
        """
        if self.transactional_id is not None and not self._v2:
            self._add_partitions(batches)
        rounds = [
            {key: queue[index] for key, queue in batches.items() if index < len(queue)}
            for index in range(max(map(len, batches.values()), default=0))
        ]
        for number, part in enumerate(rounds):
            for key, batch in part.items():
                self._stamp(key, batch)
            refused = self._send(part, topics)
            # In v2 the first write to each partition opens the transaction, which the
            # broker may put off; behind it the others must not be on their way yet.
            if number == 0 and self._v2:
                self._open_transaction(part, topics, refused)
            elif refused:
                raise _put_off()
        if self._answers():
            raise _put_off()

    def _stamp(self, key: TopicPartition, batch: EncodedBatch) -> None:
        sequence = self._sequences.get(key, 0)
        batch.stamp(
            self._id,
            self._epoch,
            sequence,
            transactional=self.transactional_id is not None,
        )
        self._sequences[key] = (sequence + batch.count) % _SEQUENCES

    def _send(
        self, part: Mapping[TopicPartition, EncodedBatch], topics: Mapping[str, Topic]
    ) -> set[TopicPartition]:
        """Send at most one batch per partition, in requests of bounded size.

        Returns those that are to be sent again, of requests answered meanwhile.
        """
        requests: list[tuple[int, dict[TopicPartition, EncodedBatch]]] = []
        room: dict[int, int] = {}
        newest: dict[int, dict[TopicPartition, EncodedBatch]] = {}
        for (topic, partition), batch in part.items():
            shown = topics[topic].leaders.get(partition)
            if shown is None or shown.node < 0:
                raise UnreachableError(
                    f"cluster {self._cluster.alias}: no leader for {topic}-{partition}"
                )
            leader = shown.node
            if room.get(leader, 0) < batch.size:
                newest[leader] = {}
                requests.append((leader, newest[leader]))
                room[leader] = _REQUEST_BYTES
            newest[leader][topic, partition] = batch
            room[leader] -= batch.size
        refused: set[TopicPartition] = set()
        for node, batches in requests:
            refused |= self._answers(leave=_IN_FLIGHT - 1)
            self._sent.append(
                produce.send(
                    self._cluster.connection(node, _PURPOSE),
                    batches,
                    transactional_id=self.transactional_id,
                    version=produce.VERSION_TRANSACTIONS_V2
                    if self._v2
                    else produce.VERSION_PLAIN,
                    timeout_ms=self._request_timeout_ms,
                )
            )
        return refused

    def _answers(self, *, leave: int = 0) -> set[TopicPartition]:
        """Read answers until `leave` are outstanding: what is to be sent again."""
        refused: set[TopicPartition] = set()
        while len(self._sent) > leave:
            refused |= produce.check(self._sent.pop(0).result())
        return refused

    def _open_transaction(
        self,
        part: Mapping[TopicPartition, EncodedBatch],
        topics: Mapping[str, Topic],
        refused: set[TopicPartition],
    ) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while refused := refused | self._answers():
            if time.monotonic() > end:
                raise _put_off()
            time.sleep(0.002)
            refused = self._send({key: part[key] for key in refused}, topics)

    def begin_commit(self) -> None:
        """Ask for the commit without waiting; `end_commit` waits."""
        connection = self._cluster.connection(self._coordinator)
        self._ending = connection.send(
            self._end_request(), at_most=None if self._v2 else _V1_AT_MOST
        )

    def end_commit(self) -> None:
        """Wait for the commit, if one was asked for.

        Raises:
            FencedError: another owner took over; nothing was committed by us.
            ClusterError: whether it was committed is not known: take over and read
                the progress to find out.
        """
        if self._ending is None:
            return
        answer = self._ending.result()
        self._ending = None
        if answer.error_code in codes.WAIT_AND_ASK_AGAIN:
            time.sleep(0.002)
            answer = self._ask(
                self._end_request(), "committing", at_most=None if self._v2 else 3
            )
        if answer.error_code != codes.NONE:
            raise codes.error_for(
                answer.error_code, f"committing {self.transactional_id}"
            )
        bumped = (
            getattr(answer, "producer_id", -1),
            getattr(answer, "producer_epoch", -1),
        )
        if self._v2 and bumped[0] >= 0 and bumped != (self._id, self._epoch):
            self._id, self._epoch = bumped
            self._sequences = {}

    def _end_request(self) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id or "",
            producer_id=self._id,
            producer_epoch=self._epoch,
            committed=True,
        )

    def _add_partitions(
        self, batches: Mapping[TopicPartition, Sequence[EncodedBatch]]
    ) -> None:
        names: dict[str, list[int]] = {}
        for topic, partition in batches:
            names.setdefault(topic, []).append(partition)
        entry = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self._id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                entry(name=topic, partitions=partitions)
                for topic, partitions in names.items()
            ],
        )
        self._ask(request, "adding partitions", at_most=_V1_AT_MOST)

    def _ask(self, request: Any, doing: str, *, at_most: int | None) -> Any:
        """Ask the coordinator until its answer is not "wait": bounded patience."""
        end = time.monotonic() + _PATIENCE_SECONDS
        pause = 0.002
        while True:
            connection = (
                self._cluster.connection(self._coordinator)
                if self.transactional_id is not None
                else self._cluster.any_connection()
            )
            answer = connection.call(request, at_most=at_most)
            error = _code(answer)
            if error == codes.NONE:
                return answer
            if not codes.is_retriable(error) or time.monotonic() > end:
                raise codes.error_for(error, f"{doing} {self.transactional_id or ''}")
            if error in codes.COORDINATOR_MOVED and self.transactional_id is not None:
                self._coordinator = self._cluster.transaction_coordinator(
                    self.transactional_id
                )
            time.sleep(pause)
            pause = min(pause * 2, 0.1)


def _put_off() -> ClusterError:
    return codes.error_for(codes.CONCURRENT_TRANSACTIONS, "producing")


def _code(answer: Any) -> int:
    """The error code of an answer, wherever this kind of answer keeps it.

    Raises:
        PartitionError: a topic refuses us; its neighbours were not looked at.
    """
    worst = int(getattr(answer, "error_code", None) or codes.NONE)
    for topic in getattr(answer, "results_by_topic_v3_and_below", None) or ():
        for result in topic.results_by_partition:
            code = result.partition_error_code
            if code in codes.GUILTY_PARTITION:
                raise PartitionError(
                    topic=topic.name,
                    partition=result.partition_index,
                    reason=codes.name_of(code),
                )
            # The neighbours of a refused partition only say "not attempted".
            if code not in (codes.NONE, codes.OPERATION_NOT_ATTEMPTED):
                worst = code
    return worst
