"""Where a lone record's other one would stand, between the copies of its neighbours."""

from __future__ import annotations

from dataclasses import replace
import uuid

import numpy as np
import pytest

from mirror.proofs.account import CopiedPartition, FindingKind
from mirror.proofs.by_content import place
from mirror.proofs.explaining import not_expired
from mirror.proofs.log_stream import Damage
from mirror.proofs.ranges import PackedRuns, Range
from mirror.records import alignment
from mirror.records.alignment import NOWHERE, ONLY_SOURCE, ONLY_TARGET

pytestmark = pytest.mark.unit

OF = CopiedPartition(
    topic="t", partition=0, target_topic="A.t", topic_id=uuid.UUID(int=1),
    copy_id=uuid.UUID(int=2), source_first=0, source_end=100, target_first=0,
    target_end=110,
)  # fmt: skip
WORK = Range(
    of=OF, source_first=0, source_end=100, target_first=0, target_end=110,
    packed=PackedRuns(np.array([[10, 20, 5], [30, 40, 5]], np.int64)),
)  # fmt: skip


def _placed(
    what: int, offset: int, work: Range = WORK, damages: tuple[Damage, ...] = ()
) -> int:
    odd = np.zeros((1, alignment.ODD_COLUMNS), np.int64)
    odd[0, alignment.WHAT] = what
    odd[0, alignment.SOURCE] = offset if what == ONLY_SOURCE else NOWHERE
    odd[0, alignment.TARGET] = offset if what == ONLY_TARGET else NOWHERE
    place(odd, work, source_damages=damages, target_damages=damages)
    other = alignment.TARGET if what == ONLY_SOURCE else alignment.SOURCE
    return int(odd[0, other])


@pytest.mark.parametrize(
    ("what", "offset", "expected"),
    [
        (ONLY_SOURCE, 5, 19),
        (ONLY_SOURCE, 15, 39),
        (ONLY_SOURCE, 40, 109),  # after the last pair: at the end
        (ONLY_TARGET, 3, 9),
        (ONLY_TARGET, 30, 29),
        (ONLY_TARGET, 99, 99),
    ],
)
def test_right_before_the_next_pair(what: int, offset: int, expected: int) -> None:
    """So that only a later record of the key, after that, proves compaction."""
    assert _placed(what, offset) == expected


def test_what_precedes_the_first_pair_is_below_a_log_that_lost_its_beginning() -> None:
    """It counts as expired; what follows the first pair does not, nor does anything if
    the proof begins later than the log.
    """
    begun = replace(
        WORK,
        of=replace(OF, target_start=7, target_first=7, target_lost=7),
        target_first=7,
    )
    later = replace(begun, of=replace(OF, target_start=2, target_first=7))

    assert _placed(ONLY_SOURCE, 5, begun) == 6
    assert _placed(ONLY_SOURCE, 15, begun) == 39
    assert _placed(ONLY_SOURCE, 5, later) == 19


def test_a_log_that_lost_nothing_since_the_last_proof_explains_nothing() -> None:
    """Where retention took just what was proven before, no record counts as expired, on
    either side.
    """
    proven = replace(
        OF, continues=True, source_first=4, source_start=4, target_first=7,
        target_start=7,
    )  # fmt: skip
    work = replace(WORK, of=proven, source_first=4, target_first=7)

    assert _placed(ONLY_SOURCE, 5, work) == 19
    assert _placed(ONLY_TARGET, 8, work) == 9


def test_no_more_expires_than_the_log_has_lost() -> None:
    """The excess is unproven."""
    (found,) = not_expired(OF, 1010, 1)

    assert (found.kind, found.source, found.count) == (FindingKind.UNPROVEN, 0, 1009)
    assert not list(not_expired(OF, 10, 10))


def test_what_cannot_be_read_may_be_it() -> None:
    """A damaged batch between the copies of the neighbours explains the record."""
    damage = (Damage(first=27, end=33, reason="checksum"),)

    assert _placed(ONLY_SOURCE, 15, damages=damage) == 27
    assert _placed(ONLY_SOURCE, 5, damages=damage) == 19
