"""Says where the other one of a lone record would stand, when records are matched by
content and so no map says it.

Main function: `place`, which is pure. Both logs keep the order: the other one stood
between its neighbours' copies. The latest of these places counts, so that compaction is
believed only if a later record of the key proves it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mirror.batches import alignment
from mirror.offsets.runs import COUNT, DOWNSTREAM, UPSTREAM

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.proving.log_stream import Damage
    from mirror.proving.ranges import Range

Odd = npt.NDArray[np.int64]
"""Records of one side that have no equal on the other; columns: `alignment.WHAT` and
so on."""


def place(
    odd: Odd,
    work: Range,
    *,
    source_damages: Iterable[Damage] = (),
    target_damages: Iterable[Damage] = (),
) -> None:
    """Write into rows without the other offset where it would be.

    If something between the neighbours' copies cannot be read, it may be that. What
    precedes the first pair of a partition counts as expired if the other log has lost
    its beginning, since the proof that this one continues: nothing can show that it was
    never there.
    """
    of = work.of
    leading = work.source_first == of.source_first or (
        work.target_first == of.target_first
    )
    whole = of.target_lost > 0 and of.target_first == of.target_start
    expired_before = of.target_start if leading and whole else 0
    _place(odd, work, alignment.ONLY_SOURCE, expired_before, target_damages)
    whole = of.source_lost > 0 and of.source_first == of.source_start
    expired_before = of.source_start if leading and whole else 0
    _place(odd, work, alignment.ONLY_TARGET, expired_before, source_damages)


def _place(
    odd: Odd, work: Range, what: int, expired_before: int, damages: Iterable[Damage]
) -> None:
    here, there, begins, others, end = (
        (alignment.SOURCE, alignment.TARGET, UPSTREAM, DOWNSTREAM, work.target_end)
        if what == alignment.ONLY_SOURCE
        else (alignment.TARGET, alignment.SOURCE, DOWNSTREAM, UPSTREAM, work.source_end)
    )
    rows = np.flatnonzero(
        (odd[:, alignment.WHAT] == what) & (odd[:, there] == alignment.NOWHERE)
    )
    runs = work.runs
    runs = runs[runs[:, COUNT] > 0]
    following = np.searchsorted(runs[:, begins], odd[rows, here], "right")
    places = np.append(runs[:, others], end)[following] - 1
    if expired_before:
        places[following == 0] = expired_before - 1
    for each in damages:
        places[following == np.searchsorted(runs[:, others], each.first)] = each.first
    odd[rows, there] = places
