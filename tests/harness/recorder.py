"""Someone who listens in between: keeps every byte of the connections through a port.

Main type: `Recorder`, a context manager. It passes everything on unchanged.
"""

from __future__ import annotations

from contextlib import suppress
import socket
import threading
from typing import Self


class Recorder:
    """Listens on one address, and passes on to another."""

    def __init__(self, address: tuple[str, int], behind: tuple[str, int]) -> None:
        self.heard = bytearray()
        """Both directions of each connection, mixed as they came."""
        self._behind = behind
        self._listener = socket.create_server(address)
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._behind)
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(
                    target=self._pass_on, args=(one, other), daemon=True
                ).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while part := one.recv(1 << 16):
                self.heard += part
                other.sendall(part)
            other.shutdown(socket.SHUT_WR)
