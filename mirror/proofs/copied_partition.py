"""One partition and its copy, as far as a proof goes.

Main type: `CopiedPartition`. It says where each log begins and ends for the proof, what
either has lost, and what is known of how far the flow copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPartition:
    """What is to be proven of one partition."""

    topic: str
    partition: int
    target_topic: str
    topic_id: uuid.UUID
    copy_id: uuid.UUID
    source_first: int
    """Where the proof begins on the source."""
    source_end: int
    """The next offset to copy when the proof began."""
    target_first: int
    target_end: int
    """After the last record of the copy that was visible when the proof began."""
    continues: bool = False
    """Whether an earlier proof ended at both firsts. If none did, what the copy has of
    records before `source_first` is left out."""
    source_start: int = 0
    """The first offset of the log when the proof began."""
    target_start: int = 0
    source_lost: int = 0
    """Offsets that the log lost at its beginning; since the earlier proof, if any."""
    target_lost: int = 0
    has_open_end: bool = False
    """Whether a transaction that does not end hides what follows in the copy."""
    begins_with_copies: bool = False
    """Whether what precedes the first record that has a copy is left out."""
    copied_to: int = -1
    """Up to where the flow says it has copied; -1: nothing says."""
    mapped_from: int = 0
    """The first source offset that the map names, if it has lost its oldest part; 0: it
    has not."""
    only_copy: bool = False
    """Whether the source has no such partition."""
