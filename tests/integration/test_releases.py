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

from confluent_kafka import Consumer, TopicPartition
import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from tests.harness.admin import commit_offsets, create_topic
from tests.harness.cases import cases
from tests.harness.load import NumberedLoad, producer
from tests.harness.metadata import acls_of, allow, overrides
from tests.harness.releases import RELEASES, release
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
        some=[(OLDEST, NEWEST), ("4.0.1", "2.8.2")],
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
    reader = Consumer({"bootstrap.servers": pair.source, "group.id": GROUP})
    stopped_at = read_topic(pair.source, topic_name)[0][700]
    commit_offsets(reader, [TopicPartition(topic_name, 0, stopped_at.offset())])
    reader.close()

    with standing.hosting(pair.config()) as mirror:
        mirror.wait_running(pair.name)
        with load.streaming(chunk=100, pause=0.1):
            mirror.fail_lease(pair.name)
        mirror.wait_copied(pair.source, topic_name, flow=pair.name)
        assert_exactly_once(order_of(pair.target, pair.copy), load.order)
        wait_for(lambda: _offset(pair.target, pair.copy) is not None)
        flow = mirror.flow(pair.name)
        assert flow["state"] == "RUNNING", flow
        wait_for(lambda: acls_of(pair.target, about=pair.copy))

    copies = {each.offset(): each for each in read_topic(pair.target, pair.copy)[0]}
    assert copies[_offset(pair.target, pair.copy)].key() == stopped_at.key()
    shown = overrides(pair.target, pair.copy)
    assert {name: shown.get(name) for name in CONFIGS} == CONFIGS
    assert acls_of(pair.target, about=pair.copy) == {
        ("User:alice", "READ", "ALLOW", pair.copy, "LITERAL")
    }


def _abort(bootstrap: str, topic: str) -> None:
    client = producer(bootstrap, transactional_id="application")
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(topic, key=b"aborted", value=b"v", partition=0)
    client.flush(30)
    client.abort_transaction(30)


def _offset(bootstrap: str, topic: str) -> int | None:
    """What the group has committed there; None for nothing."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        (found,) = reader.committed([TopicPartition(topic, 0)], timeout=30)
        return None if found.offset < 0 else int(found.offset)
    finally:
        reader.close()
