"""Whether each cluster answers, as this instance sees it: the part `clusters` of a
service's status.

Main type: `ClusterStatus`.
"""

from __future__ import annotations

from dataclasses import dataclass

CLUSTER_METRICS = {
    "mirror_cluster_answers": "1 if a broker of the cluster answered this instance "
    "when it last asked, about every ten seconds, else 0.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """What a cluster said when it was last asked."""

    alias: str
    """As in the configuration."""
    sides: tuple[str, ...]
    """Whether flows have it as their source, their target, or both."""
    answers: bool
    """Whether a broker of it answered."""
    since: float
    """Since when it does, or does not; epoch seconds."""
    reason: str = ""
    """Why it does not answer; empty if it does."""
    cluster_id: str = ""
    """As it said when it last answered; empty while not known."""
