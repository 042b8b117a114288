"""The registries' side of a switch: what the steps do if the flow copies schemas.

The registry of the cluster that is left is closed before its producers stop, what it
registered last is copied, and the other one opens once that cluster is active. Pairs
with names move the subjects that are named after their topics. A failover cannot ask
the cluster that is gone, so its registry stays as it is.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
import math
import time
from typing import TYPE_CHECKING

from mirror import patience
from mirror.config import scopes
from mirror.errors import FencedError, MirrorError, RegistryError
from mirror.pairs.journal import Kind
from mirror.recovery.stage import NOTHING, Finding, Level
from mirror.schemas import modes
from mirror.schemas.claims import SchemaClaims
from mirror.schemas.comparing import RegistryPair
from mirror.schemas.registry.registry import Registry, RequestPace
from mirror.schemas.registry.values import Mode
from mirror.schemas.sync import look, sync
from mirror.status.states import SchemaState
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig
    from mirror.recovery.stage import Stage
    from mirror.schemas.registry.values import Subject

_MOST_NAMED = 5


def move(stage: Stage) -> bool:
    """Whether the run moves registries, too."""
    return stage.flow.schemas != "off"


def differences(stage: Stage) -> Iterator[Finding]:
    """What the registries do not have in common, before a switch."""
    if not move(stage):
        return
    try:
        with closing(_registries(stage)) as registries:
            found = look(registries, levels=False).subjects
    except RegistryError as error:
        yield Finding(
            level=Level.NOT_READY,
            subject=f"registries of {stage.pair.name}",
            reason=str(error),
            fix="make them answer",
            refuses=(Kind.SWITCH,),
        )
        return
    for each in found:
        if each.is_stopped:
            yield Finding(
                level=Level.DEGRADED,
                subject=f"schema {each.subject}",
                reason=each.reason,
                fix="copy it, or remove what is in the way",
                command=f"mirror schema list --flow '{stage.flow.name}'",
            )


def close(stage: Stage) -> tuple[str, tuple[str, ...]]:
    """Keep applications from registering on the cluster that is left. Returns what is
    so now, and warnings.

    Raises:
        MirrorError: its registry does not answer, or a later operator took over.
    """
    if not move(stage):
        return "", ()
    left = stage.flow.source
    if not stage.planned:
        text = f"the registry of {left} is still open: `mirror schema close {left}`, "
        return "", (f"{text}once the cluster and its registry answer",)
    with _registry(stage, left) as registry:
        subjects, contexts = modes.selected(registry, stage.flow)
        if stage.pair.scope is not None:
            pair, flow = stage.pair, stage.flow
            subjects = {each for each in subjects if _has(pair, flow, each)}
            contexts = set()
        claims = _claims(stage.source, stage.reverse)
        try:
            changes = modes.to_close(registry, subjects, contexts)
        except RegistryError as error:
            if error.retriable:
                raise
            return "", (f"{error}: what is registered there from now on is lost",)
        stage.hold()
        refused = modes.apply(registry, claims, changes, opens=False, run=stage.run)
    _require_place(stage)
    return f"the registry of {left} takes no new schemas; ", tuple(refused)


def _require_place(stage: Stage) -> None:
    """A registry does not know who may close it: another operator may have undone the
    run meanwhile, before there was anything to open.

    Raises:
        FencedError: a later operator took over; then nothing stays closed.
    """
    try:
        stage.hold()
    except FencedError:
        if stage.undone():
            alone = replace(stage, hold=lambda: None)
            _open(alone, stage.source, stage.reverse, closers={stage.run})
        raise


def reopen(stage: Stage) -> str:
    """Undo `close`. What others closed stays closed. Raises as that."""
    if not stage.planned:
        return NOTHING
    alias = stage.flow.source
    if not move(stage):
        if _closed_by_run(stage):
            raise MirrorError(
                f"this run has closed the registry of {alias}, and this configuration "
                f"copies no schemas: undo it with schemas of {stage.flow.name} as the "
                "service has it"
            )
        return NOTHING
    by_hand = f"`mirror schema open {alias}`"
    refused = _open(stage, stage.source, stage.reverse, closers={stage.run})
    if refused:
        raise MirrorError("; ".join(refused))
    if closed := _left_closed(stage):
        verb = "stays" if closed == 1 else "stay"
        return (
            f"{some(closed, 'subject')} of the registry of {alias} {verb} closed, as "
            f"before; {by_hand} opens all"
        )
    return f"the registry of {alias} is open, as before"


def open_copied(
    pair: PairConfig,
    flow: FlowConfig,
    target: Cluster,
    registry: Registry,
    *,
    hold: Callable[[], None],
) -> list[str]:
    """Give back the modes of subjects that were put into IMPORT since the target is
    active, by a command that copied schemas to it. `hold` as of `Stage`. Returns what
    the registry refuses.

    Raises:
        MirrorError: the registry or the target does not answer, or `hold` refuses.
    """
    claims = _claims(target, flow)
    claims.refresh()
    wanted = {
        subject
        for subject, noted in claims.modes.items()
        if noted.set == Mode.IMPORT and not noted.run and _has(pair, flow, subject)
    }
    if not wanted:
        return []
    changes = modes.to_open(registry, claims, wanted)
    hold()
    return modes.apply(registry, claims, changes, opens=True)


def _closed_by_run(stage: Stage) -> bool:
    if stage.source_or_none is None:
        return False
    claims = _claims(stage.source, stage.reverse)
    claims.refresh()
    return stage.run in {noted.run for noted in claims.modes.values()}


def _left_closed(stage: Stage) -> int:
    """How many subjects and contexts of the source mirror has closed, by its notes."""
    claims = _claims(stage.source, stage.reverse)
    claims.refresh()
    return sum(
        noted.set == Mode.READONLY and _has(stage.pair, stage.flow, each)
        for each, noted in claims.modes.items()
    )


def drain(stage: Stage) -> str:
    """Copy what the closed registry has got last. Returns what is so now.

    Raises:
        StepError: something is still to be copied at the step's end.
        MirrorError: a registry does not answer.
    """
    if not move(stage):
        return ""
    copied = 0
    with closing(_registries(stage)) as registries:

        def left() -> str:
            nonlocal copied
            found = sync(registries, levels_of=(), whole_levels=False)
            copied += len(found.writes)
            pending = found.states[SchemaState.PENDING]
            return f"{some(pending, 'subject')} to copy" if pending else ""

        stage.wait(left)
    return f"; {some(copied, 'last schema')} copied" if copied else ""


def open_target(stage: Stage, *, brief: bool) -> tuple[str, tuple[str, ...]]:
    """Let applications register on the cluster that is active now. Returns what is so,
    and what could not be done: a registry holds up no failover. `brief`: in a third of
    the step's time, which leaves the hooks the rest; done again, it does what is left.
    """
    if not move(stage):
        return "", ()
    alias = stage.flow.target
    way_out = f"run `mirror schema open {alias}`"
    now = time.monotonic()
    until = now + (stage.deadline - now) / 3 if brief else math.inf
    try:
        with patience.until(until):
            refused = _open(stage, stage.target, stage.flow, until=until)
    except FencedError:
        raise
    except MirrorError as error:
        return "", (f"the registry of {alias} is not open: {error}; {way_out}",)
    if refused:
        return "", (*refused[:_MOST_NAMED], way_out)
    return f"the registry of {alias} is open; ", ()


def _open(
    stage: Stage,
    cluster: Cluster,
    into: FlowConfig,
    *,
    closers: Collection[str] | None = None,
    until: float = math.inf,
) -> list[str]:
    """Give back the modes of a cluster; `into`: the pair's flow into it. `closers`:
    only what these runs have changed.
    """
    claims = _claims(cluster, into)
    claims.refresh()
    wanted = {
        subject
        for subject, noted in claims.modes.items()
        if (
            # A run is of one pair, whatever this configuration counts to that.
            noted.run in closers
            if closers is not None
            else _has(stage.pair, stage.flow, subject)
        )
    }
    with _registry(stage, cluster.alias, until=until) as registry:
        changes = modes.to_open(registry, claims, wanted)
        stage.hold()
        return modes.apply(registry, claims, changes, opens=True)


def _has(pair: PairConfig, flow: FlowConfig, subject: Subject) -> bool:
    """Whether a subject belongs to the pair: with a scope, by the topic after which it
    is named.
    """
    if pair.scope is None:
        return True
    return subject.topic is not None and scopes.has_topic(pair, subject.topic, flow)


def _claims(cluster: Cluster, into: FlowConfig) -> SchemaClaims:
    return SchemaClaims(
        cluster, into.source, replication_factor=into.replication_factor
    )


def _registry(stage: Stage, alias: str, *, until: float = math.inf) -> Registry:
    """`until`: when it is asked nothing more, monotonic, also if it answers."""
    pace = RequestPace(stage.flow.schemas_requests_per_second)

    def pace_in_time() -> None:
        pace()
        if time.monotonic() > until:
            raise RegistryError(
                f"cluster {alias}: the schema registry was not done in time",
                retriable=True,
            )

    return Registry(stage.config.clusters[alias], pace=pace_in_time)


def _registries(stage: Stage) -> RegistryPair:
    return RegistryPair.open(
        stage.flow,
        stage.config.clusters,
        stage.target,
        going_on=lambda: time.monotonic() < stage.deadline,
    )
