"""What a trace says of one flow's copies, against maps and logs that are made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.clusters.topics import Topic
from mirror.offsets.progress import Position
from mirror.offsets.runs import Pair, Pairs
from mirror.proofs import hops
from mirror.proofs.hops import Hop, Hops, OffsetContent, OffsetKind
from mirror.proofs.tracing import How, RecordPlace, Row
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.unit

ID = uuid.UUID(int=1)
COPY = Topic(name="A.t", topic_id=ID, leaders={}, error=0, replication_factor=1)


def rows_of(
    monkeypatch: pytest.MonkeyPatch, known: Pairs, *, there: Sequence[int] = (),
    at_source: OffsetKind = OffsetKind.RECORD,
) -> list[Row]:  # fmt: skip
    """What is said of source offset 3000 of a flow with `start: latest`, copied up to
    6000, with records at these offsets of the copy.
    """
    place = RecordPlace("A", "t", 0, 3000)
    aliases = {alias: {"bootstrap_servers": "h:1"} for alias in "AB"}
    config = configuration(
        {"clusters": aliases, "flows": {"A->B": {"start": "latest"}}}
    )
    target: Any = type("Target", (), {"cluster_id": "b"})()
    fault: Any = None
    hop = Hop(
        flow=config.flows["A->B"], place=place,
        content=OffsetContent(what=at_source), source=None, target=target, terms=None,
        copy=COPY, topic_id=ID,
        position=Position(offset=6000, topic_id=ID),
        row=Row(cluster="B", topic="A.t", partition=0, flow="A->B", how=How.MISSING),
    )  # fmt: skip

    def content(_hops: Hops, at: RecordPlace) -> OffsetContent:
        if at == place:
            return OffsetContent(what=at_source)
        return OffsetContent(
            what=OffsetKind.RECORD if at.offset in there else OffsetKind.NOTHING
        )

    monkeypatch.setattr(Hops, "content", content)
    monkeypatch.setattr(
        Hop, "verdict",
        lambda _hop, at: (How.EXACT if at in there else How.MISSING, "", ""),
    )  # fmt: skip
    monkeypatch.setattr(hops, "hop_of", lambda *_, **__: hop)
    monkeypatch.setattr(hops.runs, "find_pairs", lambda *_, **__: known)
    monkeypatch.setattr(hops.losses, "read", lambda *_: ())
    nothing: Any = None
    looking = Hops(config, nothing, fault=fault, tell=lambda _: None)
    return list(looking.copies(place))


def pair(target: int, *, late: bool = False) -> Pair:
    return Pair(target, 3000, "t", ID, late=late)


def test_a_repaired_record_is_where_the_repair_put_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it stood before, nothing is missing any more. Only a copy after another one
    is a repeat.
    """

    def said(there: list[int], *pairs: Pair) -> list[tuple[int, How]]:
        found = rows_of(monkeypatch, Pairs(pairs=pairs), there=there)
        return [(each.offset, each.how) for each in found]

    repaired = (pair(50), pair(900, late=True))
    assert said([900], *repaired) == [(900, How.EXACT)]
    assert said([50, 900], *repaired) == [(50, How.EXACT), (900, How.REPEAT)]
    assert said([], *repaired) == [(900, How.MISSING)]
    assert said([900, 950], *repaired, pair(950, late=True)) == [
        (900, How.EXACT), (950, How.REPEAT),
    ]  # fmt: skip
    assert said([60], pair(50), pair(60)) == [(50, How.MISSING), (60, How.EXACT)]


def test_what_was_in_a_deleted_copy_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flow did not begin after a record that a deleted copy had. If the source has
    lost it as well, no one can say; a record before the first one is explained.
    """
    deleted = Pairs(first=100, deleted=True)

    (row,) = rows_of(monkeypatch, deleted)
    assert (row.how, row.detail[:30]) == (How.MISSING, "it was in a copy that was dele")
    (row,) = rows_of(monkeypatch, deleted, at_source=OffsetKind.EXPIRED)
    assert row.how is How.UNKNOWN
    (row,) = rows_of(monkeypatch, Pairs(first=4000))
    assert row.how is How.BEFORE
