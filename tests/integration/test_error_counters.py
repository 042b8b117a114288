"""The counters of failures, with a real target that refuses a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic
import pytest

from tests.harness.admin import alter_topic, create_topic
from tests.harness.counters import counter
from tests.harness.load import producer
from tests.harness.service import config_for
from tests.harness.waiting import wait_for
from tests.harness.witness import order_of

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

_LIMIT = 20_000


@pytest.mark.full
def test_a_record_too_large_for_the_target(
    clusters: dict[str, PlaygroundCluster],
    standing: StandingMirror,
    topic_name: str,
) -> None:
    """A record that an ordinary client cannot write to the copy either counts once as
    failed, however often the slot tries it; every refusal counts as an error of the
    cluster and of Produce. Once the target takes it, the record is copied.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name)
    copy = f"LARGE.{topic_name}"
    new = NewTopic(copy, 1, 1, config={"max.message.bytes": str(_LIMIT)})
    admin = AdminClient({"bootstrap.servers": target})
    admin.create_topics([new])[copy].result(30)
    refused: list[KafkaError | None] = []
    witness = producer(target)
    witness.produce(
        copy, b"v" * 2 * _LIMIT, on_delivery=lambda error, _: refused.append(error)
    )
    witness.flush(30)
    assert refused[0] is not None
    assert refused[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    client = producer(source)
    for key, size in ((b"1", 10), (b"2", 2 * _LIMIT), (b"3", 10)):
        client.produce(topic_name, b"v" * size, key=key)
    client.flush(30)
    config = config_for(
        source, target, flows=("LARGE->B",), topics=[topic_name], tasks=1,
        lease_seconds=1, sync_topic_configs=False,
    )  # fmt: skip
    config["clusters"]["LARGE"] = config["clusters"].pop("A")
    with standing.hosting(config) as mirror:

        def errors() -> float:
            return counter(
                mirror, "mirror_cluster_errors_total", cluster="B", api="Produce",
                error="MESSAGE_SIZE_TOO_LARGE",
            )  # fmt: skip

        wait_for(lambda: errors() >= 3, 60, 0.5)
        failed = {"topic": topic_name, "reason": "MESSAGE_SIZE_TOO_LARGE"}
        wait_for(
            lambda: counter(mirror, "mirror_failed_records_total", **failed) == 1,
            30,
            0.5,
        )
        status = mirror.status()
        assert status["flows"][0]["partitions"][0]["failed"] == {
            "MESSAGE_SIZE_TOO_LARGE": 1
        }
        alter_topic(target, copy, max_message_bytes="1000000")
        wait_for(
            lambda: order_of(target, copy).get(0, []) == [b"1", b"2", b"3"], 75, 0.5
        )
        assert counter(mirror, "mirror_failed_records_total", **failed) == 1
