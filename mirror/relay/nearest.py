"""Which replica to read: the leader, or a follower in our rack (KIP-392).

Main type: `Nearest`, what one slot knows about its partitions. Only a leader chooses a
follower: it knows who is in sync. A follower is never believed when it refuses: the
partition goes back to its leader, and is not read from a follower for a while. Even if
all is well, the leader is asked again every ten seconds: it notices a follower that
has stopped following, and says where the log ends. Pure: `source` sends the requests.
"""

from __future__ import annotations

import time

from mirror.retry import Backoff

TopicPartition = tuple[str, int]

LOOK_SECONDS = 10.0
"""After this time the leader is asked again who is nearest. Java's clients wait for
five minutes; until then they take a follower's word for where the log ends."""
PATIENCE_SECONDS = 10.0
"""How long a follower may take to accept a connection or to answer."""
_WARY = Backoff(20.0, 600.0)


class Nearest:
    """The partitions of one slot that may be read from a follower."""

    def __init__(self, rack: str) -> None:
        """`rack`: where we are, as the brokers name it; empty: read from leaders."""
        self.rack = rack
        self._wary: dict[TopicPartition, tuple[float, float]] = {}
        """Partitions whose follower failed: until when to ask the leader alone, and how
        long that is."""

    def rack_for(self, key: TopicPartition) -> str:
        """The rack to name to this partition's leader; empty: it answers itself."""
        until, _ = self._wary.get(key, (0.0, 0.0))
        return self.rack if time.monotonic() >= until else ""

    def failed(self, key: TopicPartition) -> None:
        """Note that a follower does not serve this partition."""
        _, pause = self._wary.get(key, (0.0, 0.0))
        pause = _WARY.after(pause)
        self._wary[key] = (time.monotonic() + pause, pause)

    def served(self, key: TopicPartition) -> None:
        """Note that a follower has sent records of it."""
        self._wary.pop(key, None)
