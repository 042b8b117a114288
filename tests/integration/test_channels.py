"""What a slot writes to one broker over two connections at once.

Large transactions are divided by partition. Slow commits make sure that several are
under way, and one of the two ways is slow or breaks, so that records would be overtaken
by later ones if a partition ever changed sides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.mishaps import Mishap, Rule
from tests.harness.proxy import BrokerProxy
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 2
_EACH = 400
_VALUE = bytes(40_000)
"""32 MB in all, of which a transaction takes 8."""


@dataclass(kw_only=True)
class _Watch(Rule):
    """Meets nothing: notes which partitions came together in one request."""

    api: str = "Produce"
    seen: list[frozenset[int]] = field(default_factory=list)

    def concerns(self, request: Any) -> bool:
        parts = [t.partition_data for t in request.topic_data if t.name == self.topic]
        if parts:
            self.seen.append(frozenset(p.index for p in parts[0]))
        return False


_SLOW = (Mishap.LATE_REQUEST, Mishap.LATE_ANSWER)


@pytest.mark.parametrize(
    ("exactly_once", "rule"),
    [
        *(
            (exactly_once, Rule(api="Produce", mishap=late, seconds=0.15, times=None))
            for late in _SLOW
            for exactly_once in (True, False)
        ),
        (True, Rule(api="Produce", mishap=Mishap.REFUSED, code=51, seconds=0.3)),
        (True, Rule(api="Produce", mishap=Mishap.REFUSED, code=7, seconds=0.3)),
        (True, Rule(api="Produce", mishap=Mishap.LOST)),
        (True, Rule(api="Produce", mishap=Mishap.ANSWER_LOST)),
    ],
    ids=lambda value: (
        f"{value.mishap.name}-{value.code}" if isinstance(value, Rule) else str(value)
    ),
)
def test_one_of_two_ways_is_slow_or_breaks(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    *,
    exactly_once: bool,
    rule: Rule,
) -> None:
    """Each partition goes over one connection, and keeps its order whatever happens
    on the other; exactly once, nothing is lost or doubled.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, _PARTITIONS)
    expected = keys(_PARTITIONS, _EACH)
    send(producer(source), topic_name, expected, _VALUE)
    with BrokerProxy(target) as proxy, Witness(target) as witness:
        flow = SparklessFlow(
            source=source,
            target=proxy.bootstrap,
            topic=topic_name,
            timeout=5.0,
            settings={"exactly_once": exactly_once},
        ).own()
        rule.topic, rule.partition = flow.copy, 1
        rule.skip = 0 if rule.mishap in _SLOW else 6
        slow = Rule(api="EndTxn", mishap=Mishap.LATE_ANSWER, seconds=0.1, times=None)
        watch = _Watch(topic=flow.copy)
        with flow.slot() as slot, proxy.rules(watch, rule, slow):
            witness.begin(flow.copy)
            copy_until(
                witness, slot, flow.lease(60), count=_PARTITIONS * _EACH, timeout=60
            )
        assert rule.hits, "the rule never struck"
        assert set(watch.seen) == {frozenset({0}), frozenset({1})}
        witness.assert_exactly(flow.copy, expected)
