"""The next piece of a tail is made while the last one is written."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from mirror.recovery.tails.packing import ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit


def test_the_next_piece_is_made_meanwhile() -> None:
    """While the first piece is used the second one is made, and no third; a failure
    comes after the pieces before it.
    """
    made: list[int] = []
    second = threading.Event()

    def pieces() -> Iterator[int]:
        for number in range(1, 4):
            made.append(number)
            if number == 2:
                second.set()
            yield number
        raise ValueError("the fourth")

    found = ahead(pieces())
    assert next(found) == 1
    assert second.wait(30)
    assert made == [1, 2]
    assert [next(found), next(found)] == [2, 3]
    with pytest.raises(ValueError, match="the fourth"):
        next(found)
