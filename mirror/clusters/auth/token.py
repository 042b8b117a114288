"""A bearer token, and until when it may be shown.

Main type: `Token`. `ends_of` reads what a token says of itself, if it is a JWT: only
its end, and unverified, since it is the brokers who judge it. Where tokens come from
is not known here.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
import json

_REFRESH_AT = 0.8
"""As Java's clients: at this part of its life a token is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Times are epoch seconds. Its repr hides it."""

    text: str = field(repr=False)
    made_at: float
    ends_at: float

    def is_good(self, now: float) -> bool:
        return now < self.ends_at

    def is_fresh(self, now: float) -> bool:
        """Whether it need not be replaced yet."""
        return now < self.made_at + (self.ends_at - self.made_at) * _REFRESH_AT


def ends_of(text: str) -> float | None:
    """When a JWT ends, in epoch seconds; None if it does not say so, or is no JWT."""
    parts = text.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * 3))
    except (binascii.Error, ValueError):
        return None
    ends = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(ends, bool) or not isinstance(ends, (int, float)):
        return None
    return float(ends)
