"""A partition with its copy, and rows about its records, as comparisons have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
import uuid

import numpy as np

from mirror.proofs.account import CopiedPartition, Scope
from mirror.proofs.sides import ProofTerms
from mirror.records import alignment
from tests.harness.configurations import configuration

ID, COPY_ID = uuid.UUID(int=1), uuid.UUID(int=2)
CONFIG = configuration(
    {
        "clusters": {each: {"bootstrap_servers": "127.0.0.1:1"} for each in "AB"},
        "flows": {"A->B": {"topics": ["t"]}},
    }
)
TERMS = ProofTerms(
    source=CONFIG.clusters["A"], target=CONFIG.clusters["B"], source_id="a-id",
    target_id="b-id", flow=CONFIG.flows["A->B"], scope=Scope(),
)  # fmt: skip
BY_CONTENT = replace(TERMS, scope=Scope(by_content=True))


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
