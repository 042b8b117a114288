"""How a proof adds up what tasks found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

import numpy as np
import pytest

from mirror.proofs import verification
from mirror.proofs.account import Account, CopiedPartition
from mirror.proofs.comparing import Compared
from mirror.proofs.explaining import RangeOutcome
from mirror.proofs.ranges import RunFiles, ranges_of
from mirror.proofs.runners import InProcess
from mirror.proofs.sides import ProofTerms
from mirror.proofs.survey import ProofSurvey
from mirror.records import alignment
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from mirror.proofs.ranges import Mismatches, Range

pytestmark = pytest.mark.unit

CONFIG = configuration(
    {
        "clusters": {each: {"bootstrap_servers": f"{each}:1"} for each in "AB"},
        "flows": {"A->B": {"topics": ["t"]}},
    }
)
TERMS = ProofTerms(
    source=CONFIG.clusters["A"], target=CONFIG.clusters["B"], source_id="a",
    target_id="b",
)  # fmt: skip
_ODD_EACH = 6


def _partition(number: int, end: int) -> CopiedPartition:
    return CopiedPartition(
        topic="t", partition=number, target_topic="A.t", topic_id=uuid.UUID(int=1),
        copy_id=uuid.UUID(int=2), source_first=0, source_end=end, target_first=0,
        target_end=end,
    )  # fmt: skip


def _compared(_: ProofTerms, work: Range) -> Compared:
    """Some records have no copy, which only later ones of their keys can explain."""
    odd = np.zeros((_ODD_EACH, alignment.ODD_COLUMNS), np.int64)
    odd[:, alignment.WHAT] = alignment.ONLY_SOURCE
    odd[:, alignment.SOURCE] = work.source_first + np.arange(_ODD_EACH)
    odd[:, alignment.TARGET] = work.target_first
    return Compared(range=work, records=10, equal=10 - _ODD_EACH, mismatches=odd)


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
            return RangeOutcome(
                account=Account(compacted=len(rows)), findings=(), spans={}
            )

    monkeypatch.setattr(verification, "_MOST_OPEN_ROWS", most)
    monkeypatch.setattr(verification, "Settling", Settling)
    monkeypatch.setattr(verification, "compare", _compared)
    partitions = (_partition(0, 50), _partition(1, 20))
    chosen = {
        ("t", of.partition): list(
            ranges_of(of, np.array([[0, 0, of.source_end]], np.int64), most=10)
        )
        for of in partitions
    }
    cluster: Any = None
    made = verification.Verification(
        CONFIG.flows["A->B"], TERMS, cluster, cluster, InProcess()
    )
    with RunFiles() as files:
        proven = made.prove(
            ProofSurvey(partitions=partitions, files=files, older={}, not_copied={}),
            at=0.0, chosen=chosen,
        )  # fmt: skip

    assert explained[: len(batches)] == batches
    for of, proof in zip(partitions, proven.partitions, strict=True):
        assert proof.account.records == of.source_end
        assert proof.account.equal + proof.account.compacted == of.source_end
    assert proven.findings == ()
