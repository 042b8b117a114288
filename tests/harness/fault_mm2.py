"""A cell of the fault matrix, struck at MirrorMaker 2 in place of mirror.

`struck` lets the fault last a fixed time, since nothing has to show, and returns what
an ordinary consumer found afterwards. MirrorMaker 2 runs exactly once, with its clients
as they are shipped, and no one restarts its tasks.
"""

from __future__ import annotations

from collections import Counter
import contextlib
from dataclasses import dataclass
from itertools import pairwise
import time
from typing import TYPE_CHECKING

from tests.harness.admin import copied_records
from tests.harness.fault_cells import without
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import Witness, order_of

if TYPE_CHECKING:
    from tests.harness.fault_cells import Cell, Lab
    from tests.harness.witness import Order

_LASTS_SECONDS = 20.0
_CAUGHT_UP_SECONDS = 120.0
_REST_SECONDS = 30.0
"""Then a copy that is late is counted as it is."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What became of the copy."""

    seconds: float | None
    """As `fault_cells.Outcome.seconds`; None: it did not catch up."""
    missing: int
    repeated: int
    moved: int
    """Records that came before an earlier one."""

    def __str__(self) -> str:
        wrong = [
            f"{number} {what}"
            for number, what in (
                (self.missing, "missing"),
                (self.repeated, "doubled"),
                (self.moved, "out of order"),
            )
            if number
        ]
        late = f"not within {_CAUGHT_UP_SECONDS:.0f}"
        took = late if self.seconds is None else f"{self.seconds:.0f}"
        return ", ".join([took, *wrong])


def struck(cell: Cell, lab: Lab) -> Found:
    """Strike, mend, and count; fails if MirrorMaker 2 copies nothing before."""
    bootstrap = lab.target.admin_bootstrap
    lab.load.send(200)
    wait_for(lambda: copied_records(bootstrap, lab.copy) > 200, pause=0.5)
    with contextlib.nullcontext() if cell.idle else lab.load.streaming():
        with cell.strike(lab):
            time.sleep(_LASTS_SECONDS)
        if cell.idle:
            lab.load.send(200)
        gone = lab.gone.get(bootstrap, set())  # by no fault of MirrorMaker 2
        ended, sent = time.monotonic(), without(gone, lab.load.order)
        is_level = _reads(lab, sent, _CAUGHT_UP_SECONDS)
        seconds = time.monotonic() - ended if is_level else None
    sent = without(gone, lab.load.order)
    _reads(lab, sent, _REST_SECONDS)
    return compare(order_of(bootstrap, lab.copy), sent, seconds)


def compare(found: Order, sent: Order, seconds: float | None) -> Found:
    """Hold a copy against what was sent."""
    missing = repeated = moved = 0
    for partition, keys in sent.items():
        counts = Counter(found.get(partition, []))
        missing += sum(key not in counts for key in keys)
        repeated += sum(count - 1 for count in counts.values())
        numbers = [int(key.partition(b":")[2]) for key in counts]  # as first seen
        moved += sum(b < a for a, b in pairwise(numbers))
    return Found(seconds=seconds, missing=missing, repeated=repeated, moved=moved)


def _reads(lab: Lab, sent: Order, seconds: float) -> bool:
    """Whether a consumer finds that many records of each partition in this time, which
    does not grow with the load: the table names it.
    """
    with Witness(lab.target.admin_bootstrap) as witness:
        witness.begin(lab.copy)
        try:
            witness.wait_each(
                {p: len(keys) for p, keys in sent.items()}, seconds / crowd()
            )
        except AssertionError:
            return False
    return True
