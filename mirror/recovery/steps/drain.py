"""Step 4: the copy has everything up to the cut, and the last schemas; without the
source, it stands still.

In a failover whatever still copies is fenced, and what the run knows of the pair is
noted with it: a service that takes over later, and has not read of the run yet, finds
that it knows less, and copies nothing. Slots that write copies with the source's
offsets cannot be fenced, and send nothing three seconds after their last note.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirror.offsets import progress
from mirror.offsets.progress import NO_ID, Progress
from mirror.offsets.terms import PROOF_SECONDS
from mirror.pairs import risk
from mirror.recovery import outcome, schemas
from mirror.recovery.stage import Done, Stage, StepError
from mirror.recovery.steps import checks
from mirror.recovery.steps.checks import Seen
from mirror.recovery.steps.fence import cut_of
from mirror.service.ownership import take_over
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Mapping

_WATCH_SECONDS = 0.5
"""For services of earlier releases, which may have read of the run while they began."""
_GENERATION = "generation"
"""Noted: who may write for the flow; another one means that a service came back."""


def drain(stage: Stage) -> Done:
    return _catch_up(stage) if stage.planned else _stop(stage)


def _catch_up(stage: Stage) -> Done:
    reader = progress.reader(stage.target, progress.topic_name(stage.flow.source))
    cut = {key: end for key, end in cut_of(stage).items() if end > 0}
    ids: Mapping[str, str] = stage.notes["fence"].get("ids", {})

    def behind() -> str:
        known = reader.read(wait=False)
        left = [
            key
            for key, end in cut.items()
            # A position in an earlier topic of this name says nothing.
            if (risk.next_to_copy(known, key, ids.get(key[0], NO_ID.hex)) or 0) < end
        ]
        if not left:
            return checks.unmade(stage)
        first = f"{left[0][0]}-{left[0][1]}"
        return f"{some(len(left), 'partition')} not at the end, such as {first}"

    try:
        stage.wait(behind)
    except StepError as error:
        # Not in each look, which takes long where there are many topics.
        paused = map(str, checks.paused_topics(Seen(stage=stage)))
        lacks = checks.unmade(stage) or "; ".join(paused)
        if not lacks or lacks in str(error):
            raise
        raise StepError(f"{error}; {lacks}") from error
    outcome.begin_comparing(stage)
    return Done(
        text=f"{len(cut)} of {some(len(cut), 'partition')} at their end"
        + schemas.drain(stage)
    )


def stop_again(stage: Stage) -> bool:
    """Right before the role moves: fence what has begun to copy again since the step
    was done, such as a service that slept. Returns whether there was any.
    """
    name = progress.topic_name(stage.flow.source)
    now = progress.read(stage.target, name, committed=False).generation
    if now == stage.notes["drain"].get(_GENERATION):
        return False
    _stop(stage)
    return True


def _stop(stage: Stage) -> Done:
    name = progress.topic_name(stage.flow.source)
    same = stage.flow.offsets == "same"
    ours = Progress()

    def copies() -> str:
        nonlocal ours
        stage.note({})
        # The source is gone: only the target's journal knows of the run.
        take_over(stage.flow, stage.target, roles={stage.pair.name: stage.epochs})
        ours = progress.read(stage.target, name, committed=False)
        until = time.monotonic() + (PROOF_SECONDS if same else _WATCH_SECONDS)
        while time.monotonic() < until:
            time.sleep(0.2)
            now = progress.read(stage.target, name, committed=False)
            if now.generation != ours.generation:
                return f"a service that still runs {stage.flow.name}"
        return ""

    stage.wait(copies)
    if same:
        # Only here: it loads what other switches do not need.
        from mirror.service.same_offsets import note_ends  # noqa: PLC0415

        note_ends(stage.flow, stage.target)
        ours = progress.read(stage.target, name, committed=False)
    return Done(
        text=f"{stage.flow.name} is stopped; what it had open is aborted",
        notes={_GENERATION: ours.generation},
    )
