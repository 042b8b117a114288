"""The network between processes and brokers, in place of sockets and the clock.

`simulated` puts a world in the place of the operating system: connections are
`SimLine`s, polls and sleeps are waits of the world, the clocks are its time. A `Wire`
is one TCP connection: bytes come in order and once, or it breaks; how long they take,
and whether they come at all, is up to chance and to the faults. The broker reads one
request of a connection at a time, as Kafka does.
"""

from __future__ import annotations

from collections import deque
import contextlib
import itertools
import os
import random
import select
import struct
import time
from typing import TYPE_CHECKING, Any, Protocol
from unittest import mock
import uuid
import zlib

from mirror import host, patience
from mirror.clusters.wire import connection, handshake
from mirror.clusters.wire.line import Line
from mirror.copying import waiting
from mirror.errors import UnreachableError
from tests.simulation import threads
from tests.simulation.world import NOON, World, sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirror.config.cluster_settings import ClusterConfig

_SIZE = struct.Struct(">i")
_FIRST_DESCRIPTOR = 1_000_000


class Broker(Protocol):
    """What answers at an address."""

    @property
    def up(self) -> bool: ...

    def handle(self, frame: bytes, wire: Wire) -> None:
        """Answer by `wire.answer`, now or later."""


class Network:
    """Addresses, and how long bytes take."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.brokers: dict[tuple[str, int], Broker] = {}
        self.wires: list[Wire] = []
        self.delay: Callable[[Wire], float] = lambda _: 0.0005
        """Seconds for the next bytes of a wire, one way."""
        self.cut: Callable[[Wire], bool] = lambda _: False
        """Whether bytes of this wire are lost now, without any sign of it."""
        self._descriptor = _FIRST_DESCRIPTOR

    def connect(
        self,
        config: ClusterConfig,
        host: str,
        port: int,
        *,
        seconds: float = handshake.CONNECT_SECONDS,
    ) -> SimLine:
        """As `handshake.open_line`."""
        sent(self.world)
        broker = self.brokers.get((host, port))
        if broker is None or not broker.up:
            self.world.sleep(0.001)
            raise UnreachableError(
                f"cluster {config.alias}: {host}:{port} does not answer: refused"
            )
        wire = Wire(self, broker, (host, port))
        self.world.sleep(self.delay(wire) * 2)
        timeout = config.request_timeout_seconds
        if self.cut(wire) or not broker.up:
            self.world.sleep(min(timeout, seconds))
            raise UnreachableError(
                f"cluster {config.alias}: {host}:{port} does not answer: timed out"
            )
        self.wires = [each for each in self.wires if not each.broken]
        self.wires.append(wire)
        self._descriptor += 1
        wire.line = SimLine(wire, self._descriptor, timeout)
        return wire.line

    def hang_up(self, broker: Broker) -> None:
        """End all connections of a broker, as its death does."""
        for wire in self.wires:
            if wire.broker is broker:
                wire.break_up()


class Wire:
    """One connection."""

    line: SimLine

    def __init__(
        self, network: Network, broker: Broker, address: tuple[str, int]
    ) -> None:
        self.network = network
        self.broker = broker
        self.address = address
        self.process = network.world.process
        self.broken = False
        self.hung = False
        """Half-open: neither side hears of the other any more."""
        self._waiting: deque[bytes] = deque()
        self._busy = False
        self._partial = bytearray()
        self._last = {True: 0.0, False: 0.0}

    def send(self, data: bytes) -> None:
        """Bytes of the client."""
        self._partial += data
        while len(self._partial) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(self._partial)[0]
            if len(self._partial) < end:
                return
            frame = bytes(self._partial[_SIZE.size : end])
            del self._partial[:end]
            self._later(lambda frame=frame: self._reach_broker(frame), up=True)

    def _later(self, action: Callable[[], None], *, up: bool) -> None:
        world = self.network.world
        # In order: nothing overtakes what was sent before it.
        at = max(self._last[up], world.now + self.network.delay(self))
        self._last[up] = at
        world.after(at - world.now, action)

    @property
    def dead(self) -> bool:
        """Whether nothing gets through."""
        return self.broken or self.hung or self.network.cut(self)

    def _reach_broker(self, frame: bytes) -> None:
        if self.dead or not self.broker.up:
            return
        self._waiting.append(frame)
        self._next()

    def _next(self) -> None:
        if not self._busy and self._waiting and self.broker.up:
            self._busy = True
            self.broker.handle(self._waiting.popleft(), self)

    def answer(self, frame: bytes | None, *, rest: float = 0.0) -> None:
        """The broker's answer to the request that it handles; None: it sends none. So
        many seconds it reads no other one of this connection, since it throttles.
        """
        if frame is not None:
            data = _SIZE.pack(len(frame)) + frame
            self._later(lambda: self._reach_client(data), up=False)
        if rest:
            self.network.world.after(rest, self._read_on)
        else:
            self._read_on()

    def _read_on(self) -> None:
        self._busy = False
        self._next()

    def _reach_client(self, data: bytes) -> None:
        if not self.dead:
            self.line.inbox += data

    def break_up(self) -> None:
        """Both sides notice that it has ended."""
        self.broken = True
        self.line.ended = True

    def forget(self) -> None:
        """The client closed it. What it sent may still arrive."""
        self.network.world.after(self.network.delay(self), self._set_broken)

    def _set_broken(self) -> None:
        self.broken = True


class SimLine(Line):
    """The client's end of a wire."""

    def __init__(self, wire: Wire, descriptor: int, timeout: float) -> None:
        self.timeout_seconds = timeout
        self.inbox = bytearray()
        self.ended = False
        self._wire = wire
        self._world = wire.network.world
        self.number = self._descriptor = descriptor
        self._process = wire.process
        self._process.lines.append(self)
        _lines[descriptor] = self

    @property
    def readable(self) -> bool:
        return bool(self.inbox) or self.ended

    def read(self, view: memoryview) -> int | None:
        if not self.inbox:
            if self.ended:
                raise ConnectionResetError("reset")
            return None
        count = min(len(view), len(self.inbox))
        view[:count] = self.inbox[:count]
        del self.inbox[:count]
        return count

    def write(self, buffers: Sequence[memoryview]) -> int:
        sent(self._world)
        if self.ended:
            raise BrokenPipeError("broken pipe")
        data = b"".join(buffers)
        if len(data) > 64 and self._world.random.random() < 0.02:
            data = data[: self._world.random.randrange(1, len(data))]
        self._wire.send(data)
        return len(data)

    def wake_at(self, size: int) -> None:
        pass

    def wait_to_read(self) -> bool:
        self._world.wait(lambda: self.readable, self.timeout_seconds)
        return self.readable

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            _lines.pop(self._descriptor, None)
            self._descriptor = -1
            self._process.lines.remove(self)
            self._wire.forget()

    def die(self) -> None:
        """Its process was killed."""
        self.ended = True
        self.close()


class Readable(Protocol):
    """What a poll can wait for."""

    @property
    def readable(self) -> bool: ...


_lines: dict[int, Readable] = {}
_others = itertools.count(10 * _FIRST_DESCRIPTOR)


def new_descriptor(what: Readable) -> int:
    """A number that real code can poll until `close_descriptor`."""
    _lines[number := next(_others)] = what
    return number


def close_descriptor(number: int) -> None:
    _lines.pop(number, None)


class _Poll:
    """In place of `select.poll`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._masks: dict[int, int] = {}

    def register(self, what: int | SimLine, mask: int) -> None:
        self._masks[what if isinstance(what, int) else what.fileno()] = mask

    modify = register

    def _events(self) -> list[tuple[int, int]]:
        found = []
        for descriptor, mask in self._masks.items():
            line = _lines.get(descriptor)
            event = mask & select.POLLOUT
            if line is None:
                event = select.POLLNVAL
            elif line.readable:
                event |= select.POLLIN
            if event:
                found.append((descriptor, event))
        return found

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        self._world.wait(lambda: bool(self._events()), milliseconds / 1000)
        return self._events()


class _Select:
    """In place of the module."""

    POLLIN, POLLOUT = select.POLLIN, select.POLLOUT

    def __init__(self, world: World) -> None:
        self._world = world

    def poll(self) -> _Poll:
        return _Poll(self._world)


class _Os:
    """In place of the module, for the names of processes."""

    def __init__(self, world: World) -> None:
        self._world = world

    def getpid(self) -> int:
        return zlib.crc32(self._world.process.name.encode()) % 100_000

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class _Socket:
    @staticmethod
    def gethostname() -> str:
        return "simulated"


class _User:
    @staticmethod
    def getuser() -> str:
        return "somebody"


@contextlib.contextmanager
def simulated(network: Network) -> Iterator[None]:
    """The real code runs in this world while the block does."""
    world = network.world
    _lines.clear()
    state = random.getstate()
    random.seed(world.random.random())
    with contextlib.ExitStack() as stack:
        stack.enter_context(threads.replaced(world))
        for target, name, value in (
            (handshake, "open_line", network.connect),
            (connection, "select", _Select(world)),
            # Sets of connections have the same order in every run.
            (connection.Connection, "__hash__", lambda self: self._line.number),
            (waiting, "select", _Select(world)),
            (patience, "ends_at", lambda: world.process.ends_at),
            (patience, "end_at", lambda at: setattr(world.process, "ends_at", at)),
            (time, "monotonic", lambda: world.now),
            (time, "time", lambda: NOON + world.now + world.process.clock),
            (time, "sleep", world.sleep),
            (time, "process_time", lambda: 0.0),  # work takes no time
            (time, "thread_time", lambda: 0.0),
            (host, "os", _Os(world)),
            (host, "socket", _Socket),
            (host, "getpass", _User),
            (uuid, "uuid4", lambda: uuid.UUID(int=world.random.getrandbits(128))),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        try:
            yield
        finally:
            world.close()
            random.setstate(state)
