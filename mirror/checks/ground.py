"""What is known about one flow when its checks begin.

Main type: `Ground`, the input of the `of_*` modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.checks.plan import RunPlan, TopicToCreate
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.topics.merging import Merging
    from mirror.topics.sides import Foreseen
    from mirror.topics.topics import SurveyedFlow


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What is known about a flow and its clusters."""

    flow: FlowConfig
    surveyed: SurveyedFlow
    plan: RunPlan
    merging: Merging
    source: Cluster
    target: Cluster
    source_side: Foreseen
    target_side: Foreseen
    settings: Mapping[str, str]
    """Settings of the target's brokers, as far as known."""
    appends: bool
    """Whether a run appends to copies that have records of others."""

    @property
    def where(self) -> str:
        return f"flow {self.flow.name}"

    @property
    def made(self) -> list[TopicToCreate]:
        """Topics that this flow would create, on either side."""
        return [each for each in self.plan.create if each.flow == self.flow.name]
