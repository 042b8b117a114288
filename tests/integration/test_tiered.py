"""Topics with tiered storage: what brokers keep elsewhere is copied like the rest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
import uuid

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from tests.harness.admin import create_topic
from tests.harness.load import NumberedLoad, producer
from tests.harness.metadata import overrides
from tests.harness.service import config_for
from tests.harness.tiered import first_kept, tiered
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, order_of

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

PARTITIONS = 2


@pytest.mark.full
def test_segments_that_are_only_remote(
    clusters: dict[str, PlaygroundCluster],
    standing: StandingMirror,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """A topic whose older segments its broker has only in remote storage is copied from
    its beginning, to a cluster without such storage: each record is there once and in
    order, none of aborted transactions is, and `mirror verify` proves it. A config that
    the target refuses is named as a problem; the copy has the topic's others.
    """
    with tiered(tmp_path / "tiered") as source:
        create_topic(
            source.bootstrap, topic_name, PARTITIONS, segment_bytes="1048576",
            remote_storage_enable="true", local_retention_bytes="1",
            retention_ms="777000000",
        )  # fmt: skip
        load = NumberedLoad(source.bootstrap, topic_name, PARTITIONS)
        for _ in range(10):
            load.send(2000)
            _abort(source.bootstrap, topic_name)
        for partition in range(PARTITIONS):
            wait_for(lambda p=partition: first_kept(source, topic_name, p) > 5000)

        config = config_for(
            source.bootstrap, clusters["b"].bootstrap, topics=[topic_name], tasks=1
        )
        with standing.hosting(config) as mirror:
            mirror.wait_running()
            mirror.wait_copied(source.bootstrap, topic_name)
            load.send(500)
            mirror.wait_copied(source.bootstrap, topic_name)
            mirror.wait_until(
                lambda _: any(
                    "Tiered Storage functionality is disabled" in problem
                    for problem in mirror.flow()["problems"]
                )
            )
        copy = f"A.{topic_name}"
        assert_exactly_once(order_of(clusters["b"].bootstrap, copy), load.order)
        shown = overrides(clusters["b"].bootstrap, copy)
        assert shown["retention.ms"] == "777000000"
        file = tmp_path / "mirror.yaml"
        file.write_text(json.dumps(config))
        done = CliRunner().invoke(app, ["verify", "-c", str(file), "-o", "json"])
        assert done.exit_code == 0, done.output


def _abort(bootstrap: str, topic: str) -> None:
    client = producer(bootstrap, transactional_id=f"application-{uuid.uuid4()}")
    client.init_transactions(30)
    client.begin_transaction()
    for number in range(100):
        client.produce(topic, key=b"aborted", value=b"v", partition=number % PARTITIONS)
    client.flush(30)
    client.abort_transaction(30)
