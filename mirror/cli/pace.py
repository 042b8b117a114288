"""How Python spends its time in a command that producers wait for.

Main function: `quicken`, for a process that soon ends.
"""

from __future__ import annotations

import gc
import sys

_SWITCH_INTERVAL = 0.0005
"""Seconds for which a thread that compares holds up a step that has its answer."""
_NEW_OBJECTS = 100_000
"""After which Python looks for garbage in cycles, in place of 700: such a command makes
little, and each look goes through all modules, kernels and places of groups."""


def quicken() -> None:
    """Let threads take turns more often, and collect garbage less often."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.set_threshold(_NEW_OBJECTS)
