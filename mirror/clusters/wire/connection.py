"""One synchronous connection to one broker, for small requests and bulk bytes.

Main type: `Connection`. Small requests are kafka-python's message classes; Produce and
Fetch pass raw buffers without copying (`send_buffers`, `take_buffer`). Responses come
in the order of the requests, so reading one reads all before it. There is no thread and
no retry: any failure closes the connection and fails what is in flight.
"""

from __future__ import annotations

from collections import deque
import contextlib
from itertools import islice
import select
import struct
import time
from typing import TYPE_CHECKING, Any, NoReturn

from kafka.protocol.api_header import ResponseClassRegistry

from mirror import patience
from mirror.clusters import cpu_share, error_counts
from mirror.clusters.wire import handshake
from mirror.clusters.wire.pending_response import Pending
from mirror.errors import (
    ClusterChangedError,
    ClusterError,
    UnreachableError,
    UnsupportedBrokerError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mirror.clusters.wire.line import Line
    from mirror.config.cluster_settings import ClusterConfig


_MAX_SMALL_ANSWER = 256 << 20
_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")
_NO_TAGS = b"\0"


class Connection:
    """A connection that has agreed on versions and is authenticated."""

    def __init__(
        self,
        config: ClusterConfig,
        host: str,
        port: int,
        *,
        client_id: str,
        cluster_id: str = "",
        connect_seconds: float = handshake.CONNECT_SECONDS,
    ) -> None:
        """Connect. With a `cluster_id`, requests other than `QUESTIONS` wait until the
        broker has confirmed that it belongs to this cluster; if it does not, every
        request raises `ClusterChangedError`.

        Raises:
            UnreachableError: nothing answers at this address in time.
            AuthenticationError: TLS or SASL refused us.
        """
        self.address = f"{host}:{port}"
        self.timeout_seconds = config.request_timeout_seconds
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.reauthenticate_at: float | None = None
        self.active_at = time.monotonic()
        """When bytes were last sent or received."""
        self._config = config
        self._host = host
        self.alias = config.alias
        self._client_id = client_id
        client = client_id.encode()
        self._client = _LENGTH.pack(len(client)) + client
        self._pending: deque[Pending] = deque()
        self._correlation = 0
        self._buffer = bytearray(1 << 16)
        self._closed: ClusterError | None = None
        self._cluster_id = cluster_id
        self._identity: Pending | None = None
        self._held_until = 0.0
        self.together = False
        """While it is set, requests wait for the next one, to be sent in one piece."""
        self.may_send_on: Callable[[], bool] = lambda: True
        """Whether the rest of a request that was sent in part may follow."""
        with error_counts.connecting(config.alias):
            self._line = handshake.open_line(
                config, host, port, seconds=connect_seconds
            )
        self._outgoing = Outgoing(self._line)
        self._incoming = Incoming(self._line)
        self._head = memoryview(bytearray(_SIZE.size))
        self._frame: memoryview | None = None
        self._whole = False
        began = time.monotonic()
        try:
            self.versions, self.features = handshake.negotiate(self, config, host)
            self.round_trip_seconds = time.monotonic() - began
            self.authenticate()
            if cluster_id:
                self._identity = self.send(handshake.question())
        except ClusterError:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether it can no longer be used."""
        return self._closed is not None

    @property
    def idle(self) -> bool:
        """Whether no response is outstanding."""
        return not self._pending

    def notice_end(self) -> None:
        """Close it if the broker closed it while it was idle, as brokers do after
        `connections.max.idle.ms`.
        """
        if self._pending and self._pending[0] is self._identity:
            self.read_on()  # that response may be there, unread
        if not self.closed and self.idle and not self._line.silent:
            self.close()

    @property
    def hung_up(self) -> bool:
        """Whether the broker closed it, as opposed to not answering in time."""
        cause = self._closed.__cause__ if self._closed is not None else None
        return isinstance(cause, OSError) and not isinstance(cause, TimeoutError)

    @property
    def session_ends(self) -> bool:
        """Whether it is open and must authenticate again before the next request."""
        at = self.reauthenticate_at
        return not self.closed and at is not None and time.monotonic() > at

    def authenticate(self) -> None:
        """Authenticate (again), if the cluster requires it.

        Requests in flight are answered first, in their order.

        Raises:
            UnreachableError: the connection failed.
            AuthenticationError: the broker refused us; the connection is closed.
        """
        try:
            self.reauthenticate_at = handshake.authenticate(
                self, self._config, self._host
            )
        except ClusterError as error:
            self.close(error)
            raise

    def version(self, request_class: Any, *, at_most: int | None = None) -> int:
        """The newest version of a request that both sides speak.

        Raises:
            UnsupportedBrokerError: there is none.
        """
        ceiling = request_class.max_version if at_most is None else at_most
        low, high = self.versions.get(request_class.API_KEY, (0, -1))
        chosen = min(high, ceiling)
        if chosen < low or high < 0:
            raise UnsupportedBrokerError(
                f"cluster {self.alias}: {self.address} has no usable version of "
                f"{request_class.__name__}: it speaks {low} to {high}, mirror up to "
                f"{ceiling}; brokers 2.5 to 4.x are supported"
            )
        return int(chosen)

    def send(self, request: Any, *, at_most: int | None = None) -> Pending:
        """Send a kafka-python request; `at_most` caps its version."""
        request.API_VERSION = self.version(type(request), at_most=at_most)
        return self.send_as_is(request)

    def call(self, request: Any, *, at_most: int | None = None) -> Any:
        return self.send(request, at_most=at_most).result()

    def calls(self, requests: Sequence[Any]) -> list[Any]:
        """Send all, then wait for all."""
        pending = [self.send(each) for each in requests]
        return [each.result() for each in pending]

    def send_as_is(self, request: Any) -> Pending:
        """Send a kafka-python request in the version that it has."""
        self._be_sure(request.API_KEY)
        self._correlation += 1
        request.with_header(correlation_id=self._correlation, client_id=self._client_id)
        answers = ResponseClassRegistry.get_response_class(request.header)
        pending = Pending(self, self._correlation, answers)
        self._write([request.encode(header=True, framed=True)], pending)
        return pending

    def send_buffers(
        self,
        api_key: int,
        version: int,
        buffers: Sequence[bytes | memoryview],
        *,
        flexible: bool,
        answer_class: Any = None,
    ) -> Pending:
        """Send a request whose body is ready in buffers, without copying them.

        `answer_class` decodes the response; without one, the response is a raw view.
        """
        self._be_sure(api_key)
        self._correlation += 1
        header = _HEADER.pack(api_key, version, self._correlation) + self._client
        if flexible:
            header += _NO_TAGS
        size = len(header) + sum(len(buffer) for buffer in buffers)
        pending = Pending(
            self, self._correlation, answer_class[version] if answer_class else None
        )
        self._write([_SIZE.pack(size) + header, *buffers], pending)
        return pending

    def _be_sure(self, api_key: int) -> None:
        if self._identity is not None and api_key not in handshake.QUESTIONS:
            self._identity.result()

    def _write(self, buffers: Sequence[bytes | memoryview], pending: Pending) -> None:
        cpu_share.rest()
        if self._closed is not None:
            raise self._closed
        self._pending.append(pending)
        try:
            self._outgoing.put(buffers)
            if not self.together:
                self._send_some()
        except OSError as error:
            self._break(error)
        if len(self._pending) == 1:
            self.active_at = time.monotonic()

    @property
    def sending(self) -> bool:
        """Whether part of a request is unsent and may be sent: `send_on` once the
        socket has room.
        """
        return self.unsent and self.may_send_on()

    @property
    def unsent(self) -> bool:
        """Whether part of a request has not left this process."""
        return bool(self._outgoing)

    def send_on(self) -> None:
        """Send more, without waiting. A failure closes the connection; reading from it
        then raises.
        """
        try:
            self._send_some()
        except OSError as error:
            with contextlib.suppress(UnreachableError):
                self._break(error)

    def _send_some(self) -> None:
        if self._outgoing.send():
            self.active_at = time.monotonic()

    def _send_rest(self) -> None:
        """Wait until everything is sent, or until a response arrives."""
        while self._outgoing and not self.readable:
            poller = select.poll()
            poller.register(self._line, select.POLLIN | select.POLLOUT)
            events = patience.poll(poller, self.timeout_seconds)
            if not events:
                raise TimeoutError
            if events[0][1] & ~select.POLLOUT:
                return
            self._send_some()

    def require_answer(self, patience: float) -> None:
        """Give up if a response has been due for longer than `patience` seconds.

        Raises:
            UnreachableError: it has; the connection is closed.
        """
        if self._overdue(patience):
            # A large response on a slow line wakes us only once much of it is there.
            self.read_on()
            if self._overdue(patience):
                self._break(TimeoutError())

    def _overdue(self, patience: float) -> bool:
        since = max(self.active_at, self._held_until)
        return bool(self._pending) and time.monotonic() - since > patience

    def hold(self, seconds: float) -> None:
        """Expect no response for `seconds`: because of a quota, the broker reads
        nothing from us in this time.
        """
        self._held_until = time.monotonic() + seconds

    @property
    def held_seconds(self) -> float:
        """How much longer the broker reads nothing from us."""
        return max(0.0, self._held_until - time.monotonic())

    def read_answer(self) -> None:
        """Read the next response and resolve the oldest pending request with it."""
        if self._closed is not None:
            raise self._closed
        try:
            self._send_rest()
            self._take_in(wait=True)
        except OSError as error:
            self._break(error)
        self._resolve_oldest()

    def _resolve_oldest(self) -> None:
        """Resolve the oldest pending request with the complete response."""
        frame, self._frame, self._whole = self._frame, None, False
        assert frame is not None
        pending = self._pending.popleft()
        pending.resolve(frame)
        if pending is self._identity:
            self._identity = None
            try:
                handshake.require(
                    self._cluster_id, pending.result().cluster_id, alias=self.alias,
                    where=self.address,
                )  # fmt: skip
            except ClusterChangedError as error:
                self.close(error)
                raise

    def read_on(self) -> None:
        """Read what has arrived of the next response, without waiting, so that the
        broker can keep sending. A failure closes the connection; reading then raises.
        """
        if self._pending and not self.closed:
            try:
                self._take_in(wait=False)
            except OSError as error:
                with contextlib.suppress(UnreachableError):
                    self._break(error)
            if not self.closed and self._whole and self._pending[0] is self._identity:
                with contextlib.suppress(ClusterChangedError):
                    self._resolve_oldest()
                self.read_on()

    def _take_in(self, *, wait: bool) -> None:
        """Read as much of the next response's frame as there is."""
        before = self._incoming.taken
        if self._frame is None and self._incoming.fill(self._head, wait=wait):
            self._frame = self._room_for(_SIZE.unpack(self._head)[0])
        if self._frame is not None and not self._whole:
            self._whole = self._incoming.fill(self._frame, wait=wait)
            if self._whole and (
                _SIZE.unpack_from(self._frame)[0] != self._pending[0].correlation
            ):
                raise ConnectionError("a response without a request")
        if self._whole or self._incoming.taken != before:
            self.active_at = time.monotonic()

    def _room_for(self, size: int) -> memoryview:
        if not 4 <= size <= _MAX_SMALL_ANSWER:
            raise ConnectionError(
                f"a response of {size} bytes: not Kafka, or does it require TLS?"
            )
        if not self._pending[0].raw:
            return memoryview(bytearray(size))
        if size > len(self._buffer):
            self._buffer = bytearray(size + (size >> 2))
        return memoryview(self._buffer)[:size]

    def take_buffer(self, spare: bytearray) -> bytearray:
        """Hand over the buffer of the last raw response; `spare` gets the next one."""
        taken, self._buffer = self._buffer, spare
        return taken

    @property
    def readable(self) -> bool:
        """Whether there is something to read that `select` does not see: a response
        that was read completely, or bytes inside the TLS layer.
        """
        return self.whole or self._line.unread

    @property
    def whole(self) -> bool:
        """Whether the next response was read completely."""
        return self._whole

    def fileno(self) -> int:
        return self._line.fileno()

    def _break(self, cause: OSError) -> NoReturn:
        text = "no answer in time" if isinstance(cause, TimeoutError) else str(cause)
        due = self._pending[0].api if self._pending else error_counts.CONNECT
        error_counts.broke(self.alias, due, cause)
        error = UnreachableError(f"cluster {self.alias}: {self.address}: {text}")
        error.__cause__ = cause
        self.close(error)
        raise error

    def close(self, error: ClusterError | None = None) -> None:
        if self._closed is None:
            self._closed = error or UnreachableError(
                f"cluster {self.alias}: connection to {self.address} is closed"
            )
            self._line.close()
            self._outgoing.clear()
            while self._pending:
                self._pending.popleft().fail(self._closed)


# ---- sends buffers over a line, as many bytes at a time as it accepts ----
#
# Main type: `Outgoing`. It never waits, so that the next request can be built while
# the last one is sent; its owner calls `send` again when the line has room.


_BUFFERS_AT_ONCE = 64
"""The kernel accepts 1024 at most."""


class Outgoing:
    """The unsent buffers of a line, in order. False when empty."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._buffers: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._buffers) or self._line.unsent

    def put(self, buffers: Iterable[bytes | memoryview]) -> None:
        """Append buffers; they must not change before they are sent."""
        self._buffers += map(memoryview, buffers)

    def clear(self) -> None:
        self._buffers.clear()

    def send(self) -> int:
        """Send what the line accepts now; returns the number of bytes.

        Raises:
            OSError: the connection failed.
        """
        total = 0
        while self:
            part = list(islice(self._buffers, _BUFFERS_AT_ONCE))
            sent = self._line.write(part)
            total += sent
            for buffer in part:
                if sent < len(buffer):
                    self._buffers[0] = buffer[sent:]
                    return total
                sent -= len(buffer)
                self._buffers.popleft()
            if self._line.unsent:
                break
        return total


# ---- fills buffers with bytes from a line ----
#
# Main type: `Incoming`. It waits for missing bytes, or takes only those that have
# arrived, so that a broker need not stop sending while we are busy. For a large
# response the kernel wakes us per mebibyte instead of per packet (SO_RCVLOWAT),
# which saves work on both sides. It does not interpret the bytes.


_LARGE = 64 << 10
_PIECE = 1 << 20


class Incoming:
    """The bytes that arrive over a line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._wakes_at = 1
        self.taken = 0
        """How many bytes of the current view are filled."""

    def fill(self, view: memoryview, *, wait: bool) -> bool:
        """Continue to fill a view; returns whether it is full. Without `wait`, takes
        only what is there. Pass the same view until it is full.

        Raises:
            TimeoutError: nothing came within the line's timeout.
            ConnectionError: the peer closed the connection.
            OSError: the connection failed in another way.
        """
        waited_in_vain = False
        while self.taken < len(view):
            came = self._line.read(view[self.taken :])
            if came == 0:
                raise ConnectionError("the broker closed the connection")
            if came is not None:
                self.taken += came
                waited_in_vain = False
                continue
            # Only after one more read: a few bytes may have come without waking us.
            if waited_in_vain:
                raise TimeoutError
            self._wake_for(len(view) - self.taken)
            if not wait:
                return False
            waited_in_vain = not self._line.wait_to_read()
        self.taken = 0
        self._wake_for(1)
        return True

    def _wake_for(self, left: int) -> None:
        """Have the kernel wake us per piece of a large rest, else for any byte."""
        wakes_at = min(left, _PIECE) if left >= _LARGE else 1
        if wakes_at != self._wakes_at:
            self._line.wake_at(wakes_at)
            self._wakes_at = wakes_at
