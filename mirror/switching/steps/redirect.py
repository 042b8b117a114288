"""Step 8: producers and consumers move to the cluster that is active now."""

from __future__ import annotations

from mirror.switching import fences, rights
from mirror.switching.stage import Done, Stage, Step, nothing_to_undo


def _redirect(stage: Stage) -> Done:
    if stage.planned and stage.pair.fence == "acl":
        # What an earlier switch to this cluster granted there.
        fences.lift(stage.source, rights.name(stage.pair.name))
    return Done(
        text=f"producers may write to {stage.flow.target}, and consumers begin there: "
        "point them at it now"
    )


STEP = Step(do=_redirect, undo=nothing_to_undo)
