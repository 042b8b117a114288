"""What explains a record without a copy, or a copy without a record; and what not."""

from __future__ import annotations

from dataclasses import replace
import uuid

import numpy as np
import pytest

from mirror.proofs.account import Account, CopiedPartition, FindingKind
from mirror.proofs.comparing import Compared
from mirror.proofs.explaining import (
    ALL_COPIED,
    LastOfKeys,
    NotCopied,
    explained_by_keys,
    of_another_tool,
    sorted_out,
)
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
    packed=PackedRuns(),
)  # fmt: skip
KEY = 7


def row(what: int, source: int, target: int, *, key_size: int = 1) -> np.ndarray:
    made = np.zeros(alignment.ODD_COLUMNS, np.int64)
    made[alignment.WHAT] = what
    made[alignment.SOURCE], made[alignment.TARGET] = source, target
    made[alignment.KEY_MARK], made[alignment.KEY_SIZE] = KEY, key_size
    return made


def last(offset: int, deleted_at: int = -1) -> LastOfKeys:
    return LastOfKeys(
        keys=np.array([KEY]), offsets=np.array([offset]),
        deleted_at=np.array([deleted_at]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("without", "having", "explained"),
    [
        (last(31), last(-1), True),  # a later record of the key is there
        (last(30), last(-1), False),  # only the place itself
        (last(12), last(90), False),  # an earlier one
        (last(-1), last(90), False),  # nothing, and the key lives on the other side
        (last(-1), last(20, deleted_at=500), True),  # its own tombstone, long ago
        (last(-1), last(90, deleted_at=500), True),  # deleted later, long ago
        (last(-1), last(90, deleted_at=1500), False),  # too short ago
        (last(-1), last(19, deleted_at=500), False),  # a tombstone before it
        (LastOfKeys(), LastOfKeys(), False),  # nothing was looked for
    ],
)
@pytest.mark.parametrize("what", [ONLY_SOURCE, ONLY_TARGET])
def test_compaction_leaves_a_later_record_of_the_key(
    what: int, without: LastOfKeys, having: LastOfKeys, explained: bool
) -> None:
    """A record is compacted only if its side has a later one of its key, or the key was
    deleted for longer than tombstones stay; on both sides alike.
    """
    source, target = (20, 30) if what == ONLY_SOURCE else (30, 20)
    found = explained_by_keys(
        np.array([row(what, source, target)]), what, without, having,
        deleted_before=1000,
    )  # fmt: skip

    assert found.tolist() == [explained]


@pytest.mark.parametrize(
    "odd",
    [
        row(ONLY_SOURCE, 20, NOWHERE),
        row(ONLY_SOURCE, 20, 30, key_size=-1),
        row(ONLY_TARGET, 20, 30),
    ],
)
def test_compaction_needs_a_place_and_a_key(odd: np.ndarray) -> None:
    """Where the map knows no place, or a record has no key, compaction explains
    nothing.
    """
    found = explained_by_keys(
        np.array([odd]), ONLY_SOURCE, last(99), last(99), deleted_before=1000
    )

    assert found.tolist() == [False]


def test_ledger_retention_and_damage() -> None:
    """Each record has one reason: the ledger, the copy's first offset, or a damaged
    batch, which is a finding of its own. Others stay open.
    """
    odd = [
        row(ONLY_SOURCE, 10, 12),  # in the ledger
        row(ONLY_SOURCE, 30, 34),  # below the copy's log
        row(ONLY_SOURCE, 60, 66),  # in a damaged batch of the copy
        row(ONLY_SOURCE, 70, 77),
        row(ONLY_TARGET, 2, 41),  # below the source's log
        row(ONLY_TARGET, 80, 88),  # in a damaged batch of the source
        row(ONLY_TARGET, NOWHERE, 90),
        row(ONLY_SOURCE, 95, NOWHERE),  # in the dead-letter topic
    ]
    found = sorted_out(
        Compared(
            range=WORK, account=Account(records=50, equal=46),
            mismatches=np.array(odd),
            source_start=5, target_start=40,
            source_damages=(Damage(first=80, end=82, reason="checksum"),),
            target_damages=(Damage(first=66, end=67, reason="checksum"),),
        ),
        NotCopied(lost=((10, 11),), dead_letters=frozenset({95})),
    )  # fmt: skip

    account = found.account
    assert (account.lost, account.expired, account.wrong) == (1, 1, 1)
    assert account.dead_letters == 1
    assert account.expired_source == 1
    assert found.open[:, alignment.SOURCE].tolist() == [70, NOWHERE]
    assert [
        (each.kind, each.source, each.target, each.count) for each in found.findings
    ] == [
        (FindingKind.DAMAGED, 80, None, 2),
        (FindingKind.DAMAGED, None, 66, 1),
    ]


def test_only_what_the_copy_once_had_is_expired() -> None:
    """In a copy that is empty, the map's word counts: what stood before the log's first
    offset is expired, and what it never named, or names behind that, is open.
    """
    of = replace(OF, target_first=40, target_end=40, target_start=40)
    gone = np.array([[0, 0, 10], [3, 12, 2]], np.int64)
    work = replace(WORK, of=of, target_first=40, target_end=40, gone=gone)
    odd = [
        row(ONLY_SOURCE, 8, NOWHERE),
        row(ONLY_SOURCE, 12, NOWHERE),
        row(ONLY_SOURCE, 20, 39),
        row(ONLY_SOURCE, 21, 40),
    ]

    found = sorted_out(Compared(range=work, mismatches=np.array(odd)), ALL_COPIED)

    assert found.account.expired == 2
    assert found.open[:, alignment.SOURCE].tolist() == [12, 21]


def test_a_range_that_was_not_read_is_unproven() -> None:
    """With the reason, and never counted as equal."""
    found = sorted_out(Compared(range=WORK, failure="no leader"), ALL_COPIED)

    (finding,) = found.findings
    assert (finding.kind, finding.source, finding.count) == (
        FindingKind.UNPROVEN,
        0,
        100,
    )
    assert finding.detail == "no leader"
    assert found.account.equal == 0


def test_copies_without_a_stamp_before_the_first_with_one() -> None:
    """They are another tool's, if nothing else differs; later ones lost it."""
    rows = np.array([row(alignment.UNEQUAL, each, each) for each in (10, 20, 20, 30)])
    rows[:, alignment.FIELD] = alignment.STAMP
    rows[:, alignment.BYTE] = alignment.NO_STAMP
    rows[1, alignment.FIELD] = alignment.VALUE
    rows[2, alignment.BYTE] = 1  # a wrong one

    assert of_another_tool(rows, 25).tolist() == [True, False, False, False]
