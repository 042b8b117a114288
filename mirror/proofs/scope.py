"""What a proof covers, and how it matches records with their copies.

Main type: `Scope`, as a person or the service asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirror.clusters.admin import topic_admin


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Of one flow, or of several."""

    pattern: str = ".*"
    """Of the topics' whole names."""
    since: int | None = None
    """Begin with records of this time (epoch ms, or `topic_admin.EARLIEST`); None:
    after the last proof."""
    by_content: bool = False
    """Match records and copies by what they say, without the map."""
    keys: bool = True
    """Whether findings name the keys of their records."""
    remembered: bool = True
    """Whether the target may keep how far this proof came."""

    @property
    def is_kept(self) -> bool:
        """Whether the next proof may begin where this one ends; else something before
        it is unproven.
        """
        return self.remembered and self.since in (None, topic_admin.EARLIEST)
