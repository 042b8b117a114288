"""Why the content of a record cannot be decoded, or why that cannot be said."""

from __future__ import annotations

from mirror.errors import MirrorError


class ContentError(MirrorError):
    """No consumer can decode it."""


class BoundsError(MirrorError):
    """It is too large, deep or slow to try."""
