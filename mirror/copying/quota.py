"""How much to write at a time when the target's brokers throttle us.

Main type: `Quota`. A broker that receives more than a quota allows says for how long
it will not read from that connection: the more at once, the longer. So `Quota` keeps a
transaction to about one second of what the quota allows, and lets it grow again when no
broker throttles. It is pure: `target` passes in what brokers said.
"""

from __future__ import annotations

_LEAST_BYTES = 64 << 10
_MOST_BYTES = 16 << 20
_LONG_SECONDS = 1.0
"""After a longer throttle time, write less at a time."""
_SHORT_SECONDS = 0.2
"""After a shorter one, write more."""
_GROWTH = 1.25


class Quota:
    """What one slot has learned about the quotas on its target."""

    def __init__(self) -> None:
        self.most_bytes = _MOST_BYTES

    def learn(self, size: int, rest_seconds: float) -> None:
        """Adjust to how long a broker throttled a write of this size."""
        if rest_seconds > _LONG_SECONDS:
            fitting = int(min(size, self.most_bytes) / rest_seconds)
            self.most_bytes = max(fitting, _LEAST_BYTES)
        elif rest_seconds < _SHORT_SECONDS:
            self.most_bytes = min(int(self.most_bytes * _GROWTH), _MOST_BYTES)
