"""Step 9: what a look from outside shows after the switch.

Producers write to the new cluster, groups go on there, the logs of the other one end
where they were cut, unless the flow back writes to them, and the last records are the
same on both. Where hooks have moved the applications, it waits for them; else it looks
once. What is not so is a warning, since the switch is done. After a failover it says
what was lost. Services let the flow rest by now, so the new role is noted in its
progress as well.
"""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING

from mirror.clusters.admin import topic_admin
from mirror.errors import MirrorError
from mirror.pairs import roles
from mirror.pairs.risk import of_applications
from mirror.pairs.roles import Epochs
from mirror.recovery import hooks, outcome
from mirror.recovery.stage import Done, Stage
from mirror.recovery.steps import opening, positions
from mirror.recovery.steps.assess import look
from mirror.recovery.steps.fence import cut_of
from mirror.service.ownership import take_over
from mirror.status.wording import named, some

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_SECONDS = 0.2
_COMMIT_SECONDS = 10.0
"""Consumers commit every five seconds by default. One with nothing to read does not."""


def prove(stage: Stage) -> Done:
    if not stage.planned:
        granted = opening.grant_late(stage)
        noted = _note_role(stage)
        done = outcome.failover_report(stage, look(stage))
        text, warnings = granted + done.text, (*done.warnings, *noted)
        return replace(done, text=text, warnings=warnings)
    compared = outcome.compare_last_records(stage)  # applications arrive meanwhile
    wrote, producers_missing = _producers(stage)
    moved, groups_missing = _groups(stage)
    quiet, noise = _quiet(stage)
    noted = _note_role(stage)
    return Done(
        text="; ".join(filter(None, (wrote, moved, quiet, compared.text))),
        warnings=(
            *(*producers_missing, *groups_missing, *noise, *noted),
            *compared.warnings,
        ),
    )


def _note_role(stage: Stage) -> list[str]:
    """In the progress of the flow that rests now. One that goes on, for other pairs or
    both ways, notes it with its next run: to take it over would hold up its topics.
    """
    if stage.planned and (stage.pair.scope is not None or stage.pair.both_ways):
        return []
    epoch = stage.epochs.begun
    known = {stage.pair.name: Epochs(role=epoch, begun=epoch)}
    try:
        take_over(stage.flow, stage.target, roles=known)
    except MirrorError as error:
        return [f"the role is noted in the journals alone: {error}"]
    return []


def _producers(stage: Stage) -> tuple[str, list[str]]:
    before = stage.notes[roles.ROLE].get(outcome.ENDS)
    if before is None:
        return "", []
    found: float | None = None

    def missing() -> str:
        nonlocal found
        found = outcome.first_write(stage.target, before)
        return f"no write on {stage.flow.target} yet" if found is None else ""

    waits = hooks.has(stage.pair, hooks.REDIRECT_PRODUCERS)
    left = _look(stage, missing, patient=waits)
    if found is None:
        return left, [left] if waits else []
    began, _ = stage.times["fence"]
    seconds = max(min(found, time.time()) - began, 0.0)
    return f"first write on {stage.flow.target} after {seconds:.1f} s", []


def _groups(stage: Stage) -> tuple[str, list[str]]:
    before = stage.notes["positions"].get(positions.SUMS) or {}
    still: list[str] = []

    def missing() -> str:
        nonlocal still
        still, absent = outcome.not_arrived(stage.target, before)
        where = f"neither read on {stage.flow.target} nor have members there"
        return (
            f"{some(len(absent), 'group')} {where}: {named(absent)}" if absent else ""
        )

    waits = hooks.has(stage.pair, hooks.START_CONSUMERS)
    left = _look(stage, missing, patient=waits)
    until = time.monotonic() + _COMMIT_SECONDS
    while waits and not left and still and time.monotonic() < until:
        time.sleep(_PAUSE_SECONDS)
        left = missing()
    verb = "advances" if len(before) == 1 else "advance"
    text = (
        f"{len(before) - len(still)} of {some(len(before), 'group')} {verb}"
        if before
        else ""
    )
    return text, [left] if waits and left else []


def _look(stage: Stage, missing: Callable[[], str], *, patient: bool) -> str:
    """What is still missing when time is up."""
    while (left := missing()) and patient and time.monotonic() < stage.deadline:
        stage.tell(left)
        time.sleep(_PAUSE_SECONDS)
    return left


def _quiet(stage: Stage) -> tuple[str, list[str]]:
    """Whether applications still write to the source, and a warning if they do. Topics
    to which the flow back writes do not tell.
    """
    cut = cut_of(stage)
    told = {*of_applications({topic for topic, _ in cut}, stage.reverse)}
    asked = [key for key in cut if key[0] in told]
    if not asked:
        return "", []
    now = topic_admin.list_offsets(
        stage.source, asked, timestamp=topic_admin.LATEST, committed=False
    )
    grown = sorted(key for key, end in now.items() if end > cut[key])
    if not grown:
        return f"{stage.flow.source} is quiet", []
    first = f"{grown[0][0]}-{grown[0][1]}"
    text = (
        f"somebody writes to {stage.flow.source} still: "
        f"{some(len(grown), 'partition')}, such as {first}. These records are not "
        f"copied: point the producer at {stage.flow.target}"
    )
    return f"{stage.flow.source} is not quiet", [text]
