"""Asks the source about gaps while the slot keeps copying.

Main type: `Inquiry`. It has its own connections and a thread that asks about all
suspects that came up since it last asked, so that a lost partition, a distant source or
an unresponsive broker holds up no other partition. `gaps` interprets the answers;
`suspicions` decides what follows from them.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from mirror.errors import MirrorError
from mirror.relay import gaps
from mirror.relay.gaps import GapFinding

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.relay.gaps import Suspect

TopicPartition = tuple[str, int]


class Inquiry:
    """Investigates the suspects of one slot."""

    def __init__(self, source: Cluster) -> None:
        """Takes over `source`, which need not be connected yet."""
        self._cluster = source
        self._waiting: dict[TopicPartition, Suspect] = {}
        self._answers: queue.SimpleQueue[list[GapFinding] | Exception] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def open(self, suspect: Suspect) -> None:
        """Queue a suspect; it is investigated as soon as possible."""
        self._waiting[suspect.key] = suspect

    def findings(self) -> list[GapFinding]:
        """What is known by now, without waiting; starts the next round if suspects are
        queued.
        """
        found: list[GapFinding] = []
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, Exception):
                raise answer
            found += answer
        if self._waiting and (self._thread is None or not self._thread.is_alive()):
            suspects, self._waiting = list(self._waiting.values()), {}
            # A daemon: an unresponsive broker must not keep a worker from exiting.
            self._thread = threading.Thread(
                target=self._look, args=(suspects,), name="gaps", daemon=True
            )
            self._thread.start()
        return found

    def close(self) -> None:
        """Close the connections, at once or when the last round ends."""
        self._waiting.clear()
        self._closing.set()
        if self._thread is None or not self._thread.is_alive():
            self._cluster.close()

    def _look(self, suspects: list[Suspect]) -> None:
        try:
            if not self._cluster.cluster_id:
                self._cluster.connect()
            self._answers.put(gaps.look(self._cluster, suspects))
        except MirrorError as error:
            reason = str(error)
            self._answers.put([GapFinding(suspect=s, reason=reason) for s in suspects])
        except Exception as error:  # noqa: BLE001  `findings` raises it in the slot
            self._answers.put(error)
        finally:
            if self._closing.is_set():
                self._cluster.close()
