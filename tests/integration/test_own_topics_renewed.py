"""mirror's own topics, deleted and re-created between two reads by one reader.

What was read from the deleted topic must not be mixed with the content of the new one,
even if that is just as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
import uuid

import numpy as np
import pytest

from mirror.clusters.admin.groups import Group, GroupKind
from mirror.config.schema import FlowConfig
from mirror.errors import RecreatedError
from mirror.offsets import index, progress, runs, translation
from mirror.offsets.checkpoints import Checkpoints
from mirror.offsets.checkpoints import read as read_checkpoints
from mirror.offsets.groups import GroupPosition, GroupsStanding
from mirror.offsets.progress import Position, ProgressReader
from mirror.offsets.runs import Block
from mirror.offsets.translation import Exactness, OffsetMap, Translated
from mirror.pairs import control
from mirror.records import writing
from tests.harness.admin import create_topic, delete_topic, topic_exists
from tests.harness.connections import connected
from tests.harness.waiting import wait_for
from tests.integration.test_groups_on_brokers import Copied

if TYPE_CHECKING:
    from mirror.clusters.cluster import Cluster
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

SOURCE_ID = uuid.UUID(int=1)


def create_again(bootstrap: str, topic: str) -> None:
    delete_topic(bootstrap, topic)
    wait_for(lambda: not topic_exists(bootstrap, topic))
    create_topic(bootstrap, topic)


def write_positions(cluster: Cluster, alias: str, offsets: dict[str, int]) -> None:
    found = {
        (topic, 0): Position(offset=offset, topic_id=SOURCE_ID)
        for topic, offset in offsets.items()
    }
    writing.write(cluster, {progress.topic_name(alias): progress.encode(found)})


def write_runs(
    cluster: Cluster, alias: str, topic: str, rows: list[tuple[int, int, int]]
) -> None:
    """One record for each row of (source offset, target offset, count)."""
    values = [
        value
        for row in rows
        for value in runs.encode(
            [
                Block(
                    topic=topic,
                    partition=0,
                    target_topic=f"{alias}.{topic}",
                    topic_id=SOURCE_ID,
                    runs=np.array([row], np.int64),
                )
            ]
        )
    ]
    for value in values:  # a batch each, as the flow writes them
        writing.append(cluster, runs.topic_name(alias), [(b"", value)])


def test_progress(clusters: dict[str, PlaygroundCluster], topic_name: str) -> None:
    """Positions of the deleted topic are forgotten, although the new one is as long."""
    target, topic = clusters["b"].bootstrap, progress.topic_name(topic_name)
    create_topic(target, topic)
    with connected(target) as cluster:
        reader = ProgressReader(cluster, topic)
        write_positions(cluster, topic_name, {"orders": 5, "users": 7})
        assert set(reader.read().positions) == {("orders", 0), ("users", 0)}
        create_again(target, topic)
        write_positions(cluster, topic_name, {"orders": 3, "items": 1})
        found = reader.read().positions
        assert {key[0]: each.offset for key, each in found.items()} == {
            "orders": 3,
            "items": 1,
        }


def test_the_offset_map(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs of the deleted map are forgotten; looking up an old offset while the map is
    re-created is an error to try again, not an answer from the wrong place.
    """
    monkeypatch.setattr(translation, "_LEAST_TAIL", 1)
    monkeypatch.setattr(translation, "_LARGEST_TAIL", 1)
    monkeypatch.setattr(index, "_MOST_STARTS", 4)
    target, topic = clusters["b"].bootstrap, runs.topic_name(topic_name)
    create_topic(target, topic)
    create_topic(target, progress.topic_name(topic_name))
    for copy in ("orders", "users"):
        create_topic(target, f"{topic_name}.{copy}")
    with connected(target) as cluster:
        count = 20
        put_records(cluster, f"{topic_name}.orders", 200)
        known = OffsetMap(cluster, topic_name)
        rows = [(10 * n, 10 * n, 5) for n in range(count)]
        write_runs(cluster, topic_name, "orders", rows)
        write_positions(cluster, topic_name, {"orders": 195})
        known.refresh()
        assert known.translate("orders", 0, 43).offset == 43
        create_again(target, topic)
        write_runs(cluster, topic_name, "orders", [(195, 195, 1)])
        write_runs(cluster, topic_name, "users", [(0, 0, 1)] * (count - 1))
        with pytest.raises(RecreatedError):
            known.translate("orders", 0, 93)
        known.refresh()
        assert set(known.partitions()) == {("orders", 0), ("users", 0)}
        # What the new map does not know may stand anywhere in the copy.
        answer = known.translate("orders", 0, 43)
        assert (answer.offset, answer.exactness) == (0, Exactness.BEFORE)
        assert known.translate("orders", 0, 195).offset == 195


def put_records(cluster: Cluster, topic: str, count: int) -> None:
    writing.append(cluster, topic, [(b"", b"")] * count)


def test_pauses(clusters: dict[str, PlaygroundCluster], topic_name: str) -> None:
    """What was paused in the deleted topic continues, whether there is a new one or
    not; what is paused in the new one stays paused.
    """
    target = clusters["b"].bootstrap
    flow = FlowConfig(source=topic_name, target="B")
    topic = control.topic_name(topic_name)
    with connected(target) as cluster:
        reader = control.PausesReader(cluster, flow)
        control.change_pauses(cluster, flow, "orders", paused=True)
        assert [rule.topics for rule in reader.read().rules] == ["orders"]
        create_again(target, topic)
        assert not reader.read().rules
        control.change_pauses(cluster, flow, "users", paused=True)
        assert [rule.topics for rule in reader.read().rules] == ["users"]
        delete_topic(target, topic)
        wait_for(lambda: not topic_exists(target, topic))
        assert not reader.read().rules
        control.change_pauses(cluster, flow, "items", paused=True)
        assert [rule.topics for rule in reader.read().rules] == ["items"]


def test_checkpoints(clusters: dict[str, PlaygroundCluster], topic_name: str) -> None:
    """Checkpoints that were deleted with their topic are written again in the next
    round.
    """
    target, topic = clusters["b"].bootstrap, f"{topic_name}.checkpoints.internal"
    place = GroupPosition(
        "t", 0, "A.t", 10, Translated(offset=8, exactness=Exactness.EXACT)
    )
    standing = GroupsStanding(
        groups={"g": Group(group="g", kind=GroupKind.CLASSIC, state="EMPTY")},
        places={"g": (place,)},
    )
    with connected(target) as cluster:
        checkpoints = Checkpoints(topic_name)

        def written() -> int:
            due = checkpoints.decide(cluster, standing, Copied())
            return checkpoints.write(due).written

        assert written() == 1
        assert written() == 0
        create_again(target, topic)
        assert written() == 1
        delete_topic(target, topic)
        wait_for(lambda: not topic_exists(target, topic))
        assert written() == 1
        assert read_checkpoints(cluster, topic)["g"]["A.t", 0].downstream == 8
