"""Groups that move to the target: where they continue, and who can say so.

One flow runs and ends; then the source dies. Only the target is left, where ordinary
consumers, Kafka's own Java client, our client and the command line must give the same
answers. (test_groups_switch.py kills the service in between.)
"""

from __future__ import annotations

from dataclasses import dataclass
import json
from pathlib import Path
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.client import MirrorClient
from mirror.playground.brokers import playground
from tests.harness.admin import commit_offsets, create_topic, end_offsets
from tests.harness.group_moves import run_java
from tests.harness.load import producer
from tests.harness.waiting import PATIENCE_SECONDS, crowd, deadline_in, wait_for
from tests.harness.witness import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer.testing import Result

    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

JAVA = Path(__file__).parents[1] / "java" / "AskMirrorClient.java"
_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LAGS = {"at the tip": 0, "ten": 10, "a thousand": 1000, "all": 100_000}
"""Groups, and how many of the last records they have not read."""
PLAIN, TRANSACTIONS, COMPACTED = "plain", "transactions", "compacted"


@dataclass(frozen=True)
class Moved:
    """What a flow left on the target, and what is known from before."""

    target: str
    config: Path
    unread: dict[tuple[str, str], list[bytes]]
    """Per group and topic, the keys that it had not read on the source."""
    status: dict[str, Any]


def group_of(name: str, topic: str) -> str:
    return f"{name} of {topic}"


def read_and_commit(bootstrap: str, group: str, topic: str, lag: int) -> list[bytes]:
    """Read all but the last records of partition 0, and commit; returns the rest."""
    messages = read_topic(bootstrap, topic)[0]
    read = max(len(messages) - lag, 0)
    offset = messages[read - 1].offset() + 1 if read else 0
    commit(bootstrap, group, topic, offset)
    return [message.key() for message in messages[read:]]


def newest(keys: list[bytes]) -> list[bytes]:
    """Each key once, at its last place."""
    return list(dict.fromkeys(reversed(keys)))[::-1]


def commit(
    bootstrap: str, group: str, topic: str, offset: int, metadata: str = "note"
) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    commit_offsets(consumer, [TopicPartition(topic, 0, offset, metadata)])
    consumer.close()


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """-1001 if there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(topic, partition)]
        (found,) = consumer.committed(places, timeout=PATIENCE_SECONDS)
        return found.offset
    finally:
        consumer.close()


def fill(bootstrap: str, number: int) -> None:
    """Some thousand records in each topic, in ways that leave holes between them."""
    plain = producer(bootstrap)
    for index in range(2000):
        plain.produce(PLAIN, key=b"%d-%d" % (number, index), value=b"v", partition=0)
        plain.produce(
            COMPACTED, key=b"%d-%d" % (number, index // 7), value=b"v" * 99, partition=0
        )
    assert plain.flush(30) == 0
    writer = producer(bootstrap, transactional_id=f"fill-{number}")
    writer.init_transactions(30)
    end = end_offsets(bootstrap, TRANSACTIONS)[0]
    for transaction in range(40):
        writer.begin_transaction()
        for index in range(50):
            key = b"%d-%d-%d" % (number, transaction, index)
            writer.produce(TRANSACTIONS, key=key, value=b"v", partition=0)
        if transaction % 4:
            writer.commit_transaction(30)
        else:
            assert writer.flush(30) == 0
            writer.abort_transaction(30)
    # A transaction has ended before its marker is in the log.
    wait_for(lambda: end_offsets(bootstrap, TRANSACTIONS)[0] == end + 40 * 51)


@pytest.fixture(scope="module")
def moved(
    tmp_path_factory: pytest.TempPathFactory, standing: StandingMirror
) -> Iterator[Moved]:
    root = tmp_path_factory.mktemp("moved")
    with playground(("a", "b"), root=root / "clusters") as clusters:
        a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
        create_topic(a, PLAIN, 3)
        create_topic(a, TRANSACTIONS)
        create_topic(
            a, COMPACTED, cleanup_policy="compact", segment_ms="1000",
            min_cleanable_dirty_ratio="0.001", max_compaction_lag_ms="1000",
        )  # fmt: skip
        config = {
            "clusters": {
                "A": {"bootstrap_servers": a, "request_timeout_seconds": 5},
                "B": {"bootstrap_servers": b},
            },
            "flows": {
                "A->B": {
                    "topics": [PLAIN, TRANSACTIONS, COMPACTED],
                    "lease_seconds": 2,
                    "tasks": 1,
                    "emit_checkpoints_seconds": 1,
                    "sync_group_offsets": True,
                    "heartbeats_on_source": True,
                    "emit_offset_syncs": True,
                }
            },
        }
        fill(a, 1)
        commit(a, "gone", PLAIN, 5)
        file = root / "mirror.yaml"
        file.write_text(json.dumps(config))  # JSON is YAML
        with standing.hosting(config) as mirror:
            mirror.wait_copied(a, PLAIN)
            wait_for(lambda: committed(b, "gone", f"A.{PLAIN}") == 5)
            fill(a, 2)
            admin = AdminClient({"bootstrap.servers": a})
            admin.delete_consumer_groups(["gone"])["gone"].result(30)
            for topic in (PLAIN, TRANSACTIONS, COMPACTED):
                mirror.wait_copied(a, topic)
            unread = {
                (group, topic): read_and_commit(a, group_of(group, topic), topic, lag)
                for topic in (PLAIN, TRANSACTIONS)
                for group, lag in LAGS.items()
            }
            unread["half", COMPACTED] = read_and_commit(
                a, group_of("half", COMPACTED), COMPACTED, 300
            )
            count = len(unread)
            mirror.wait_checkpoints()
            status = mirror.wait_until(
                lambda document: (
                    (flow := document["flows"][0])["group_count"] == count
                    and flow["copied_heartbeat_at"] > 0
                ),
            )
        clusters["a"].kill()
        yield Moved(
            target=b,
            config=file,
            unread=unread,
            status=status["flows"][0],
        )


@pytest.mark.quick
def test_groups_go_on_at_the_very_record(moved: Moved) -> None:
    """Each group, with any lag, reads on the target what it had not read on the source:
    no record again, none left out; on plain, transactional and compacted topics.
    """
    for (name, topic), unread in moved.unread.items():
        consumer = Consumer(
            {
                "bootstrap.servers": moved.target,
                "group.id": group_of(name, topic),
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        offset = committed(moved.target, group_of(name, topic), f"A.{topic}")
        assert offset >= 0, (name, topic)
        consumer.assign([TopicPartition(f"A.{topic}", 0, offset)])
        found: list[bytes] = []
        deadline = deadline_in()
        while True:
            assert time.monotonic() < deadline
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                break
            found.append(message.key())
        consumer.close()
        # Compacted topics are so on both sides, and not in step.
        of = newest if topic == COMPACTED else list
        assert of(found) == of(unread), (name, topic, len(found), len(unread))


def test_an_empty_partition_and_a_group_that_is_gone(moved: Moved) -> None:
    """Empty partitions have offset 0 for groups that read their topic. A group deleted
    on the source gets no more checkpoints, and its record is not overwritten.
    """
    group = group_of("ten", PLAIN)
    assert committed(moved.target, group, f"A.{PLAIN}", 1) == 0
    shown = {each["group"] for each in moved.status["groups"]}
    assert shown == {group_of(*key) for key in moved.unread}
    records = read_topic(moved.target, "A.checkpoints.internal")[0]
    assert all(record.value() is not None for record in records)
    # Of the partition that it committed, and of two that are empty: once each.
    of_gone = [record.key() for record in records if b"gone" in record.key()]
    assert len(of_gone) == len(set(of_gone)) == 3


def test_the_status_says_where_groups_stand(moved: Moved) -> None:
    """Every group is exact or at the tip; heartbeats and checkpoints are recent."""
    for each in moved.status["groups"]:
        assert each["exactness"] in {"EXACT", "TIP"}, each
        assert (each["behind"], each["unknown"], each["reason"]) == (0, 0, "")
    assert (
        moved.status["heartbeat_at"] - moved.status["copied_heartbeat_at"]
        < 30 * crowd()
    )


def test_java_gives_the_same_answers(moved: Moved) -> None:
    """Kafka's unchanged RemoteClusterUtils and MirrorClient give the same answers as
    our client: offsets, upstream clusters, hops, and topics of each kind.
    """
    groups = [group_of(*key) for key in moved.unread]
    answer = run_java(
        "mirror-client", JAVA, moved.target, "A", *groups, "no such group"
    )
    java = sorted(answer.splitlines())

    with MirrorClient({"bootstrap_servers": moved.target}) as client:
        ours = [
            f"offset\t{group}\t{place.topic}\t{place.partition}\t{at.offset}\t"
            f"{at.metadata}"
            for group in [*groups, "no such group"]
            for place, at in client.translate_offsets(group, "A").items()
        ]
        ours += [f"upstream\t{each}" for each in client.upstream_clusters()]
        ours += [
            f"hops\t{each}\t{client.replication_hops(each)}" for each in ("A", "nobody")
        ]
        ours += [f"heartbeat\t{each}" for each in client.heartbeat_topics()]
        ours += [f"checkpoint\t{each}" for each in client.checkpoint_topics()]
        ours += [f"remote\t{each}" for each in client.remote_topics()]
        ours += [f"remote of A\t{each}" for each in client.remote_topics("A")]
    # Java cannot know which topics are mirror's own.
    own = re.compile(r".*\t(A\.offset-map|mirror-.*)\.internal")
    assert [line for line in java if not own.fullmatch(line)] == sorted(ours)
    assert "upstream\tA" in java
    assert "hops\tA\t1" in java
    assert len([line for line in java if line.startswith("offset")]) > len(groups)


def test_the_command_line_needs_the_target_only(moved: Moved, tmp_path: Path) -> None:
    """With the source dead and the flow ended, `group describe` gives the client's
    answers, says that it uses checkpoints, and writes the file that
    kafka-consumer-groups reads.
    """
    group = group_of("a thousand", TRANSACTIONS)
    shown = mirror("group", "describe", group, "-c", moved.config, "-o", "json")
    assert shown.exit_code == 0, shown.stderr
    assert "as of the last checkpoints on B" in shown.stderr
    (flow,) = json.loads(shown.stdout)["flows"]
    assert flow["from_source"] is False
    (place,) = flow["partitions"]
    with MirrorClient({"bootstrap_servers": moved.target}) as client:
        ((key, at),) = client.translate_offsets(group, "A").items()
    assert (place["target_topic"], place["partition"]) == key
    assert place["target_offset"] == at.offset
    assert (place["topic"], place["behind"]) == (TRANSACTIONS, 0)
    assert place["exactness"] == "EXACT"

    typed = [sys.executable, "-m", "mirror", "group", "describe", group]
    lines = subprocess.run(
        [*typed, "-c", moved.config, "-o", "csv", "--target-only"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert lines.stdout == f"A.{TRANSACTIONS},0,{at.offset}\n"
    file = tmp_path / "offsets.csv"
    file.write_text(lines.stdout)
    commit(moved.target, "by hand", f"A.{TRANSACTIONS}", 0)
    run_java(
        *("tools", _TOOL, "--bootstrap-server", moved.target, "--group", "by hand"),
        *("--reset-offsets", "--from-file", file, "--execute"),
    )
    assert committed(moved.target, "by hand", f"A.{TRANSACTIONS}") == at.offset
    listed = mirror("group", "list", "-c", moved.config, "--target-only")
    assert listed.exit_code == 0, listed.stderr
    assert group in listed.stdout
    unknown = mirror("group", "describe", "x", "-c", moved.config, "--target-only")
    assert unknown.exit_code == 1
    assert "group x has no offsets" in unknown.stderr


def test_single_offsets_are_translated_there_and_back(moved: Moved) -> None:
    """With the source dead and the flow ended, `group translate` gives the target's
    offset for a source offset, and the source offset for that; it refuses a topic that
    was not copied.
    """
    group = group_of("a thousand", TRANSACTIONS)
    shown = mirror("group", "describe", group, "-c", moved.config, "-o", "json")
    ((place,),) = [flow["partitions"] for flow in json.loads(shown.stdout)["flows"]]

    def ask(topic: str, offset: int, *more: str) -> dict[str, Any]:
        asked = ("-t", topic, "-p", "0", "--offset", str(offset), "-o", "json")
        done = mirror("group", "translate", "-c", moved.config, *asked, *more)
        assert done.exit_code == 0, done.stderr
        (answer,) = json.loads(done.stdout)["answers"]
        return dict(answer)

    there = ask(TRANSACTIONS, place["source_offset"])
    assert there["other_topic"] == f"A.{TRANSACTIONS}"
    assert there["other_offset"] == place["target_offset"]
    back = ask(f"A.{TRANSACTIONS}", place["target_offset"], "--reverse")
    assert back["other_topic"] == TRANSACTIONS
    assert back["exactness"] == there["exactness"] == "EXACT"
    assert ask(TRANSACTIONS, back["other_offset"]) == there | {
        "offset": back["other_offset"]
    }
    half = mirror("group", "translate", "-c", moved.config, "-t", TRANSACTIONS)
    assert half.exit_code == 2
    assert "--partition" in half.stderr
    nothing = mirror(
        *("group", "translate", "-c", moved.config, "-t", "no-such", "-p", "0"),
        *("--offset", "1"),
    )
    assert nothing.exit_code == 1
    assert "no record of no-such-0" in nothing.stderr


def mirror(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])
