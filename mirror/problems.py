"""What is wrong with a flow's topics: several look, and it is shown together.

Main type: `Problems`, one per flow. Each job, and the look for topics, says what it
sees now; what it saw before no longer counts, while what others see stays.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.observe.board import Board


class Problems:
    """Those of one flow, on the board. Thread-safe."""

    def __init__(self, flow: str, board: Board) -> None:
        self._flow = flow
        self._board = board
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[str, ...]] = {}
        """By who sees them."""

    def tell(self, whose: str, problems: Sequence[str]) -> None:
        """Show problems beside those that others see."""
        with self._lock:
            self._seen[whose] = tuple(problems)
            together = dict.fromkeys(each for some in self._seen.values()
                                     for each in some)  # fmt: skip
            self._board.update(self._flow, problems=tuple(together))

    def forget_others(self, whose: str) -> None:
        """Keep what this one sees; the others will say what they still see."""
        with self._lock:
            self._seen = {whose: self._seen.get(whose, ())}
