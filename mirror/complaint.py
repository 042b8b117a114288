"""Saying a thing that stays wrong once a minute, not at every try.

Main type: `Complaint`. It decides; whoever complains writes the log itself.
"""

from __future__ import annotations

import time

_AGAIN_SECONDS = 60.0


class Complaint:
    """One place's complaint, which may change its reason."""

    def __init__(self) -> None:
        self._reason = ""
        self._said_at = 0.0

    def due(self, reason: str) -> bool:
        """Whether to say this now: it is new, or was last said a minute ago."""
        now = time.monotonic()
        if reason == self._reason and now - self._said_at < _AGAIN_SECONDS:
            return False
        self._reason, self._said_at = reason, now
        return True

    def clear(self) -> None:
        """It went well: the same reason is news again."""
        self._reason = ""
