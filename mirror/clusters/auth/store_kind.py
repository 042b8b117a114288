"""Tells a Java store from a PEM file by its first bytes.

Main names: `is_store` and `StoreError`. `stores` opens stores; it is imported only when
there is one, since it needs a library that plain clusters do without.
"""

from __future__ import annotations

JKS = b"\xfe\xed\xfe\xed"
JCEKS = b"\xce\xce\xce\xce"
PKCS12 = b"\x30"
"""Every ASN.1 sequence starts with this byte; PEM never does."""


class StoreError(Exception):
    """A store that cannot be read; the message contains no secret."""


def is_store(raw: bytes) -> bool:
    """Whether these bytes are a Java store, not PEM."""
    return raw.startswith((JKS, JCEKS, PKCS12))
