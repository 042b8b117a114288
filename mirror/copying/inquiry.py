"""Asks the source about gaps while the slot keeps copying.

Main type: `Inquiry`. It asks about all suspects that came up since it last asked, so
that many lost partitions cost no more round trips than one. `gaps` interprets the
answers; `suspicions` decides what follows from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.copying import gaps
from mirror.copying.beside import Beside
from mirror.copying.gaps import GapFinding
from mirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.copying.gaps import Suspect


class Inquiry:
    """Investigates the suspects of one slot."""

    def __init__(self, source: Cluster) -> None:
        """Takes over `source`, which need not be connected yet."""
        self._cluster = source
        self._waiting: dict[TopicPartition, Suspect] = {}
        self._beside = Beside("gaps", self._look, source.close)

    def open(self, suspect: Suspect) -> None:
        """Queue a suspect; it is investigated as soon as possible."""
        self._waiting[suspect.key] = suspect

    def findings(self) -> list[GapFinding]:
        """What is known by now, without waiting; starts the next round if suspects are
        queued.
        """
        found = self._beside.answers()
        if self._waiting and not self._beside.asks:
            suspects, self._waiting = list(self._waiting.values()), {}
            self._beside.start(suspects)
        return found

    def close(self) -> None:
        """Close the connections, at once or when the last round ends."""
        self._waiting.clear()
        self._beside.close()

    def _look(self, suspects: list[Suspect]) -> Iterable[GapFinding]:
        try:
            if not self._cluster.cluster_id:
                self._cluster.connect()
            return gaps.look(self._cluster, suspects)
        except MirrorError as error:
            reason = str(error)
            return [GapFinding(suspect=s, reason=reason) for s in suspects]
