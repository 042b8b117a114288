"""Everything known about one source partition and its current copy.

Main type: `Track`, the runs of a partition as epochs, each of which ascends on both
sides (see `index`). No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mirror.offsets.index import Epoch
from mirror.offsets.progress import NO_ID
from mirror.offsets.runs import DOWNSTREAM, UPSTREAM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.offsets.runs import Block

_MOST_EPOCHS = 32


@dataclass(slots=True)
class Track:
    """Everything known about one source partition and its current copy."""

    target_topic: str
    epochs: list[Epoch] = field(default_factory=list)
    """Oldest first. A re-created topic begins one, and so does a source that was
    truncated, a copy that lost its end, or a flow without exactly-once that copied
    records again. If writers are fenced, each begins after all that is left of the
    earlier ones."""
    copy_id: UUID = NO_ID
    """The target topic's; NO_ID while it is not known."""
    earlier_ids: set[UUID] = field(default_factory=set)
    """Of deleted topics that had the copy's name before."""
    cut: bool = False
    """Whether the copy lost its end once."""
    dropped: dict[UUID, tuple[int, int]] = field(default_factory=dict)
    """The source topics whose oldest epochs are forgotten, and where these ended."""

    @property
    def renewed(self) -> bool:
        """Whether offsets that were true once need not be so any more."""
        return self.cut or bool(self.earlier_ids)

    def add(self, block: Block, at: int, *, keep: int, fenced: bool = True) -> None:
        """Runs at the map's offset `at`; `keep` at least the newest. Those of writers
        that are not `fenced` may come late, and then say nothing about others.
        """
        if block.copy_id not in (NO_ID, self.copy_id):
            if self.copy_id != NO_ID:
                self.earlier_ids.add(self.copy_id)
                if fenced:
                    self._begin_again()
                else:
                    self.cut = True
            self.copy_id = block.copy_id
        newest = self.epochs[-1] if self.epochs else None
        if (
            newest is None
            or newest.topic_id != block.topic_id
            or (not fenced and newest.copy_id != block.copy_id)
            or not newest.follows(block.runs)
        ):
            if newest is not None:
                newest.close(at)
                self._cut(int(block.runs[0, DOWNSTREAM]), block, fenced=fenced)
            newest = Epoch(block.topic_id, block.copy_id)
            self.epochs.append(newest)
            if len(self.epochs) > _MOST_EPOCHS:
                self._drop(self.epochs.pop(0))
        newest.add(block.runs, at, keep=keep)

    def _begin_again(self) -> None:
        self.epochs.clear()
        self.cut = False
        self.dropped.clear()

    def _drop(self, epoch: Epoch) -> None:
        up, down = self.dropped.get(epoch.topic_id, (0, 0))
        up, down = max(up, epoch.end(UPSTREAM)), max(down, epoch.end(DOWNSTREAM))
        self.dropped[epoch.topic_id] = up, down

    def _cut(self, downstream: int, block: Block, *, fenced: bool) -> None:
        """Everything from an offset of the copy on is gone, if there was anything."""
        if downstream >= self.epochs[-1].end(DOWNSTREAM):
            return
        self.cut = True
        self.copy_id = block.copy_id
        if not fenced:
            return
        while self.epochs and self.epochs[-1].first(DOWNSTREAM) >= downstream:
            self.epochs.pop()
        if self.epochs and downstream < self.epochs[-1].end(DOWNSTREAM):
            self.epochs[-1].cut(downstream)

    def forget(self, before: int) -> None:
        for epoch in self.epochs:
            epoch.forget(before)

    @property
    def oldest(self) -> tuple[int, int] | None:
        """The first offsets known, on both sides; None if anything was re-created, lost
        its end, or is forgotten.
        """
        topics = {epoch.topic_id for epoch in self.epochs}
        if self.renewed or self.dropped or len(topics) > 1:
            return None
        first = self.epochs[0]
        return first.first(UPSTREAM), first.first(DOWNSTREAM)

    @property
    def source_id(self) -> UUID:
        """The id of the source topic that was copied last; NO_ID if that is gone."""
        return self.epochs[-1].topic_id if self.epochs else NO_ID

    def is_another(self, topic_id: UUID | None) -> bool:
        """Whether nothing is known about the copy with this id; None: there is none.

        An earlier copy does not come back: a broker that names it is out of date.
        """
        if topic_id is None:
            return True
        return (
            NO_ID not in (topic_id, self.copy_id)
            and topic_id != self.copy_id
            and topic_id not in self.earlier_ids
        )

    def forgotten(self, topic_id: UUID, column: int, log_start: int) -> int:
        """The end of what is forgotten of a source topic, -1 if nothing of it can be in
        a log that starts there.
        """
        ends = self.dropped.get(topic_id, (-1, -1))
        return ends[column] if ends[DOWNSTREAM] > log_start else -1

    def there(self, copy_id: UUID | None) -> list[Epoch]:
        """Those that may be of the copy with this id, oldest first."""
        if copy_id != self.copy_id:
            return self.epochs
        return [each for each in self.epochs if each.copy_id in (NO_ID, copy_id)]

    def document(self, most: int) -> dict[str, Any]:
        """What JSON can say of it; `most` as for `Epoch.document`."""
        return {
            "target_topic": self.target_topic,
            "copy_id": self.copy_id.hex,
            "earlier_ids": [each.hex for each in self.earlier_ids],
            "cut": self.cut,
            "dropped": {topic.hex: ends for topic, ends in self.dropped.items()},
            "epochs": [each.document(most) for each in self.epochs],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Track:
        """The reverse. Raises one of `errors.MALFORMED` if it is damaged."""
        return cls(
            target_topic=str(document["target_topic"]),
            epochs=[Epoch.of(each) for each in document["epochs"]],
            copy_id=UUID(document["copy_id"]),
            earlier_ids={UUID(each) for each in document["earlier_ids"]},
            cut=bool(document["cut"]),
            dropped={
                UUID(topic): (int(up), int(down))
                for topic, (up, down) in document["dropped"].items()
            },
        )
