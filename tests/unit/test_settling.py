"""What is settled first: a changed copy is no matter of compaction."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast
import uuid

import numpy as np
import pytest

from mirror.config.cluster_settings import ClusterConfig
from mirror.proofs import explaining
from mirror.proofs.account import CopiedPartition, FindingKind
from mirror.proofs.explaining import LastOfKeys, Settling
from mirror.proofs.log_stream import OffsetRange
from mirror.proofs.sides import ProofTerms
from mirror.records import alignment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.clusters.cluster import Cluster

pytestmark = pytest.mark.unit

NO_CLUSTER = cast("Cluster", None)
TERMS = ProofTerms(
    source=ClusterConfig(alias="A", bootstrap_servers=("a:1",)),
    target=ClusterConfig(alias="B", bootstrap_servers=("b:1",)),
    source_id="a-id", target_id="b-id", by_content=True,
)  # fmt: skip
OF = CopiedPartition(
    topic="t", partition=0, target_topic="A.t", topic_id=uuid.UUID(int=1),
    copy_id=uuid.UUID(int=2), source_first=0, source_end=100, target_first=0,
    target_end=100,
)  # fmt: skip
KEY = 7


class Logs:
    """Both have a record of the key at offset 90; no copy is another record's."""

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        for task in tasks:
            assert isinstance(task, partial)
            if task.func is explaining.originals:
                yield {}
            elif task.func is explaining.last_of_keys:
                yield LastOfKeys(
                    keys=np.array([KEY]), offsets=np.array([90]),
                    deleted_at=np.array([-1]),
                )  # fmt: skip
            else:
                assert task.func is explaining.differences
                yield np.array([_row(alignment.UNEQUAL, *p) for p in task.args[2]])


def _row(what: int, source: int, target: int, *, time: int = 1) -> np.ndarray:
    made = np.zeros(alignment.ODD_COLUMNS, np.int64)
    made[alignment.WHAT] = what
    made[alignment.SOURCE], made[alignment.TARGET] = source, target
    made[alignment.KEY_MARK], made[alignment.KEY_SIZE] = KEY, 1
    made[alignment.TIME] = time
    made[alignment.FIELD] = alignment.VALUE
    made[alignment.SOURCE_MARK] = 1000 if what == alignment.ONLY_SOURCE else 0
    made[alignment.TARGET_MARK] = 5000 if what == alignment.ONLY_TARGET else 0
    return made


@pytest.mark.parametrize(
    ("time", "kinds", "compacted"), [(1, [FindingKind.DIFFERENT], 0), (2, [], 1)]
)
def test_a_changed_copy_in_a_compacted_topic(
    time: int, kinds: list[FindingKind], compacted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record and its changed copy in one gap, with the same key and time, are
    compared, though both logs have later records of the key; with another time,
    compaction explains both.
    """
    both = {(True, "t"): 1000, (False, "A.t"): 1000}
    whole = OffsetRange(topic="t", partition=0, topic_id=OF.topic_id, first=0, end=100)
    monkeypatch.setattr(Settling, "_compacting", lambda *_: both)
    monkeypatch.setattr(Settling, "_whole_log", lambda *_, **__: whole)
    rows = np.array(
        [
            _row(alignment.ONLY_SOURCE, 5, 19),
            _row(alignment.ONLY_TARGET, 9, 15, time=time),
        ]
    )

    settled = Settling(TERMS, NO_CLUSTER, NO_CLUSTER, Logs(), [OF]).explain(
        OF, rows, timed=True, stamped_from=0
    )

    assert [each.kind for each in settled.findings] == kinds
    assert settled.account.compacted == settled.account.compacted_source == compacted
    assert settled.account.wrong == len(kinds)
