"""What is known of one flow by the time it is looked at closely.

Main type: `Ground`, which the modules beside this one are given to judge by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.metadata.merging import Merging
    from mirror.metadata.sides import Foreseen
    from mirror.metadata.survey import SurveyedFlow
    from mirror.preflight.plan import RunPlan, TopicToCreate


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """All that is known of a flow and its clusters by now."""

    flow: FlowConfig
    surveyed: SurveyedFlow
    plan: RunPlan
    merging: Merging
    source: Cluster
    target: Cluster
    source_side: Foreseen
    target_side: Foreseen
    settings: Mapping[str, str]
    """Of the target's brokers, as far as known."""

    @property
    def where(self) -> str:
        return f"flow {self.flow.name}"

    @property
    def made(self) -> list[TopicToCreate]:
        """What this flow would make, wherever."""
        return [each for each in self.plan.create if each.flow == self.flow.name]
