"""What a file of certificates is, by its first bytes: a store of Java's, or PEM.

Main names: `is_store` and `StoreError`. `stores` opens stores; it is loaded only where
there is one, since it brings a library that plain clusters do without.
"""

from __future__ import annotations

JKS = b"\xfe\xed\xfe\xed"
JCEKS = b"\xce\xce\xce\xce"
PKCS12 = b"\x30"
"""Any sequence of ASN.1 begins so; PEM never does."""


class StoreError(Exception):
    """A store that cannot be read; its text shows no secret."""


def is_store(raw: bytes) -> bool:
    """Whether these bytes are a store of Java's, not PEM."""
    return raw.startswith((JKS, JCEKS, PKCS12))
