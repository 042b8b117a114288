"""What each step of a switch does: a module for each, and the table of them.

In: the stage with both clusters, and what earlier steps noted. Out: a step that is done
or undone, with what is so now, for people and for the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.pairs import roles
from mirror.recovery.steps import (
    assess,
    consumers,
    drain,
    fence,
    hold,
    opening,
    positions,
    prove,
    redirect,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.recovery.stage import Step

STEPS: Mapping[str, Step] = {
    "assess": assess.STEP,
    "hold": hold.STEP,
    "fence": fence.STEP,
    "drain": drain.STEP,
    "consumers": consumers.STEP,
    "positions": positions.STEP,
    roles.ROLE: opening.STEP,
    "redirect": redirect.STEP,
    "prove": prove.STEP,
}
