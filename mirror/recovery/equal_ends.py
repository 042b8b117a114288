"""Compares the last records of each partition, here and now.

One function, `compare`: record by record, as `mirror verify` does, but only the end of
each partition, and in this process. It loads compiled kernels, for which steps that
block producers must not wait: `last_records` says when it is done.
"""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING

from mirror.proofs.ranges import RunFiles
from mirror.proofs.runners import InProcess
from mirror.proofs.sides import keeping
from mirror.proofs.steps import ProofStep
from mirror.status.wording import some

if TYPE_CHECKING:
    from mirror.proofs.verification import PartitionProof
    from mirror.recovery.stage import Stage

MOST = 1000
"""Source offsets of each partition."""
_RANGE_BYTES = 32 << 20
"""Fetches are an eighth of it; at the end of a log none brings more than is needed."""
_AT_ONCE = 8


def compare(stage: Stage) -> tuple[str, tuple[str, ...]]:
    """What is so, and what is not as it should be, until the step's time is up.

    Raises:
        MirrorError: a cluster does not answer, or refuses.
    """
    step = ProofStep(stage.config, stage.flow, stage.source, stage.target, InProcess())
    proofs: list[PartitionProof] = []
    with RunFiles() as files, keeping():
        found = step.survey(files, {}, ".*")
        ends = [
            replace(of, source_first=max(of.source_first, of.source_end - MOST))
            for of in found.partitions
        ]
        for at in range(0, len(ends), _AT_ONCE):
            if time.monotonic() > stage.deadline:
                break
            stage.tell(f"compared {at} of {some(len(ends), 'partition')}")
            some_ends = tuple(ends[at : at + _AT_ONCE])
            chosen = {of.key: list(found.ranges(of, most=MOST)) for of in some_ends}
            proven = step.prove(
                replace(found, partitions=some_ends),
                chosen, at=time.time(), range_bytes=_RANGE_BYTES,
            )  # fmt: skip
            proofs += proven.values()
    findings = [each for proof in proofs for each in proof.wrong]
    failures = [each.failure for each in proofs if each.failure]
    warnings = [*found.unproven.values(), *failures[:1]]
    if findings:
        first = findings[0]
        warnings.append(
            f"{some(len(findings), 'finding')} among the last records, such as "
            f"{first.kind} in {first.topic}-{first.partition} at offset "
            f"{first.source if first.source is not None else first.target}: "
            f"`mirror verify --flow '{stage.flow.name}'` names all"
        )
    if left := len(ends) - len(proofs):
        warnings.append(f"{some(left, 'partition')} not compared: no time was left")
    alike = sum(not each.wrong and not each.failure for each in proofs)
    text = f"the last {MOST:,} records are equal in {alike} of "
    return text + some(len(ends), "partition"), tuple(warnings)
