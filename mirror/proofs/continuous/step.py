"""One step of a service's proofs: looks at a flow, and compares some of its ranges.

Main types: `ProofStep`, which connects the schedule with surveys and comparisons, and
`Outcome`, what one partition came to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import time
from typing import TYPE_CHECKING

import numpy as np

from mirror.proofs.account import Account, FindingKind
from mirror.proofs.of_flow import terms_of
from mirror.proofs.ranges import ranges_of
from mirror.proofs.scope import Scope
from mirror.proofs.survey import survey
from mirror.proofs.verification import Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import TopicPartition
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.offsets.offset_map import OffsetMap
    from mirror.pairs.proofs import Proof
    from mirror.proofs.account import ProofFinding
    from mirror.proofs.copied_partition import CopiedPartition
    from mirror.proofs.ranges import Range
    from mirror.proofs.run_files import RunFiles
    from mirror.proofs.runner import Runner
    from mirror.proofs.survey import ProofSurvey


_FETCHES = 4
"""Of a range on one side, at least: what a fetch brings beyond its end is wasted."""
_LEAST_FETCH = 64 << 10
_NO_RUNS = np.empty((0, 3), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the chosen ranges of one partition came to."""

    ranges: tuple[Range, ...]
    account: Account
    findings: tuple[ProofFinding, ...]
    """Without UNPROVEN."""
    root: str
    unproven: int
    """Offsets that could not be compared."""
    failure: str
    """Why some of them could not be compared; empty if all were."""


class ProofStep:
    """For one flow, on the connections of its job."""

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        source: Cluster,
        target: Cluster,
        runner: Runner,
    ) -> None:
        self.flow = flow
        self.source, self.target = source, target
        self.surveying = 0.0
        """How many seconds surveys took."""
        self._config = config
        self._runner = runner

    def survey(
        self,
        files: RunFiles,
        proofs: Mapping[TopicPartition, Proof],
        pattern: str,
        offset_map: OffsetMap | None = None,
    ) -> ProofSurvey:
        """What there is to prove of these topics, after these proofs; `offset_map` as
        for `survey.survey`.

        Raises:
            MirrorError: as `survey.survey`.
        """
        began = time.monotonic()
        try:
            return survey(
                self.flow, self.source, self.target, files, Scope(pattern=pattern),
                proofs=proofs, offset_map=offset_map,
            )  # fmt: skip
        finally:
            self.surveying += time.monotonic() - began

    def ranges(
        self,
        found: ProofSurvey,
        files: RunFiles,
        of: CopiedPartition,
        *,
        most: int,
        picked: Callable[[], bool] = lambda: True,
    ) -> Iterator[Range]:
        """Those of one partition, with at most `most` source offsets each."""
        key = (of.topic, of.partition)
        return ranges_of(
            of, files.of(key), found.older.get(key, _NO_RUNS),
            late=found.late.get(key, _NO_RUNS), fenced=self.flow.exactly_once,
            whole=found.whole_map, most=most, picked=picked,
        )  # fmt: skip

    def prove(
        self,
        found: ProofSurvey,
        files: RunFiles,
        chosen: Mapping[TopicPartition, Sequence[Range]],
        *,
        at: float,
        range_bytes: int,
    ) -> dict[TopicPartition, Outcome]:
        """Compare these ranges.

        Raises:
            MirrorError: a cluster does not answer, or a task failed several times.
        """
        terms = replace(
            terms_of(self._config, self.flow, self.source, self.target, Scope()),
            fetch_bytes=max(range_bytes // (2 * _FETCHES), _LEAST_FETCH),
            keys=False,  # everybody who may read the status sees what is found
        )
        some = replace(
            found,
            partitions=tuple(
                of for of in found.partitions if chosen.get((of.topic, of.partition))
            ),
            unproven={},
        )
        if not some.partitions:
            return {}
        verification = Verification(
            self.flow, terms, self.source, self.target, self._runner
        )
        proven = verification.prove(some, files, at=at, chosen=chosen)
        outcomes = {}
        for part in proven.partitions:
            key = (part.of.topic, part.of.partition)
            own = [f for f in proven.findings if (f.topic, f.partition) == key]
            reasons = [f.detail for f in own if f.kind is FindingKind.UNPROVEN]
            # What cannot be settled names the topic alone.
            reasons += [
                f.detail
                for f in proven.findings
                if f.kind is FindingKind.UNPROVEN
                and (f.topic, f.partition) == (key[0], -1)
            ]
            if part.of.has_open_end:
                reasons.append("an open transaction hides a part of the copy")
            failure = next(iter(reasons), "it was not compared")
            outcomes[key] = Outcome(
                ranges=tuple(chosen[key]),
                account=part.account,
                findings=tuple(f for f in own if f.kind is not FindingKind.UNPROVEN),
                root=part.root,
                unproven=sum(f.count for f in own if f.kind is FindingKind.UNPROVEN),
                failure="" if part.whole else failure,
            )
        return outcomes
