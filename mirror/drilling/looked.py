"""What several checks of a drill need, looked at once.

Main type: `Looked`; main function: `look`, which takes a portrait of each cluster, side
by side, and reads what the target keeps of the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from mirror.clusters import cpu_share
from mirror.clusters.at_once import at_once
from mirror.metadata import comparing, portrait
from mirror.metadata.topics import select
from mirror.offsets import standby
from mirror.recovery import access, ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.metadata.portrait import Portrait
    from mirror.metadata.topics import MirroredTopic
    from mirror.offsets.standby import Standby
    from mirror.switching.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What several checks need."""

    stage: Stage
    topics: tuple[MirroredTopic, ...]
    source: Portrait
    target: Portrait
    kept: Standby | None

    @property
    def flow(self) -> FlowConfig:
        return self.stage.flow

    @property
    def config(self) -> MirrorConfig:
        return self.stage.config


def look(stage: Stage) -> Looked:
    """Each cluster has a thread of its own.

    Raises:
        ClusterError: a cluster does not answer.
    """
    flow, flows = stage.flow, stage.config.enabled_flows
    clusters = (stage.source, stage.target)
    gentle = cpu_share.gently(cpu_share.current() / len(clusters))
    one, other = _both(partial(gentle(portrait.take), each) for each in clusters)
    partners = (
        comparing.partners(other, flow.source, flows),
        comparing.partners(one, flow.target, flows),
    )
    one, other = _both(
        partial(gentle(portrait.complete), *each)
        for each in zip((one, other), clusters, partners, strict=True)
    )
    return Looked(
        stage=stage,
        topics=select(stage.source, flow).topics,
        source=one,
        target=other,
        kept=standby.read(stage.target, flow.source, {*access.KINDS, ends.KIND}),
    )


def _both(work: Iterable[Callable[[], Portrait]]) -> list[Portrait]:
    return [each.result() for each in at_once([*work])]
