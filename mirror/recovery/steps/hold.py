"""Step 2: services stop changing what is about to move.

The open run in the journals does it: services read them every second, and their jobs
for group offsets, configs, ACLs and schemas of both flows wait until it ends. The
registry of the cluster that is left takes no new schemas from here on.
"""

from __future__ import annotations

from mirror.recovery import schemas
from mirror.recovery.stage import Done, Stage, Step


def _hold(stage: Stage) -> Done:
    closed, warnings = schemas.close(stage)
    return Done(
        text=f"{closed}group offsets, configs and ACLs of {stage.flow.name} and "
        f"{stage.reverse.name} are held",
        warnings=warnings,
    )


STEP = Step(do=_hold, undo=schemas.reopen)
