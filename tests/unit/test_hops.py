"""What a trace says of one flow's copies, of one record and its copy, and of a key;
against maps and logs that are made up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from mirror.clusters.admin import topic_admin
from mirror.clusters.topics import Leader, Topic
from mirror.errors import NoLeaderError
from mirror.offsets.progress import Position
from mirror.offsets.runs import Pair, Pairs
from mirror.proofs import hops
from mirror.proofs.comparing import Compared
from mirror.proofs.hops import Hop, Hops, OffsetContent, OffsetKind, find_by_key
from mirror.proofs.tracing import How, RecordPlace, Row, Sameness
from mirror.records import alignment
from tests.harness.compared import ID, TERMS, copied, row
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.proofs.ranges import Range
    from mirror.proofs.sides import ProofTerms

pytestmark = pytest.mark.unit

COPY = Topic(name="A.t", topic_id=ID, leaders={}, error=0, replication_factor=1)
ROW = Row(cluster="B", topic="A.t", partition=0, flow="A->B", how=How.MISSING)


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
        row=ROW,
    )  # fmt: skip

    def content(_hops: Hops, at: RecordPlace) -> OffsetContent:
        if at == place:
            return OffsetContent(what=at_source)
        return OffsetContent(
            what=OffsetKind.RECORD if at.offset in there else OffsetKind.NOTHING
        )

    monkeypatch.setattr(Hops, "content", content)
    monkeypatch.setattr(
        Hop, "judged",
        lambda _, of: of.says(How.EXACT if of.offset in there else How.MISSING),
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

    (found,) = rows_of(monkeypatch, deleted)
    assert (found.how, found.detail[:30]) == (
        How.MISSING,
        "it was in a copy that was dele",
    )
    (found,) = rows_of(monkeypatch, deleted, at_source=OffsetKind.EXPIRED)
    assert found.how is How.UNKNOWN
    (found,) = rows_of(monkeypatch, Pairs(first=4000))
    assert found.how is How.BEFORE


@pytest.mark.parametrize(
    ("field", "byte", "sameness"),
    [
        (alignment.STAMP, alignment.NO_STAMP, Sameness.SAME),
        (alignment.STAMP, 1, Sameness.DIFFERENT),  # a wrong one
        (alignment.VALUE, 0, Sameness.DIFFERENT),
    ],
)
def test_a_copy_that_was_adopted_is_the_same(
    field: int, byte: int, sameness: Sameness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It only lacks the header `mirror.via`, and the detail says so."""

    def unequal(_: ProofTerms, work: Range) -> Compared:
        rows = [row(alignment.UNEQUAL, 5, 7, FIELD=field, BYTE=byte)]
        return Compared(range=work, mismatches=np.array(rows))

    monkeypatch.setattr(hops, "compare", unequal)
    of = copied(source_first=5, source_end=6, target_first=7, target_end=8)
    cluster = cast("Cluster", None)
    found = hops.judge(ROW, TERMS, of, cluster, cluster)

    assert (found.how, found.sameness) == (How.EXACT, sameness)
    assert (found.detail == "without mirror.via") == (sameness is Sameness.SAME)


TOPIC = Topic(
    name="t", topic_id=ID, error=0, replication_factor=1,
    leaders={0: Leader(node=1, epoch=1), 1: Leader(node=-1, epoch=1)},
)  # fmt: skip


@pytest.mark.parametrize("silent_about", ["starts", "ends"])
def test_a_partition_without_a_leader(
    monkeypatch: pytest.MonkeyPatch, silent_about: str
) -> None:
    """It may have the key, so there is no answer; one without records that are so new
    has not, and is passed over.
    """
    known: dict[tuple[str, int], int] = {("t", 0): -1}

    def listed(_: Any, __: Any, *, timestamp: int) -> dict[tuple[str, int], int]:
        is_end = timestamp == topic_admin.LATEST
        silent = is_end == (silent_about == "ends")
        return known if silent else {("t", 0): -1, ("t", 1): -1}

    monkeypatch.setattr(topic_admin, "list_offsets", listed)
    cluster: Any = type("C", (), {"alias": "A"})()

    def tell(_: str) -> None:
        pass

    with pytest.raises(NoLeaderError, match="no leader answers for t-1"):
        find_by_key(cluster, TOPIC, b"k", 5, tell)
    known["t", 1] = -1
    assert find_by_key(cluster, TOPIC, b"k", 5, tell) is None
