"""Errors injected between one slot and real brokers, one case after the other.

`InjectedErrors` keeps a topic, its flow and a slot from case to case; a `SlotState`
says which of these has to be new. The invariant is always the same: whatever one
answer says, a read_committed consumer of the real target finds each key exactly once
and in order.
"""

from __future__ import annotations

import contextlib
from enum import Enum, auto
from typing import TYPE_CHECKING, Self
import uuid

from mirror.clusters import codes
from mirror.copying.slot import Slot
from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.mishaps import Mishap, Rule
from tests.harness.proxy import BrokerProxy
from tests.harness.slots import RunningLease, SparklessFlow, copy_until
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.copying.lease import PartitionReport

PARTITIONS = 2
EACH = 500
"""Records that a partition gets at a time."""
_ROUND = PARTITIONS * EACH
DATA, COPY, PROGRESS = "the topic", "its copy", "the progress"
"""Stand in rules for the names of the lab's own topics."""


class SlotState(Enum):
    """What kind of slot an error meets."""

    AT_WORK = auto()
    """A slot that has copied for some leases."""
    TAKING_OVER = auto()
    """A new slot, which takes over and goes on where others stopped."""
    FIRST_TAKE_OVER = auto()
    """A new slot of a topic that was never copied."""


class InjectedErrors:
    """A standing slot with a proxy in front of each cluster; a context manager."""

    def __init__(
        self,
        source: str,
        target: str,
        *,
        timeout: float = 10.0,
        newest: dict[str, int] | None = None,
    ) -> None:
        """`newest` makes both clusters look older, as in `BrokerProxy`."""
        self._real_source = source
        self._timeout = timeout
        self._alias = f"I{uuid.uuid4().hex[:6]}"
        self._producer = producer(source)
        self._sent = 0
        self._slot: Slot | None = None
        with contextlib.ExitStack() as stack:
            self._source = stack.enter_context(BrokerProxy(source, newest=newest))
            self._target = stack.enter_context(BrokerProxy(target, newest=newest))
            self.witness = stack.enter_context(Witness(target))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            self._end()

    @property
    def sent(self) -> int:
        """How many records each partition of the source holds."""
        return self._sent

    def send(self) -> None:
        order = keys(PARTITIONS, EACH, first=self._sent)
        send(self._producer, self.flow.topic, order, b"v" * 50)
        self._sent += EACH

    @contextlib.contextmanager
    def case(self, state: SlotState) -> Iterator[Slot]:
        """A case sends and copies in the block; at its end everything that it sent is
        on the target, exactly once. A case that fails leaves nothing to the next one.
        """
        slot = self._slot_for(state)
        self.witness.go_on()
        begun = self._sent
        try:
            yield slot
            self.witness.assert_found(keys(PARTITIONS, self._sent - begun, first=begun))
        except BaseException:
            slot.close()
            self._slot = None
            raise

    @contextlib.contextmanager
    def rules(self, rule: Rule) -> Iterator[None]:
        """The rule is in force while the block runs, at the source if it is about the
        source.
        """
        flow = self.flow
        names = {COPY: flow.copy, PROGRESS: flow.progress, DATA: flow.topic}
        at_source = rule.topic == DATA or (rule.api == "Fetch" and rule.topic is None)
        rule.topic = names.get(rule.topic or "", rule.topic)
        with (self._source if at_source else self._target).rules(rule):
            yield
        assert rule.hits, "the rule never struck"

    def check_recovers(self, rule: Rule, state: SlotState = SlotState.AT_WORK) -> None:
        """Everything is copied, exactly once, within one lease, although the rule
        struck.
        """
        with self.case(state) as slot:
            with self.rules(rule):
                self.send()
                reports = self.copy_and_more(slot, rule)

                def healed() -> bool:
                    nonlocal reports
                    reports = slot.run(self.flow.lease(2))
                    return all(report.state != "FAULTED" for report in reports)

                if any(report.state == "FAULTED" for report in reports):
                    # The rule struck when all was copied: the fault goes with a retry.
                    wait_for(healed)
            assert {report.state for report in reports} == {"RUNNING"}
            # A commit whose answer was lost is counted, too; none is counted twice.
            counted = sum(report.total.records for report in reports)
            assert counted == PARTITIONS * self.sent

    def copy_and_more(
        self, slot: Slot, rule: Rule | None = None
    ) -> list[PartitionReport]:
        """A lease copies what was sent, and then as much again, which is sent once a
        late request has reached the broker.
        """
        lease = RunningLease(slot, self.flow.lease(40))
        try:
            self.witness.wait(_ROUND, 25, lease)
            if rule is not None and rule.mishap is Mishap.LATE_REQUEST:
                wait_for(lambda: rule.served)
            self.send()
            self.witness.wait(2 * _ROUND, 25, lease)
        finally:
            reports = lease.end()
        return reports

    def check_sets_aside(
        self, rule: Rule, state: SlotState = SlotState.AT_WORK
    ) -> None:
        """While the rule is in force its partition is shown as faulted, with the
        reason, and the other is copied; afterwards it is copied as well.
        """
        rule.times = None
        with self.case(state) as slot:
            with self.rules(rule):
                self.send()
                guilty, other = copy_until(
                    self.witness, slot, self.flow.lease(300), count=EACH
                )
                assert not self.witness.found[0]
            assert (guilty.state, guilty.counts.records) == ("FAULTED", 0)
            assert codes.name_of(rule.code) in guilty.reason
            assert (other.state, other.position) == ("RUNNING", self.sent)
            guilty, _ = copy_until(
                self.witness, slot, self.flow.lease(300), count=_ROUND
            )
            assert (guilty.state, guilty.position) == ("RUNNING", self.sent)

    def _slot_for(self, state: SlotState) -> Slot:
        if self._slot is None or state is SlotState.FIRST_TAKE_OVER:
            self._end()
            self._slot = self._begin()
            if state is not SlotState.FIRST_TAKE_OVER:
                self._copy_first(self._slot)
        if state is SlotState.TAKING_OVER:
            self._slot.close()
            self._slot = Slot(self.flow.plan, 0)
        if state is SlotState.AT_WORK and not self._slot._owner:
            # An error struck at the very end of the last case: it has yet to recover.
            self._slot.run(self.flow.lease(0.5))
        return self._slot

    def _begin(self) -> Slot:
        topic = f"injected-{uuid.uuid4().hex[:8]}"
        create_topic(self._real_source, topic, PARTITIONS)
        self.flow = SparklessFlow(
            source=self._source.bootstrap,
            target=self._target.bootstrap,
            topic=topic,
            alias=self._alias,
            timeout=self._timeout,
        ).own()
        self._sent = 0
        self.witness.begin(self.flow.copy)
        return Slot(self.flow.plan, 0)

    def _copy_first(self, slot: Slot) -> None:
        self.send()
        copy_until(self.witness, slot, self.flow.lease(300), count=_ROUND)

    def _end(self) -> None:
        """All cases' records are still there, exactly once."""
        if self._slot is not None:
            self._slot.close()
            self._slot = None
            order = keys(PARTITIONS, self._sent)
            self.witness.assert_exactly(self.flow.copy, order)


def error_id(value: object) -> str:
    """The name of an error code, for parameters of tests."""
    return codes.name_of(value) if isinstance(value, int) else str(value)
