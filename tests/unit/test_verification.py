"""How a proof adds up what tasks found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mirror.proofs import verification
from mirror.proofs.account import Account
from mirror.proofs.comparing import Compared
from mirror.proofs.explaining import RangeOutcome
from mirror.proofs.ranges import RunFiles, ranges_of
from mirror.proofs.runners import InProcess
from mirror.proofs.survey import ProofSurvey
from mirror.records import alignment
from tests.harness.compared import TERMS, copied, row

if TYPE_CHECKING:
    from mirror.proofs.account import CopiedPartition
    from mirror.proofs.ranges import Mismatches, Range
    from mirror.proofs.sides import ProofTerms

pytestmark = pytest.mark.unit

_ODD_EACH = 6


def _compared(_: ProofTerms, work: Range) -> Compared:
    """Some records have no copy, which only later ones of their keys can explain."""
    first, target = work.source_first, work.target_first
    odd = [row(alignment.ONLY_SOURCE, first + n, target) for n in range(_ODD_EACH)]
    account = Account(records=10, equal=10 - _ODD_EACH)
    return Compared(range=work, account=account, mismatches=np.array(odd))


@pytest.mark.parametrize(
    ("most", "batches"), [(1_000, [(0, 30), (1, 12)]), (10, [(0, 12), (0, 12), (0, 6)])]
)
def test_what_waits_to_be_explained_is_bounded(
    monkeypatch: pytest.MonkeyPatch, most: int, batches: list[tuple[int, int]]
) -> None:
    """Records without copies wait until their partition is through, or until too many
    wait: then those of the partition with most of them are explained. The sums are the
    same.
    """
    explained = []

    class Settling:
        def __init__(self, *_: Any) -> None:
            pass

        def explain(
            self, of: CopiedPartition, rows: Mismatches, **_: Any
        ) -> RangeOutcome:
            explained.append((of.partition, len(rows)))
            return RangeOutcome(account=Account(compacted=len(rows)))

    monkeypatch.setattr(verification, "_MOST_OPEN_ROWS", most)
    monkeypatch.setattr(verification, "Settling", Settling)
    monkeypatch.setattr(verification, "compare", _compared)
    partitions = (copied(50), copied(20, partition=1))
    chosen = {
        ("t", of.partition): list(
            ranges_of(of, np.array([[0, 0, of.source_end]], np.int64), most=10)
        )
        for of in partitions
    }
    cluster: Any = None
    made = verification.Verification(TERMS, cluster, cluster, InProcess())
    with RunFiles() as files:
        proven = made.prove(
            ProofSurvey(partitions=partitions, files=files),
            at=0.0, chosen=chosen,
        )  # fmt: skip

    assert explained[: len(batches)] == batches
    for of, proof in zip(partitions, proven.partitions, strict=True):
        assert proof.account.records == of.source_end
        assert proof.account.equal + proof.account.compacted == of.source_end
    assert proven.findings == ()
