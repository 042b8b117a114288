"""Carries out a canary: a switch of our own topic and group, there and back.

Main functions: `ready`, which changes nothing, and `rehearse`. The steps, the operator
and the flows are those of a switch of applications; the pair is the canary's own, so no
role, topic, group or right of an application changes. However a canary ends, what it
made is taken back; one that was killed leaves that to the next one. The topic stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
import time
from typing import TYPE_CHECKING

from mirror.drilling.canaries import own_pair, way_home
from mirror.drilling.canaries.journey import Journey
from mirror.drilling.canaries.outcome import Canary
from mirror.errors import FencedError, MirrorError
from mirror.policy.naming import CANARY
from mirror.recovery import canaries, resting, roles
from mirror.recovery.journal import JournalReader, Kind
from mirror.switching import answers, hooks
from mirror.switching.stage import Stage, both_flows
from mirror.switching.steps import assess, checks
from mirror.switching.steps.checks import Seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.recovery.roles import Role
    from mirror.switching.runner import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A canary that can begin."""

    pair: PairConfig
    """The one that is rehearsed."""
    epoch: int
    """Of its role."""
    stage: Stage
    """Of the canary's switch there."""
    rests: bool
    """Whether no service copies along the flow home."""

    @property
    def changes(self) -> tuple[str, ...]:
        """What it would do, in words."""
        stage = self.stage
        source, target = stage.flow.source, stage.flow.target
        called = [] if stage.pair.hooks is None else list(stage.pair.hooks.given())
        made = (
            f"topic {CANARY} is created on {source} and {target} where it is missing, "
            "and stays"
        )
        group = f"group {CANARY} gets offsets on both, and is deleted at the end"
        switched = (
            f"{CANARY} is switched {source}->{target} and back, as {stage.pair.name} "
            "in the journals"
        )
        found = [made, group, switched]
        if stage.pair.fence == "acl":
            found.append(
                f"ACLs of topic {CANARY} are added on both clusters, and taken back"
            )
        found += [f"hook {name} is called, there and back" for name, _ in called]
        if self.rests:
            found.append(f"this command copies {CANARY} along {stage.reverse.name}")
        return tuple(found)


def ready(
    config: MirrorConfig,
    pair: PairConfig,
    flow: FlowConfig,
    reach: Callable[[str], Cluster],
) -> Ready:
    """Look whether a canary of this pair can go along this flow.

    Raises:
        MirrorError: it cannot.
    """
    own_pair.require_copied(config, pair)
    canary = own_pair.of(pair, flow.source)
    ours, reverse = both_flows(config, canary, flow.source, flow.target)
    stage = Stage(
        kind=Kind.SWITCH,
        config=resting.copying(config, reach, flow.name),
        pair=canary,
        flow=ours,
        reverse=reverse,
        source_or_none=reach(flow.source),
        target_or_none=reach(flow.target),
        notes={},
        note=lambda _notes: None,
        tell=lambda _text: None,
        deadline=time.monotonic(),
    )
    role = _require_turn(pair, stage)
    whole_flow, _ = both_flows(config, pair, flow.source, flow.target)
    whole = replace(stage, pair=pair, flow=whole_flow)
    assess.require_begun(whole)
    for each in (*checks.copies_all_keys(Seen(stage=whole)), *hooks.unusable(canary)):
        raise MirrorError(str(each))
    rests = pair.scope is None and not pair.both_ways
    if rests:
        way_home.require_begun(stage)
    return Ready(pair=pair, epoch=role.epoch, stage=stage, rests=rests)


def _require_turn(pair: PairConfig, stage: Stage) -> Role:
    """Returns the role of the pair that is rehearsed.

    Raises:
        MirrorError: its other cluster is active, or a switch is under way.
    """
    clusters = (stage.source, stage.target)
    journals = [JournalReader(each).read(wait=False) for each in clusters]
    known = answers.Known(pair=pair, entries=roles.merged(*journals, pair=pair.name))
    answers.answer(answers.Asks.CANARY, stage.flow.source, stage.flow.target, known)
    own_pair.require_free(stage.pair, clusters)
    return known.role


def rehearse(found: Ready, terms: Terms, *, by: str) -> tuple[Canary, str]:
    """Switch the canary there and back. Returns the outcome, and why the journals do
    not keep it, if so.

    Raises:
        MirrorError: it cannot begin.
    """
    began, at = time.monotonic(), time.time()
    stage = found.stage
    clusters = (stage.source, stage.target)
    cleared = own_pair.clear(stage.pair, clusters, by=by)
    journey = Journey(
        stage,
        terms,
        rests=found.rests,
        require_turn=partial(_require_turn, found.pair, stage),
    )
    try:
        failure = _make(journey, stage, by)
    except FencedError as error:
        failure = (
            f"{error}. Another command took over the journals of these clusters, so "
            "the canary gave way; the next one clears what it left"
        )
    app = journey.application
    done = Canary(
        pair=found.pair.name,
        source=stage.flow.source,
        target=stage.flow.target,
        at=at,
        seconds=round(time.monotonic() - began, 3),
        switches=tuple(journey.legs),
        written=app.written,
        read=app.received,
        lost=0 if failure else app.lost,
        repeated=app.repeated,
        failure=failure,
        cleared=cleared,
    )
    try:
        canaries.keep(
            clusters, done.pair, done.source, done.target,
            epoch=found.epoch, at=at, by=by, details=done.kept(),
        )  # fmt: skip
    except MirrorError as error:
        return done, str(error)
    return done, ""


def _make(journey: Journey, stage: Stage, by: str) -> str:
    """Returns why it did not go through, if so. It clears also if it is stopped.

    Raises:
        FencedError: another operator of these clusters took over.
    """
    failure = ""
    try:
        failure = journey.make()
    except FencedError:
        raise
    except BaseException:
        own_pair.clear(stage.pair, (stage.source, stage.target), by=by)
        raise
    try:
        own_pair.clear(stage.pair, (stage.source, stage.target), by=by)
    except FencedError:
        raise
    except MirrorError as error:
        left = f"what it left is not cleared yet: {error}; run it again"
        return "; ".join(filter(None, (failure, left)))
    return failure
