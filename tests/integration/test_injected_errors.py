"""Every error field that a slot reads, injected between it and a real broker.

The invariant is always the same: whatever one answer says, a read_committed consumer
of the real target finds each key exactly once and in order.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.clusters import codes
from tests.harness.admin import create_topic
from tests.harness.copying import Copying, RunningLease, Witness, keys, send
from tests.harness.load import producer
from tests.harness.proxy import BrokerProxy, Mishap, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_PARTITIONS = 2
_HALF = 500
_TIMEOUT = 2.0
# Stand for names that a test's own topic and flow give.
DATA, COPY, PROGRESS = "the topic", "its copy", "the progress"
_TRANSIENT = (6, 7, 19, 20, 45, 46, 47, 48, 51, 59, 90, -1)
_GUILTY = (10, 29, 87)


class Lab:
    """Proxies before both clusters, and one copying after the other."""

    def __init__(
        self,
        source: BrokerProxy,
        target: BrokerProxy,
        real_source: str,
        witness: Witness,
    ) -> None:
        self.source, self.target = source, target
        self.real_source = real_source
        self.producer = producer(real_source)
        self.witness = witness
        self._alias = f"I{uuid.uuid4().hex[:6]}"

    def copying(self, topic: str) -> Copying:
        """The first half of the records is there; the flow is ours."""
        create_topic(self.real_source, topic, _PARTITIONS)
        self.send(topic, first=0)
        return Copying(
            source=self.source.bootstrap,
            target=self.target.bootstrap,
            topic=topic,
            alias=self._alias,
            timeout=_TIMEOUT,
        ).own()

    def send(self, topic: str, *, first: int) -> None:
        send(self.producer, topic, keys(_PARTITIONS, _HALF, first=first), b"v" * 50)

    @contextlib.contextmanager
    def rules(self, copying: Copying, rule: Rule) -> Iterator[None]:
        """The rule holds: at the source if it is about what is there."""
        names = {COPY: copying.copy, PROGRESS: copying.progress, DATA: copying.topic}
        at_source = rule.topic == DATA or (rule.api == "Fetch" and rule.topic is None)
        rule.topic = names.get(rule.topic or "", rule.topic)
        with (self.source if at_source else self.target).rules(rule):
            yield

    def check_recovers(self, topic: str, rule: Rule) -> None:
        """All is copied, exactly once, within one lease, although the rule struck."""
        copying = self.copying(topic)
        total = 2 * _HALF * _PARTITIONS
        with (
            copying.slot() as slot,
            self.rules(copying, rule),
        ):
            self.witness.begin(copying.copy)
            lease = RunningLease(slot, copying.lease(40))
            try:
                self.witness.wait(total // 2, 25, lease)
                self.send(topic, first=_HALF)
                self.witness.wait(total, 25, lease)
            finally:
                reports = lease.end()
            if any(report.state == "FAULTED" for report in reports):
                # The rule struck when all was copied: the fault goes with a retry.
                reports = slot.run(copying.lease(2))
        assert rule.hits, "the rule never struck"
        self.witness.assert_exactly(copying.copy, keys(_PARTITIONS, 2 * _HALF))
        assert {report.state for report in reports} == {"RUNNING"}
        # A commit whose answer was lost is counted, too; none is counted twice.
        assert sum(report.total.records for report in reports) == total

    def check_sets_aside(self, topic: str, rule: Rule) -> None:
        """While the rule holds its partition is shown as faulted, with the reason,
        and the other is copied; afterwards it is copied as well.
        """
        copying = self.copying(topic)
        rule.times = None
        with copying.slot() as slot:
            self.witness.begin(copying.copy)
            with self.rules(copying, rule):
                guilty, other = self.witness.watch(slot, copying.lease(20), _HALF, 10)
                assert not self.witness.found[0]
            assert rule.hits, "the rule never struck"
            assert guilty.state == "FAULTED"
            assert codes.name_of(rule.code) in guilty.reason
            assert (other.state, other.position) == ("RUNNING", _HALF)
            assert guilty.records == 0
            guilty, _ = self.witness.watch(slot, copying.lease(20), 2 * _HALF, 15)
        assert (guilty.state, guilty.position) == ("RUNNING", _HALF)
        self.witness.assert_exactly(copying.copy, keys(_PARTITIONS, _HALF))


@pytest.fixture(scope="module")
def lab(clusters: dict[str, PlaygroundCluster]) -> Iterator[Lab]:
    real_source, real_target = clusters["a"].bootstrap, clusters["b"].bootstrap
    with (
        BrokerProxy(real_source) as source,
        BrokerProxy(real_target) as target,
        Witness(real_target) as witness,
    ):
        yield Lab(source, target, real_source, witness)


def rule_id(value: Any) -> str:
    return codes.name_of(value) if isinstance(value, int) else str(value)


@pytest.mark.parametrize("code", _TRANSIENT, ids=rule_id)
def test_produce_refused(lab: Lab, topic_name: str, code: int) -> None:
    """A batch that the broker did not write, for whatever reason it gave, is never
    taken for written: also not for DUPLICATE_SEQUENCE_NUMBER, which is no success
    here, since nothing is ever sent twice in one transaction.
    """
    lab.check_recovers(
        topic_name,
        Rule(api="Produce", mishap=Mishap.REFUSED, code=code, topic=COPY, partition=0),
    )


@pytest.mark.parametrize("code", [*_TRANSIENT, *_GUILTY], ids=rule_id)
def test_progress_refused(lab: Lab, topic_name: str, code: int) -> None:
    """Records whose progress was not written are not committed."""
    lab.check_recovers(
        topic_name,
        Rule(
            api="Produce", mishap=Mishap.REFUSED, code=code, topic=PROGRESS, partition=0
        ),
    )


@pytest.mark.parametrize("code", [7, 20, 46, 51, -1], ids=rule_id)
@pytest.mark.parametrize("topic", [COPY, PROGRESS])
def test_produce_written_and_said_to_have_failed(
    lab: Lab, topic_name: str, topic: str, code: int
) -> None:
    """A batch that was written, although the answer says otherwise, is not there
    twice in the end.
    """
    lab.check_recovers(
        topic_name, Rule(api="Produce", code=code, topic=topic, partition=0)
    )


@pytest.mark.parametrize("code", _GUILTY, ids=rule_id)
def test_produce_refused_for_its_content(lab: Lab, topic_name: str, code: int) -> None:
    """A partition whose records the target refuses is set aside, alone and visibly,
    and goes on when the target takes them.
    """
    lab.check_sets_aside(
        topic_name,
        Rule(api="Produce", mishap=Mishap.REFUSED, code=code, topic=COPY, partition=0),
    )


@pytest.mark.parametrize("topic", [COPY, PROGRESS])
def test_failed_writes_are_not_reported(lab: Lab, topic_name: str, topic: str) -> None:
    """A lease that ends while its writes fail tells of no record copied, and of no
    position beyond what is committed; of none at all where it could not even take over,
    which needs the progress topic.
    """
    copying = lab.copying(topic_name)
    rule = Rule(
        api="Produce",
        mishap=Mishap.REFUSED,
        code=7,
        topic=topic,
        partition=0,
        times=None,
    )
    with copying.slot() as slot:
        with lab.rules(copying, rule):
            reports = slot.run(copying.lease(0.7))
        assert rule.hits
        seen = {(report.counts.records, report.position) for report in reports}
        assert seen == {(0, -1 if topic == PROGRESS else 0)}
        lab.witness.begin(copying.copy)
        lab.witness.watch(slot, copying.lease(20), _HALF * _PARTITIONS, 15)
    lab.witness.assert_exactly(copying.copy, keys(_PARTITIONS, _HALF))


@pytest.mark.parametrize("code", [14, 15, 16, 47, 48, 49, 51, 53, 90, -1], ids=rule_id)
@pytest.mark.parametrize(("mishap", "skip"), [(Mishap.ERROR, 0), (Mishap.REFUSED, 1)])
def test_commit_fails(
    lab: Lab, topic_name: str, code: int, mishap: Mishap, skip: int
) -> None:
    """A commit that is said to have failed, rightly or not, loses and repeats
    nothing.
    """
    lab.check_recovers(
        topic_name, Rule(api="EndTxn", mishap=mishap, code=code, skip=skip)
    )


@pytest.mark.parametrize("code", [14, 15, 16, 47, 49, 51, 53, 90, -1], ids=rule_id)
@pytest.mark.parametrize("mishap", [Mishap.ERROR, Mishap.REFUSED])
def test_take_over_fails(lab: Lab, topic_name: str, code: int, mishap: Mishap) -> None:
    """A slot that cannot get its producer id tries again."""
    lab.check_recovers(
        topic_name, Rule(api="InitProducerId", mishap=mishap, code=code, skip=1)
    )


@pytest.mark.parametrize("code", [14, 15, 16, 53, -1], ids=rule_id)
def test_coordinator_not_found(lab: Lab, topic_name: str, code: int) -> None:
    """A slot that does not find its coordinator asks again."""
    lab.check_recovers(topic_name, Rule(api="FindCoordinator", code=code))


@pytest.mark.parametrize("code", [3, 5, 29], ids=rule_id)
@pytest.mark.parametrize("partition", [None, 0])
@pytest.mark.parametrize("topic", [DATA, COPY])
def test_metadata_errors(
    lab: Lab, topic_name: str, topic: str, partition: int | None, code: int
) -> None:
    """A topic or partition that metadata cannot show for a moment is copied later."""
    lab.check_recovers(
        topic_name, Rule(api="Metadata", code=code, topic=topic, partition=partition)
    )


@pytest.mark.parametrize(("code", "partition"), [(3, None), (29, None), (5, 0)])
@pytest.mark.parametrize("skip", range(4))
def test_metadata_errors_of_progress(
    lab: Lab, topic_name: str, skip: int, partition: int | None, code: int
) -> None:
    """Whenever in its take-over a slot does not see the progress topic, it tries
    again.
    """
    lab.check_recovers(
        topic_name,
        Rule(api="Metadata", code=code, topic=PROGRESS, partition=partition, skip=skip),
    )


@pytest.mark.parametrize("code", [1, 3, 6, 29, 74, -1], ids=rule_id)
@pytest.mark.parametrize("skip", [0, 2])
def test_fetch_errors(lab: Lab, topic_name: str, code: int, skip: int) -> None:
    """A source partition that cannot be read for a moment is copied later."""
    lab.check_recovers(
        topic_name, Rule(api="Fetch", code=code, topic=DATA, partition=0, skip=skip)
    )


@pytest.mark.parametrize("code", [29, -1, 6, 70], ids=rule_id)
def test_fetch_fails_as_a_whole(lab: Lab, topic_name: str, code: int) -> None:
    """A Fetch that fails as a whole is asked again."""
    lab.check_recovers(topic_name, Rule(api="Fetch", code=code))


@pytest.mark.parametrize("code", [29, -1], ids=rule_id)
def test_source_partition_refused(lab: Lab, topic_name: str, code: int) -> None:
    """A source partition that may not be read is set aside, alone and visibly."""
    lab.check_sets_aside(
        topic_name, Rule(api="Fetch", code=code, topic=DATA, partition=0)
    )


@pytest.mark.parametrize("code", [1, 3, 6, 29, 74, -1], ids=rule_id)
def test_progress_cannot_be_read(lab: Lab, topic_name: str, code: int) -> None:
    """A slot that cannot read its progress does not begin anew: it tries again."""
    lab.check_recovers(
        topic_name, Rule(api="Fetch", code=code, topic=PROGRESS, partition=0, times=2)
    )


@pytest.mark.parametrize("code", [3, 29, -1], ids=rule_id)
@pytest.mark.parametrize(("topic", "skip"), [(DATA, 0), (PROGRESS, 0), (PROGRESS, 1)])
def test_offsets_cannot_be_listed(
    lab: Lab, topic_name: str, topic: str, skip: int, code: int
) -> None:
    """Where a log begins or ends is asked again until it is known."""
    lab.check_recovers(
        topic_name,
        Rule(api="ListOffsets", code=code, topic=topic, partition=0, skip=skip),
    )


@pytest.mark.parametrize(
    "api",
    [
        "Produce",
        "EndTxn",
        "InitProducerId",
        "Fetch",
        "DescribeTransactions",
        "DescribeProducers",
    ],
)
@pytest.mark.parametrize(
    "mishap",
    [
        Mishap.LOST,
        Mishap.ANSWER_LOST,
        Mishap.NO_ANSWER,
        Mishap.LATE_REQUEST,
        Mishap.LATE_ANSWER,
    ],
)
def test_answers_lost_or_late(
    lab: Lab, topic_name: str, api: str, mishap: Mishap
) -> None:
    """Requests and answers that are lost, or come after the slot has given up and
    taken over anew, change nothing: a late commit commits nothing twice.
    """
    late = mishap in {Mishap.LATE_REQUEST, Mishap.LATE_ANSWER}
    lab.check_recovers(
        topic_name, Rule(api=api, mishap=mishap, seconds=_TIMEOUT + 1 if late else 0)
    )
