"""A long way to a broker: a TCP proxy that delays each byte.

Main type: `Wan`, a process of its own. It delays both directions and limits neither: up
to 64 MB are in flight per connection and direction. It changes no bytes, so the broker
must advertise the proxy's address on the listener behind it.
"""

from __future__ import annotations

from collections import deque
import contextlib
import multiprocessing
import socket
import threading
import time
from typing import TYPE_CHECKING, Self

from tests.benchmarks.load import end_with_parent

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

_MOST_BYTES = 64 << 20
_READ_BYTES = 256 << 10
_START_SECONDS = 30.0


class Wan:
    """A context manager; the round trip grows by twice the delay."""

    def __init__(self, listen: str, broker: str, *, one_way_seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready = context.Event()
        self._process = context.Process(
            target=_serve,
            args=(listen, broker, one_way_seconds, self._ready),
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._process.start()
        if not self._ready.wait(_START_SECONDS):
            self.__exit__()
            raise RuntimeError("the delaying proxy did not start")
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.join()


def _serve(listen: str, broker: str, delay: float, ready: Event) -> None:
    end_with_parent()
    with socket.create_server(_address(listen)) as listener:
        ready.set()
        while True:
            client, _ = listener.accept()
            threading.Thread(
                target=_connect, args=(client, broker, delay), daemon=True
            ).start()


def _connect(client: socket.socket, broker: str, delay: float) -> None:
    time.sleep(2 * delay)  # the handshake's round trip
    try:
        server = socket.create_connection(_address(broker))
    except OSError:
        client.close()
        return
    for each in (client, server):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _Direction(client, server, delay).start()
    _Direction(server, client, delay).start()


class _Direction:
    """From one socket to the other; when one side ends, the other learns it later."""

    def __init__(
        self, reader: socket.socket, writer: socket.socket, delay: float
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._delay = delay
        self._under_way: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def start(self) -> None:
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        data = b"more"
        while data:
            try:
                data = self._reader.recv(_READ_BYTES)
            except OSError:
                data = b""
            with self._changed:
                while self._bytes > _MOST_BYTES:
                    self._changed.wait()
                self._under_way.append((time.monotonic() + self._delay, data))
                self._bytes += len(data)
                self._changed.notify()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._under_way:
                    self._changed.wait()
                due, data = self._under_way.popleft()
                self._bytes -= len(data)
                self._changed.notify()
            if (early := due - time.monotonic()) > 0:
                time.sleep(early)
            if not data or not self._sent(data):
                break
        with self._changed:
            self._bytes = 0  # no one waits for room any more
            self._changed.notify()
        for each in (self._writer, self._reader):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _sent(self, data: bytes) -> bool:
        try:
            self._writer.sendall(data)
        except OSError:
            return False
        return True


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
