"""Python workers die at any moment, and the copy does not show it."""

from __future__ import annotations

import random
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import copied_records, create_topic
from tests.harness.load import NumberedLoad
from tests.harness.service import config_for
from tests.harness.waiting import wait_for
from tests.harness.witness import assert_exactly_once, order_of, read_topic

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

_PARTITIONS = 6
_EVERY, _POISON = 3, 1000

_SIEVE = """
    import pyarrow as pa
    import pyarrow.compute as pc

    def number(batch):
        key = pc.cast(batch["key"], pa.string())
        return pc.cast(pc.list_element(pc.split_pattern(key, ":"), 1), pa.int64())

    def sieve(batch, *, every, poison):
        numbers = number(batch)
        if pc.any(pc.equal(numbers, pc.multiply(pc.divide(numbers, poison), poison))
                  ).as_py():
            raise ValueError("a multiple of " + str(poison))
        rest = pc.subtract(numbers, pc.multiply(pc.divide(numbers, every), every))
        return batch.filter(pc.not_equal(rest, 0))
"""


@pytest.mark.parametrize("times", [2, pytest.param(5, marks=pytest.mark.full)])
def test_exactly_once_while_workers_are_killed(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    standing: StandingMirror,
    times: int,
) -> None:
    """Records of all sizes and codecs arrive exactly once and in order while every
    worker is killed at random moments of the copy; each is counted once, although
    no killed lease reported what it had committed. A flow beside that, which filters
    and has dead letters, copies each record that its function keeps, and writes each
    dead letter, exactly once; the function is in a file next to the service.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    load = NumberedLoad(source, topic_name, _PARTITIONS, seed=1)
    moments = random.Random(20240601)
    flows, dead = ("A->B", "SIEVE->B"), f"{topic_name}-dead"
    plain, sieved = (f"{flow.split('-')[0]}.{topic_name}" for flow in flows)
    module = standing.state_dir.parent / "sieve_of_a_test.py"
    module.write_text(textwrap.dedent(_SIEVE))
    config = config_for(source, target, flows=flows, topics=[topic_name], tasks=2)
    config["clusters"]["SIEVE"] = config["clusters"]["A"]
    config["flows"]["SIEVE->B"] |= {
        "transform": "sieve_of_a_test:sieve",
        "transform_options": {"every": _EVERY, "poison": _POISON},
        "dead_letter_topic": dead,
    }

    with standing.hosting(config) as mirror:
        with load.streaming():
            for kills in range(1, times + 1):
                before = [copied_records(target, copy) for copy in (plain, sieved)]
                wait_for(
                    lambda before=before: all(
                        copied_records(target, copy) > least
                        for copy, least in zip((plain, sieved), before, strict=True)
                    )
                )
                time.sleep(moments.uniform(0, 1))
                for flow in flows:
                    # One death can end leases of both.
                    if mirror.flow(flow)["restarts"] < kills:
                        mirror.fail_lease(flow)
        for flow in flows:
            mirror.wait_copied(source, topic_name, flow=flow)
        # A lease is counted when it ends.
        wait_for(lambda: mirror.flow("A->B")["records"] >= load.total)
        assert mirror.flow("A->B")["records"] == load.total
        assert min(mirror.flow(flow)["restarts"] for flow in flows) >= times
    assert_exactly_once(order_of(target, plain), load.order)
    kept = {
        partition: [
            key for key in keys if _number(key) % _EVERY and _number(key) % _POISON
        ]
        for partition, keys in load.order.items()
    }
    assert_exactly_once(order_of(target, sieved), kept)
    buried = [message.key() for message in read_topic(target, dead)[0]]
    assert sorted(buried) == sorted(
        key
        for keys in load.order.values()
        for key in keys
        if _number(key) % _POISON == 0
    )
    for partition in load.order:
        of_one = [_number(key) for key in buried if key.startswith(b"%d:" % partition)]
        assert of_one == sorted(of_one)


def _number(key: bytes) -> int:
    return int(key.partition(b":")[2])
