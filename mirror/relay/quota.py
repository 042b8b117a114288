"""How much to write at a time, where the target's brokers throttle us.

Main type: `Quota`. A broker that is written more than a quota allows says for how long
it will read nothing more from that connection: the more at once, the longer. So what
goes into a transaction is kept to about a second of what the quota allows, and grows
again when no broker throttles. Pure: `transaction_path` tells it what brokers said.
"""

from __future__ import annotations

_LEAST_BYTES = 64 << 10
_MOST_BYTES = 16 << 20
_LONG_SECONDS = 1.0
"""A rest that is longer calls for less at a time."""
_SHORT_SECONDS = 0.2
"""One that is shorter allows more."""
_GROWTH = 1.25


class Quota:
    """What one slot knows of the quotas that it meets."""

    def __init__(self) -> None:
        self.most_bytes = _MOST_BYTES

    def learn(self, size: int, rest_seconds: float) -> None:
        """So many bytes made a broker want to rest for so long."""
        if rest_seconds > _LONG_SECONDS:
            fitting = int(min(size, self.most_bytes) / rest_seconds)
            self.most_bytes = max(fitting, _LEAST_BYTES)
        elif rest_seconds < _SHORT_SECONDS:
            self.most_bytes = min(int(self.most_bytes * _GROWTH), _MOST_BYTES)
