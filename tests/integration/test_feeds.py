"""The active cluster of a pair feeds a third one, through switches and failovers."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
import pytest

from mirror.playground.brokers import playground
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command, pair_of
from tests.harness.waiting import wait_for
from tests.harness.witness import count_keys

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

_PARTITIONS = 3


class Fed:
    """A pair FA<->FB that feeds FC, with an application that writes all the time."""

    def __init__(
        self, clusters: dict[str, PlaygroundCluster], topic: str, folder: Path
    ) -> None:
        self.clusters, self.folder = clusters, folder
        self.ends = {f"F{n.upper()}": c.bootstrap for n, c in clusters.items()}
        self.application = Application(topic, _PARTITIONS, f"app-{topic}")
        for bootstrap in self.ends.values():
            create_topic(bootstrap, topic, _PARTITIONS)
        one, other, third = self.ends.items()
        document = pair_of(one, other, topic)
        document["clusters"][third[0]] = {"bootstrap_servers": third[1]}
        document["defaults"] |= {"policy": "identity", "emit_checkpoints": False}
        document["flows"] |= {"FA->FC": {}, "FB->FC": {}}
        document["recovery"]["FA<->FB"]["feeds"] = ["FC"]
        self.mirror = RunningMirror(document, folder)

    def settled(self, feeds: str, rests: str) -> None:
        self.mirror.wait_running(feeds)
        self.mirror.wait_until(lambda _: self.mirror.flow(rests)["state"] == "RESTING")

    def keys(self, alias: str) -> dict[bytes, int]:
        return dict(count_keys(self.ends[alias], self.application.topic)[0])

    def each_once_there(self) -> None:
        """An independent consumer finds every key that was written on FC, once."""
        written = dict.fromkeys(self.application.written, 1)
        wait_for(lambda: len(self.keys("FC")) >= len(written), 60)
        assert self.keys("FC") == written

    def switch(self, there: str, back: str) -> None:
        """Under load, until the switch fences producers."""
        with self.application.writing(self.ends[there]) as stop:
            self.written(100)
            switch = Switch(self.folder, "switch", f"{there}/{back}", "--yes")
            switch.reaches(self.ends[there], "fence")
            stop.set()
        switch.succeeds()

    def written(self, more: int) -> None:
        first = len(self.application.written)
        wait_for(lambda: len(self.application.written) > first + more)

    def dies(self) -> None:
        """FA dies under load while FB, or FC, is behind: nobody decides which."""
        with self.application.writing(self.ends["FA"]) as stop:
            self.written(200)
            self.clusters["a"].kill()
            stop.set()


class Resting:
    """Sees when the flow out of a cluster is noted, on its target, to rest."""

    def __init__(self, target: str, source: str, epoch: int) -> None:
        self._reader = Consumer(
            {
                "bootstrap.servers": target,
                "group.id": "resting",
                "isolation.level": "read_committed",
            }
        )
        place = TopicPartition(f"mirror-progress.{source}.internal", 0)
        _, place.offset = self._reader.get_watermark_offsets(place, timeout=30)
        self._reader.assign([place])
        self._text = b'"epoch": %d' % epoch

    def wait(self) -> None:
        def noted() -> bool:
            message = self._reader.poll(0.02)
            return message is not None and self._text in (message.value() or b"")

        try:
            wait_for(noted, 60, pause=0)
        finally:
            self._reader.close()


def shown(folder: Path, *words: str) -> Any:
    return json.loads(command(folder, *words, "-o", "json"))


def test_a_third_cluster_gets_each_record_once(topic_name: str, tmp_path: Path) -> None:
    """Under load a pair is switched there and back, its active cluster is killed, comes
    back, its tail is replayed and the pair fails back. Through all that the cluster
    that the pair feeds gets every record once, from whichever cluster is active; the
    other flow rests.
    """
    with playground(("a", "b", "c"), root=tmp_path / "c", given=False) as clusters:
        fed = Fed(clusters, topic_name, tmp_path)
        with fed.mirror:
            fed.settled("FA->FC", "FB->FC")
            fed.switch("FA", "FB")
            with fed.application.writing(fed.ends["FB"]):
                fed.settled("FB->FC", "FA->FC")
                fed.written(100)
            fed.each_once_there()
            (pair,) = shown(tmp_path, "pair")["pairs"]
            assert pair["feeds"] == {"copy": ["FB->FC"], "rest": ["FA->FC"]}

            fed.switch("FB", "FA")
            with fed.application.writing(fed.ends["FA"]):
                fed.settled("FA->FC", "FB->FC")
                fed.written(100)
            fed.each_once_there()

            fed.dies()
            Switch(tmp_path, "failover", "FA/FB", "--yes").succeeds()
            with fed.application.writing(fed.ends["FB"]):
                fed.settled("FB->FC", "FA->FC")
                fed.written(100)
            there = fed.keys("FB")
            wait_for(lambda: fed.keys("FC").keys() >= there.keys())
            assert set(fed.keys("FC").values()) == {1}

            clusters["a"].start()
            # The producer had no answer about what it wrote last.
            stored, known = fed.keys("FA"), set(fed.application.written)
            fed.application.written += sorted(stored.keys() - known)
            command(tmp_path, "tail", "replay", "FA/FB", "--yes")
            fed.each_once_there()
            assert fed.keys("FB") == fed.keys("FC")

            fed.mirror.wait_running("FB->FA")
            fed.mirror.wait_copied(fed.ends["FB"], topic_name, flow="FB->FA")
            Switch(tmp_path, "failback", "FB/FA", "--yes").succeeds()
            with fed.application.writing(fed.ends["FA"]):
                fed.settled("FA->FC", "FB->FC")
                fed.written(100)
            fed.each_once_there()


def test_a_killed_driver_hands_over_once(topic_name: str, tmp_path: Path) -> None:
    """The service is killed as soon as it has stopped the flow that is to rest, before
    it has committed where the other one begins. A service that starts later hands over
    from there: the third cluster gets every record once.
    """
    with playground(("a", "b", "c"), root=tmp_path / "c", given=False) as clusters:
        fed = Fed(clusters, topic_name, tmp_path)
        with fed.mirror:
            fed.settled("FA->FC", "FB->FC")
            rests = Resting(fed.ends["FC"], "FA", 2)
            with fed.application.writing(fed.ends["FA"]) as stop:
                fed.written(200)
                switch = Switch(tmp_path, "switch", "FA/FB", "--yes")
                switch.reaches(fed.ends["FA"], "fence")
                stop.set()
            rests.wait()
            os.kill(fed.mirror.pids()[0], signal.SIGKILL)
            switch.succeeds()
        with fed.mirror:
            with fed.application.writing(fed.ends["FB"]):
                fed.settled("FB->FC", "FA->FC")
                fed.written(100)
            fed.each_once_there()


@pytest.mark.parametrize("kind", ["switch", "failover"])
def test_the_third_cluster_is_away(topic_name: str, tmp_path: Path, kind: str) -> None:
    """The cluster that the pair feeds dies under load and misses a switch, or the
    active one's death and the failover. Applications need not wait for it, and the
    flow that feeds it says that it does not answer. Once it is back it gets each record
    that the active cluster has, once.
    """
    with playground(("a", "b", "c"), root=tmp_path / "c", given=False) as clusters:
        fed = Fed(clusters, topic_name, tmp_path)
        with fed.mirror:
            fed.settled("FA->FC", "FB->FC")
            with fed.application.writing(fed.ends["FA"]):
                fed.written(200)
                clusters["c"].kill()
                fed.written(100)
            if kind == "switch":
                fed.switch("FA", "FB")
            else:
                fed.dies()
                Switch(tmp_path, "failover", "FA/FB", "--yes").succeeds()
            with fed.application.writing(fed.ends["FB"]):
                fed.written(100)
            # The service reads the journals beside that.
            fed.mirror.wait_until(lambda seen: seen["pairs"][0]["active"] == "FB")
            fed.mirror.wait_until(
                lambda _: (
                    "cluster FC: " in fed.mirror.flow("FB->FC")["reason"]
                    and "does not answer" in fed.mirror.flow("FB->FC")["reason"]
                )
            )

            clusters["c"].start()
            fed.settled("FB->FC", "FA->FC")
            with fed.application.writing(fed.ends["FB"]):
                fed.written(100)
            if kind == "switch":
                fed.each_once_there()
            wait_for(lambda: fed.keys("FC").keys() >= fed.keys("FB").keys(), 60)
            assert set(fed.keys("FC").values()) == {1}
