"""Brokers of ten years: a flow between any two releases, with all that belongs to it.

Each case runs real brokers of both releases, those before 3.3 with their ZooKeeper, and
the service between them. Ordinary clients are the witnesses.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
import itertools
import json
from typing import TYPE_CHECKING, Any
import uuid

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.clusters.admin import brokers
from tests.harness.admin import (
    alter_topic,
    commit_offsets,
    copied_records,
    create_topic,
    delete_topic,
)
from tests.harness.cases import cases
from tests.harness.load import NumberedLoad, producer
from tests.harness.metadata import acls_of, allow, overrides
from tests.harness.mm2 import PROPERTIES, start_mm2
from tests.harness.releases import RELEASES, release
from tests.harness.service import RunningMirror, config_for
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, order_of, read_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

OLDEST, NEWEST = RELEASES[0], RELEASES[-1]
PARTITIONS = 2
GROUP = "readers"
CONFIGS = {"retention.ms": "777000000", "cleanup.policy": "delete"}


@pytest.fixture
def run_release(tmp_path: Path) -> Iterator[Callable[[str], PlaygroundCluster]]:
    """Runs brokers of releases for as long as the test."""
    number = itertools.count(1)
    with ExitStack() as stack:
        yield lambda version: stack.enter_context(
            release(version, tmp_path / f"{version}-{next(number)}")
        )


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A flow between two releases."""

    source: str
    target: str
    alias: str
    topic: str

    @property
    def name(self) -> str:
        return f"{self.alias}->B"

    @property
    def copy(self) -> str:
        return f"{self.alias}.{self.topic}"

    def config(self, **settings: Any) -> dict[str, Any]:
        return {
            "clusters": {
                self.alias: {"bootstrap_servers": self.source},
                "B": {"bootstrap_servers": self.target},
            },
            "flows": {
                self.name: {
                    "topics": [self.topic],
                    "lease_seconds": 2,
                    "tasks": 1,
                    "emit_heartbeats": False,
                    "heartbeats_replication": False,
                    "emit_checkpoints_seconds": 1,
                    "sync_group_offsets": True,
                    "sync_topic_acls": True,
                    **settings,
                }
            },
        }


@pytest.mark.parametrize(
    ("old", "new"),
    cases(
        itertools.product(RELEASES, RELEASES),
        some=[(OLDEST, NEWEST)],
    ),
)
def test_a_flow(
    run_release: Callable[[str], PlaygroundCluster],
    standing: StandingMirror,
    old: str,
    new: str,
    topic_name: str,
) -> None:
    """Every record is there once and in order although a worker is killed, none of an
    aborted transaction is; a group goes on at the record where it stopped; the copy has
    the configs and the ACLs of its topic.
    """
    pair = Pair(
        source=run_release(old).bootstrap,
        target=run_release(new).bootstrap,
        alias=f"R{uuid.uuid4().hex[:6]}",
        topic=topic_name,
    )
    create_topic(
        pair.source, topic_name, PARTITIONS,
        **{name.replace(".", "_"): value for name, value in CONFIGS.items()},
    )  # fmt: skip
    allow(pair.source, "alice", "READ", topic_name)
    load = NumberedLoad(pair.source, topic_name, PARTITIONS)
    load.send(1000)
    _abort(pair.source, topic_name)
    load.send(1000)
    sent = read_topic(pair.source, topic_name)[0]
    _commit(pair.source, topic_name, sent[100].offset())

    with standing.hosting(pair.config()) as mirror:
        mirror.wait_running(pair.name)
        with load.streaming(chunk=100, pause=0.1):
            mirror.fail_lease(pair.name)
        mirror.wait_copied(pair.source, topic_name, flow=pair.name)
        assert_exactly_once(order_of(pair.target, pair.copy), load.order)
        wait_for(lambda: _offset(pair.target, pair.copy) is not None)
        _commit(pair.source, topic_name, sent[700].offset())
        _wait_offset(pair.target, pair.copy, sent[700].key())
        flow = mirror.flow(pair.name)
        assert flow["state"] == "RUNNING", flow
        wait_for(lambda: acls_of(pair.target, about=pair.copy))

    copies = {each.offset(): each for each in read_topic(pair.target, pair.copy)[0]}
    assert copies[_offset(pair.target, pair.copy)].key() == sent[700].key()
    shown = overrides(pair.target, pair.copy)
    assert {name: shown.get(name) for name in CONFIGS} == CONFIGS
    assert acls_of(pair.target, about=pair.copy) == {
        ("User:alice", "READ", "ALLOW", pair.copy, "LITERAL")
    }


@pytest.mark.full
def test_a_topic_without_an_id(
    run_release: Callable[[str], PlaygroundCluster],
    clusters: dict[str, PlaygroundCluster],
    standing: StandingMirror,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """Brokers before 2.8 cannot tell a topic that was created again from one that lost
    its end: nothing is copied from it, with a reason that says so, although the flow
    would go on after either; `mirror check` warns of that beforehand.
    """
    pair = Pair(
        source=run_release(OLDEST).bootstrap,
        target=clusters["b"].bootstrap,
        alias=f"N{uuid.uuid4().hex[:6]}",
        topic=topic_name,
    )
    create_topic(pair.source, topic_name)
    load = NumberedLoad(pair.source, topic_name, 1)
    load.send(300)
    config = pair.config(on_loss="continue", on_recreated_topic="continue")
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(config))
    checked = CliRunner().invoke(app, ["check", "-c", str(file), "-o", "json"])
    said = {
        each["detail"]: each["state"]
        for each in json.loads(checked.stdout)["checks"]
        if each["check"] == "older brokers"
    }
    assert said[brokers.NO_TOPIC_IDS] == "warn", said
    assert len(said) >= 4, said

    with standing.hosting(config) as mirror:
        mirror.wait_running(pair.name)
        mirror.wait_copied(pair.source, topic_name, flow=pair.name)
        delete_topic(pair.source, topic_name)
        wait_for(lambda: _is_created(pair.source, topic_name))
        NumberedLoad(pair.source, topic_name, 1).send(10)
        mirror.wait_until(
            lambda _: any(
                p["state"] == "FAULTED"
                and "no topic ids before Kafka 2.8" in p["reason"]
                for p in mirror.flow(pair.name)["partitions"]
            )
        )
    assert_exactly_once(order_of(pair.target, pair.copy), load.order)


def _is_created(bootstrap: str, topic: str) -> bool:
    """Create a topic, if its deletion is complete."""
    try:
        create_topic(bootstrap, topic)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


@pytest.mark.full
@pytest.mark.parametrize(
    "releases", [("2.5.1", "2.8.2"), ("2.8.2", "3.9.1"), ("3.3.2", NEWEST)]
)
def test_adoption(
    run_release: Callable[[str], PlaygroundCluster],
    standing: StandingMirror,
    releases: tuple[str, str],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """What MirrorMaker 2 has copied between old releases is adopted: the copy goes on
    with every record once and in order.
    """
    old, new = releases
    pair = Pair(
        source=run_release(old).bootstrap,
        target=run_release(new).bootstrap,
        alias=f"M{uuid.uuid4().hex[:6]}",
        topic=topic_name,
    )
    create_topic(pair.source, topic_name, PARTITIONS)
    load = NumberedLoad(pair.source, topic_name, PARTITIONS)
    load.send(2000)
    mm2 = start_mm2(
        pair.source, pair.target, alias=pair.alias, topic=topic_name, folder=tmp_path,
        exactly_once=False,
    )  # fmt: skip
    try:
        wait_for(lambda: copied_records(pair.target, pair.copy) >= 2000, 150)
    finally:
        mm2.stop()
    load.send(500)
    words = ["adopt", "--yes", "-c", str(tmp_path / PROPERTIES), "--topic", topic_name]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert ("before Kafka 3.0" in done.stderr) == (new in {"2.5.1", "2.8.2"})
    with standing.hosting(pair.config()) as mirror:
        mirror.wait_copied(pair.source, topic_name, flow=pair.name)
    assert_exactly_once(order_of(pair.target, pair.copy), load.order)


@pytest.mark.full
@pytest.mark.parametrize("target", ["2.8.2", "3.9.1"])
def test_offsets_stay_the_same(
    run_release: Callable[[str], PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    target: str,
) -> None:
    """Copies on older brokers have the source's offsets as well, whatever is killed."""
    ends = run_release(NEWEST).bootstrap, run_release(target).bootstrap
    create_topic(ends[0], topic_name, PARTITIONS)
    load = NumberedLoad(ends[0], topic_name, PARTITIONS)
    config = config_for(
        *ends, topics=[topic_name], policy="identity", tasks=1, offsets="same"
    )
    with RunningMirror(config, tmp_path) as mirror:
        mirror.wait_running()
        for kill in (mirror.kill_workers, mirror.kill_driver):
            load.send(2000)
            kill()
        mirror.start()
        mirror.wait_copied(ends[0], topic_name)
        assert mirror.terminate() == 0
    for one, copy in zip(
        *(read_topic(e, topic_name).items() for e in ends), strict=True
    ):
        assert [(m.offset(), m.key(), m.timestamp()) for m in one[1]] == [
            (m.offset(), m.key(), m.timestamp()) for m in copy[1]
        ]


FORMATS = {
    "v0": {"message_format_version": "0.9.0"},
    "v1": {"message_format_version": "0.10.0"},
    "appended": {
        "message_format_version": "0.10.0",
        "message_timestamp_type": "LogAppendTime",
    },
}
_EACH = 200


@pytest.mark.full
def test_old_formats(
    run_release: Callable[[str], PlaygroundCluster],
    standing: StandingMirror,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """What a broker stores in formats v0 and v1 is copied, single messages and packed
    ones of each codec, until the topic goes on in v2: each record with its key, value
    and time, at the place that the offset map names, and `mirror verify` proves it.
    """
    pair = Pair(
        source=run_release(OLDEST).bootstrap,
        target=run_release(NEWEST).bootstrap,
        alias=f"F{uuid.uuid4().hex[:6]}",
        topic=f"{topic_name}-.*",
    )
    topics = {f"{topic_name}-{name}": configs for name, configs in FORMATS.items()}
    for topic, configs in topics.items():
        create_topic(pair.source, topic, retention_ms="-1", **configs)
        for number, codec in enumerate(("none", "gzip", "snappy", "lz4")):
            _fill(pair.source, topic, number, compression_type=codec)
        alter_topic(pair.source, topic, message_format_version="2.5")
        _fill(pair.source, topic, 4, compression_type="lz4")
        _commit(pair.source, topic, 3 * _EACH + 17)

    config = pair.config()
    with standing.hosting(config) as mirror:
        mirror.wait_running(pair.name)
        for topic in topics:
            mirror.wait_copied(pair.source, topic, flow=pair.name)
            copy = f"{pair.alias}.{topic}"
            _wait_offset(pair.target, copy, b"%d" % (3 * _EACH + 17))

    for topic in topics:
        sent = read_topic(pair.source, topic)[0]
        copied = read_topic(pair.target, f"{pair.alias}.{topic}")[0]
        assert len(sent) == 5 * _EACH
        assert list(map(_content, copied)) == list(map(_content, sent))
        goes_on = _offset(pair.target, f"{pair.alias}.{topic}")
        (there,) = [each for each in copied if each.offset() == goes_on]
        assert _content(there) == _content(sent[3 * _EACH + 17])
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(config))
    done = CliRunner().invoke(app, ["verify", "-c", str(file), "-o", "json"])
    assert done.exit_code == 0, done.output


@pytest.mark.full
def test_a_target_of_old_formats(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """`mirror check` fails for a target whose brokers store what is written in an old
    format, and says which setting to raise.
    """
    create_topic(clusters["a"].bootstrap, topic_name)
    settings = {"log.message.format.version": "0.10.0"}
    with release(OLDEST, tmp_path / "old", settings=settings) as old:
        pair = Pair(
            source=clusters["a"].bootstrap, target=old.bootstrap, alias="O",
            topic=topic_name,
        )  # fmt: skip
        file = tmp_path / "mirror.yaml"
        file.write_text(json.dumps(pair.config()))
        done = CliRunner().invoke(app, ["check", "-c", str(file), "-o", "json"])
    assert done.exit_code == 1, done.output
    (found,) = [
        each
        for each in json.loads(done.stdout)["checks"]
        if each["check"] == "message format"
    ]
    assert (found["where"], found["state"]) == ("cluster B", "fail")
    assert "raise log.message.format.version" in found["fix"]


def _fill(bootstrap: str, topic: str, first: int, **settings: str) -> None:
    """Records with and without keys and values, from many to few in a batch."""
    client = producer(bootstrap, enable_idempotence=False, linger_ms=50, **settings)
    for number in range(first * _EACH, (first + 1) * _EACH):
        client.produce(
            topic,
            key=b"%d" % number if number % 5 else None,
            value=b"value %d " % number * (number % 40) if number % 7 else None,
            timestamp=1_500_000_000_000 + number,
        )
        if number % 60 == 0:
            client.flush(30)
    assert client.flush(30) == 0


def _content(message: Message) -> tuple[bytes | None, bytes | None, int]:
    kind, time = message.timestamp()
    missing = kind == TIMESTAMP_NOT_AVAILABLE  # v0 has none, which v2 calls -1
    return message.key(), message.value(), -1 if missing else time


def _abort(bootstrap: str, topic: str) -> None:
    client = producer(bootstrap, transactional_id="application")
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(topic, key=b"aborted", value=b"v", partition=0)
    client.flush(30)
    client.abort_transaction(30)


def _commit(bootstrap: str, topic: str, offset: int) -> None:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    commit_offsets(reader, [TopicPartition(topic, 0, offset)])
    reader.close()


def _wait_offset(bootstrap: str, topic: str, key: bytes | None) -> None:
    """Until the group's offset is that of this record, which is there: what was set
    before all was copied may be less.
    """
    (place,) = (m.offset() for m in read_topic(bootstrap, topic)[0] if m.key() == key)
    wait_for(lambda: _offset(bootstrap, topic) == place)


def _offset(bootstrap: str, topic: str) -> int | None:
    """What the group has committed there; None for nothing."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        (found,) = reader.committed([TopicPartition(topic, 0)], timeout=30)
        return None if found.offset < 0 else int(found.offset)
    finally:
        reader.close()
