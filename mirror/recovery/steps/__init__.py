"""What each step of a switch does: a module for each, and the table of them.

In: the stage with both clusters, and what earlier steps noted. Out: a step that is done
or undone, with what is so now, for people and for the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.pairs import roles
from mirror.recovery import schemas
from mirror.recovery.stage import Step
from mirror.recovery.steps import assess, drain, fence, opening, positions, prove

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.recovery.stage import Done, Stage


def _set_positions(stage: Stage) -> Done:
    done = positions.set_positions(stage)
    fence.require_still(stage)
    return done


STEPS: Mapping[str, Step] = {
    "assess": Step(do=assess.assess),
    "hold": Step(do=fence.hold, undo=schemas.reopen),
    "fence": Step(do=fence.stop_producers, undo=fence.let_producers_write),
    "drain": Step(do=drain.drain),
    "consumers": Step(do=positions.stop_consumers),
    "positions": Step(do=_set_positions),
    roles.ROLE: Step(do=opening.move_role, undo=opening.take_role_back),
    "redirect": Step(do=opening.redirect),
    "prove": Step(do=prove.prove),
}
