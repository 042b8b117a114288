"""`mirror risk` as a person types it, while the source lives and once it is gone."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
import json
import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
import pytest

from tests.harness.admin import create_topic
from tests.harness.commands import typed
from tests.harness.load import producer
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import crowd, wait_for
from tests.harness.witness import order_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from confluent_kafka import KafkaError, Message

    from tests.conftest import Clusters

pytestmark = pytest.mark.acceptance

_PARTITIONS = 3
_BUSY, _PAUSED, _QUIET = "busy", "paused", "quiet"


@dataclass(frozen=True)
class Acknowledged:
    """A record that the source has promised to keep."""

    at: float
    topic: str
    key: bytes


class Load:
    """An ordinary producer that notes when each of its records was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[Acknowledged] = []
        self._client = producer(bootstrap, acks="all", message_timeout_ms=2000)
        self._stop = threading.Event()
        self._number = 0

    def send(self, topic: str) -> None:
        self._number += 1
        self._client.produce(
            topic,
            key=b"%d" % self._number,
            value=b"v" * 100,
            partition=self._number % _PARTITIONS,
            on_delivery=self._note,
        )

    def settle(self) -> None:
        assert self._client.flush(30) == 0

    @contextlib.contextmanager
    def streaming(self) -> Iterator[None]:
        """Go on sending to both topics, about 400 records a second."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self.send(_BUSY)
            self.send(_BUSY)
            self.send(_PAUSED)
            self.send(_PAUSED)
            self._client.poll(0)
        self._client.flush(5)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            key, topic = message.key(), message.topic()
            assert key is not None
            assert topic is not None
            self.acknowledged.append(Acknowledged(time.time(), topic, key))


@pytest.mark.full
def test_the_source_and_the_service_die(
    make_clusters: Callable[..., Clusters], clusters: Clusters, tmp_path: Path
) -> None:
    """SIGKILL of source and service under load, with a paused topic: what `mirror risk
    --target-only` says and what the producer is missing on the target differ by no
    more than what was acknowledged after the time that it names. The quiet topic is not
    at risk, and as of that time, though nothing was written about it since.
    """
    (source,) = make_clusters("a").values()
    a, b = source.bootstrap, clusters["b"].bootstrap
    alias = f"K{time.time_ns() % 10**8}"
    topics = (_BUSY, _PAUSED, _QUIET)
    for topic in topics:
        create_topic(a, topic, _PARTITIONS)
    load = Load(a)
    for _ in range(30):
        load.send(_QUIET)
    load.settle()
    made = config_for(
        a, b, flows=[f"{alias}->B"], topics=list(topics), tasks=1,
    )  # fmt: skip
    made["clusters"][alias] = made["clusters"].pop("A")
    config = str(tmp_path / "mirror.yaml")
    words = ("-c", config, "--flow", f"{alias}/B")
    with RunningMirror(made, tmp_path) as mirror:
        mirror.wait_copied(a, _QUIET)
        paused = typed("pause", f"{alias}/B", "-y", "--topic", _PAUSED, "-c", config)
        assert paused.returncode == 0, paused.stderr
        mirror.wait_until(lambda d: d["flows"][0]["paused"] == _PARTITIONS)
        began = mirror.flow()["standby_at"]
        with load.streaming():
            mirror.wait_until(
                lambda d: (
                    d["flows"][0]["standby_at"] > began
                    and d["flows"][0]["risk"]["records"] > 0
                )
            )
            alive = json.loads(typed("risk", *words, "-o", "json").stdout)["flows"][0]
            assert alive["from_source"]
            assert alive["at"] > began
            wait_for(lambda: len(load.acknowledged) > 1500)
            source.kill()
            mirror.kill_driver()
        wait_for(lambda: not mirror.survivors())
        killed_at = time.time()

    # What the dead service left open would hide what stands behind it.
    for turn in range(3):
        client = Producer(
            {
                "bootstrap.servers": b,
                "transactional.id": f"mirror.{alias}->B.0.{turn}",
            }
        )
        client.init_transactions(30)

    told = typed("risk", *words, "--target-only", "-o", "json")
    assert told.returncode == 0, told.stderr
    (found,) = json.loads(told.stdout)["flows"]
    copied = {
        topic: {
            key for keys in order_of(b, f"{alias}.{topic}").values() for key in keys
        }
        for topic in topics
    }
    missing = [r for r in load.acknowledged if r.key not in copied[r.topic]]
    later = [r for r in load.acknowledged if r.at > found["at"]]
    assert not found["from_source"]
    assert killed_at - 15 * crowd() < found["at"] < killed_at
    assert len(missing) > 300
    assert abs(len(missing) - found["records"]) <= len(later)
    assert found["records"] >= sum(each.at <= found["at"] for each in missing) > 0
    of_topic = {each["topic"]: each for each in found["topics"]}
    assert of_topic[_QUIET] == {
        "topic": _QUIET, "records": 0, "bytes": 0, "seconds": 0.0, "unknown": 0,
        "at": found["at"],
    }  # fmt: skip
    oldest = min(each.at for each in missing)
    assert 0 <= of_topic[_PAUSED]["seconds"] - (found["at"] - oldest) < 12 * crowd()
    assert of_topic[_PAUSED]["bytes"] == -1  # nothing of it was ever copied
    entries = _entries(b, alias)
    assert len(entries[f"ends/{_QUIET}"]) < len(entries["looks/ends"]) / 2

    said = typed("risk", *words)
    assert said.returncode == 0
    assert f"from {'B'} alone" in said.stderr
    assert f"{found['records']:,} records not copied as of" in said.stderr
    assert said.stdout.split()[:3] == ["FLOW", "TOPIC", "RECORDS"]


def _entries(bootstrap: str, alias: str) -> dict[str, list[Any]]:
    """All that was written to the standby topic, by key."""
    found: dict[str, list[Any]] = {}
    for message in read_topic(bootstrap, f"mirror-standby.{alias}.internal")[0]:
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        found.setdefault(key.decode(), []).append(json.loads(value))
    return found
