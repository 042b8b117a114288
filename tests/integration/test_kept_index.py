"""The index of an offset map on real brokers: when readers begin there, when not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from mirror.config.schema import FlowConfig
from mirror.offsets import index, progress, runs, standby, translation
from mirror.offsets.index import KIND, IndexKeeper
from mirror.offsets.standby import StandbyEntry
from mirror.offsets.translation import OffsetMap
from mirror.records import reading, writing
from tests.harness import segments
from tests.harness.admin import create_topic
from tests.harness.connections import connected
from tests.integration.test_own_topics_renewed import (
    create_again,
    put_records,
    write_positions,
    write_runs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_ROWS = [(10 * n, 10 * n, 5) for n in range(40)]
"""Runs of five records, with holes of five on both sides."""


class KeptMap:
    """The map of a topic that has been copied, in the records of `_ROWS`."""

    def __init__(self, cluster: Cluster, bootstrap: str, alias: str) -> None:
        self.cluster, self.alias = cluster, alias
        self.topic = runs.topic_name(alias)
        for topic in (self.topic, progress.topic_name(alias), f"{alias}.orders"):
            create_topic(bootstrap, topic)
        put_records(cluster, f"{alias}.orders", 400)
        self.copied = 0

    def copy(self, until: int) -> None:
        """So many rows of the map in all."""
        write_runs(self.cluster, self.alias, "orders", _ROWS[self.copied : until])
        write_positions(self.cluster, self.alias, {"orders": 10 * until - 5})
        self.copied = until

    def keep(self) -> None:
        known = OffsetMap(self.cluster, self.alias)
        known.refresh()
        keeper = IndexKeeper(FlowConfig(source=self.alias, target="B"))
        assert known.keep_index(keeper)
        assert not known.keep_index(keeper)  # nothing has come since

    def answers(self) -> list[int]:
        known = OffsetMap(self.cluster, self.alias)
        known.refresh()
        every = {("orders", 0): {*range(10 * self.copied)}}
        found = known.translate_all(every)["orders", 0]
        return [found[offset].offset for offset in sorted(found)]


def right_answers(rows: int) -> list[int]:
    """Within a run the same offset, in a hole the next run's first; at the end, what
    follows the last.
    """
    last = 10 * rows - 5
    return [
        min(at if at % 10 < 5 else at + 10 - at % 10, last) for at in range(10 * rows)
    ]


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Where readers of the map begin; every index is kept."""
    monkeypatch.setattr(index, "_LEAST_GROWTH", 1)
    monkeypatch.setattr(index, "_GROWTH_OF_PARTITION", 0)
    monkeypatch.setattr(index, "_SECONDS", 0.0)
    found: list[int] = []

    class Noted(reading.TopicReader):
        def answers(self, **asked: Any) -> Any:
            found.append(self.position)
            return super().answers(**asked)

    monkeypatch.setattr(translation, "TopicReader", Noted)
    return found


@pytest.fixture
def kept(
    clusters: dict[str, PlaygroundCluster], topic_name: str, begins: list[int]
) -> Iterator[KeptMap]:
    """A map of twenty records, with an index of all."""
    b = clusters["b"].bootstrap
    with connected(b) as cluster:
        made = KeptMap(cluster, b, topic_name)
        made.copy(20)
        made.keep()
        begins.clear()
        yield made


def test_readers_begin_at_it(kept: KeptMap, begins: list[int]) -> None:
    """A reader reads what came after the index, and knows everything all the same."""
    kept.copy(40)
    assert kept.answers() == right_answers(40)
    assert begins == [20]


def test_it_says_nothing_about_another_map(
    clusters: dict[str, PlaygroundCluster], kept: KeptMap, begins: list[int]
) -> None:
    """After the map was deleted and written again, it is read from its start."""
    create_again(clusters["b"].bootstrap, kept.topic)
    kept.copied = 0
    kept.copy(30)
    assert kept.answers() == right_answers(30)
    assert begins[-1] == 0


def test_it_says_nothing_about_what_the_map_lost(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]], begins: list[int]
) -> None:
    """The map loses its end, as in an unclean election, and grows beyond the index
    again: runs that are no longer in it are not in an answer, of a reader that begins
    there and of one that had read them.
    """
    b = make_clusters("b")["b"]
    with connected(b.bootstrap) as cluster:
        kept = KeptMap(cluster, b.bootstrap, "A")
        kept.copy(20)
        kept.keep()
        followed = OffsetMap(cluster, "A")
        followed.refresh()
        b.stop()
        segments.rewrite(b, kept.topic, lambda batches: batches[:-10])
        b.start()
        moved = [(up + 3, down, count) for up, down, count in _ROWS[10:30]]
        write_runs(cluster, "A", "orders", moved)
        write_positions(cluster, "A", {"orders": 298})
        begins.clear()
        read = OffsetMap(cluster, "A")
        read.refresh()
        followed.refresh()
        assert begins[1] == begins[3] == 0
        for known in (read, followed):
            assert known.translate("orders", 0, 94).offset == 94
            for number in range(10, 30):
                answer = known.translate("orders", 0, 10 * number + 3)
                assert answer.offset == 10 * number


@pytest.mark.parametrize(
    "damage",
    [{"index": "none"}, {"index": "eJyrBgABCwCm"}, {"index": "aaaa" * 100}, {}],
    ids=["no base64", "no tracks", "no zlib", "nothing"],
)
def test_a_damaged_one_is_left_out(
    kept: KeptMap, begins: list[int], damage: dict[str, str]
) -> None:
    """Whoever damaged it: the whole map is read, and the log says why."""
    topic = standby.topic_name(kept.alias)
    entry = StandbyEntry(at=0.0, fields={"until": 20, **damage})
    writing.append(kept.cluster, topic, [standby.encode(KIND, "0", entry)])
    with capture_logs() as logs:
        assert kept.answers() == right_answers(20)
    assert begins == [0]
    (told,) = logs
    assert "index cannot be read" in told["event"]
    assert told["topic"] == topic
