"""Checkpoints that are withdrawn because their copy was re-created or lost its end.

Main type: `Highest`, the highest target offset that was written for each group and
partition: we may have moved a group up to there. It is built from the checkpoints in
the order of their topic, so it survives a restart, as far as compaction allows. Groups
go back *before* the lower checkpoint is written (see `jobs.groups`): so a checkpoint
that went back shows that its group did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.offsets.groups import GroupsStanding
    from mirror.offsets.mm2_records import Checkpoint
    from mirror.offsets.translation import ManyTranslator

TopicPartition = tuple[str, int]
Withdrawn = dict[str, dict[TopicPartition, int]]
"""Per group and target partition: a group at this offset, or before, goes back."""


class _Written(NamedTuple):
    highest: Checkpoint
    newest: Checkpoint


class Highest:
    """What was written for each group and partition."""

    def __init__(self) -> None:
        self._written: dict[tuple[str, str, int], _Written] = {}

    def take(self, now: Checkpoint, *, withdrawn: bool = False) -> None:
        """The next checkpoint. `withdrawn`: earlier ones no longer count."""
        known = self._written.get(now.key)
        if (
            known is None
            or withdrawn
            or now.downstream >= known.highest.downstream
            or _went_back(known.newest, now)
        ):
            self._written[now.key] = _Written(now, now)
        else:
            self._written[now.key] = known._replace(newest=now)

    def withdrawn(
        self,
        known: Mapping[str, Mapping[TopicPartition, Checkpoint]],
        standing: GroupsStanding,
        translator: ManyTranslator,
    ) -> Withdrawn:
        """Offsets of groups that may be in the lost part. `known`: current checkpoints.

        The highest checkpoint itself is translated again: a group that was rewound on
        the source has a lower one, and that is no reason to take it back.
        """
        doubtful: dict[tuple[str, TopicPartition], tuple[TopicPartition, Checkpoint]]
        doubtful = {}
        for group, places in standing.places.items():
            for place in places:
                key = (place.target_topic, place.partition)
                now = known[group].get(key)
                written = self._written.get((group, *key))
                if now and written and now.downstream < written.highest.downstream:
                    of = (place.topic, place.partition)
                    doubtful[group, key] = (of, written.highest)
        questions: dict[TopicPartition, set[int]] = {}
        for of, highest in doubtful.values():
            questions.setdefault(of, set()).add(highest.upstream)
        answers = translator.translate_all(questions)
        found: Withdrawn = {}
        for (group, key), (of, highest) in doubtful.items():
            answer = answers[of][highest.upstream]
            if answer.renewed and answer.offset < highest.downstream:
                found.setdefault(group, {})[key] = highest.downstream
        return found


def _went_back(last: Checkpoint, now: Checkpoint) -> bool:
    """Whether a checkpoint fell although its group did not."""
    return now.downstream < last.downstream and now.upstream >= last.upstream
