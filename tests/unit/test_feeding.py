"""Which flow feeds a cluster out of a pair, and where it goes on for the other one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
import uuid

import numpy as np
import pytest

from mirror.config.pair_settings import PairConfig
from mirror.copying import provenance
from mirror.offsets.progress import NO_ID, Position
from mirror.offsets.translation import UNKNOWN, Exactness, Translated
from mirror.pairs import roles
from mirror.pairs.journal import Entry, Kind, StepState
from mirror.recovery.tails import settling
from mirror.recovery.tails.settling import Fed
from mirror.service.beginning import begins, furthest
from mirror.service.ownership import Generation
from mirror.service.pairs import KnownPair

if TYPE_CHECKING:
    from mirror.recovery.tails.tail import TailPartition

pytestmark = pytest.mark.unit

PAIR = PairConfig(one="A", other="B", active="A", feeds=("C",))
ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)
KEY = ("orders", 0)


def known(kind: Kind, epoch: int) -> KnownPair:
    """What is known in this epoch; in even ones B is active."""
    target = "B" if epoch % 2 == 0 else "A"
    made = Entry(
        pair=PAIR.name, run="run", number=0, kind=kind, epoch=epoch,
        source=PAIR.other_than(target), target=target, step=roles.ROLE,
        state=StepState.DONE, at=1.0, by="me",
    )  # fmt: skip
    return KnownPair.read(PAIR, {"A": (made,)})


def test_the_flow_out_of_the_active_cluster_feeds() -> None:
    """Without a role nothing is known. After a failover the other flow rests at once;
    after a switch, once the target says that the first one has taken over.
    """
    assert KnownPair.read(PAIR, {}).may_feed("A", 0) is None
    first = KnownPair.read(PAIR, {"A": roles.first_role(PAIR, at=1.0, by="me")})
    assert (first.may_feed("A", 0), first.may_feed("B", 0)) == (True, False)
    failed_over = known(Kind.FAILOVER, 2)
    assert (failed_over.may_feed("A", 0), failed_over.may_feed("B", 0)) == (False, True)
    switched = known(Kind.SWITCH, 2)
    assert [switched.may_feed("A", since) for since in (0, 1, 2)] == [True, True, False]
    assert switched.may_feed("B", 0) is True


def test_a_service_that_is_behind_does_not_feed() -> None:
    """The target names a later role than the journals that this service has read."""
    assert known(Kind.SWITCH, 3).may_feed("A", 4) is False


def test_a_flow_begins_behind_all_that_has_come() -> None:
    """The own position and the translated one both say what has come: the further one
    counts, and an unknown one says nothing.
    """
    place = Translated(offset=70, exactness=Exactness.EXACT)
    assert (furthest(50, place), furthest(90, place)) == (70, 90)
    assert furthest(50, UNKNOWN) == 50


def test_positions_of_a_hand_over() -> None:
    """Partitions move forward, those without a position begin, even at 0, and so does
    one whose position is in an earlier topic of the name; one that is ahead stays.
    """
    place = Translated(offset=70, exactness=Exactness.TIP)
    ids = {"orders": ID}

    def found(own: dict[tuple[str, int], Position], at: Translated = place) -> int:
        moved = begins({KEY: at}, own, ids)
        assert all(each.topic_id == ID for each in moved.values())
        return moved[KEY].offset if moved else -1

    assert found({KEY: Position(offset=50, topic_id=ID)}) == 70
    assert found({KEY: Position(offset=50, topic_id=NO_ID)}) == 70
    assert found({KEY: Position(offset=80, topic_id=ID)}) == -1
    assert found({KEY: Position(offset=90, topic_id=OTHER_ID)}) == 70
    assert found({KEY: Position(offset=90, topic_id=OTHER_ID)}, UNKNOWN) == -1
    assert found({}) == 70
    assert found({}, Translated(offset=0, exactness=Exactness.TIP)) == 0
    assert found({}, UNKNOWN) == -1


def test_the_generation_names_the_role() -> None:
    """It is read again as it was written; the release before wrote none, and finds all
    that it reads in ours.
    """
    made = Generation(slots=2, begun=True, source_id="a", epoch=4)
    assert Generation.parse(made.text).epoch == 4
    before = {"id": "x", "slots": 2, "begun": True, "source_id": "a"}
    assert Generation.parse(json.dumps(before)).epoch == 0
    assert json.loads(made.text).keys() > before.keys()


def test_a_replay_names_who_has_the_record() -> None:
    """Records below the position of the flow to a fed cluster carry its header; a
    position in an earlier topic says nothing.
    """
    stamp = provenance.via(source_alias="C", source_id="c", target_id="").stamp
    of_orders = {KEY: Position(offset=105, topic_id=ID)}
    clusters = [Fed(stamp=stamp, read=of_orders), Fed(stamp=stamp, read={})]
    part = cast("TailPartition", SimpleNamespace(key=KEY, topic_id=ID))
    offsets = np.array([101, 102, 106, 107])

    assert settling.cuts_of(clusters, part, offsets) == (2,)
    assert len(settling.headers_for(clusters, part, 102)) == 1
    assert settling.headers_for(clusters, part, 106) == ()
    renewed = cast("TailPartition", SimpleNamespace(key=KEY, topic_id=OTHER_ID))
    assert settling.cuts_of(clusters, renewed, offsets) == ()
