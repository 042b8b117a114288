"""One proof of one flow, from its configuration to the proofs kept on the target.

Main functions: `prove` connects, surveys, compares, and writes how far partitions
without findings are proven: there the next one goes on. `keep` does so for the others.
"""

from __future__ import annotations

import contextlib
from functools import partial
import time
from typing import TYPE_CHECKING

import structlog

from mirror.clusters.cluster import Cluster
from mirror.config.schema import for_tasks
from mirror.errors import MirrorError, UnreachableError
from mirror.offsets import progress
from mirror.pairs import proofs
from mirror.pairs.proofs import Proof
from mirror.proofs.run_files import RunFiles
from mirror.proofs.sides import ProofTerms
from mirror.proofs.survey import survey
from mirror.proofs.verification import Verification
from mirror.retry import patiently
from mirror.service.generation import Generation

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.config.cluster_settings import ClusterConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.proofs.runner import Runner
    from mirror.proofs.scope import Scope
    from mirror.proofs.survey import ProofSurvey
    from mirror.proofs.translated_ids import TranslatedIds
    from mirror.proofs.verification import PartitionProof, Proven, VerifiedSoFar

log = structlog.get_logger()


def prove(
    config: MirrorConfig,
    flow: FlowConfig,
    runner: Runner,
    scope: Scope,
    *,
    show: Callable[[VerifiedSoFar], None],
    after: Proven | None = None,
) -> Proven:
    """Prove the topics of the scope, and keep on the target how far those partitions
    are proven in which nothing was found. `show` is called as it goes on. `after`: only
    prove what came since this proof of the same topics.

    Raises:
        MirrorError: the flow never ran, nothing matches, or a cluster does not
            answer.
    """
    at = time.time()
    with contextlib.ExitStack() as stack:
        source, target = (
            stack.enter_context(
                contextlib.closing(Cluster(config.clusters[alias]).connect())
            )
            for alias in (flow.source, flow.target)
        )

        def look() -> tuple[RunFiles, ProofSurvey]:
            files = stack.enter_context(RunFiles())
            ended = _ends(after)
            if after is None and scope.since is None:
                ended = proofs.read(target, flow.source)
            return files, survey(flow, source, target, files, scope, proofs=ended)

        files, found = patiently(look, also=UnreachableError)
        terms = terms_of(config, flow, source, target, scope)

        def write(proof: PartitionProof) -> None:
            kept = _proof(proof, at, by_content=scope.by_content)
            patiently(
                partial(proofs.write, target, flow, [kept]), also=UnreachableError
            )

        verification = Verification(
            flow, terms, source, target, runner,
            show=show, keep=write if scope.is_kept else None,
        )  # fmt: skip
        return verification.prove(found, files, at=at)


def terms_of(
    config: MirrorConfig,
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    scope: Scope,
) -> ProofTerms:
    """What all comparisons of a flow go by; both clusters are connected. Ask for it
    after a survey: the records that this found may have ids that are new.
    """
    ends = (flow.target, flow.source)
    back = next((f for f in config.enabled_flows if (f.source, f.target) == ends), None)
    reads, writes = for_tasks(config, flow)
    return ProofTerms(
        source=reads,
        target=writes,
        source_id=source.cluster_id,
        target_id=target.cluster_id,
        stamped=flow.provenance,
        homes=flow.homes,
        committed=flow.isolation_level == "read_committed",
        most_unpacked=flow.max_unpacked_bytes,
        transform=flow if flow.transform is not None else None,
        exactly_once=flow.exactly_once,
        by_content=scope.by_content,
        keys=scope.keys,
        ids=_ids(flow, target, (reads, writes), scope) if flow.translates_ids else None,
        former_sources=_former(flow, source, target),
        former_targets=_former(back, target, source) if back is not None else (),
    )


def _ids(
    flow: FlowConfig,
    target: Cluster,
    registries: tuple[ClusterConfig, ClusterConfig],
    scope: Scope,
) -> TranslatedIds:
    # Proofs of other flows need neither its compiled loops nor those of slots.
    from mirror.proofs.translated_ids import TranslatedIds  # noqa: PLC0415

    found = TranslatedIds.of(flow, target, registries)
    if not scope.by_content:
        return found  # tasks ask for more where ids differ
    try:
        return found.asked()
    except MirrorError as error:
        log.warning("ids are compared by the map alone", reason=str(error))
        return found


def _former(flow: FlowConfig, source: Cluster, target: Cluster) -> tuple[str, ...]:
    """Ids of a flow's source before it was rebuilt."""
    topic = progress.topic_name(flow.source)
    if target.topic(topic) is None:
        return ()
    found = Generation.parse(progress.read(target, topic, wait=False).generation)
    return tuple(each for each in found.source_ids if each != source.cluster_id)


def keep(config: MirrorConfig, flow: FlowConfig, proven: Proven) -> None:
    """Keep on the target how far partitions with findings are proven, once somebody has
    seen these: the next proof begins there. For scopes that are kept.

    Raises:
        MirrorError: the target does not answer, or refuses.
    """
    kept = [
        _proof(each, proven.at, by_content=proven.by_content)
        for each in proven.partitions
        if each.whole and not each.kept
    ]
    with contextlib.closing(Cluster(config.clusters[flow.target])) as target:
        proofs.write(target.connect(), flow, kept)


def _ends(after: Proven | None) -> dict[tuple[str, int], Proof]:
    if after is None:
        return {}
    kept = (
        _proof(each, after.at, by_content=after.by_content) for each in after.partitions
    )
    return {(each.topic, each.partition): each for each in kept}


def _proof(each: PartitionProof, at: float, *, by_content: bool) -> Proof:
    return Proof(
        topic=each.of.topic,
        partition=each.of.partition,
        topic_id=each.of.topic_id,
        source_offset=each.of.source_end,
        target_offset=each.target_end,
        at=at,
        records=each.account.records,
        findings=each.findings,
        root=each.root,
        mode=proofs.BY_CONTENT if by_content else proofs.BY_MAP,
        copy_id=each.of.copy_id,
    )
