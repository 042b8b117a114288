"""Step 5: consumers stop where they were, so that their positions stand still."""

from __future__ import annotations

from mirror.clusters.admin import groups
from mirror.status.wording import some
from mirror.switching.stage import Done, Stage, Step, nothing_to_undo
from mirror.switching.steps.assess import named, places_of


def _stop(stage: Stage) -> Done:
    if not stage.planned:
        return Done(text=f"{stage.flow.source} does not answer")
    moving = places_of(stage).places

    def busy() -> str:
        listed = groups.list_groups(stage.source)
        left = sorted(n for n in moving if n in listed and not listed[n].idle)
        where = f"with members on {stage.flow.source}"
        return f"{some(len(left), 'group')} {where}: {named(left)}" if left else ""

    stage.wait(busy, every=0.2)
    return Done(text=f"{some(len(moving), 'group')} empty on {stage.flow.source}")


STEP = Step(do=_stop, undo=nothing_to_undo)
