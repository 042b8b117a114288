"""A partition with its copy, and rows about its records, as comparisons have them."""

from __future__ import annotations

from typing import Any
import uuid

import numpy as np

from mirror.config.cluster_settings import ClusterConfig
from mirror.proofs.account import CopiedPartition
from mirror.proofs.sides import ProofTerms
from mirror.records import alignment

ID, COPY_ID = uuid.UUID(int=1), uuid.UUID(int=2)
TERMS = ProofTerms(
    source=ClusterConfig(alias="A", bootstrap_servers=("127.0.0.1:1",)),
    target=ClusterConfig(alias="B", bootstrap_servers=("127.0.0.1:1",)),
    source_id="a-id", target_id="b-id",
)  # fmt: skip


def copied(end: int = 0, target_end: int | None = None, **more: Any) -> CopiedPartition:
    """All of a partition, as long as its copy unless the test says otherwise."""
    return CopiedPartition(
        **{
            "topic": "t", "partition": 0, "target_topic": "A.t", "topic_id": ID,
            "copy_id": COPY_ID, "source_first": 0, "source_end": end,
            "target_first": 0, "target_end": end if target_end is None else target_end,
            **more,
        }
    )  # fmt: skip


def row(what: int, source: int, target: int, **columns: int) -> np.ndarray:
    """About one record; `columns`: the others by name, as in `alignment`."""
    made = np.zeros(alignment.ODD_COLUMNS, np.int64)
    made[[alignment.WHAT, alignment.SOURCE, alignment.TARGET]] = what, source, target
    for name, value in columns.items():
        made[getattr(alignment, name)] = value
    return made
