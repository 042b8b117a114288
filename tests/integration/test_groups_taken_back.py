"""Groups are taken back when their copy lost its end, however the service dies.

Brokers keep groups and checkpoints. The map plays the copy's loss: a real one would
take an unclean election, which changes nothing of what is tested here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.admin import group_offsets
from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.config.schema import FlowConfig
from mirror.offsets.checkpoints import checkpoints_topic, read
from mirror.offsets.groups import Copy
from mirror.offsets.translation import Exactness, OffsetMap, Translated
from mirror.records.writing import TopicWriter
from mirror.service.groups import CHECKPOINTS, GroupJobs
from mirror.status.store import StatusStore
from tests.harness.admin import create_topic
from tests.integration.test_groups_on_brokers import at_work, connected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from mirror.clusters.cluster import Cluster
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

COPIED, LEFT = 500, 100
"""Offsets of the copy, and how many of them it did not lose."""


@dataclass
class Lossy:
    """A map of a topic whose copy has the same offsets, up to those that it lost."""

    lost: bool = False

    def refresh(self, *, wait: bool = True) -> None: ...

    def keep_index(self, _: object) -> bool:
        return False

    def position(self, topic: str, partition: int) -> int:
        return COPIED

    def partitions(self) -> dict[tuple[str, int], str]:
        return {}

    def translate_all(
        self, questions: Mapping[tuple[str, int], AbstractSet[int]]
    ) -> dict[tuple[str, int], dict[int, Translated]]:
        return {
            key: {
                offset: Translated(
                    offset=min(offset, LEFT) if self.lost else offset,
                    exactness=Exactness.EXACT,
                    renewed=self.lost,
                )
                for offset in offsets
            }
            for key, offsets in questions.items()
        }


class DeadError(Exception):
    """The service died here."""


class Stage:
    """One group on both sides, and a service that can be restarted."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, source: Cluster, target: Cluster,
        topic: str,
    ) -> None:  # fmt: skip
        self.source, self.target, self.topic = source, target, topic
        self.copy, self.group = f"{topic}-copy", f"{topic}-app"
        self.map = Lossy()
        monkeypatch.setattr(OffsetMap, "of", lambda *_: self.map)
        self.start()

    def start(self) -> None:
        flow = FlowConfig(
            source="A",
            target="B",
            separator=f".{self.topic}.",
            groups=(self.group,),
            sync_group_offsets=True,
            sync_group_offsets_seconds=0.001,
        )
        jobs = GroupJobs(
            flow,
            lambda: {self.topic: Copy(topic=self.copy, partitions=1)},
            store=StatusStore((flow.name,)),
            tell=lambda *_: None,
        ).jobs()
        (job,) = (job for job in jobs if job.name == CHECKPOINTS)
        self.round: Callable[[], None] = lambda: job.work(self.source, self.target)
        self.checkpoints = checkpoints_topic("A", flow.separator)

    def commit(self, cluster: Cluster, topic: str, offset: int) -> None:
        # Reading waits for a coordinator that has just started; setting does not.
        assert not group_offsets.fetch(cluster, [self.group]).refused
        wanted = {self.group: {(topic, 0): CommittedOffset(offset)}}
        assert not group_offsets.commit(cluster, wanted)

    @property
    def stands_at(self) -> int:
        found = group_offsets.fetch(self.target, [self.group]).groups[self.group]
        return found[self.copy, 0].offset

    @property
    def checkpoint(self) -> int:
        known = read(self.target, self.checkpoints)
        return known[self.group][self.copy, 0].downstream


@pytest.fixture
def stage(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(a, topic_name)
    create_topic(b, f"{topic_name}-copy")
    with connected(a) as source, connected(b) as target:
        made = Stage(monkeypatch, source, target, topic_name)
        made.commit(source, topic_name, COPIED)
        made.round()
        assert (made.stands_at, made.checkpoint) == (COPIED, COPIED)
        yield made


@pytest.mark.parametrize("where", ["groups", "checkpoints"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_group_goes_back_wherever_the_service_dies(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, where: str, when: str
) -> None:
    """A service that dies right before or after it sets groups, or writes checkpoints,
    leaves no group beyond the end of its copy: the next service takes it back.
    """
    owner, name = {
        "groups": (group_offsets, "commit"),
        "checkpoints": (TopicWriter, "write"),
    }[where]
    work = getattr(owner, name)

    def die(*arguments: Any) -> None:
        if when == "after":
            work(*arguments)
        raise DeadError

    stage.map.lost = True
    with monkeypatch.context() as deadly:
        deadly.setattr(owner, name, die)
        with pytest.raises(DeadError):
            stage.round()
    stage.start()
    stage.round()
    assert (stage.stands_at, stage.checkpoint) == (LEFT, LEFT)


def test_a_group_that_was_rewound_on_the_source_goes_back_as_well(
    stage: Stage,
) -> None:
    """A rewind on the source leaves the group on the target where it is; a loss in its
    copy then takes it back, also after a restart.
    """
    stage.commit(stage.source, stage.topic, LEFT // 2)
    stage.round()
    assert (stage.stands_at, stage.checkpoint) == (COPIED, LEFT // 2)
    stage.start()
    stage.map.lost = True
    stage.round()
    assert (stage.stands_at, stage.checkpoint) == (LEFT // 2, LEFT // 2)


def test_a_group_that_was_at_work_keeps_its_offset(
    stage: Stage, clusters: dict[str, PlaygroundCluster]
) -> None:
    """A group with members on the target keeps its offset while the copy's loss is
    found; its checkpoint goes back, and nothing takes the group back once it is idle.
    """
    stage.map.lost = True
    bootstrap = clusters["b"].bootstrap
    with at_work(bootstrap, stage.group, stage.copy, "classic", LEFT + 50):
        stage.round()
    assert stage.checkpoint == LEFT
    stage.round()
    assert stage.stands_at == LEFT + 50


def test_a_group_goes_back_once(stage: Stage) -> None:
    """After it went back, a group on the target moves on by itself, idle or not; a
    rewind on the source does not take it back.
    """
    stage.map.lost = True
    stage.round()
    assert stage.stands_at == LEFT
    stage.commit(stage.target, stage.copy, LEFT + 50)
    stage.commit(stage.source, stage.topic, LEFT // 2)
    for _ in range(2):
        stage.round()
    assert stage.stands_at == LEFT + 50


def test_a_group_that_cannot_be_set_now_keeps_its_checkpoint(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a group's coordinator moves, the checkpoint stays too, so that a restarted
    service still knows of the loss.
    """
    stage.map.lost = True
    with monkeypatch.context() as moving:
        refused = {stage.group: {(stage.copy, 0): 16}}
        moving.setattr(group_offsets, "commit", lambda *_: refused)
        stage.round()
    assert (stage.stands_at, stage.checkpoint) == (COPIED, COPIED)
    stage.start()
    stage.round()
    assert (stage.stands_at, stage.checkpoint) == (LEFT, LEFT)
