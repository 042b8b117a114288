"""What a repair does about a finding, and how late records are accounted for."""

from __future__ import annotations

from dataclasses import replace
import uuid

import numpy as np
import pytest

from mirror.errors import ClusterError, MirrorError
from mirror.offsets.index import LateRuns
from mirror.offsets.runs import Block
from mirror.pairs import control
from mirror.pairs.control import Repair
from mirror.proofs import repair_appending
from mirror.proofs.account import CopiedPartition, FindingKind, ProofFinding
from mirror.proofs.ranges import ranges_of
from mirror.proofs.repair_appending import Obstacle, Remedy, remedies
from tests.harness.configurations import configuration

pytestmark = pytest.mark.unit

ID, COPY_ID = uuid.UUID(int=1), uuid.UUID(int=2)
KEY = ("orders", 0)
BLOCK = Block(
    topic="orders", partition=0, target_topic="A.orders", topic_id=ID, copy_id=COPY_ID,
    runs=np.array([[3, 100, 2], [20, 102, 1]], np.int64),
)  # fmt: skip
MISSING = ProofFinding(
    kind=FindingKind.MISSING, topic="orders", partition=0, target_topic="A.orders",
    source=3,
    target=None, count=3,
)  # fmt: skip


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
    assert late.of(KEY, ID, COPY_ID).tolist() == BLOCK.runs.tolist()
    assert not len(late.of(KEY, ID, uuid.UUID(int=9)))
    assert not len(late.of(KEY, uuid.UUID(int=9), COPY_ID))

    late.truncate_from(replace(BLOCK, runs=_runs((30, 101, 5))))
    assert late.of(KEY, ID, COPY_ID).tolist() == [[3, 100, 1]]


def _of(first: int, target: int, *, continues: bool = False) -> CopiedPartition:
    return CopiedPartition(
        topic="orders", partition=0, target_topic="A.orders", topic_id=ID,
        copy_id=COPY_ID, source_first=first, source_end=60, target_first=target,
        target_end=110, continues=continues,
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
