"""Does what is pending on a cluster of a pair that was gone, once it answers.

Main function: `settle_fence`, for one cluster of a pair. It lays the fence that a
failover owes there, undoes what runs that were given up have changed there, and lifts a
fence that somebody laid who had missed that the cluster is active again. Each is noted
in the journal. It can be called again after any failure, on any machine.

A cluster becomes active by an entry in its own journal, before any other. That journal
is read right before a fence is laid and right after, so no old role decides.
"""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING, Any

from mirror.errors import MALFORMED, ClusterError, FencedError
from mirror.pairs import journal, roles, selection
from mirror.pairs.journal import Kind
from mirror.recovery.stage import Stage, both_flows
from mirror.recovery.steps import STEPS, fence
from mirror.topics import fences
from mirror.topics.acl_notes import AclNotes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import MirrorConfig
    from mirror.pairs.journal import Entry
    from mirror.pairs.roles import Run

_UNDO_SECONDS = 30.0
_STRAY_SECONDS = 2.0
"""A switch that begins meanwhile rarely lays its fence sooner; if so, it finds out that
the fence is gone before the role moves."""


def settle_fence(
    config: MirrorConfig,
    pair: PairConfig,
    cluster: Cluster,
    entries: Callable[[], Sequence[Entry]],
    *,
    by: str,
) -> bool:
    """Lay the pair's fence if this cluster owes it, lift it if it must not be there,
    and undo what is pending; returns whether the fence was laid. `entries`: those of
    the pair now, at least from this cluster's journal; `by`: for the journal.

    Raises:
        FenceError: ACLs cannot do it, or not now; call it again.
        MirrorError: the cluster or its registry does not answer, or refuses; the same.
    """
    before = entries()
    runs = roles.pending(before, pair)
    if left := [run for run in runs if run.first.source == cluster.alias]:
        for run in reversed(left):
            _undo(config, pair, cluster, entries, run, by=by)
        before = entries()
    if pair.fence != "acl":
        return False
    made = roles.owed(before)
    if made is None or made.source != cluster.alias:
        if roles.leads_to(before, pair) == cluster.alias:
            _lift_stray(pair, cluster, entries)
        return False
    stage = _stage(config, pair, cluster)
    more = _more(stage, cluster, roles.to_fence(made, before))
    _bring_role(cluster, [each for each in before if each.run == made.run])
    laid = fence.lay(stage, cluster, stage.flow, more=more)
    now = entries()
    if roles.leads_to(now, pair) == cluster.alias:  # it went home meanwhile
        fences.lift(cluster, fences.fence_name(pair.name))
        return False
    if roles.owed(now) == made and roles.open_run(now) is None:
        noted = roles.fence_laid(made, now, laid.topics, at=time.time(), by=by)
        journal.copy(cluster, [noted])
    return True


def _bring_role(cluster: Cluster, entries: Sequence[Entry]) -> None:
    """Into this cluster's journal, before its fence is laid: a service that reads only
    that one would lift it as a stray one. Raises as `JournalReader.read`.
    """
    there = journal.JournalReader(cluster).read(wait=False)
    if lacks := journal.missing(entries, there):
        journal.copy(cluster, lacks)


def _more(stage: Stage, cluster: Cluster, noted: Mapping[str, Any]) -> set[str]:
    """The topics that the failover selected: this configuration may select less.

    Raises:
        ClusterError: the cluster does not answer, or what was noted is damaged.
    """
    if not noted:
        return set()
    flows = {each.name: each for each in stage.config.enabled_flows}
    whole = flows[stage.flow.name]
    try:
        theirs = selection.applied(whole, stage.pair, noted[roles.OWED_SELECTION])
        known = set(map(str, noted[roles.OWED_TOPICS]))
        selected = fence.topics_of(cluster, theirs)
    except MALFORMED as error:
        why = f"{journal.TOPIC}: a record is damaged: {error!r}"
        raise ClusterError(why) from error
    return {*selected, *(known & cluster.topics().keys())}


def _lift_stray(
    pair: PairConfig, cluster: Cluster, entries: Callable[[], Sequence[Entry]]
) -> None:
    """Lift a fence on the active cluster; not while a run is open, which may lay it."""
    name = fences.fence_name(pair.name)
    if not AclNotes(cluster).noted(name).changes:
        return
    now = entries()
    is_active = roles.role(now, pair).active == cluster.alias
    if is_active and roles.open_run(now) is None:
        fences.lift(cluster, name, seconds=_STRAY_SECONDS)


def _undo(
    config: MirrorConfig,
    pair: PairConfig,
    cluster: Cluster,
    entries: Callable[[], Sequence[Entry]],
    run: Run,
    *,
    by: str,
) -> None:
    """What the steps of a run that was given up have changed on this cluster."""

    def require_pending() -> None:
        if run.first.run not in {e.first.run for e in roles.pending(entries(), pair)}:
            raise FencedError(f"{cluster.alias}: another run of {pair.name} began")

    stage = replace(
        _stage(config, pair, cluster),
        kind=run.first.kind,
        run=run.first.run,
        notes={step: run.details(step) for step in roles.STEPS},
        hold=require_pending,
        deadline=time.monotonic() + _UNDO_SECONDS,
    )
    for step in run.left:
        if step == roles.ROLE:  # needs the other cluster, too
            continue
        require_pending()
        STEPS[step].undo(stage)
        noted = roles.undone(run, step, at=time.time(), by=by)
        journal.copy(cluster, [noted])
        run = replace(run, entries=(*run.entries, noted))


def _stage(config: MirrorConfig, pair: PairConfig, cluster: Cluster) -> Stage:
    here = cluster.alias
    flow, reverse = both_flows(config, pair, here, pair.other_than(here))
    return Stage(
        kind=Kind.FENCE,
        config=config,
        pair=pair,
        flow=flow,
        reverse=reverse,
        source_or_none=cluster,
        target_or_none=None,
        notes={},
        note=lambda _notes: None,
        tell=lambda _text: None,
        deadline=time.monotonic(),
    )
