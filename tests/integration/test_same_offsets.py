"""Copies whose records have the source's offsets, held against the source by clients
that share no code with mirror.
"""

from __future__ import annotations

from collections import Counter
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
import pytest

from mirror.playground.jars import fetched
from tests.harness.admin import (
    alter_topic,
    commit_offsets,
    copied_records,
    create_topic,
    delete_records,
    delete_topic,
    end_offsets,
)
from tests.harness.application import Application
from tests.harness.commands import answered, config_file
from tests.harness.group_moves import commit_for, committed
from tests.harness.load import NumberedLoad, keys, producer, send
from tests.harness.service import RunningMirror, config_for
from tests.harness.switching import Switch, command, pair_of
from tests.harness.waiting import wait_for
from tests.harness.witness import log_of, read_topic, seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from confluent_kafka import Message

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 3
_MANY = 1_100_000
"""More than one batch of padding has."""
_OLD = 4000
_AT = {"early": (3, 0, 20), "tip": (11, 20, 12)}
"""By group: its offsets in a copy, of which one is behind a client's record."""


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group})


def test_offsets_stay_the_same_whatever_dies(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """Under load, workers, the driver and brokers of both sides are killed with -9:
    each record of the copy has the partition, offset, key, value, headers and timestamp
    that it has on the source, and there is no other. The copy has no transactions.
    """
    clusters = {**make_clusters("a"), **make_clusters("b", nodes=3)}
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    load = NumberedLoad(source, topic_name, _PARTITIONS, seed=5)
    copy = f"A.{topic_name}"
    config = config_for(source, target, topics=[topic_name], tasks=1, offsets="same")
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        with load.streaming():

            def goes_on() -> None:
                before = copied_records(target, copy)
                wait_for(lambda: copied_records(target, copy) > before, 60, 0.2)

            goes_on()
            mirror.kill_workers()
            goes_on()
            clusters["b"].kill(1)
            goes_on()
            clusters["b"].start(1)
            clusters["a"].kill(1)
            clusters["a"].start(1)
            goes_on()
            mirror.kill_driver()
            mirror.start()
            mirror.wait_running()
            goes_on()
        load.send(1000)
        mirror.wait_copied(source, topic_name)
        assert mirror.terminate() == 0
    assert log_of(target, copy) == log_of(source, topic_name)


def _is_filler(message: Message) -> bool:
    return "mirror.filler" in dict(message.headers() or ())


def _records(bootstrap: str, topic: str) -> dict[int, list[tuple[object, ...]]]:
    """As `log_of`, without fillers."""
    return {
        partition: [seen(each) for each in messages if not _is_filler(each)]
        for partition, messages in read_topic(bootstrap, topic).items()
    }


class _FileReader:
    """A client that keeps its offsets in a file, as sinks and checkpoints do."""

    def __init__(self, file: Path, topic: str) -> None:
        self._file = file
        self._topic = topic
        self.read: Counter[bytes] = Counter()

    def goes_on(self, bootstrap: str) -> None:
        """Read this cluster's log from the offsets in the file up to its end."""
        places = {str(n): 0 for n in range(_PARTITIONS)}
        if self._file.exists():
            places = json.loads(self._file.read_text())
        ends = end_offsets(bootstrap, self._topic)
        for partition, messages in read_topic(bootstrap, self._topic).items():
            at = places[str(partition)]
            assert at <= ends[partition]
            for message in [each for each in messages if each.offset() >= at]:
                if not _is_filler(message):
                    self.read[message.key()] += 1
                at = message.offset() + 1
            places[str(partition)] = at
        self._file.write_text(json.dumps(places))


@pytest.mark.parametrize(
    "fill", ["refuse", pytest.param("visible", marks=pytest.mark.full)]
)
def test_a_pair_keeps_its_offsets_there_and_back(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path, fill: str
) -> None:
    """A pair is switched A, B, A, B under load, with workers killed in between; what
    applications write to either cluster has its offset on the other one, too. A client
    that keeps its offsets in a file moves along and reads each acknowledged record
    once, and a group does. With fill: visible all of it is written in transactions.
    """
    one, two, filled = f"THERE-{fill}", f"BACK-{fill}", fill == "visible"
    ends = {one: clusters["a"].bootstrap, two: clusters["b"].bootstrap}
    for bootstrap in ends.values():
        create_topic(bootstrap, topic_name, _PARTITIONS)
    group = f"app-{topic_name}"
    application = Application(topic_name, _PARTITIONS, group, transactions=filled)
    file = _FileReader(tmp_path / "offsets.json", topic_name)
    document = pair_of((one, ends[one]), (two, ends[two]), topic_name)
    document["defaults"] |= {"policy": "identity", "offsets": "same", "fill": fill}
    active, other = one, two
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(f"{one}->{two}")
        for lag in (0, 100, 10):
            application.write(ends[active], 300)
            application.consume(ends[active], [topic_name])
            file.goes_on(ends[active])
            application.write(ends[active], lag)
            with application.writing(ends[active]) as stop:
                mirror.kill_workers()
                switch = Switch(tmp_path, "switch", f"{active}/{other}", "--yes")
                switch.wait_for("fence: waiting")
                stop.set()
            switch.succeeds()
            active, other = other, active
            application.write(ends[active], 50)
            application.consume(ends[active], [topic_name])
            application.require_each_once()
            file.goes_on(ends[active])
            assert file.read == Counter(application.written)
            mirror.wait_running(f"{active}->{other}")
        assert mirror.terminate() == 0
    logs = {alias: _records(bootstrap, topic_name) for alias, bootstrap in ends.items()}
    assert logs[one] == logs[two]
    assert sum(map(len, logs[one].values())) == len(application.written)


@pytest.mark.full
def test_a_tail_is_settled_and_its_topic_copied_again(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A failover leaves a tail of one topic on A, at offsets that B gives to others.
    The topic stops as DIVERGED, the other one goes on by itself. A replay is refused;
    once the tail is skipped, a failback with --restore copies the topic again, and
    both clusters have each acknowledged record but the tail at one offset.
    """
    one, two, other = "GONE", "STAYS", f"{topic_name}-other"
    ends = {one: clusters["a"].bootstrap, two: clusters["b"].bootstrap}
    for bootstrap in ends.values():
        for name in (topic_name, other):
            create_topic(bootstrap, name, _PARTITIONS)
    application = Application(topic_name, _PARTITIONS, f"app-{topic_name}")
    beside = Application(other, _PARTITIONS, f"app-{other}")
    file = _FileReader(tmp_path / "offsets.json", topic_name)
    document = pair_of((one, ends[one]), (two, ends[two]), topic_name)
    document["defaults"] |= {
        "topics": [topic_name, other], "policy": "identity", "offsets": "same"
    }  # fmt: skip
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(f"{one}->{two}")
        for each in (application, beside):
            each.write(ends[one], 300)
        for name in (topic_name, other):
            mirror.wait_copied(ends[one], name)
        mirror.terminate()
        application.write(ends[one], 30)
        tail = set(application.written[-30:])
        Switch(tmp_path, "failover", f"{one}/{two}", "--force", "--yes").succeeds()
        for each in (application, beside):
            each.write(ends[two], 100)
        mirror.start()
        wait_for(lambda: log_of(ends[one], other) == log_of(ends[two], other), 90, 0.5)
        mirror.wait_until(lambda status: "diverged" in json.dumps(status).lower())
        words = (f"{one}/{two}", "--yes")
        refused = answered("tail", "replay", *words, "-c", tmp_path / "mirror.yaml")
        assert (refused.returncode, "can be replayed" in refused.stderr) == (1, True)
        command(tmp_path, "tail", "skip", *words)
        home = Switch(tmp_path, "failback", f"{two}/{one}", "--restore", "--yes")
        said = home.succeeds()
        assert "copies it again" in "".join(home.said) + said
        application.write(ends[one], 50)
        file.goes_on(ends[one])
        assert file.read == Counter(set(application.written) - tail)
        mirror.wait_running(f"{one}->{two}")

        def equal(name: str) -> bool:
            return log_of(ends[one], name) == log_of(ends[two], name)

        wait_for(lambda: equal(topic_name) and equal(other), 60, 0.5)
        for flow in (f"{one}->{two}", f"{two}->{one}"):
            proof = answered("verify", "--flow", flow, "-c", tmp_path / "mirror.yaml")
            assert proof.returncode == 0, proof.stdout + proof.stderr
        assert mirror.terminate() == 0


def test_a_log_that_begins_late_and_a_group(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Of a million records the source has the last ones: the copy begins where it does,
    once the padding is deleted. A group that goes over gets its own offset and reads on
    where it stopped; a consumer with an offset of the source in a file does as well.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    client = producer(source, compression_type="zstd")
    for number in range(_MANY):
        while True:
            try:
                client.produce(topic_name, key=b"%d" % number, partition=0)
                break
            except BufferError:
                client.poll(0.1)
    send(client, topic_name, {1: [b"one", b"two"]}, b"v")
    delete_records(source, topic_name, _MANY - 100, partitions=[0])
    reader = _consumer(source, "readers")
    commit_offsets(reader, [TopicPartition(topic_name, 0, _MANY - 40)])
    reader.close()
    config = config_for(
        source, target, alias="SAME", topics=[topic_name], tasks=1, offsets="same",
        policy="identity", sync_group_offsets=True, sync_group_offsets_seconds=1,
        groups=["readers"],
    )  # fmt: skip
    file = config_file(tmp_path, **config)
    planned = answered("plan", "-c", file).stderr
    assert f"after {_MANY - 100:,} offsets of padding" in planned
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        wait_for(
            lambda: log_of(target, topic_name) == log_of(source, topic_name), 60, 0.5
        )
        place, witness = TopicPartition(topic_name, 0), _consumer(target, "witness")
        wait_for(
            lambda: witness.get_watermark_offsets(place, 30)[0] == _MANY - 100, 60, 0.5
        )
        witness.close()
        wait_for(lambda: committed(target, "readers", topic_name) == _MANY - 40, 30)
        assert mirror.terminate() == 0
    assert log_of(target, topic_name) == log_of(source, topic_name)


_CONNECTOR = "4.2.0"
"""Maven has none of Spark's own newest version."""
_STREAM = """
import json, sys
from pyspark.sql import SparkSession
bootstrap, topic, checkpoint, out, jars = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", jars)
    .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
def keep(frame, number):
    with open(out, "a") as file:
        for row in frame.collect():
            file.write(bytes(row.key).decode() + chr(10))
(
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    .option("startingOffsets", "earliest").load()
    .writeStream.option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).foreachBatch(keep).start().awaitTermination()
)
spark.stop()
"""


@pytest.mark.full
def test_a_checkpoint_of_spark_goes_on_at_the_copy(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Structured Streaming's own Kafka source has read a part of the source's topic.
    With the same checkpoint it goes on at the copy: each record is read once.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    connector = fetched(
        f"spark-sql-kafka-{_CONNECTOR}",
        '<dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" '
        f'rev="{_CONNECTOR}" conf="default->default"/>',
        types=("jar",),
    )
    jars = ",".join(str(jar) for jar in sorted(connector.glob("*.jar")))
    script, read = tmp_path / "stream.py", tmp_path / "read"
    script.write_text(_STREAM)

    def goes_on(bootstrap: str) -> list[str]:
        words = (bootstrap, topic_name, tmp_path / "checkpoint", read, jars)
        done = subprocess.run(
            [sys.executable, script, *map(str, words)],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return read.read_text().split()

    client = producer(source)
    send(client, topic_name, keys(_PARTITIONS, 300), b"v")
    assert len(goes_on(source)) == _PARTITIONS * 300
    send(client, topic_name, keys(_PARTITIONS, 200, first=300), b"v")
    config = config_for(
        source, target, alias="SPARK", topics=[topic_name], tasks=1, offsets="same",
        policy="identity",
    )  # fmt: skip
    with RunningMirror(config, tmp_path / "mirror") as mirror:
        mirror.wait_running()
        wait_for(
            lambda: log_of(target, topic_name) == log_of(source, topic_name), 60, 0.5
        )
        assert mirror.terminate() == 0
    found = goes_on(target)
    assert len(found) == len(set(found)) == _PARTITIONS * 500


def test_old_records_that_are_behind_are_seeding(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """While a copy is behind, and its records are so old that leaders may forget who
    writes them, its partition says SEEDING; at its end it does not. The flow does not
    begin again meanwhile.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 1, retention_ms="-1")
    client, old = producer(source), int(time.time() - 2 * 86_400) * 1000
    for number in range(_OLD):
        client.produce(
            topic_name, key=b"%d" % number, value=bytes(10_000), timestamp=old
        )
        client.poll(0)
    assert client.flush(60) == 0
    config = config_for(
        source, target, alias="OLD", topics=[topic_name], tasks=1, offsets="same",
        max_bytes_per_second=2_000_000,
    )  # fmt: skip

    def state(status: dict[str, Any]) -> tuple[str, int]:
        (flow,) = status["flows"]
        found = [each["state"] for each in flow["partitions"]]
        return (found or [""])[0], flow["restarts"]

    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_until(lambda status: state(status) == ("SEEDING", 0))
        mirror.wait_copied(source, topic_name)
        mirror.wait_until(lambda status: state(status) == ("RUNNING", 0))
        assert mirror.terminate() == 0
    assert log_of(target, f"OLD.{topic_name}") == log_of(source, topic_name)


@pytest.mark.full
def test_what_cannot_be_noted_is_not_copied(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """While the target refuses notes in the offset map, the copy stops growing and the
    status says why; once it takes them again, the copy is complete.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 1)
    copy, client = f"NOTE.{topic_name}", producer(source)
    config = config_for(
        source, target, alias="NOTE", topics=[topic_name], tasks=1, offsets="same"
    )

    def grows() -> bool:
        before = copied_records(target, copy)
        send(client, topic_name, {0: [b"more"]}, b"v")
        time.sleep(2)
        return copied_records(target, copy) > before

    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        wait_for(grows, 60)
        alter_topic(target, "NOTE.offset-map.internal", max_message_bytes="100")
        wait_for(lambda: not grows(), 60)
        assert not any(grows() for _ in range(10))
        mirror.wait_until(lambda status: "MESSAGE_SIZE_TOO_LARGE" in str(status))
        alter_topic(target, "NOTE.offset-map.internal", max_message_bytes="1000000")
        mirror.wait_copied(source, topic_name)
        assert mirror.terminate() == 0
    assert log_of(target, copy) == log_of(source, topic_name)


def test_a_foreign_record_stops_its_partition_alone(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """The plan says which copies get the source's offsets, and why one does not. After
    somebody else writes to one partition of a copy it stops as DIVERGED, with the
    offset; the other one and the translated topic go on. A rebuild refuses to lose the
    foreign record; once the copy is deleted, it is made again with the source's
    offsets: a proof finds nothing, and a group has its offset there again. Positions
    cannot be moved by hand.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    kept = f"{topic_name}-kept"
    create_topic(source, topic_name, 2)
    create_topic(source, kept, cleanup_policy="compact")
    group = f"readers-{topic_name}"
    config = config_for(
        source, target, alias="OWN", topics=[topic_name, kept], tasks=1, offsets="same",
        sync_group_offsets=True, sync_group_offsets_seconds=1, groups=[group],
    )  # fmt: skip
    file = tmp_path / "plan.yaml"
    file.write_text(json.dumps(config))
    plan = json.loads(answered("plan", "-c", file, "-o", "json").stdout)
    told = {
        each["topic"]: (each["offsets"], each["reason"]) for each in plan["offsets"]
    }
    assert told[f"OWN.{topic_name}"] == ("same", "")
    assert told[f"OWN.{kept}"][0] == "translated"
    assert "compacted" in told[f"OWN.{kept}"][1]

    client, foreign = producer(source), producer(target)
    copy = f"OWN.{topic_name}"
    send(client, topic_name, keys(2, 10), b"v")
    send(client, kept, keys(1, 10), b"v")
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        mirror.wait_copied(source, topic_name)
        wait_for(lambda: log_of(target, copy) == log_of(source, topic_name), 60, 0.5)
        commit_for(source, group, {topic_name: 7})
        wait_for(lambda: committed(target, group, copy) == 7, 30)
        send(foreign, copy, {0: [b"foreign"]}, b"")
        send(client, topic_name, keys(2, 10, first=10), b"v")
        send(client, kept, keys(1, 10, first=10), b"v")
        mirror.wait_until(lambda status: "offset" in _reasons(status).get(0, ""))
        assert "cannot have the source's offsets" in _reasons(mirror.status())[0]
        wait_for(
            lambda: log_of(target, copy)[1] == log_of(source, topic_name)[1], 60, 0.5
        )
        wait_for(lambda: len(log_of(target, f"OWN.{kept}")[0]) == 20, 60, 0.5)
        moved = answered(
            "flow", "reset", "OWN->B", "--to", "earliest", "-c", file, "-y"
        )
        assert moved.returncode == 1
        assert "it is copied from where it ends" in moved.stderr
        made = answered("repair", "rebuild", "OWN->B", topic_name, "-c", file, "-y")
        assert made.returncode == 1
        assert "has what OWN does not have, and would lose it" in made.stderr
        delete_topic(target, copy)
        wait_for(lambda: log_of(target, copy) == log_of(source, topic_name), 60, 0.5)
        wait_for(lambda: committed(target, group, copy) == 7, 30)
        proof = answered("verify", "--flow", "OWN->B", "-c", file)
        assert proof.returncode == 0, proof.stdout + proof.stderr
        assert mirror.terminate() == 0


def test_a_proof_beside_a_running_flow(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """While records are copied all the time, proofs find nothing: what is copied and
    not noted yet is no further copy.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    config = config_for(
        source, target, alias="BUSY", topics=[topic_name], tasks=1, offsets="same"
    )
    load = NumberedLoad(source, topic_name, _PARTITIONS, seed=7)
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        load.send(300)
        mirror.wait_copied(source, topic_name)
        with load.streaming(pause=0.1):
            for _ in range(5):
                words = ("verify", "--since", "earliest", "--flow", "BUSY->B")
                proof = answered(*words, "-c", tmp_path / "mirror.yaml")
                assert proof.returncode == 0, proof.stdout + proof.stderr
        assert mirror.terminate() == 0


@pytest.mark.full
def test_a_rebuild_of_a_diverged_copy(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A client writes a record of the copy once more, so its partition stops as
    DIVERGED. A rebuild copies the topic again with the source's offsets: that record
    is gone, a proof finds nothing, and groups go on with the records that were next.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    config = config_for(
        source, target, alias="AGAIN", topics=[topic_name], tasks=1, offsets="same"
    )
    copy, client = f"AGAIN.{topic_name}", producer(source)
    send(client, topic_name, keys(_PARTITIONS, 10), b"v")

    def equal(*partitions: int) -> bool:
        logs = (log_of(target, copy), log_of(source, topic_name))
        here, there = ([log[n] for n in partitions or log] for log in logs)
        return here == there

    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        mirror.wait_copied(source, topic_name)
        wait_for(equal, 60, 0.5)
        twice, other = read_topic(target, copy)[0][5], producer(target)
        other.produce(
            copy, key=twice.key(), value=twice.value(), headers=twice.headers(),
            timestamp=twice.timestamp()[1], partition=0,
        )  # fmt: skip
        assert other.flush(30) == 0
        send(client, topic_name, keys(_PARTITIONS, 10, first=10), b"v")
        mirror.wait_until(lambda status: "DIVERGED" in json.dumps(status))
        wait_for(lambda: equal(1, 2), 60, 0.5)
        assert log_of(target, copy)[0][10][1] == twice.key()
        groups = {f"{name}-{topic_name}": at for name, at in _AT.items()}
        for group, places in groups.items():
            reader = _consumer(target, group)
            commit_offsets(
                reader, [TopicPartition(copy, n, at) for n, at in enumerate(places)]
            )
            reader.close()
        words = ("repair", "rebuild", "AGAIN->B", topic_name, "-y")
        made = answered(*words, "-c", tmp_path / "mirror.yaml")
        assert made.returncode == 0, made.stdout + made.stderr
        wait_for(equal, 60, 0.5)
        for group, places in groups.items():
            reader = _consumer(target, group)
            found = reader.committed(
                [TopicPartition(copy, n) for n in range(_PARTITIONS)], timeout=30
            )
            reader.close()
            # Behind the client's record nothing of the source was read.
            wanted = [min(places[0], 10), *places[1:]]
            assert (group, [each.offset for each in found]) == (group, wanted)
        send(client, topic_name, keys(_PARTITIONS, 5, first=20), b"v")
        wait_for(equal, 60, 0.5)
        mirror.wait_until(lambda status: not any(_reasons(status).values()))
        proof = answered("verify", "--flow", "AGAIN->B", "-c", tmp_path / "mirror.yaml")
        assert proof.returncode == 0, proof.stdout + proof.stderr
        assert mirror.terminate() == 0
    assert [len(each) for each in log_of(target, copy).values()] == [25] * _PARTITIONS


def test_from_a_hole_on_a_copy_is_translated(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A topic gets its first transaction: with on_hole: translate its copy goes on with
    offsets of its own, and says from where. What was copied before keeps its offsets,
    each record is there once, and a group is translated across. Its neighbour, and then
    the flow, is set to translated: nothing is copied again.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    beside = f"{topic_name}-beside"
    for name in (topic_name, beside):
        create_topic(source, name, 1)
    client = producer(source)
    send(client, topic_name, keys(1, 20), b"v")
    send(client, beside, keys(1, 20), b"v")
    settings: dict[str, Any] = {
        "alias": "HOLE", "topics": [topic_name, beside], "tasks": 1, "on_hole":
        "translate", "sync_group_offsets": True, "sync_group_offsets_seconds": 1,
        "groups": ["hole-readers"],
    }  # fmt: skip
    config = config_for(source, target, offsets="same", **settings)
    copy, other = f"HOLE.{topic_name}", f"HOLE.{beside}"
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        mirror.wait_copied(source, topic_name)
        writer = Application(topic_name, 1, "", transactions=True)
        assert writer.write(source, 5)
        send(client, topic_name, keys(1, 10, first=20), b"v")
        wait_for(lambda: len(log_of(target, copy)[0]) == 35, 60, 0.5)
        mirror.wait_until(lambda s: "offset 20 of partition 0" in json.dumps(s))
        reader = _consumer(source, "hole-readers")
        there = [each[0] for each in log_of(source, topic_name)[0]]
        commit_offsets(reader, [TopicPartition(topic_name, 0, there[30])])
        reader.close()
        here = [each[0] for each in log_of(target, copy)[0]]
        wait_for(lambda: committed(target, "hole-readers", copy) == here[30], 30)
        assert mirror.terminate() == 0
    assert here[:20] == there[:20]
    assert _content(target, copy) == _content(source, topic_name)
    assert log_of(target, other) == log_of(source, beside)

    config = config_for(source, target, offsets="translated", **settings)
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        for name in (topic_name, beside):
            send(client, name, keys(1, 10, first=40), b"v")
            mirror.wait_copied(source, name)
        assert mirror.terminate() == 0
    assert _content(target, copy) == _content(source, topic_name)
    assert _content(target, other) == _content(source, beside)


_CLEANED = {
    "cleanup_policy": "compact,delete", "delete_retention_ms": "0", "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.0001",
}  # fmt: skip


_BEGINS = 50


def _compact(bootstrap: str, topic: str) -> None:
    """Let the log cleaner leave holes in a topic, and no more later; it begins at n."""
    create_topic(bootstrap, topic, 1, **_CLEANED)
    client = producer(bootstrap, linger_ms=100)
    for number in range(3):
        each = [b"%d" % (n % (7 + number)) for n in range(200)]
        send(client, topic, {0: each}, b"v%d" % number)
        time.sleep(0.2)  # segments end by the clock
    wait_for(lambda: len(log_of(bootstrap, topic)[0]) < 300, 60, 0.2)
    alter_topic(bootstrap, topic, min_cleanable_dirty_ratio="1", segment_ms="3600000")
    time.sleep(1)  # what the cleaner has begun to clean is done
    delete_records(bootstrap, topic, _BEGINS, partitions=[0])


def _with_fillers(
    bootstrap: str, topic: str
) -> Iterator[tuple[int, list[tuple[object, ...]], list[Message]]]:
    """By partition of a copy, its records, and its fillers; all offsets are there."""
    for number, messages in read_topic(bootstrap, topic).items():
        fillers = [each for each in messages if _is_filler(each)]
        offsets = [each.offset() for each in messages]
        whole = list(range(offsets[0], offsets[0] + len(offsets)))
        assert offsets == whole, f"{topic}-{number}"
        others = [seen(each) for each in messages if each not in fillers]
        yield number, others, fillers


def test_holes_are_filled(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """Applications write in transactions, and abort some, while workers and the driver
    are killed; another topic is compacted. Each record has the source's offset in the
    copy, and what else the copy has is a filler with the header, without a value, and
    not newer than the source's log. A group gets its own offset, and a proof finds
    nothing.
    """
    clusters = make_clusters(settings={"log.cleaner.backoff.ms": "100"})
    source, target = (clusters[each].bootstrap for each in ("a", "b"))
    kept = f"{topic_name}-kept"
    create_topic(source, topic_name, _PARTITIONS)
    _compact(source, kept)
    writer = Application(topic_name, _PARTITIONS, "", transactions=True)
    config = config_for(
        source, target, alias="FILL", topics=[topic_name, kept], tasks=1,
        offsets="same", fill="visible", policy="identity", sync_group_offsets=True,
        sync_group_offsets_seconds=1, groups=["readers"],
    )  # fmt: skip
    file = tmp_path / "mirror.yaml"
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        plan = json.loads(answered("plan", "-c", file, "-o", "json").stdout)
        assert {each["offsets"] for each in plan["offsets"]} == {"same"}
        with writer.writing(source):

            def goes_on() -> None:
                before = copied_records(target, topic_name)
                wait_for(lambda: copied_records(target, topic_name) > before, 60, 0.2)

            goes_on()
            mirror.kill_workers()
            goes_on()
            mirror.kill_driver()
            mirror.start()
            mirror.wait_running()
            goes_on()
        for name in (topic_name, kept):
            mirror.wait_copied(source, name)
        there = log_of(source, topic_name)
        reader, at = _consumer(source, "readers"), there[0][-1][0] + 1
        commit_offsets(reader, [TopicPartition(topic_name, 0, at)])
        reader.close()
        wait_for(lambda: committed(target, "readers", topic_name) == at, 30)
        proof = answered("verify", "--flow", "FILL->B", "-c", file)
        assert proof.returncode == 0, proof.stdout + proof.stderr
        status = mirror.status()
        assert mirror.terminate() == 0
    counted = {}
    for name in (topic_name, kept):
        there = log_of(source, name)
        for number, records, fillers in _with_fillers(target, name):
            assert records == there[number]
            assert len(fillers) > 1, f"{name}-{number}"
            first = min(records[0][0], fillers[0].offset())
            assert first == (_BEGINS if name == kept else 0)
            counted[name, number] = len(fillers)
            for each in fillers:
                assert each.value() is None
                assert (each.key() is None) == (name == topic_name)
                names = [header for header, _ in each.headers()]
                assert names == ["mirror.filler", "mirror.via"]
            newest = max(each.timestamp()[1] for each in fillers)
            assert newest <= time.time() * 1000
            if name == kept:
                assert newest <= max(each[3][1] for each in records)
    (flow,) = status["flows"]
    told = {(e["topic"], e["partition"]): e["fillers"] for e in flow["partitions"]}
    assert sum(counted.values()) >= sum(told.values()) > 0


@pytest.mark.full
def test_a_flow_that_wants_no_fillers_any_more(
    clusters: Mapping[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A copy with fillers, whose flow is then set to `fill: refuse`: from the next hole
    on it has offsets of its own, which the status says, and it keeps them when fillers
    are wanted again. Each record is there once, a group is translated across the place,
    and a proof finds nothing.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 1)
    writer, copy = (
        Application(topic_name, 1, "", transactions=True),
        f"BACK.{topic_name}",
    )
    file = tmp_path / "mirror.yaml"
    there: list[int] = []
    for fill, exact in (("visible", True), ("refuse", False), ("visible", False)):
        config = config_for(
            source, target, alias="BACK", topics=[topic_name], tasks=1, fill=fill,
            offsets="same", on_hole="translate", sync_group_offsets=True,
            sync_group_offsets_seconds=1, groups=["back-readers"],
        )  # fmt: skip
        with RunningMirror(config, tmp_path) as mirror:
            mirror.wait_running()
            for _ in range(3):
                assert writer.write(source, 5)
            mirror.wait_copied(source, topic_name)
            before, there = there, [each[0] for each in log_of(source, topic_name)[0]]
            here = [each[0] for each in _records(target, copy)[0]]
            assert (here == there) == exact
            assert here[: len(before)] == before or not exact
            reader = _consumer(source, "back-readers")
            commit_offsets(reader, [TopicPartition(topic_name, 0, there[-2])])
            reader.close()
            wait_for(lambda at=here[-2]: committed(target, "back-readers", copy) == at)
            if fill == "refuse":
                behind = before[-1] + 2  # the last marker has a filler
                assert f"offset {behind} of partition 0" in str(mirror.status())
            proof = answered("verify", "--flow", "BACK->B", "-c", file)
            assert proof.returncode == 0, proof.stdout + proof.stderr
            assert mirror.terminate() == 0
        records = [each[1:] for each in _records(target, copy)[0]]
        assert records == _content(source, topic_name)


def _content(bootstrap: str, topic: str) -> list[tuple[object, ...]]:
    """The records of partition 0, without their offsets."""
    return [each[1:] for each in log_of(bootstrap, topic)[0]]


def _reasons(status: dict[str, Any]) -> dict[int, str]:
    """By partition of the topic whose copy has the source's offsets."""
    (flow,) = status["flows"]
    return {
        each["partition"]: each["reason"]
        for each in flow["partitions"]
        if not each["topic"].endswith("-kept")
    }
