"""A bearer token and its lifetime.

Main type: `Token`. `ends_of` reads the expiry time of a token that is a JWT; it does
not verify the token, the brokers do. `tokens` knows where tokens come from.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from mirror.clusters.bounded import Bounds, parsed
from mirror.errors import BoundsError

URL = "sasl_oauthbearer_token_endpoint_url"
"""The setting that says where a cluster's token comes from."""
_CLAIMS = Bounds(size=1 << 20, values=10_000)
_REFRESH_AT = 0.8
"""A token is replaced after this part of its lifetime, as in Java's clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Times are epoch seconds. The repr hides the token."""

    text: str = field(repr=False)
    made_at: float
    ends_at: float

    def is_good(self, now: float) -> bool:
        return now < self.ends_at

    def is_fresh(self, now: float) -> bool:
        """Whether it need not be replaced yet."""
        return now < self.made_at + (self.ends_at - self.made_at) * _REFRESH_AT


def ends_of(text: str) -> float | None:
    """When a JWT expires, in epoch seconds; None if it does not say, or is no JWT."""
    parts = text.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = parsed(base64.urlsafe_b64decode(parts[1] + "=" * 3), _CLAIMS)
    except (ValueError, BoundsError):
        return None
    ends = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(ends, bool) or not isinstance(ends, (int, float)):
        return None
    try:
        return float(ends)
    except OverflowError:
        return None
