"""CRC-32C of a message from the checksums of its parts.

One function, `joined`: a batch's records are checksummed where they are made, while
they are in the CPU cache, and its header once the producer's state is known. A library
computes the checksums of the parts. Method: a checksum is a polynomial over GF(2), and
bytes that follow multiply it by a power of x, as in zlib's crc32_combine.
"""

from __future__ import annotations

import numba
import numpy as np

_POLYNOMIAL = np.uint32(0x82F63B78)
"""Castagnoli's; as in checksums, the highest bit stands for x to the power of 0."""
_ONE = np.uint32(1 << 31)
_BYTE = np.uint32(1 << 23)
"""x to the power of 8."""


@numba.njit("uint32(uint32, uint32)", cache=True, nogil=True, inline="always")
def _product(a, b):
    product = np.uint32(0)
    bit = _ONE
    while bit:
        if a & bit:
            product ^= b
        b = (b >> np.uint32(1)) ^ (_POLYNOMIAL if b & np.uint32(1) else np.uint32(0))
        bit >>= np.uint32(1)
    return product


@numba.njit("int64(int64, int64, int64)", cache=True, nogil=True)
def joined(first, second, size):
    """The CRC-32C of a message from those of its two parts; `size` is the length of
    the second in bytes.
    """
    behind = np.uint32(first)
    power = _BYTE
    while size:
        if size & 1:
            behind = _product(power, behind)
        power = _product(power, power)
        size >>= 1
    return np.int64(behind ^ np.uint32(second))
