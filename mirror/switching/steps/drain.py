"""Step 4: the copy has everything up to the cut; without the source, it stands still.

In a failover whatever still copies is fenced, again and again until no service comes
back: they read the journals every second.
"""

from __future__ import annotations

import time

from mirror.driver.ownership import take_over
from mirror.offsets import progress
from mirror.offsets.progress import ProgressReader
from mirror.status.wording import some
from mirror.switching.stage import Done, Stage, Step, nothing_to_undo
from mirror.switching.steps.fence import cut_of

_WATCH_SECONDS = 3.0
"""A service notices within two that the flow may not copy."""


def _drain(stage: Stage) -> Done:
    return _catch_up(stage) if stage.planned else _stop(stage)


def _catch_up(stage: Stage) -> Done:
    reader = ProgressReader(stage.target, progress.topic_name(stage.flow.source))
    cut = {key: end for key, end in cut_of(stage).items() if end > 0}

    def behind() -> str:
        known = reader.read(wait=False).positions
        left = [
            key
            for key, end in cut.items()
            if key not in known or known[key].offset < end
        ]
        if not left:
            return ""
        first = f"{left[0][0]}-{left[0][1]}"
        return f"{some(len(left), 'partition')} not at the end, such as {first}"

    stage.wait(behind)
    return Done(text=f"{len(cut)} of {some(len(cut), 'partition')} at their end")


def _stop(stage: Stage) -> Done:
    name = progress.topic_name(stage.flow.source)

    def copies() -> str:
        take_over(stage.flow, stage.target)
        ours = progress.read(stage.target, name, committed=False)
        until = time.monotonic() + _WATCH_SECONDS
        while time.monotonic() < until:
            time.sleep(0.2)
            now = progress.read(stage.target, name, committed=False)
            if now.generation != ours.generation:
                return f"a service that still runs {stage.flow.name}"
        return ""

    stage.wait(copies)
    return Done(text=f"{stage.flow.name} is stopped; what it had open is aborted")


STEP = Step(do=_drain, undo=nothing_to_undo)
