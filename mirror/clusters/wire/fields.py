"""Requests as bytes, field by field, where kafka-python's classes cost too much.

Main type: `Fields`, for requests that go out with every transaction: laying one out
takes a fraction of the time that building and encoding a message takes. Bodies of
record batches are passed on, not copied.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.wire.connection import Connection
    from mirror.clusters.wire.pending_response import Pending


class Fields:
    """Kafka's primitive encodings, old and flexible (KIP-482), around big buffers."""

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._buffers: list[bytes | memoryview] = []
        self._small = bytearray()

    def raw(self, value: bytes) -> None:
        self._small += value

    def string(self, value: str | None) -> None:
        encoded = None if value is None else value.encode()
        if self._flexible:
            self._small += uvarint(0 if encoded is None else len(encoded) + 1)
        else:
            self._small += struct.pack(">h", -1 if encoded is None else len(encoded))
        self._small += encoded or b""

    def array(self, count: int) -> None:
        self._small += (
            uvarint(count + 1) if self._flexible else struct.pack(">i", count)
        )

    bytes_of = array

    def tags(self) -> None:
        if self._flexible:
            self._small += b"\0"

    def buffer(self, value: bytes | bytearray | memoryview) -> None:
        if self._small:
            self._buffers.append(bytes(self._small))
            self._small.clear()
        self._buffers.append(memoryview(value))

    def send(
        self, connection: Connection, api_key: int, version: int, answer_class: Any
    ) -> Pending:
        """Send them as a request; `answer_class` decodes its response."""
        return connection.send_buffers(
            api_key,
            version,
            self.buffers(),
            flexible=self._flexible,
            answer_class=answer_class,
        )

    def buffers(self) -> Sequence[bytes | memoryview]:
        if self._small:
            self._buffers.append(bytes(self._small))
        return self._buffers


def uvarint(value: int) -> bytes:
    """An unsigned varint, as in KIP-482."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
