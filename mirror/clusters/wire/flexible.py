"""Reading answers in Kafka's flexible encoding (KIP-482) by hand.

Main type: `Reader`, a place in an answer's bytes. For answers that kafka-python does
not know. What the fields mean is the caller's.
"""

from __future__ import annotations

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Reader:
    """Goes through an answer from its first byte on."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = bytes(data)
        self.at = 0

    def int16(self) -> int:
        self.at += 2
        return int(_INT16.unpack_from(self.data, self.at - 2)[0])

    def int32(self) -> int:
        self.at += 4
        return int(_INT32.unpack_from(self.data, self.at - 4)[0])

    def skip(self, size: int) -> None:
        self.at += size

    def uvarint(self) -> int:
        data, at = self.data, self.at
        byte = data[at]
        at += 1
        value = byte & 0x7F
        shift = 7
        while byte & 0x80:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        self.at = at
        return value

    def count(self) -> int:
        """How many elements an array has; none for a null one."""
        return max(self.uvarint() - 1, 0)

    def string(self) -> str:
        """A text; an empty one for null."""
        size = self.count()
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def tags(self) -> None:
        """Pass over tagged fields."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.skip(self.uvarint())
