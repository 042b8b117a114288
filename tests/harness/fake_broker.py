"""A fake broker inside the test's own process.

`Broker` negotiates versions and answers requests for metadata, coordinators and log
offsets, over plain TCP or TLS. Tests see how many connections it accepted and which
requests came over each, close connections as a broker closes idle ones, turn it into a
broker of another cluster at the same address, and set the brokers and leaders it names.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
import queue
import select
import socket
import ssl
import struct
import threading
from typing import TYPE_CHECKING, Any, Self

from tests.harness import protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_APIS = ("ApiVersions", "Metadata", "FindCoordinator", "ListOffsets", "EndTxn",
         "InitProducerId", "Produce", "Fetch", "OffsetForLeaderEpoch")  # fmt: skip
_REQUESTS, _ANSWERS = protocol.tables(_APIS)
_VERSIONS = {"Produce": 9, "Fetch": 11, "ListOffsets": 6, "Metadata": 9,
             "FindCoordinator": 3, "ApiVersions": 3, "InitProducerId": 4,
             "EndTxn": 3, "OffsetForLeaderEpoch": 4}  # fmt: skip
_EARLIEST = -2
_UNKNOWN_TOPIC = 3


@dataclass(eq=False)
class Taken:
    """A connection that the broker accepted."""

    line: socket.socket
    asked: list[str] = field(default_factory=list)
    """The requests that came over it, in order."""
    _orders: queue.SimpleQueue[Callable[[socket.socket], None]] = field(
        default_factory=queue.SimpleQueue
    )
    _bell: tuple[socket.socket, socket.socket] = field(
        default_factory=socket.socketpair
    )

    def do(self, order: Callable[[socket.socket], None]) -> None:
        """Run a function in the thread that reads the line, as TLS needs it."""
        self._orders.put(order)
        with contextlib.suppress(OSError):
            self._bell[0].sendall(b"!")

    def wait(self) -> None:
        """Wait for a request, running ordered functions meanwhile."""
        while not (isinstance(self.line, ssl.SSLSocket) and self.line.pending()):
            ready, _, _ = select.select([self.line, self._bell[1]], [], [])
            if self._bell[1] not in ready:
                return
            self._bell[1].recv(1)
            self._orders.get()(self.line)

    def close(self) -> None:
        for each in (self.line, *self._bell):
            each.close()


class Broker:
    """A broker of a cluster of one, or of more that it names; a context manager."""

    def __init__(
        self,
        *,
        cluster_id: str = "first",
        tls: ssl.SSLContext | None = None,
        node: int = 1,
    ) -> None:
        self.cluster_id = cluster_id
        self.node = node
        self.names: list[Broker] = [self]
        """The brokers of the cluster, as this one knows them."""
        self.leaders: dict[str, list[int]] = {}
        """Of each partition of each topic, as this one knows them; in epoch 1."""
        self.logs: tuple[int, int] = (0, 0)
        """The first offset of every log that is asked for, and its end."""
        self.taken: list[Taken] = []
        self.hangs_up_on: set[str] = set()
        """Requests that it reads, once, and then ends the connection."""
        self.silent_on: set[str] = set()
        """Requests that it reads and never answers."""
        self._tls = tls
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    @property
    def asked(self) -> list[str]:
        """All requests except those for versions, connection by connection."""
        return [api for t in self.taken for api in t.asked if api != "ApiVersions"]

    def hang_up(self) -> None:
        """End all connections, as a broker ends idle ones."""
        for taken in self.taken:
            taken.do(socket.socket.close)

    def take_leave(self) -> None:
        """The same, with TLS's close_notify where there is TLS."""
        for taken in self.taken:
            taken.do(_goodbye)

    def reset(self) -> None:
        """The same, as a device between the two does that dropped the connections."""
        for taken in self.taken:
            taken.do(_reset)

    def _start(self, function: Any, *arguments: Any) -> None:
        threading.Thread(target=function, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                if self._tls is not None:
                    line = self._tls.wrap_socket(line, server_side=True)
                taken = Taken(line)
                self.taken.append(taken)
                self._start(self._serve, taken)

    def _serve(self, taken: Taken) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                taken.wait()
                if not (frame := _read(taken.line)):
                    break
                if (answer := self._answer(taken, frame)) is None:
                    break
                taken.line.sendall(answer)
        taken.close()

    def _answer(self, taken: Taken, frame: bytes) -> bytes | None:
        key, version, correlation = struct.unpack_from(">hhi", frame)
        api, request_class = _REQUESTS[key]
        taken.asked.append(api)
        if api in self.hangs_up_on:
            self.hangs_up_on.discard(api)
            return None
        if api in self.silent_on:
            return b""
        with self._lock:  # kafka-python's encoder is not made for threads
            request = request_class.decode(frame, version=version, header=True)
            answer = _ANSWERS[api][version]()
            self._fill(api, request, answer)
            answer.with_header(correlation_id=correlation)
            body = bytes(answer.encode(header=True))
        return struct.pack(">i", len(body)) + body

    def _fill(self, api: str, request: Any, answer: Any) -> None:
        if api == "ApiVersions":
            entry = type(answer).ApiVersion
            answer.api_keys = [
                entry(api_key=key, min_version=0, max_version=_VERSIONS[name])
                for key, (name, _) in _REQUESTS.items()
            ]
        elif api == "Metadata":
            broker = type(answer).MetadataResponseBroker
            answer.brokers = [
                broker(node_id=each.node, host="127.0.0.1", port=each.port, rack=None)
                for each in self.names
            ]
            answer.cluster_id, answer.controller_id = self.cluster_id, 1
            answer.topics = [
                self._topic(type(answer), asked.name) for asked in request.topics or ()
            ]
        elif api == "FindCoordinator":
            answer.error_code, answer.error_message = 0, None
            answer.node_id, answer.host = self.node, "127.0.0.1"
            answer.port = self.port
        elif api == "InitProducerId":
            answer.error_code, answer.producer_id, answer.producer_epoch = 0, 7, 0
        elif api == "ListOffsets":
            answer.topics = [
                self._listed(type(answer), asked) for asked in request.topics or ()
            ]
        elif api == "OffsetForLeaderEpoch":
            answer.topics = [
                self._ended(type(answer), asked) for asked in request.topics or ()
            ]

    def _topic(self, answer: Any, name: str) -> Any:
        entry = answer.MetadataResponseTopic
        partition = entry.MetadataResponsePartition
        return entry(
            error_code=0 if name in self.leaders else _UNKNOWN_TOPIC,
            name=name,
            is_internal=False,
            partitions=[
                partition(
                    error_code=0, partition_index=index, leader_id=leader,
                    leader_epoch=1, replica_nodes=[leader], isr_nodes=[leader],
                    offline_replicas=[],
                )
                for index, leader in enumerate(self.leaders.get(name, []))
            ],
        )  # fmt: skip

    def _listed(self, answer: Any, asked: Any) -> Any:
        entry = answer.ListOffsetsTopicResponse
        partition = entry.ListOffsetsPartitionResponse
        return entry(
            name=asked.name,
            partitions=[
                partition(
                    partition_index=each.partition_index, error_code=0, timestamp=-1,
                    offset=self.logs[each.timestamp != _EARLIEST], leader_epoch=1,
                )
                for each in asked.partitions
            ],
        )  # fmt: skip

    def _ended(self, answer: Any, asked: Any) -> Any:
        entry = answer.OffsetForLeaderTopicResult
        return entry(
            topic=asked.topic,
            partitions=[
                entry.EpochEndOffset(
                    error_code=0, partition=each.partition, leader_epoch=1,
                    end_offset=self.logs[1],
                )
                for each in asked.partitions
            ],
        )  # fmt: skip


def _read(line: socket.socket) -> bytes:
    """A frame; empty at the end of the connection."""
    head = _exactly(line, 4)
    return _exactly(line, struct.unpack(">i", head)[0]) if head else b""


def _exactly(line: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = line.recv(size - len(found))
        if not part:
            return b""
        found += part
    return bytes(found)


def _goodbye(line: socket.socket) -> None:
    if isinstance(line, ssl.SSLSocket):
        line.settimeout(0.1)
        with contextlib.suppress(OSError):
            line.unwrap()  # it says so, and waits for us to say so
    line.close()


def _reset(line: socket.socket) -> None:
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()
