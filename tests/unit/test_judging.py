"""What is said about one record and its copy; without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
import uuid

import numpy as np
import pytest

from mirror.config.cluster_settings import ClusterConfig
from mirror.proofs import hops
from mirror.proofs.account import CopiedPartition
from mirror.proofs.comparing import Compared
from mirror.proofs.sides import ProofTerms
from mirror.proofs.tracing import How, Row, Sameness
from mirror.records import alignment

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.proofs.ranges import Range

pytestmark = pytest.mark.unit

NO_CLUSTER = cast("Cluster", None)
TERMS = ProofTerms(
    source=ClusterConfig(alias="A", bootstrap_servers=("a:1",)),
    target=ClusterConfig(alias="B", bootstrap_servers=("b:1",)),
    source_id="a-id", target_id="b-id",
)  # fmt: skip
OF = CopiedPartition(
    topic="t", partition=0, target_topic="A.t", topic_id=uuid.UUID(int=1),
    copy_id=uuid.UUID(int=2), source_first=5, source_end=6, target_first=7,
    target_end=8,
)  # fmt: skip


@pytest.mark.parametrize(
    ("field", "byte", "sameness"),
    [
        (alignment.STAMP, alignment.NO_STAMP, Sameness.SAME),
        (alignment.STAMP, 1, Sameness.DIFFERENT),  # a wrong one
        (alignment.VALUE, 0, Sameness.DIFFERENT),
    ],
)
def test_a_copy_that_was_adopted_is_the_same(
    field: int, byte: int, sameness: Sameness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It only lacks the header `mirror.via`, and the detail says so."""

    def unequal(_: ProofTerms, work: Range) -> Compared:
        rows = np.zeros((1, alignment.ODD_COLUMNS), np.int64)
        rows[0, alignment.WHAT] = alignment.UNEQUAL
        rows[0, alignment.SOURCE], rows[0, alignment.TARGET] = 5, 7
        rows[0, alignment.FIELD], rows[0, alignment.BYTE] = field, byte
        return Compared(range=work, mismatches=rows)

    monkeypatch.setattr(hops, "compare", unequal)
    row = Row(cluster="B", topic="A.t", partition=0, how=How.MISSING)
    row = hops.judge(row, TERMS, OF, NO_CLUSTER, NO_CLUSTER)

    assert (row.how, row.sameness) == (How.EXACT, sameness)
    assert (row.detail == "without mirror.via") == (sameness is Sameness.SAME)
