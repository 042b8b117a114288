"""Whether the last records of each partition are the same on both clusters.

Main function: `compare`: record by record, as `mirror verify` does, but only the end of
each partition, in this process, and until the step's time is up. `begin` does it ahead
in a thread: what was copied until the cut stays as it is, and while producers are
stopped the clusters have time for it.
"""

from __future__ import annotations

from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
import threading
import time
from typing import TYPE_CHECKING

from mirror.clusters import patience
from mirror.clusters.reach import Reach
from mirror.errors import MirrorError
from mirror.proving.continuous.step import ProofStep
from mirror.proving.run_files import RunFiles
from mirror.proving.runner import InProcess
from mirror.proving.sides import keeping
from mirror.status.wording import some

if TYPE_CHECKING:
    from mirror.proving.continuous.step import Outcome
    from mirror.switching.stage import Stage

MOST = 1000
"""Source offsets of each partition."""
_RANGE_BYTES = 8 << 20
_AT_ONCE = 8
_BESIDE = "last records"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecords:
    """The outcome."""

    text: str
    warnings: tuple[str, ...] = ()


def begin(stage: Stage) -> None:
    """Compare on connections of its own while the next steps are done, for as long as
    this one may take. The thread ends with the process.
    """
    begun: Future[LastRecords] = Future()
    stage.beside[_BESIDE] = begun

    def run() -> None:
        try:
            with (
                patience.until(stage.deadline),
                Reach(stage.config.clusters, client_id="mirror.switch") as reach,
            ):
                alone = replace(
                    stage,
                    source_or_none=reach(stage.flow.source),
                    target_or_none=reach(stage.flow.target),
                    tell=lambda _text: None,
                )
                begun.set_result(_compare(alone))
        except Exception as error:  # noqa: BLE001  `compare` does it once more
            begun.set_exception(error)

    threading.Thread(target=run, name="mirror-last-records", daemon=True).start()


def compare(stage: Stage) -> LastRecords:
    """Compare the ends of all partitions that the flow copies, once more if that was
    done ahead and anything was not as it should be. Where that fails, or takes too
    long, is a warning: it proves what is so already.
    """
    if (begun := stage.beside.get(_BESIDE)) is not None:
        stage.tell("comparing the last records")
        wait([begun], timeout=max(stage.deadline - time.monotonic(), 0.0))
        if begun.done() and begun.exception() is None:
            found: LastRecords = begun.result()
            if not found.warnings:
                return found
    try:
        return _compare(stage)
    except MirrorError as error:
        return LastRecords(
            text="the last records were not compared",
            warnings=(f"the last records were not compared: {error}",),
        )


def _compare(stage: Stage) -> LastRecords:
    step = ProofStep(stage.config, stage.flow, stage.source, stage.target, InProcess())
    outcomes: list[Outcome] = []
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
            chosen = {
                (of.topic, of.partition): list(step.ranges(found, files, of, most=MOST))
                for of in some_ends
            }
            proven = step.prove(
                replace(found, partitions=some_ends),
                files, chosen, at=time.time(), range_bytes=_RANGE_BYTES,
            )  # fmt: skip
            outcomes += proven.values()
    findings = [each for outcome in outcomes for each in outcome.findings]
    failures = [each.failure for each in outcomes if each.failure]
    warnings = [*found.unproven.values(), *failures[:1]]
    if findings:
        first = findings[0]
        warnings.append(
            f"{some(len(findings), 'finding')} among the last records, such as "
            f"{first.kind} in {first.topic}-{first.partition} at offset "
            f"{first.source if first.source is not None else first.target}: "
            f"`mirror verify --flow '{stage.flow.name}'` names all"
        )
    if left := len(ends) - len(outcomes):
        warnings.append(f"{some(left, 'partition')} not compared: no time was left")
    alike = sum(not each.findings and not each.failure for each in outcomes)
    return LastRecords(
        text=f"the last {MOST:,} records are equal in {alike} of "
        f"{some(len(ends), 'partition')}",
        warnings=tuple(warnings),
    )
