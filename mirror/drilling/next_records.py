"""Reads what groups would read next, on both sides, and compares it.

Main function: `compare`. It is `mirror verify` over a window of source offsets from
each group's position on, so it knows what was filtered, transformed, compacted, has
expired, or is in the loss ledger. Windows that meet are read once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import time
from typing import TYPE_CHECKING

from mirror.proving.continuous.step import ProofStep
from mirror.proving.run_files import RunFiles
from mirror.proving.runner import InProcess
from mirror.proving.sides import keeping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.offset_map import OffsetMap
    from mirror.proving.copied_partition import CopiedPartition
    from mirror.proving.ranges import Range
    from mirror.proving.survey import ProofSurvey

TopicPartition = tuple[str, int]

_RANGE_BYTES = 1 << 20
_AT_ONCE = 32
"""Partitions per call of the comparison."""
_NEAR = 100
"""Source offsets between windows that are read as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedNext:
    """The outcome."""

    partitions: frozenset[TopicPartition] = frozenset()
    """All that the flow copies."""
    wrong: Mapping[TopicPartition, Mapping[int, str]] = field(default_factory=dict)
    """By source offset, what is wrong with a record; with one that only the copy has,
    by where the first window begins."""
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions of which nothing can be compared, and why."""
    undecided: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions of which something could not be compared, and why."""
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the source's logs begin."""


def compare(  # noqa: PLR0917  what to compare, and where
    config: MirrorConfig,
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    positions: Mapping[TopicPartition, Iterable[int]],
    offset_map: OffsetMap,
    *,
    records: int,
) -> ComparedNext:
    """Compare so many source offsets from each of these positions on. `offset_map`: the
    flow's; it is read on.

    Raises:
        MirrorError: a cluster does not answer, or the flow never ran.
    """
    step = ProofStep(config, flow, source, target, InProcess())
    wrong: dict[TopicPartition, dict[int, str]] = {}
    unread: dict[TopicPartition, str] = {}
    undecided: dict[TopicPartition, str] = {}
    with RunFiles() as files, keeping():
        found = step.survey(files, {}, ".*", offset_map)
        wanted = {
            (of.topic, of.partition): windows(
                positions.get((of.topic, of.partition), ()),
                records,
                of.source_first,
                of.source_end,
            )
            for of in found.partitions
        }
        if not found.has_runs:
            for key, runs in offset_map.runs_around(wanted).items():
                files.add(key, runs)
        chosen = {
            (of.topic, of.partition): ranges
            for of in found.partitions
            if (
                ranges := _ranges(
                    step, found, files, of, wanted[of.topic, of.partition]
                )
            )
        }
        keys = list(chosen)
        for at in range(0, len(keys), _AT_ONCE):
            some = {key: chosen[key] for key in keys[at : at + _AT_ONCE]}
            outcomes = step.prove(
                found, files, some, at=time.time(), range_bytes=_RANGE_BYTES
            )
            for key, outcome in outcomes.items():
                first = some[key][0].source_first
                for each in outcome.findings:
                    offset = first if each.source is None else each.source
                    said = f"{each.kind}, {each.detail}"
                    wrong.setdefault(key, {}).setdefault(offset, said)
                if outcome.failure:
                    undecided[key] = outcome.failure
    compared = {(of.topic, of.partition) for of in found.partitions}
    for topic, why in found.unproven.items():
        unread |= {
            (topic, number): why
            for number in range(_partitions(source, topic))
            if (topic, number) not in compared
        }
    return ComparedNext(
        partitions=frozenset(compared | unread.keys()), wrong=wrong,
        unread=unread, undecided=undecided,
        starts={(of.topic, of.partition): of.source_start for of in found.partitions},
    )  # fmt: skip


def _partitions(source: Cluster, topic: str) -> int:
    found = source.topic(topic)
    return found.partitions if found is not None else 0


def _ranges(
    step: ProofStep,
    found: ProofSurvey,
    files: RunFiles,
    of: CopiedPartition,
    some: Iterable[tuple[int, int]],
) -> list[Range]:
    made: list[Range] = []
    for first, end in some:
        part = replace(of, source_first=first, source_end=end)
        made += (
            replace(each, of=of)
            for each in step.ranges(found, files, part, most=max(end - first, 1))
            if not each.is_late
        )
    return made


def windows(
    positions: Iterable[int], records: int, start: int, end: int
) -> list[tuple[int, int]]:
    """So many offsets from each position on, within a log; those that meet are one."""
    made: list[tuple[int, int]] = []
    for position in sorted(positions):
        first, last = max(position, start), min(position + records, end)
        if first >= last:
            continue  # behind the end of what is copied, or expired
        if made and first <= made[-1][1] + _NEAR:
            made[-1] = (made[-1][0], max(made[-1][1], last))
        else:
            made.append((first, last))
    return made
