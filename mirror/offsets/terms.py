"""Which copies have the source's offsets, and as which producer they are written.

Main types: `TermNote`, a record of the progress topic for each such topic, and `Term`,
what a slot needs of it for one partition; `CopyEnd`: where a copy ends. A term lasts
from when a flow begins to write a copy until somebody else may write to it. All owners
of the copy are one producer meanwhile, whose sequence numbers follow from offsets
(`copying.same_offsets`).

Layout: key = 0xFFFF and the topic's name in UTF-8; value = JSON: `version` 1,
`producer_id`, `epoch`, `topic_id` and `copy_id` in hex, `firsts`: by partition, the
offset with sequence 0 where that is not 0, whether the copy is `padded` up to there,
`ends`: by partition, where the source's log ended when the copy was empty, if that is
not 0, and `ended`: null, or by partition, from where on the copy has offsets of its
own. Earlier releases take the key for damage and copy nothing, since they would give
copies offsets of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import json
from typing import TYPE_CHECKING, NamedTuple

from mirror.errors import MALFORMED, ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
SEQUENCES = 1 << 31
"""Sequence numbers of a producer start again at 0 after this many."""
PROOF_SECONDS = 3.0
"""So long after its last note a slot begins to write no more: it may have been fenced,
which no leader of a copy knows. Who fences a slot waits for longer."""
_PREFIX = b"\xff\xff"


class Term(NamedTuple):
    """How one partition of a copy is written, until somebody else writes to it."""

    producer_id: int
    epoch: int
    first: int
    """The offset of the record with sequence 0."""
    copy_id: str
    """The topic id of the copy, in hex."""
    until: int = 0
    """Below this offset also records are copied that came from the copy's cluster: it
    had lost them by then."""

    def sequence(self, offset: int) -> int:
        """Of the record with this offset."""
        return (offset - self.first) % SEQUENCES


def diverged(what: str) -> str:
    """The message about a copy that must be made again; `what` differs."""
    return (
        f"{what}, so later records cannot have the source's offsets: make the copy "
        "again. In a pair settle the tail, then use `mirror failback --restore`; else "
        "use `mirror repair rebuild`, or delete the copy if it has foreign records"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEnd:
    """Where a copy ends by the word of its leader, or why it cannot be continued."""

    offset: int = -1
    """The end; -1 if it is not known."""
    position: int = -1
    """Where to read on: the end, if all before it is as on the source; else where that
    is noted, -1 if it is nowhere. What is between them came back from the copy's
    cluster, or is not on the source."""
    term: Term | None = None
    """How it is written from its end on."""
    leader_epoch: int = -1
    """Of the source's record before the position; -1 if unknown."""
    newest: int = -1
    """The time of the last record that the leader remembers of our producer, epoch ms;
    -1: it remembers none."""
    reason: str = ""
    diverged: bool = False
    """Whether it is because of what the copy has: it must be made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermNote:
    """How the copy of a topic is written."""

    producer_id: int
    topic_id: str
    """The source topic's id, in hex."""
    copy_id: str
    epoch: int = 0
    firsts: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    ended: Mapping[int, int] | None = None
    """By partition, from which offset on the copy has offsets of its own; None: it has
    the source's."""
    padded: bool = True
    """Whether the copy has what comes before the first record; until then it gets no
    records."""

    def term(self, partition: int) -> Term:
        return Term(
            self.producer_id,
            self.epoch,
            self.firsts.get(partition, 0),
            self.copy_id,
            self.ends.get(partition, 0),
        )

    def record(self, topic: str) -> tuple[bytes, bytes]:
        """Key and value, as in the progress topic."""
        told = {
            "version": VERSION,
            "producer_id": self.producer_id,
            "epoch": self.epoch,
            "topic_id": self.topic_id,
            "copy_id": self.copy_id,
            "firsts": {str(number): first for number, first in self.firsts.items()},
            "ends": {str(number): end for number, end in self.ends.items()},
            "ended": None
            if self.ended is None
            else {str(number): end for number, end in self.ended.items()},
            "padded": self.padded,
        }
        return _PREFIX + topic.encode(), json.dumps(told).encode()


def is_note(key: bytes) -> bool:
    """Whether a record of the progress topic is a `TermNote`."""
    return key.startswith(_PREFIX)


def decode(key: bytes, value: bytes) -> tuple[str, TermNote]:
    """The topic, and its note.

    Raises:
        ClusterError: it is damaged, or a newer mirror has written it.
    """
    try:
        topic = key[len(_PREFIX) :].decode()
        told = json.loads(value)
        if (version := told["version"]) != VERSION:
            raise ClusterError(
                f"the copy of {topic} was written by a newer mirror (version "
                f"{version} of its note; this one reads {VERSION}): use that one"
            )
        return topic, TermNote(
            producer_id=int(told["producer_id"]),
            epoch=int(told["epoch"]),
            topic_id=str(told["topic_id"]),
            copy_id=str(told["copy_id"]),
            firsts={int(n): int(first) for n, first in told["firsts"].items()},
            ends={int(n): int(end) for n, end in told.get("ends", {}).items()},
            ended=None
            if (ended := told.get("ended")) is None
            else {int(n): int(end) for n, end in ended.items()},
            padded=bool(told["padded"]),
        )
    except MALFORMED as error:
        raise ClusterError(f"the note of a term is damaged: {error!r}") from error
