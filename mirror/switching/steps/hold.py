"""Step 2: services stop changing what is about to move.

The open run in the journals does it: services read them every second, and their jobs
for group offsets, configs and ACLs of both flows wait until it ends.
"""

from __future__ import annotations

from mirror.switching.stage import Done, Stage, Step, nothing_to_undo


def _hold(stage: Stage) -> Done:
    return Done(
        text=f"group offsets, configs and ACLs of {stage.flow.name} and "
        f"{stage.reverse.name} are held"
    )


STEP = Step(do=_hold, undo=nothing_to_undo)
