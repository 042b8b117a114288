"""Judges one record and its copy, by the rules for whole logs.

Main function: `judge`. It compares as a task of `mirror verify` does, and settles what
is open in the same way; main type: `RecordVerdict`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mirror.batches import alignment
from mirror.proving import explaining, findings
from mirror.proving.comparing import compare
from mirror.proving.explaining import NO_EXCUSES
from mirror.proving.packed_runs import PackedRuns
from mirror.proving.ranges import Range
from mirror.proving.runner import InProcess
from mirror.proving.settling import Settling
from mirror.proving.traces.tracing import How, Sameness

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.proving.comparing import Compared
    from mirror.proving.copied_partition import CopiedPartition
    from mirror.proving.sides import ProofTerms

_AND_YET = "the flow would not copy the record, and yet here is a copy"


class RecordVerdict(NamedTuple):
    """What is to be said about one record and its copy."""

    how: How
    sameness: Sameness = Sameness.UNSEEN
    detail: str = ""


def judge(
    terms: ProofTerms, of: CopiedPartition, source: Cluster, target: Cluster
) -> RecordVerdict:
    """Judge the record at `of.source_first` and its copy at `of.target_first`; if `of`
    has no offsets on the target, the record alone, which has no copy.

    Raises:
        ClusterError: a cluster does not answer.
    """
    copied = of.target_end > of.target_first
    pair = [[of.source_first, of.target_first, 1]] if copied else []
    work = Range(
        of=of, source_first=of.source_first, source_end=of.source_end,
        target_first=of.target_first, target_end=of.target_end,
        packed=PackedRuns.of(np.array(pair, np.int64).reshape(-1, 3)),
    )  # fmt: skip
    compared = compare(terms, work)
    if compared.equal:
        return RecordVerdict(How.EXACT, _sameness(terms, work))
    if compared.failure:
        return RecordVerdict(How.UNKNOWN, detail=compared.failure)
    if copied and (compared.removed or compared.looped):
        return RecordVerdict(How.EXACT, Sameness.DIFFERENT, _AND_YET)
    if compared.removed:
        return RecordVerdict(How.REMOVED, detail="the flow's function leaves it out")
    if compared.looped:
        detail = "its key has its home elsewhere, and the flow leaves such records out"
        return RecordVerdict(How.FILTERED, detail=detail)
    return _unequal(terms, compared, source, target)


def _sameness(terms: ProofTerms, work: Range) -> Sameness:
    """Whether a right copy is the record itself, or what a function made of it."""
    if terms.transform is not None:
        plain = compare(replace(terms, transform=None), work)
        return Sameness.SAME if plain.equal else Sameness.TRANSFORMED
    return Sameness.SAME


def _unequal(
    terms: ProofTerms, compared: Compared, source: Cluster, target: Cluster
) -> RecordVerdict:
    of = compared.range.of
    sorted_out = explaining.sorted_out(compared, NO_EXCUSES)
    if sorted_out.account.expired:
        detail = f"the log begins at offset {compared.target_start}"
        return RecordVerdict(How.EXPIRED, detail=detail)
    rows = sorted_out.open
    if sorted_out.findings:  # damage
        return RecordVerdict(How.UNKNOWN, detail=sorted_out.findings[0].detail)
    if (rows[:, alignment.WHAT] == alignment.ONLY_SOURCE).any():
        settling = Settling(terms, source, target, InProcess(), [of])
        settled = settling.explain(of, rows, timed=compared.own_times, stamped_from=0)
        if settled.account.compacted:
            detail = "the copy has a later record of the key, or the key was deleted"
            return RecordVerdict(How.COMPACTED, detail=detail)
        return RecordVerdict(How.MISSING, detail=settled.findings[0].detail)
    unequal = rows[rows[:, alignment.WHAT] == alignment.UNEQUAL]
    if not len(unequal):  # the source lost it meanwhile
        return RecordVerdict(How.EXACT)
    if explaining.without_stamp(unequal).all():  # as what was adopted
        same = terms.transform is None
        sameness = Sameness.SAME if same else Sameness.TRANSFORMED
        return RecordVerdict(How.EXACT, sameness, "without mirror.via")
    # Whether it is another record's copy, only the whole log could tell.
    (found,) = findings.findings(of, unequal, findings.paired(unequal), {})
    return RecordVerdict(How.EXACT, Sameness.DIFFERENT, found.detail)
