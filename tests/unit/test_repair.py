"""What a repair does about a finding, how late records are accounted for, what would be
lost with a copy, and the notes of its rebuild.
"""

from __future__ import annotations

from dataclasses import replace
import struct
from types import SimpleNamespace
import uuid

import numpy as np
import pytest

from mirror.clusters.admin.groups import _topics
from mirror.errors import ClusterError, MirrorError
from mirror.offsets.index import LateRuns
from mirror.offsets.runs import Block
from mirror.pairs import control
from mirror.pairs.control import (
    KeptGroup,
    Pauses,
    PausesReader,
    Rebuild,
    RebuildStep,
    Repair,
)
from mirror.proofs import repair_appending
from mirror.proofs.account import (
    Account,
    CopiedPartition,
    FindingKind,
    ProofFinding,
    widened,
)
from mirror.proofs.ranges import ranges_of
from mirror.proofs.repair_appending import Obstacle, Remedy, remedies
from mirror.proofs.repair_rebuilding import irreplaceable_by_proof
from mirror.proofs.verification import PartitionProof, Proven
from tests.harness.compared import COPY_ID, ID, copied
from tests.harness.configurations import configuration

pytestmark = pytest.mark.unit

FLOW = "A->B"
OF = copied(12, 14, topic="orders", target_topic="A.orders")
NOTE = Rebuild(
    topic="orders", target_topic="A.orders", step=RebuildStep.DELETING, at=1.25,
    source_id="a-id", topic_id="1" * 32, copy_id="2" * 32, partitions=3,
    replication_factor=1, configs={"retention.ms": "5"}, records=7, ends=(4, 9),
)  # fmt: skip
KEY = ("orders", 0)
BLOCK = Block(
    topic="orders", partition=0, target_topic="A.orders", topic_id=ID, copy_id=COPY_ID,
    runs=np.array([[3, 100, 2], [20, 102, 1]], np.int64),
)  # fmt: skip
MISSING = OF.finding(FindingKind.MISSING, source=3, target=None, count=3)


def _runs(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, 3)


def test_a_log_that_fell_behind_takes_late_records_with_it() -> None:
    """Later runs that begin before the end of late records say that the copy lost
    these; runs that follow them, or of another copy, say nothing.
    """
    late = LateRuns()
    late.add(BLOCK)
    late.truncate_from(replace(BLOCK, runs=_runs((30, 104, 5))))
    late.truncate_from(replace(BLOCK, copy_id=uuid.UUID(int=9), runs=_runs((0, 0, 5))))
    assert late.runs_of(KEY, ID, COPY_ID).tolist() == BLOCK.runs.tolist()
    assert not len(late.runs_of(KEY, ID, uuid.UUID(int=9)))
    assert not len(late.runs_of(KEY, uuid.UUID(int=9), COPY_ID))

    late.truncate_from(replace(BLOCK, runs=_runs((30, 101, 5))))
    assert late.runs_of(KEY, ID, COPY_ID).tolist() == [[3, 100, 1]]


def _of(first: int, target: int, *, continues: bool = False) -> CopiedPartition:
    return replace(
        OF, source_first=first, source_end=60, target_first=target, target_end=110,
        continues=continues,
    )  # fmt: skip


def test_late_records_are_compared_once() -> None:
    """Late records have ranges of their own, and no other range has their offsets, even
    if the map named other places before. A copy that was appended twice counts where it
    stands last; a later proof leaves out what an earlier one has seen.
    """
    late = _runs((3, 80, 1), (3, 100, 2), (20, 102, 1), (15, 103, 1))
    made = list(ranges_of(_of(0, 0), _runs((0, 0, 60)), late=late))
    assert [each.is_late for each in made] == [True, True, False]
    assert [each.runs.tolist() for each in made] == [
        [[3, 100, 2], [20, 102, 1]],
        [[15, 103, 1]],
        [[0, 0, 3], [5, 5, 10], [16, 16, 4], [21, 21, 39]],
    ]
    again = list(ranges_of(_of(60, 102, continues=True), _runs((0, 0, 60)), late=late))
    assert [each.runs.tolist() for each in again] == [
        [[20, 102, 1]],
        [[15, 103, 1]],
        [],
    ]


def test_each_finding_gets_what_can_be_done() -> None:
    """Missing records are appended, unless something speaks against all or some of
    them; what stands in a log is not changed. The reason is always named.
    """
    obstacles = {KEY: {4: Obstacle.LATER_KEY}}
    (one,) = remedies([MISSING], {})
    assert (one.remedy, one.why) == (Remedy.APPEND, "")
    (one,) = remedies([MISSING], obstacles)
    assert one.remedy is Remedy.PARTLY
    assert one.why == f"1: {Obstacle.LATER_KEY.value}"
    (one,) = remedies([replace(MISSING, source=4, count=1)], obstacles)
    assert (one.remedy, one.why) == (Remedy.NONE, Obstacle.LATER_KEY.value)
    others = set(FindingKind) - {FindingKind.MISSING}
    for each in remedies([replace(MISSING, kind=kind) for kind in others], obstacles):
        assert each.remedy is Remedy.NONE
        assert each.why
        # Of the others, a rebuild would lose something, and refuses.
        rebuilt = each.finding.kind in {
            FindingKind.DIFFERENT,
            FindingKind.DOUBLED,
            FindingKind.SWAPPED,
        }
        assert ("`mirror repair rebuild`" in each.why) == rebuilt
    lone = replace(
        MISSING, kind=FindingKind.UNPROVEN, detail="t: no leader", source=None
    )
    (one,) = remedies([lone], {})
    assert one.why.startswith("t: no leader; ")


TRANSLATED = {"schemas": "require", "schemas_ids": "translate"}


@pytest.mark.parametrize(
    ("flows", "settings", "problem"),
    [
        (("A->B",), {"exactly_once": False}, "A->B is not exactly_once"),
        (("A->B", "C->B"), {"policy": "identity"}, "other flows write the copies of t"),
        (("A->B",), TRANSLATED, "appended records would keep the source's ids"),
    ],
)
def test_refused_where_others_may_write(
    flows: tuple[str, ...], settings: dict[str, object], problem: str
) -> None:
    """A repair refuses flows that cannot be fenced, copies of several flows, and to
    append records whose ids the flow would have translated.
    """
    config = configuration(
        {
            "clusters": {
                x: {
                    "bootstrap_servers": f"{x}:1",
                    "schema_registry": {"url": f"http://{x}"},
                }
                for x in "ABC"
            },
            "flows": {name: {"topics": ["t"], **settings} for name in flows},
        }
    )
    with pytest.raises(MirrorError, match=problem):
        repair_appending.refuse(config, config.flows["A->B"], ["t"])
    if settings is TRANSLATED:  # the flow copies them again itself
        repair_appending.refuse(config, config.flows["A->B"], ["t"], appends=False)


def test_a_disabled_flow_may_be_repaired() -> None:
    """Its service is stopped, which is the best time for a repair."""
    config = configuration(
        {
            "clusters": {x: {"bootstrap_servers": f"{x}:1"} for x in "AB"},
            "flows": {"A->B": {"topics": ["t"], "enabled": False}},
        }
    )
    repair_appending.refuse(config, config.flows["A->B"], ["t"])


def test_the_note_of_a_repair() -> None:
    """It says the same after it was written and read. A newer one stops nothing."""
    repair = Repair(flow="A->B", at=1.5, kind=control.APPEND, topics={"orders": 3})
    key, value = repair.record()
    assert key == b"repair/A->B"
    assert control.decode_repair("A->B", value) == repair
    assert "3 to orders" in repair.event().text
    newer = value.replace(b'"version": 1', b'"version": 2')
    assert control.decode_repair("A->B", newer) is None
    with pytest.raises(ClusterError, match="damaged"):
        control.decode_repair("A->B", b"{}")


# ---- rebuilding ----


def _proven(
    account: Account, *findings: ProofFinding, of: CopiedPartition = OF
) -> Proven:
    proof = PartitionProof(
        of=of, target_end=14, account=account, findings=findings,
        spans={"foreign": (5, 9), "older": (0, 1)},
    )  # fmt: skip
    return Proven(
        flow=FLOW, source_id="a", target_id="b", at=1.0, partitions=(proof,),
        findings=findings,
    )  # fmt: skip


def _finding(kind: FindingKind) -> ProofFinding:
    return OF.finding(kind, source=4, target=6, count=2, detail="why")


def test_what_copying_again_repairs_is_no_reason_to_refuse() -> None:
    """Records that are missing, different, doubled or swapped are right afterwards, and
    what filters, losses, retention and repeats explain stays as it is.
    """
    account = Account(
        records=12, equal=6, filtered=1, removed=1, dead_letters=1, lost=1,
        compacted=1, expired=1, repeats=4,
    )  # fmt: skip
    repaired = (
        FindingKind.MISSING,
        FindingKind.DIFFERENT,
        FindingKind.DOUBLED,
        FindingKind.SWAPPED,
    )
    assert (
        list(irreplaceable_by_proof(_proven(account, *map(_finding, repaired)))) == []
    )


@pytest.mark.parametrize(
    "field", ["foreign", "older", "compacted_source", "expired_source"]
)
def test_what_the_source_does_not_have(field: str) -> None:
    """Each kind of record that would be lost is named, with where it stands."""
    (found,) = irreplaceable_by_proof(_proven(Account(**{field: 3})))
    spans = {"foreign": (5, 9), "older": (0, 1)}
    assert (found.partition, found.count) == (0, 3)
    assert (found.first, found.last) == spans.get(field, (None, None))
    assert found.why


@pytest.mark.parametrize(
    "kind", [FindingKind.UNEXPECTED, FindingKind.DAMAGED, FindingKind.UNPROVEN]
)
def test_what_is_not_known_counts_as_lost(kind: FindingKind) -> None:
    """So do records that no one can compare, and what an open transaction hides."""
    (found,) = irreplaceable_by_proof(_proven(Account(), _finding(kind)))
    assert (found.first, found.last, found.count) == (6, 7, 2)
    assert found.why.endswith("why")
    (found,) = irreplaceable_by_proof(
        _proven(Account(), of=replace(OF, has_open_end=True))
    )
    assert (found.first, found.last) == (14, None)


def test_spans_grow() -> None:
    """Spans of the same kind become one, from the first to the last."""
    assert widened({"a": (3, 4)}, {"a": (1, 2), "b": (7, 7)}) == {
        "a": (1, 4), "b": (7, 7),
    }  # fmt: skip


def test_the_notes_say_the_same_after_they_were_read() -> None:
    """So does a group whose name has slashes; keys of other flows are left alone, and a
    newer or damaged note is refused.
    """
    group = KeptGroup(
        topic="orders", group="a/b", id="x", offsets={0: (5, "m"), 2: (-1, "")}
    )
    for each in (NOTE, group):
        key, value = each.record(FLOW)
        assert control.decode_rebuild(FLOW, key, value) == each
        assert control.decode_rebuild("A->C", key, value) is None
        newer = value.replace(b'"version": 1', b'"version": 2')
        with pytest.raises(ClusterError, match="use the newest mirror"):
            control.decode_rebuild(FLOW, key, newer)
        with pytest.raises(ClusterError, match="damaged"):
            control.decode_rebuild(FLOW, key, b"{}")
    assert control.decode_rebuild(FLOW, b"repair/A->B", b"{}") is None


@pytest.mark.parametrize("step", RebuildStep)
def test_a_topic_rests_until_its_new_copy_is_there(step: RebuildStep) -> None:
    """It is paused while the copy may be gone, whatever the rules say; one rebuild at a
    time goes on in a flow.
    """
    note = replace(NOTE, step=step)
    rests = step in (RebuildStep.PAUSED, RebuildStep.DELETING)
    assert note.pauses == rests
    held = Pauses(rebuilding={"orders": 1.25} if rests else {})
    held = held.changed(".*", paused=False, now=9.0)
    assert held.since("orders") == (1.25 if rests else 0.0)
    assert ("orders (being rebuilt)" in held.event(FLOW).text) == rests
    reader = PausesReader.__new__(PausesReader)
    reader._flow, reader.rebuilds = FLOW, {"orders": note}
    reader.refuse_other_rebuilds("orders")
    if note.unfinished:
        with pytest.raises(MirrorError, match="orders is being rebuilt"):
            reader.refuse_other_rebuilds()
    else:
        reader.refuse_other_rebuilds()


def _assignment(*names: str) -> bytes:
    parts = [
        struct.pack(">h", len(name)) + name.encode() + struct.pack(">iii", 2, 0, 1)
        for name in names
    ]
    return struct.pack(">hi", 1, len(names)) + b"".join(parts) + b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (_assignment("a", "b"), ["a", "b"]),
        (_assignment("a", "b")[:-14], ["a"]),
        (struct.pack(">hi", 0, 1 << 30), []),
        (struct.pack(">hihi", 0, 1, -5, -1), [""]),
        (b"{}", []),
        (None, []),
    ],
)
def test_what_members_read(told: bytes | None, found: list[str]) -> None:
    """The topics of a classic member's assignment; other bytes end the list."""
    assert list(_topics(SimpleNamespace(member_assignment=told))) == found
