"""The setting of a flow whose topics several services share out.

Main type: `PartSettings`, a part of `FlowConfig`. Each part of a flow has transactional
ids, a run and a leader of its own; progress, offset map and ledger are the flow's.
`driver.parts` keeps them apart, and says which topics belong to which part.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from mirror.config import values
from mirror.config.section import Section
from mirror.config.traits import Effect, setting


class PartSettings(Section):
    """Which part of a flow this service copies."""

    on_change: ClassVar[Effect] = Effect.RESTART
    NOTED: ClassVar[frozenset[str]] = frozenset({"topics", "topics_exclude"})
    """The settings that a part notes on the target when a run begins."""

    part: Annotated[str, BeforeValidator(values.part)] | None = setting(
        default=None,
        description="A name for this service's share of the flow, if several services "
        "copy from the same source to the same target, each its own topics: team-a. "
        "Each of them needs another name, and topics that no other part selects; of "
        "two parts that select a topic, the one that ran with these `topics` first "
        "copies it. A part copies heartbeats only if `topics` spells them out. Null: "
        "this service copies the flow alone.",
    )

    def labelled(self, name: str) -> str:
        """The flow's name with its part, for people and for what is a part's own."""
        return name if self.part is None else f"{name}/{self.part}"
