"""How a service's process treats its memory.

Main function: `tend`, called before anything large is imported: what modules make
stays, so looking for garbage among it is work for nothing.
"""

from __future__ import annotations

import ctypes
import gc

_YOUNG_OBJECTS = 20_000
"""Jobs on many groups create objects by the hundred thousand; at Python's default of
700, the garbage collector takes half of their time, and no other thread runs."""
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""What glibc's mallopt calls them (malloc.h)."""


def tend() -> None:
    """Look for garbage less often. And by default glibc keeps what threads once needed,
    for as many as eight times the cores, up to 14 MB each: now it keeps two threads'
    worth, and large pieces go back at once. Other libraries have no such function.
    """
    gc.set_threshold(_YOUNG_OBJECTS, 20, 10)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 2)
        mallopt(_MMAP_THRESHOLD, 1 << 20)
