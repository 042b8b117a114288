"""Loads compiled kernels in the driver once the next take-over would need them.

Main type: `KernelsAhead`. A start reads little and does without kernels, which take
half a second of CPU and 60 MB. But the next run first reads the progress that this one
writes: from a megabyte on with kernels, and it should not wait for them.
"""

from __future__ import annotations

from importlib import import_module
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.copying.lease import PartitionReport

_MANY = 5_000
"""Records of progress, some 800 kB. Without kernels these take 40 ms to read."""


class KernelsAhead:
    """For one flow."""

    def __init__(self) -> None:
        self._written = 0
        self._begun = False

    def learn(self, reports: Iterable[PartitionReport]) -> None:
        """A lease has ended."""
        self._written += sum(report.transactions for report in reports)
        if self._written >= _MANY and not self._begun:
            self._begun = True
            threading.Thread(
                target=import_module, args=("mirror.records.batch",), daemon=True
            ).start()
