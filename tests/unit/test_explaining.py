"""What explains a record without a copy, or a copy without a record; and what not.

And which copy stands for which record, if it says something else.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from mirror.proofs import explaining
from mirror.proofs.account import Account, FindingKind
from mirror.proofs.comparing import Compared
from mirror.proofs.explaining import (
    ALL_COPIED,
    LastOfKeys,
    NotCopied,
    Settling,
    explained_by_keys,
    of_another_tool,
    pair_changed,
    sorted_out,
)
from mirror.proofs.log_stream import Damage, OffsetRange
from mirror.proofs.ranges import whole_range
from mirror.records import alignment
from mirror.records.alignment import NOWHERE, ONLY_SOURCE, ONLY_TARGET, UNEQUAL
from tests.harness.compared import BY_CONTENT, copied, row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.clusters.cluster import Cluster

pytestmark = pytest.mark.unit

OF = copied(100, 110)
WORK = whole_range(OF)
KEY = 7


def keyed(what: int, source: int, target: int, key_size: int = 1) -> np.ndarray:
    return row(what, source, target, KEY_MARK=KEY, KEY_SIZE=key_size)


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
        np.array([keyed(what, source, target)]), what, without, having,
        deleted_before=1000,
    )  # fmt: skip

    assert found.tolist() == [explained]


@pytest.mark.parametrize(
    "odd",
    [
        keyed(ONLY_SOURCE, 20, NOWHERE),
        keyed(ONLY_SOURCE, 20, 30, -1),
        keyed(ONLY_TARGET, 20, 30),
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
        keyed(ONLY_SOURCE, 10, 12),  # in the ledger
        keyed(ONLY_SOURCE, 30, 34),  # below the copy's log
        keyed(ONLY_SOURCE, 60, 66),  # in a damaged batch of the copy
        keyed(ONLY_SOURCE, 70, 77),
        keyed(ONLY_TARGET, 2, 41),  # below the source's log
        keyed(ONLY_TARGET, 80, 88),  # in a damaged batch of the source
        keyed(ONLY_TARGET, NOWHERE, 90),
        keyed(ONLY_SOURCE, 95, NOWHERE),  # in the dead-letter topic
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
        keyed(ONLY_SOURCE, 8, NOWHERE),
        keyed(ONLY_SOURCE, 12, NOWHERE),
        keyed(ONLY_SOURCE, 20, 39),
        keyed(ONLY_SOURCE, 21, 40),
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
    rows = np.array([keyed(UNEQUAL, each, each) for each in (10, 20, 20, 30)])
    rows[:, alignment.FIELD] = alignment.STAMP
    rows[:, alignment.BYTE] = alignment.NO_STAMP
    rows[1, alignment.FIELD] = alignment.VALUE
    rows[2, alignment.BYTE] = 1  # a wrong one

    assert of_another_tool(rows, 25).tolist() == [True, False, False, False]


class Logs:
    """Both have a record of the key at offset 90; no copy is another record's."""

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        for task in tasks:
            assert isinstance(task, partial)
            if task.func is explaining.originals:
                yield {}
            elif task.func is explaining.last_of_keys:
                yield LastOfKeys(
                    keys=np.array([KEY]), offsets=np.array([90]),
                    deleted_at=np.array([-1]),
                )  # fmt: skip
            else:
                assert task.func is explaining.differences
                yield np.array([_changed(UNEQUAL, *pair) for pair in task.args[2]])


def _changed(what: int, source: int, target: int, time: int = 1) -> np.ndarray:
    return row(
        what, source, target, KEY_MARK=KEY, KEY_SIZE=1, TIME=time,
        FIELD=alignment.VALUE, SOURCE_MARK=1000 * (what == ONLY_SOURCE),
        TARGET_MARK=5000 * (what == ONLY_TARGET),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("time", "kinds", "compacted"), [(1, [FindingKind.DIFFERENT], 0), (2, [], 1)]
)
def test_a_changed_copy_in_a_compacted_topic(
    time: int, kinds: list[FindingKind], compacted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record and its changed copy in one gap, with the same key and time, are
    compared, though both logs have later records of the key; with another time,
    compaction explains both.
    """
    both = {(True, "t"): 1000, (False, "A.t"): 1000}
    whole = OffsetRange(topic="t", partition=0, topic_id=OF.topic_id, first=0, end=100)
    monkeypatch.setattr(Settling, "_compacting", lambda *_: both)
    monkeypatch.setattr(Settling, "_whole_log", lambda *_, **__: whole)
    rows = np.array([_changed(ONLY_SOURCE, 5, 19), _changed(ONLY_TARGET, 9, 15, time)])
    cluster = cast("Cluster", None)

    settled = Settling(BY_CONTENT, cluster, cluster, Logs(), [OF]).explain(
        OF, rows, timed=True, stamped_from=0
    )

    assert [each.kind for each in settled.findings] == kinds
    assert settled.account.compacted == settled.account.compacted_source == compacted
    assert settled.account.wrong == len(kinds)


Row = tuple[int, int, int, int | None, int]
"""What, source, target, key (None: null), time. The lone one's other offset is the last
one before the next pair."""


def _rows(*given: Row) -> np.ndarray:
    return np.array(
        [
            row(
                what, source, target, KEY_MARK=-1 if key is None else key,
                KEY_SIZE=-1 if key is None else 1, TIME=time,
                SOURCE_MARK=(1000 + source) * (what == ONLY_SOURCE),
                TARGET_MARK=(5000 + target) * (what == ONLY_TARGET),
            )
            for what, source, target, key, time in given
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "pairs"),
    [
        # One of each between the same pairs, with the same key and time.
        ([(ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 9, 15, 7, 1)], [(0, 1)]),
        # Only the time is another.
        ([(ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 9, 15, 7, 2)], [(0, 1)]),
        # Only the key is.
        ([(ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 9, 15, 8, 1)], [(0, 1)]),
        ([(ONLY_SOURCE, 5, 19, None, 1), (ONLY_TARGET, 9, 15, None, 1)], [(0, 1)]),
        # Another writer's record.
        ([(ONLY_SOURCE, 5, 19, None, 1), (ONLY_TARGET, 9, 15, None, 2)], []),
        ([(ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 9, 15, 8, 2)], []),
        # In another gap: a pair stands between, before or after.
        ([(ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 30, 25, 7, 1)], []),
        ([(ONLY_SOURCE, 25, 39, 7, 1), (ONLY_TARGET, 9, 15, 7, 1)], []),
        # The surest first: 3 has key and time of 0, 2 only the key of 1.
        (
            [
                (ONLY_SOURCE, 5, 19, 7, 1),
                (ONLY_SOURCE, 6, 19, 7, 2),
                (ONLY_TARGET, 9, 16, 7, 9),
                (ONLY_TARGET, 9, 15, 7, 1),
            ],
            [(0, 3), (1, 2)],
        ),
        # Two records, one copy: which?
        (
            [
                (ONLY_SOURCE, 5, 19, 7, 1),
                (ONLY_SOURCE, 6, 19, 7, 1),
                (ONLY_TARGET, 9, 16, 7, 1),
            ],
            [],
        ),
    ],
)
def test_what_stands_for_what(rows: list[Row], pairs: list[tuple[int, int]]) -> None:
    """In the same gap, with the same key or time, and nothing else that could be it."""
    assert [tuple(each) for each in pair_changed(_rows(*rows), ()).tolist()] == pairs


def test_the_copy_of_another_record_stands_for_none() -> None:
    """Its mark was found elsewhere on the source."""
    rows = _rows((ONLY_SOURCE, 5, 19, 7, 1), (ONLY_TARGET, 9, 15, 7, 1))

    assert not len(pair_changed(rows, {5000 + 15}))
