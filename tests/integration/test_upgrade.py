"""The previous release and this one, on the same clusters: rolling both ways.

The previous release comes from this repository's own history and runs with the same
libraries. What it left on the brokers (progress, offset map, generations, checkpoints)
is all that this one begins with, and the other way round.
"""

from __future__ import annotations

from pathlib import Path
import subprocess
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
import pytest

from tests.harness.admin import commit_offsets, copied_records, create_topic
from tests.harness.load import NumberedLoad
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, order_of, read_topic

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

RELEASE_BEFORE = "ef9747dfe01c"
"""The commit of the first release, before this one changed what the code is called."""
ROOT = Path(__file__).parents[2]
GROUP = "rolling"
_PARTITIONS = 2


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the previous release, for PYTHONPATH."""
    folder = tmp_path_factory.mktemp("before")
    archive = subprocess.run(
        ["git", "archive", RELEASE_BEFORE, "mirror"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if archive.returncode:
        pytest.skip(f"this clone's history has no {RELEASE_BEFORE}")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder


class _Group:
    """An idle group on the source, and its offsets on the target."""

    def __init__(self, source: str, target: str, topic: str, copy: str) -> None:
        self._topic, self._copy, self._target = topic, copy, target
        ends = {"group.id": GROUP, "enable.auto.commit": False}
        self._at_source = Consumer({"bootstrap.servers": source, **ends})
        self._at_target = Consumer({"bootstrap.servers": target, **ends})

    def commit(self, offset: int) -> None:
        """Every partition's offset on the source."""
        wanted = [TopicPartition(self._topic, p, offset) for p in range(_PARTITIONS)]
        commit_offsets(self._at_source, wanted)

    def next_keys(self) -> dict[int, bytes | None]:
        """The key of the record at which each partition resumes on the target."""
        asked = [TopicPartition(self._copy, p) for p in range(_PARTITIONS)]
        stands = {p.partition: p.offset for p in self._at_target.committed(asked, 30)}
        found = read_topic(self._target, self._copy)
        return {
            partition: next(
                (m.key() for m in found[partition] if m.offset() >= offset >= 0), None
            )
            for partition, offset in stands.items()
        }

    def close(self) -> None:
        self._at_source.close()
        self._at_target.close()


@pytest.mark.parametrize(
    "followers",
    [
        pytest.param((1,), id="to-new"),
        pytest.param((1, 2), id="both-ways", marks=pytest.mark.full),
    ],
)
def test_rolling(
    before: Path,
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    followers: tuple[int, ...],
) -> None:
    """The leader is killed in the middle of a load, and the other release takes over:
    new after old, and old after that. Every record is copied once, in order, and a
    group resumes at exactly the record where it stopped, whichever release had copied
    that.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    setting = _setting(source, target, topic_name)
    copy = f"A.{topic_name}"
    load = NumberedLoad(source, topic_name, _PARTITIONS, seed=18)

    def start(number: int) -> RunningMirror:
        """The old release for even numbers, this one for odd ones."""
        path = str(ROOT if number % 2 else before)
        monkeypatch.setenv("PYTHONPATH", path)
        return RunningMirror(setting, tmp_path / f"{number}").start()

    group = _Group(source, target, topic_name, copy)
    leader = start(0)
    standby = None
    try:
        leader.wait_running()
        with load.streaming():
            # A record in every partition, at which the group stops.
            wait_for(lambda: copied_records(target, copy) > 0)
            wait_for(lambda: all(order_of(target, copy).values()))
            for number in followers:
                standby = start(number)
                standby.wait_until(
                    lambda _, it=standby: it.flow()["state"] == "STANDBY"
                )
                reached = min(map(len, order_of(target, copy).values())) - 1
                group.commit(reached)
                at = {p: keys[reached] for p, keys in order_of(target, copy).items()}
                leader.kill_driver()
                leader.close()
                leader, standby = standby, None
                leader.wait_running()
                before_it = copied_records(target, copy)
                wait_for(lambda least=before_it: copied_records(target, copy) > least)
                wait_for(lambda wanted=at: group.next_keys() == wanted)
        leader.wait_copied(source, topic_name)
    finally:
        group.close()
        for each in (leader, standby):
            if each is not None:
                each.close()
    assert_exactly_once(order_of(target, copy), load.order)


def _setting(source: str, target: str, topic: str) -> dict[str, Any]:
    flow = {
        "topics": [topic],
        "groups": [GROUP],
        "tasks": 1,
        "sync_group_offsets": True,
        "sync_group_offsets_seconds": 1,
        "emit_checkpoints_seconds": 1,
    }
    return {
        **config_for(source, target, **flow),
        "service": {"group": f"upgrade-{topic}"},
    }
