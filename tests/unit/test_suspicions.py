"""What follows from a finding: the partition jumps, or waits with a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
import uuid

import pytest

from mirror.clusters.topics import Leader
from mirror.copying.gaps import Gap, GapFinding, Suspect, Suspicions
from mirror.copying.lease import Assignment
from mirror.copying.tally import Tally, latency_bounds
from mirror.errors import UnreachableError
from mirror.offsets.progress import Position
from mirror.pairs.losses import Cause

pytestmark = pytest.mark.unit

_KEY = ("t", 0)
_LEADER = Leader(node=1, epoch=5)
_ID, _LATER_ID = uuid.uuid4(), uuid.uuid4()
_POSITION = Position(offset=10, topic_id=_ID)
_DELETED = Gap(
    cause=Cause.DELETED, first=10, last=19, to=Position(offset=20, topic_id=_ID)
)
_RECREATED = Gap(
    cause=Cause.RECREATED,
    first=10,
    last=None,
    to=Position(offset=0, topic_id=_LATER_ID, left_id=_ID),
)


class Raised:
    """Suspicions about one position, in a slot whose topic has the id `shown`."""

    def __init__(self, *, setting: str = "stop", shown: uuid.UUID = _ID) -> None:
        self.findings: list[GapFinding] = []
        self.left_out: list[Any] = []
        self.learned: list[Any] = []
        assignment = Assignment(
            topic="t", partition=0, target_topic="A.t", topic_id=_ID.hex
        )
        self._begin_with = ({_KEY: assignment}, {"t": shown})
        self.suspicions = Suspicions(
            SimpleNamespace(name="A->B", on_loss=setting, on_recreated_topic=setting),
            SimpleNamespace(learn_leader=lambda *found: self.learned.append(found)),
            SimpleNamespace(leave_out=self.left_out.append, leader=lambda _: _LEADER),
            SimpleNamespace(open=lambda _: None, findings=lambda: self.findings),
            tally=Tally(slot=0, bounds=latency_bounds(60), service=uuid.uuid4()),
        )
        self.take_over()

    def take_over(self, position: Position = _POSITION) -> None:
        self.suspicions.begin(*self._begin_with)
        self.suspicions.look_into(_KEY, position)

    def found(
        self, gap: Gap | None, reason: str = "", leader: Leader | None = None
    ) -> list[Any]:
        suspect = Suspect(topic="t", partition=0, position=_POSITION)
        self.findings = [
            GapFinding(suspect=suspect, gap=gap, reason=reason, leader=leader)
        ]
        return self.suspicions.verdicts()


def test_not_read_until_there_is_a_verdict() -> None:
    """A partition under suspicion is left out, and waits until the source answered."""
    raised = Raised()
    assert raised.left_out == [_KEY]
    assert raised.suspicions.verdicts() == []
    assert raised.suspicions.pending
    (verdict,) = raised.found(None, "no leader")
    assert (verdict.key, verdict.jump, verdict.reason) == (_KEY, None, "no leader")
    assert not raised.suspicions.pending


def test_another_leader_is_a_reason_to_take_over() -> None:
    """The broker that is read from no longer leads, so it may be cut off and show what
    is lost: nothing is decided before the slot reads from the one that leads.
    """
    raised, leader = Raised(setting="continue"), Leader(node=2, epoch=6)
    with pytest.raises(UnreachableError, match="broker 2 now, under epoch 6"):
        raised.found(_DELETED, leader=leader)
    assert raised.learned == [(_ID, 0, leader)]
    raised.take_over()
    (verdict,) = raised.found(_DELETED, leader=_LEADER)
    assert verdict.jump.to == _DELETED.to


def test_a_position_that_is_still_there_is_read_on() -> None:
    """No broker refused it and the leader has it: reading goes on where it was."""
    (verdict,) = Raised().found(None)
    assert verdict.stays == _POSITION
    assert (verdict.jump, verdict.reason) == (None, "")


@pytest.mark.parametrize(
    ("gap", "shown", "words"),
    [
        (_DELETED, _ID, "on_loss is stop"),
        (_RECREATED, _LATER_ID, "on_recreated_topic"),
    ],
)
def test_settings_decide_on_jumps(gap: Gap, shown: uuid.UUID, words: str) -> None:
    """With `stop` the reason names the setting; with `continue` the jump has a loss."""
    (stopped,) = Raised(setting="stop", shown=shown).found(gap)
    assert stopped.jump is None
    assert words in stopped.reason
    (went_on,) = Raised(setting="continue", shown=shown).found(gap)
    assert went_on.jump.to == gap.to
    assert went_on.jump.loss.cause is gap.cause
    assert went_on.jump.loss.topic_id == _ID.hex


def test_no_jump_into_a_topic_that_is_not_read() -> None:
    """A gap that leads to a topic id other than the slot's is not believed."""
    (verdict,) = Raised(setting="continue", shown=_ID).found(_RECREATED)
    assert verdict.jump is None
    assert "disagree" in verdict.reason


def test_an_old_finding_does_not_count() -> None:
    """A finding about another position, from before the slot took over, is dropped."""
    raised = Raised(setting="continue")
    raised.take_over(Position(offset=50, topic_id=_ID))
    assert raised.found(_DELETED) == []
    assert raised.suspicions.pending
