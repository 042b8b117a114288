"""What else a failover needs: proofs, what the standby topic keeps, hooks, lag.

Functions that return findings, each over one thing that was looked at. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.drilling.findings import DrillFinding, FindingLevel
from mirror.recovery import access
from mirror.status.wording import duration, some

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig
    from mirror.recovery.access import Kept
    from mirror.recovery.proofs import Proof
    from mirror.status.risk import RiskStatus

TopicPartition = tuple[str, int]

_STALE_SECONDS = 600.0
"""The service writes what it keeps of the source every minute at least."""
_OLD_PROOF_SECONDS = 7 * 86400.0


def of_risk(
    risk: RiskStatus, pair: PairConfig, flow: FlowConfig
) -> Iterator[DrillFinding]:
    """How far behind the copy is."""
    subject = f"flow {flow.name}"
    if risk.seconds > pair.max_lag_seconds:
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=subject,
            reason=f"the copy is {duration(risk.seconds)} behind, and max_lag_seconds "
            f"is {pair.max_lag_seconds:g}",
            cure="see why it is behind",
            command="mirror lag",
        )
    elif risk.unknown or risk.seconds < 0:
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=subject,
            reason="how far behind the copy is, is not known"
            + (f" in {some(risk.unknown, 'partition')}" if risk.unknown else ""),
            cure="run a service, and see that all partitions have leaders",
            command="mirror risk",
        )


def of_proofs(
    found: Mapping[TopicPartition, Proof], flow: FlowConfig, *, at: float
) -> Iterator[DrillFinding]:
    """Whether the last proofs found something, or are old; none is no finding unless
    the service is to prove.
    """
    topics: dict[str, int] = {}
    for proof in found.values():
        if proof.findings:
            topics[proof.topic] = topics.get(proof.topic, 0) + proof.findings
    for topic, count in sorted(topics.items()):
        yield DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=f"topic {topic}",
            reason=f"the last proof has {some(count, 'finding')}",
            cure="see what differs, then repair the copy",
            command=f"mirror verify --flow '{flow.name}' --topic '{topic}'",
        )
    oldest = min((proof.at for proof in found.values()), default=at)
    if at - oldest > _OLD_PROOF_SECONDS:
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=f"flow {flow.name}",
            reason=f"the oldest proof is {duration(at - oldest)} old",
            cure="prove the copies",
            command=f"mirror verify --flow '{flow.name}'",
        )


def of_standby(
    kept: Kept | None, looked_at: float, flow: FlowConfig, *, at: float
) -> Iterator[DrillFinding]:
    """Whether the target keeps what a failover needs of the source."""
    subject = f"cluster {flow.target}"
    cure = "run a service for this flow"
    if at - looked_at > _STALE_SECONDS:
        when = f"{duration(at - looked_at)} old" if looked_at else "missing"
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=subject,
            reason=f"what it keeps about {flow.source} is {when}: after a failover "
            "the loss would not be known",
            cure=cure,
            command="mirror run",
        )
    if kept is None or access.ACLS not in kept.at:
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=subject,
            reason=f"it does not keep the ACLs of {flow.source}: a failover could "
            "grant no rights",
            cure=cure,
            command="mirror run",
        )
    elif kept.unseen.get(access.ACLS, "no authorizer") != "no authorizer":
        yield DrillFinding(
            level=FindingLevel.DEGRADED,
            subject=subject,
            reason=f"mirror may not see the ACLs of {flow.source}: a failover could "
            "grant no rights",
            cure="give mirror DESCRIBE on the source cluster",
            command="mirror config acls --for recovery",
        )


def of_hooks(pair: PairConfig) -> Iterator[DrillFinding]:
    """Whether each hook can be called from this machine."""
    for name, hook in pair.hooks.given() if pair.hooks is not None else ():
        if why := hook.why_unusable:
            yield DrillFinding(
                level=FindingLevel.NOT_READY,
                subject=f"hook {name}",
                reason=why,
                cure="correct the hook, or run the drill where switches are run",
            )
