"""Which partitions of an earlier look at a tail the next one goes on behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
import uuid

import numpy as np
import pytest

from mirror.clusters.admin import topic_admin
from mirror.clusters.admin.topic_admin import EpochEnd
from mirror.offsets.progress import NO_ID
from mirror.recovery.tails.survey import still_there
from mirror.recovery.tails.tail import TailPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.cluster import Cluster

pytestmark = pytest.mark.unit

_KEY = ("orders", 0)
_ID, _OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)
_NONE = np.empty(0, np.int64)


def _seen(epoch: int) -> TailPartition:
    """Read from offset 100 up to 200."""
    return TailPartition(
        topic=_KEY[0], partition=_KEY[1], target_topic="A.orders", topic_id=_ID,
        position=100, end=200, open=False, replayed_to=100, replayed=0, written_off=0,
        offsets=_NONE, times=_NONE, keys=_NONE, sizes=_NONE,
        rows=np.empty((4, 0), np.int64), epoch=epoch,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("epoch", "topic_id", "end", "common", "kept"),
    [
        pytest.param(5, _ID, 200, EpochEnd(epoch=5, offset=200), True, id="as it was"),
        pytest.param(5, _ID, 300, EpochEnd(epoch=5, offset=250), True, id="longer"),
        pytest.param(5, _ID, 150, EpochEnd(epoch=5, offset=150), False, id="shorter"),
        pytest.param(5, _ID, 300, EpochEnd(epoch=5, offset=150), False, id="regrown"),
        pytest.param(5, _ID, 300, EpochEnd(epoch=4, offset=200), False, id="replaced"),
        pytest.param(5, _ID, 300, None, False, id="the leader says nothing"),
        pytest.param(5, _OTHER_ID, 300, EpochEnd(epoch=5, offset=250), False, id="new"),
        pytest.param(5, NO_ID, 300, EpochEnd(epoch=5, offset=250), True, id="no ids"),
        pytest.param(-1, _ID, 300, None, True, id="records without epochs"),
        pytest.param(-1, _ID, 150, None, False, id="shorter, without epochs"),
        pytest.param(5, _ID, None, None, False, id="no topic of the flow any more"),
    ],
)
def test_what_a_log_still_has_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
    epoch: int,
    topic_id: uuid.UUID,
    end: int | None,
    common: EpochEnd | None,
    kept: bool,
) -> None:
    """The same topic, no shorter, with the epoch of the last record up to there: as far
    as brokers have ids, and records epochs.
    """

    def epoch_ends(
        _source: Cluster, epochs: Mapping[tuple[str, int], int], _topics: object
    ) -> dict[tuple[str, int], EpochEnd]:
        return {} if common is None else dict.fromkeys(epochs, common)

    monkeypatch.setattr(topic_admin, "epoch_ends", epoch_ends)
    topics = {_KEY[0]: SimpleNamespace(topic_id=topic_id)}
    source = cast("Cluster", SimpleNamespace(topics=lambda _names: topics))
    seen = _seen(epoch)
    found = still_there(source, [seen], {} if end is None else {_KEY: end})
    assert found == ({_KEY: seen} if kept else {})
