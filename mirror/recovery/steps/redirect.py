"""Step 8: producers and consumers move to the cluster that is active now."""

from __future__ import annotations

from mirror.recovery import fences, hooks, rights, schemas
from mirror.recovery.stage import Done, Stage, Step, nothing_to_undo


def _redirect(stage: Stage) -> Done:
    if stage.planned and stage.pair.fence == "acl":
        stage.note({})
        # What an earlier switch to this cluster granted there.
        fences.lift(stage.source, rights.name(stage.pair.name), hold=stage.hold)
    opened, warnings = schemas.open_target(stage, brief=True)
    producers = hooks.call(stage, hooks.REDIRECT_PRODUCERS)
    consumers = hooks.call(stage, hooks.START_CONSUMERS)
    if warnings:  # such as thousands of subjects, which take longer
        opened, warnings = schemas.open_target(stage, brief=False)
    texts = (
        producers or f"producers may write to {stage.flow.target}: point them at it",
        consumers or f"consumers go on at {stage.flow.target}: start them there",
    )
    return Done(text=opened + "; ".join(texts), warnings=warnings)


STEP = Step(do=_redirect, undo=nothing_to_undo)
