"""Asks questions in a thread while the slot keeps copying.

Main type: `BackgroundQuery`. It asks in rounds, whatever has come up since the last
one, so that a broker or a registry that does not answer holds up no partition but those
that wait for it. What it asks has connections of its own, which close when the last
round ends.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Questions = TypeVar("Questions")
Answer = TypeVar("Answer")


class BackgroundQuery(Generic[Questions, Answer]):
    """The questions of one kind that one slot has."""

    def __init__(
        self,
        name: str,
        ask: Callable[[Questions], Iterable[Answer]],
        release: Callable[[], None],
    ) -> None:
        """`name`: the thread's. `release` closes what `ask` uses."""
        self._name = name
        self._ask = ask
        self._release = release
        self._answers: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    @property
    def asks(self) -> bool:
        """Whether a round is under way."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def closing(self) -> bool:
        """Whether the slot no longer waits for answers."""
        return self._closing.is_set()

    def start(self, questions: Questions) -> None:
        """Begin a round; call it only when none is under way."""
        # A daemon: what does not answer must not keep a worker from exiting.
        self._thread = threading.Thread(
            target=self._round, args=(questions,), name=self._name, daemon=True
        )
        self._thread.start()

    def answers(self) -> list[Answer]:
        """What came since the last call, without waiting. Raises what ended a round."""
        found = []
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, Exception):
                raise answer
            found.append(answer)
        return found

    def close(self) -> None:
        """Release what is asked, at once or when the last round ends."""
        self._closing.set()
        if not self.asks:
            self._release()

    def _round(self, questions: Questions) -> None:
        try:
            for answer in self._ask(questions):
                self._answers.put(answer)
        except Exception as error:  # noqa: BLE001  `answers` raises it in the slot
            self._answers.put(error)
        finally:
            if self.closing:
                self._release()
