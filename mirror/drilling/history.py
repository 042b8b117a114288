"""Carries out a drill of a pair and keeps it in the journal.

Main function: `rehearse`, for the command and the service. The journal of the cluster
that would take over has it; without a journal, which a service makes, it is not kept.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.drilling import runner
from mirror.errors import MirrorError
from mirror.recovery import drills, journal, resting, roles
from mirror.recovery.journal import JournalReader, Kind
from mirror.switching.stage import Stage, both_flows

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.drilling.outcome import Drill


def rehearse(
    config: MirrorConfig,
    pair: PairConfig,
    flow: FlowConfig,
    reach: Callable[[str], Cluster],
    *,
    by: str,
    records: int = runner.RECORDS,
) -> tuple[Drill, str]:
    """The drill of a failover along this flow, and why it was not kept, if so.

    Raises:
        MirrorError: as `runner.drill`.
    """
    stage = stage_of(config, pair, flow, reach)
    done = runner.drill(stage, reach, records=records)
    try:
        return done, _keep(stage, done, by)
    except MirrorError as error:
        return done, str(error)


def stage_of(
    config: MirrorConfig,
    pair: PairConfig,
    flow: FlowConfig,
    reach: Callable[[str], Cluster],
) -> Stage:
    """Both clusters, and a journal that takes no notes.

    Raises:
        ClusterError: a cluster does not answer.
    """
    ours, reverse = both_flows(config, pair, flow.source, flow.target)
    return Stage(
        kind=Kind.FAILOVER,
        config=resting.copying(config, reach, flow.name),
        pair=pair,
        flow=ours,
        reverse=reverse,
        source_or_none=reach(flow.source),
        target_or_none=reach(flow.target),
        notes={},
        note=lambda _notes: None,
        tell=lambda _text: None,
        deadline=time.monotonic(),
    )


def _keep(stage: Stage, done: Drill, by: str) -> str:
    target, pair = stage.target, stage.pair
    if target.topic(journal.TOPIC) is None:
        return f"cluster {target.alias} has no journal yet"
    entries = JournalReader(target).read(wait=False)
    role = roles.role(roles.merged(entries, pair=pair.name), pair)
    drills.keep(
        target,
        pair.name,
        stage.flow.source,
        epoch=role.epoch,
        at=done.at,
        by=by,
        details=done.kept(),
    )
    return ""
