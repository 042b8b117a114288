"""What would be lost with a copy, and the notes of its rebuild."""

from __future__ import annotations

from dataclasses import replace
import struct
from types import SimpleNamespace
import uuid

import pytest

from mirror.clusters.admin.groups import _topics
from mirror.errors import ClusterError, MirrorError
from mirror.pairs import control
from mirror.pairs.control import KeptGroup, Pauses, PausesReader, Rebuild, RebuildStep
from mirror.proofs.account import (
    Account,
    CopiedPartition,
    FindingKind,
    ProofFinding,
    widened,
)
from mirror.proofs.repair_rebuilding import irreplaceable_by_proof
from mirror.proofs.verification import PartitionProof, Proven

pytestmark = pytest.mark.unit

FLOW = "A->B"
NOTE = Rebuild(
    topic="orders", target_topic="A.orders", step=RebuildStep.DELETING, at=1.25,
    source_id="a-id", topic_id="1" * 32, copy_id="2" * 32, partitions=3,
    replication_factor=1, configs={"retention.ms": "5"}, records=7, ends=(4, 9),
)  # fmt: skip
OF = CopiedPartition(
    topic="orders", partition=3, target_topic="A.orders", topic_id=uuid.UUID(int=1),
    copy_id=uuid.UUID(int=2), source_first=0, source_end=12, target_first=0,
    target_end=14,
)  # fmt: skip


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
    return ProofFinding(
        kind=kind, topic="orders", partition=3, target_topic="A.orders", source=4,
        target=6, count=2, detail="why",
    )  # fmt: skip


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
    assert (found.partition, found.count) == (3, 3)
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
