"""Names what is wrong with records that were matched by content, without a map.

Main functions: `findings` and `not_expired`, which are pure. A mark that only one
record and one copy have says that the copy moved. Where several have it, nothing says
which belong together: these are unproven.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirror.proofs.account import FindingKind, ProofFinding
from mirror.proofs.findings import different, finding, in_order, missing
from mirror.records import alignment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.proofs.content.matching import Odd
    from mirror.proofs.copied_partition import CopiedPartition
    from mirror.proofs.explaining import Mask


def strange_marks(rows: Odd) -> Odd:
    """Marks of copies that no row's record has: to be looked for on the source."""
    alone = rows[:, alignment.WHAT] == alignment.ONLY_TARGET
    of_source = rows[:, alignment.WHAT] == alignment.ONLY_SOURCE
    return np.setdiff1d(
        rows[alone, alignment.TARGET_MARK], rows[of_source, alignment.SOURCE_MARK]
    )


def foreign(rows: Odd, originals: Mapping[int, int]) -> Mask:
    """Which rows are about records of other writers: they do not claim to come from the
    source, and say nothing that it says.
    """
    strange = np.isin(rows[:, alignment.TARGET_MARK], strange_marks(rows))
    found = np.isin(rows[:, alignment.TARGET_MARK], list(originals))
    others: Mask = (
        (rows[:, alignment.WHAT] == alignment.ONLY_TARGET)
        & (rows[:, alignment.FIELD] != alignment.STAMP)
        & strange
        & ~found
    )
    return others


def findings(
    of: CopiedPartition, rows: Odd, originals: Mapping[int, int]
) -> Iterator[ProofFinding]:
    """What is wrong, by source offset; `rows` without those of other writers.
    `originals`: the source offsets of the `strange_marks` that were found there.
    """
    what = rows[:, alignment.WHAT]
    ups = rows[what == alignment.ONLY_SOURCE]
    downs = rows[what == alignment.ONLY_TARGET]
    made = [different(of, row) for row in rows[what == alignment.UNEQUAL]]
    mine = Counter(ups[:, alignment.SOURCE_MARK].tolist())
    theirs = Counter(downs[:, alignment.TARGET_MARK].tolist())
    copies = {int(row[alignment.TARGET_MARK]): row for row in downs}
    for row in ups:
        mark = int(row[alignment.SOURCE_MARK])
        if mark not in theirs:
            made.append(missing(of, row))
        elif mine[mark] == theirs[mark] == 1:
            made.append(_swapped(of, row, int(copies[mark][alignment.TARGET])))
        else:
            made.append(_unclear(of, row, mine[mark], theirs[mark]))
    for row in downs:
        if int(row[alignment.TARGET_MARK]) in mine:
            continue
        original = originals.get(int(row[alignment.TARGET_MARK]))
        target = int(row[alignment.TARGET])
        made.append(
            finding(
                of, row, FindingKind.UNEXPECTED, source=None, target=target,
                detail="no record's copy",
            )
            if original is None
            else finding(
                of, row, FindingKind.DOUBLED, source=original, target=target,
                detail="a further copy",
            )
        )  # fmt: skip
    yield from in_order(made)


def not_expired(of: CopiedPartition, expired: int, lost: int) -> Iterator[ProofFinding]:
    """For records that seem to have expired, but are more than the offsets that the
    copy's log has lost: some of them were never there, and nothing says which.
    """
    if expired > lost:
        yield ProofFinding(
            kind=FindingKind.UNPROVEN, topic=of.topic, partition=of.partition,
            target_topic=of.target_topic, source=of.source_first, target=None,
            count=expired - lost,
            detail=f"{expired} records from here on have no copies, and the copy's log "
            f"has lost no more than {lost}: the others were never copied",
        )  # fmt: skip


def _swapped(of: CopiedPartition, row: Odd, target: int) -> ProofFinding:
    return finding(
        of, row, FindingKind.SWAPPED, source=int(row[alignment.SOURCE]), target=target,
        detail="out of order",
    )  # fmt: skip


def _unclear(of: CopiedPartition, row: Odd, here: int, there: int) -> ProofFinding:
    """Alike records are one finding if they are neighbours, so the detail is alike."""
    made = missing(of, row)
    return replace(
        made,
        kind=FindingKind.UNPROVEN,
        detail=f"{here} records are alike, and {there} copies: which belong together?",
    )
