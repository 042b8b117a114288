"""Which records of a tail a command's filters choose."""

from __future__ import annotations

from typing import Any
import uuid

import numpy as np
import pytest

from mirror.recovery.tails.settling import chosen, key_mark
from mirror.recovery.tails.tail import Choice, TailPartition

pytestmark = pytest.mark.unit

_KEYS = (b"a", b"b", b"a", b"")
_TIMES = (100, 200, 300, 400)


def _part() -> TailPartition:
    offsets = np.arange(5, 9)
    return TailPartition(
        topic="orders", partition=1, target_topic="A.orders", topic_id=uuid.uuid4(),
        position=5, end=9, open=False, replayed_to=5, replayed=0, written_off=0,
        offsets=offsets, times=np.array(_TIMES),
        keys=np.array([key_mark(key) for key in _KEYS]), sizes=np.ones(4, np.int64),
        rows=np.empty((4, 0), np.int64), epoch=-1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [5, 6, 7, 8]),
        ({"topic": "orders"}, [5, 6, 7, 8]),
        ({"topic": "ord"}, []),
        ({"topic": "ord.*|x"}, [5, 6, 7, 8]),
        ({"partition": 1}, [5, 6, 7, 8]),
        ({"partition": 0}, []),
        ({"key": b"a"}, [5, 7]),
        ({"key": b""}, [8]),
        ({"key": b"c"}, []),
        ({"since_ms": 200}, [6, 7, 8]),
        ({"until_ms": 200}, [5]),
        ({"since_ms": 200, "until_ms": 400}, [6, 7]),
        ({"key": b"a", "since_ms": 101, "partition": 1, "topic": "orders"}, [7]),
    ],
)
def test_filters(filters: dict[str, Any], expected: list[int]) -> None:
    """A record is chosen if it passes all filters: a topic's whole name, a partition, a
    key byte by byte, and times from one on, before the other.
    """
    part = _part()
    assert part.offsets[chosen(part, Choice(**filters))].tolist() == expected
