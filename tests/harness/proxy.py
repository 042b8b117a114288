"""A TCP proxy in front of a broker that makes its answers fail, late or missing.

`BrokerProxy` forwards Kafka requests and answers; metadata and coordinators are
rewritten so that clients stay with it. `mishaps` has the rules for what goes wrong.
It serves clusters of one broker.
"""

from __future__ import annotations

from collections import deque
import contextlib
from dataclasses import dataclass, field
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from tests.harness.mishaps import Mishap, Rule
from tests.harness.protocol import class_of
from tests.harness.waiting import deadline_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_APIS = ("Produce", "Fetch", "ListOffsets", "Metadata", "FindCoordinator",
         "ApiVersions", "InitProducerId", "AddPartitionsToTxn", "EndTxn",
         "DescribeTransactions", "DescribeProducers", "DescribeGroups")  # fmt: skip


_REQUESTS = {api: class_of(f"{api}Request") for api in _APIS}
_ANSWERS = {api: class_of(f"{api}Response") for api in _APIS}
_NAMES = {found.API_KEY: api for api, found in _REQUESTS.items()}

KAFKA_2_8 = {"Produce": 9, "Fetch": 12, "ListOffsets": 6, "Metadata": 11,
             "FindCoordinator": 3, "ApiVersions": 3, "InitProducerId": 4,
             "AddPartitionsToTxn": 3, "EndTxn": 3}  # fmt: skip
"""The newest versions that such a broker speaks."""


@dataclass(slots=True)
class _Request:
    api: str | None
    version: int
    correlation: int
    frame: bytes
    rule: Rule | None = None
    left_out: list[tuple[str, int]] = field(default_factory=list)

    def decoded(self) -> Any:
        return _REQUESTS[self.api or ""].decode(
            self.frame, version=self.version, header=True
        )


class BrokerProxy:
    """Stands in front of one broker; a context manager."""

    def __init__(
        self,
        bootstrap: str,
        *,
        newest: dict[str, int] | None = None,
        seen_at: int | None = None,
        lacks: Collection[str] = (),
    ) -> None:
        """`newest` makes the broker look older: no API above these versions, and no
        transactions v2. `seen_at` is the advertised port, where something
        stands before the proxy; its own otherwise. `lacks`: APIs that it does not
        offer, as services that speak a part of the protocol.
        """
        host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
        self._broker = (host, int(port))
        # Rules name topics, and what names them by ids could not be matched.
        self._newest = {"Fetch": 12} | (newest or {})
        self._old = newest is not None
        self._lacks = {class_of(f"{name}Request").API_KEY for name in lacks}
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._seen_at = seen_at or self.port
        self._closed = False
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for open_socket in self._sockets:
                _end(open_socket)

    def lead_to(self, bootstrap: str) -> None:
        """Stand in front of another broker from now on, as when a DNS name or a load
        balancer changes; existing connections end.
        """
        host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
        self._broker = (host, int(port))
        with self._lock:
            while self._sockets:
                _end(self._sockets.pop())

    @contextlib.contextmanager
    def rules(self, *rules: Rule) -> Iterator[None]:
        """These rules are in force while the block runs; the first that fits wins."""
        self._rules = list(rules)
        try:
            yield
        finally:
            self._rules = []

    def _start(self, function: Any, *arguments: Any) -> None:
        threading.Thread(target=function, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker)
            except OSError:
                continue
            for made in (client, broker):
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(made)
            waiting: deque[_Request] = deque()
            self._start(self._requests, client, broker, waiting)
            self._start(self._answers, client, broker, waiting)

    def _requests(self, client: Any, broker: Any, waiting: deque[_Request]) -> None:
        with contextlib.suppress(OSError):
            while frame := _read(client):
                request = self._read_request(frame)
                rule = request.rule
                if rule and rule.mishap is Mishap.LOST:
                    break
                if rule and rule.mishap is Mishap.LATE_REQUEST:
                    time.sleep(rule.seconds)
                if rule and rule.mishap is Mishap.REFUSED and self._refuse(request):
                    while waiting:  # answers come in the order of requests
                        time.sleep(0.001)
                    _write(client, self._made_up(request))
                    continue
                waiting.append(request)
                _write(broker, request.frame)
        # What was late is not undone because its sender has gone.
        end = deadline_in(1)
        while waiting and time.monotonic() < end:
            time.sleep(0.01)
        _end(broker)
        _end(client)

    def _answers(self, client: Any, broker: Any, waiting: deque[_Request]) -> None:
        silent = False
        with contextlib.suppress(OSError):
            while frame := _read(broker):
                request = waiting[0]
                if request.rule:
                    request.rule.served += 1
                mishap = request.rule.mishap if request.rule else None
                silent = silent or mishap is Mishap.NO_ANSWER
                if mishap is Mishap.ANSWER_LOST:
                    break
                if request.rule and mishap in (Mishap.LATE_ANSWER, Mishap.REFUSED):
                    time.sleep(request.rule.seconds)
                if not silent:
                    with contextlib.suppress(OSError):
                        _write(client, self._answer(request, frame))
                waiting.popleft()
        _end(client)
        _end(broker)

    def _read_request(self, frame: bytes) -> _Request:
        key, version, correlation = struct.unpack_from(">hhi", frame)
        request = _Request(_NAMES.get(key), version, correlation, frame)
        with self._lock:
            for rule in self._rules:
                if rule.api != request.api or not rule.concerns(request.decoded()):
                    continue
                if rule.skip:
                    rule.skip -= 1
                elif rule.times is None or rule.hits < rule.times:
                    rule.hits += 1
                    request.rule = rule
                    break
        return request

    def _refuse(self, request: _Request) -> bool:
        """Remove what is refused from a Produce; returns whether nothing is left."""
        rule = request.rule
        assert rule is not None
        if request.api != "Produce":
            return True
        decoded = request.decoded()
        for topic in decoded.topic_data:
            for part in list(topic.partition_data):
                if topic.name == rule.topic and part.index == rule.partition:
                    topic.partition_data.remove(part)
                    request.left_out.append((topic.name, part.index))
        decoded.topic_data = [t for t in decoded.topic_data if t.partition_data]
        with self._lock:
            request.frame = bytes(decoded.encode(version=request.version, header=True))
        return not decoded.topic_data

    def _made_up(self, request: _Request) -> bytes:
        """The answer to a request that the broker never saw."""
        assert request.rule is not None
        answer = _ANSWERS[request.api or ""][request.version]()
        answer.with_header(correlation_id=request.correlation)
        if request.rule.topic is not None and request.api == "AddPartitionsToTxn":
            self._made_up_partitions(request.decoded(), answer)
        self._add_left_out(request, answer)
        request.rule.edit(answer)
        return self._encode(request, answer)

    def _made_up_partitions(self, request: Any, answer: Any) -> None:
        """The neighbours of a refused partition are "not attempted"."""
        topic_class = type(answer).AddPartitionsToTxnTopicResult
        entry = topic_class.AddPartitionsToTxnPartitionResult
        answer.results_by_topic_v3_and_below = [
            topic_class(
                name=topic.name,
                results_by_partition=[
                    entry(partition_index=p, partition_error_code=55)
                    for p in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]

    def _add_left_out(self, request: _Request, answer: Any) -> None:
        if request.left_out:  # a new list: kafka-python's empty one is everybody's
            answer.responses = list(answer.responses)
        for topic, partition in request.left_out:
            topic_class = _ANSWERS["Produce"].TopicProduceResponse
            entry = topic_class.PartitionProduceResponse(index=partition)
            answer.responses.append(
                topic_class(name=topic, partition_responses=[entry])
            )

    def _answer(self, request: _Request, frame: bytes) -> bytes:
        edited = request.rule is not None and request.rule.mishap in (
            Mishap.ERROR,
            Mishap.REFUSED,
        )
        redirected = request.api in ("Metadata", "FindCoordinator")
        aged = request.api == "ApiVersions"
        if not (edited or redirected or aged):
            return frame
        answer = _ANSWERS[request.api or ""].decode(
            frame, version=request.version, header=True
        )
        if request.api == "Metadata":
            for broker in answer.brokers:
                broker.host, broker.port = "127.0.0.1", self._seen_at
        elif request.api == "FindCoordinator":
            for found in getattr(answer, "coordinators", None) or [answer]:
                found.host, found.port = "127.0.0.1", self._seen_at
        elif aged:
            self._age(answer)
        if edited and request.rule is not None:
            self._add_left_out(request, answer)
            request.rule.edit(answer)
        return self._encode(request, answer)

    def _age(self, answer: Any) -> None:
        for key in answer.api_keys:
            ceiling = self._newest.get(_NAMES.get(key.api_key, ""), key.max_version)
            key.max_version = min(key.max_version, ceiling)
        answer.api_keys = [k for k in answer.api_keys if k.api_key not in self._lacks]
        if self._old or self._lacks:
            answer.finalized_features = []

    def _encode(self, request: _Request, answer: Any) -> bytes:
        with self._lock:  # kafka-python's encoder is not made for threads
            return bytes(answer.encode(header=True))


def _read(open_socket: socket.socket) -> bytes:
    """A frame; empty at the end of the connection."""
    head = open_socket.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return b""
    size = struct.unpack(">i", head)[0]
    frame = bytearray()
    while len(frame) < size:
        part = open_socket.recv(min(size - len(frame), 1 << 20))
        if not part:
            return b""
        frame += part
    return bytes(frame)


def _write(open_socket: socket.socket, frame: bytes) -> None:
    open_socket.sendall(struct.pack(">i", len(frame)) + frame)


def _end(open_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
    open_socket.close()
