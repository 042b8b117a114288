"""Partitions that retention emptied before anything of them was copied, or while the
flow rested: a pair switches there and back all the same. DeleteRecords stands for
retention.
"""

from __future__ import annotations

from contextlib import contextmanager
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.errors import MirrorError
from mirror.offsets import progress
from mirror.pairs import losses
from mirror.pairs.journal import Kind
from mirror.proofs.account import Scope
from mirror.proofs.runners import InProcess
from mirror.proofs.verification import prove
from tests.harness.admin import (
    add_partitions,
    create_topic,
    delete_records,
    end_offsets,
)
from tests.harness.application import Application
from tests.harness.load import producer, send
from tests.harness.rehearsal import Rehearsal
from tests.harness.slots import RunningLease
from tests.harness.statuses import partition_status
from tests.harness.waiting import wait_for
from tests.harness.witness import count_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.copying.lease import PartitionReport
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_EMPTY = 2
"""The partition that retention empties; the application writes to those below it."""
_OLD = 10


class Emptied:
    """A pair of one topic with an application, before anything is copied."""

    def __init__(
        self, clusters: dict[str, PlaygroundCluster], topic: str, **settings: Any
    ) -> None:
        self.a, self.b = (clusters[name].bootstrap for name in "ab")
        tag = topic[-6:]
        self.one, self.other = (f"EA{tag}", self.a), (f"EB{tag}", self.b)
        self.topic, self.settings = topic, settings
        self.application = Application(topic, _EMPTY, f"app-{topic}")
        self.there = self.pair()

    def pair(self, *, home: bool = False) -> Rehearsal:
        ends = (self.other, self.one) if home else (self.one, self.other)
        return Rehearsal(*ends, self.topic, **self.settings)

    def read_from(self, there: tuple[str, str]) -> list[str]:
        """The topics in which the application reads on when it comes from there."""
        both = self.settings.get("policy") == "identity"
        return [self.topic, *([] if both else [f"{there[0]}.{self.topic}"])]

    def make(self, partitions: int = _EMPTY + 1) -> None:
        for bootstrap in (self.a, self.b):
            create_topic(bootstrap, self.topic, partitions)

    def empty(self, bootstrap: str, count: int = _OLD) -> None:
        """Everything that is there, with some records more."""
        fill(bootstrap, self.topic, count)
        end = end_offsets(bootstrap, self.topic)[_EMPTY]
        delete_records(bootstrap, self.topic, end, partitions=[_EMPTY])


def fill(bootstrap: str, topic: str, count: int) -> None:
    names = [b"old %d" % number for number in range(count)]
    send(producer(bootstrap), topic, {_EMPTY: names}, b"v")


def positions(pair: Rehearsal) -> dict[int, int]:
    flow = pair.stage().flow
    name = progress.topic_name(flow.source)
    known = progress.read(pair.cluster(flow.target), name).positions
    return {number: each.offset for (_, number), each in known.items()}


@contextmanager
def copying(pair: Rehearsal) -> Iterator[RunningLease]:
    """The flow copies as it does in a service, meanwhile."""
    flow = pair.copying().own()
    with flow.slot() as slot:
        running = RunningLease(slot, flow.lease(120))
        try:
            yield running
        finally:
            reports = running.end()
    assert {each.state for each in reports} == {"RUNNING"}
    # What status, lag and alerts are made of.
    assert {each.lag for each in reports} == {0}
    assert max(each.lag_seconds for each in reports) == 0


def first_start(pair: Emptied) -> None:
    pair.make()
    pair.empty(pair.a)


def begun(pair: Emptied) -> None:
    first_start(pair)
    pair.there.copying().own()


def later_partition(pair: Emptied) -> None:
    pair.make(_EMPTY)
    pair.there.copying().own()
    pair.application.write(pair.a, 4)
    pair.there.copy(pair.b, pair.read_from(pair.one)[-1], 4)
    for bootstrap in (pair.a, pair.b):
        add_partitions(bootstrap, pair.topic, _EMPTY + 1)
    pair.empty(pair.a)


def passed(pair: Emptied) -> None:
    """A part was copied before nothing was, and retention took the rest."""
    pair.make()
    fill(pair.a, pair.topic, 5)
    pair.there.copy(pair.b, pair.read_from(pair.one)[-1], 5)
    pair.empty(pair.a, 5)


def passed_at_zero(pair: Emptied) -> None:
    """It was empty when the flow began, and is again."""
    pair.make()
    pair.application.write(pair.a, 4)
    pair.there.copy(pair.b, pair.read_from(pair.one)[-1], 4)
    pair.empty(pair.a)


def case(
    name: str,
    before: Callable[[Emptied], None],
    kind: Kind = Kind.SWITCH,
    *,
    lost: int = 0,
    full: bool = True,
    **settings: Any,
) -> Any:
    marks = [pytest.mark.full] if full else []
    return pytest.param(before, kind, lost, settings, id=name, marks=marks)


@pytest.mark.parametrize(
    ("before", "kind", "lost", "settings"),
    [
        case("earliest", first_start, full=False),
        case("earliest, failover", first_start, Kind.FAILOVER, full=False),
        case("latest", begun, start="latest"),
        case("latest, failover", begun, Kind.FAILOVER, start="latest"),
        case("a moment", begun, start=1_700_000_000_000),
        case("a later partition", later_partition),
        case("a later partition, failover", later_partition, Kind.FAILOVER),
        case("later, latest", later_partition, start="latest"),
        case("passed a position", passed, lost=5),
        case("passed a position, failover", passed, Kind.FAILOVER, lost=5),
        case("emptied without a position", passed_at_zero),
        case("both write it", first_start, policy="identity"),
        case("both, failover", first_start, Kind.FAILOVER, policy="identity"),
    ],
)
def test_a_pair_changes_sides_and_comes_home(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    before: Callable[[Emptied], None],
    kind: Kind,
    lost: int,
    settings: dict[str, Any],
) -> None:
    """Retention has emptied a partition of each cluster before the flow out of it could
    copy that. Switches there and back, or a failover and the way home, need nobody's
    help, report no lag and lose nothing; the application reads each record once, and a
    proof finds nothing.
    """
    pair = Emptied(clusters, topic_name, **settings)
    a, b, application = pair.a, pair.b, pair.application
    with pair.there as there:
        before(pair)
        pair.empty(b)
        with copying(there):
            assert application.write(a, 10)
            if kind is Kind.SWITCH:  # no service notes positions for a failover
                application.consume(a, [topic_name], most=3)
                there.see()
                there.carry_out(step_seconds=20)
            else:
                all_copied(there, a)
        if kind is Kind.FAILOVER:
            there.see()
            there.carry_out(kind=kind, step_seconds=20)
            assert there.said["prove"].notes["records"] == 0
        found = losses.read(there.cluster(pair.other[0]), pair.one[0])
        assert sum(each.count or 0 for each in found) == lost
        proven(there)
        assert application.write(b, 10)
        application.consume(b, pair.read_from(pair.one), most=12)
    with pair.pair(home=True) as home:
        with copying(home):
            home.see()
            home.carry_out(step_seconds=20)
        proven(home)
        assert application.write(a, 10)
        application.consume(a, pair.read_from(pair.other))
    application.require_each_once()
    for topic in pair.read_from(pair.other):
        assert set(count_keys(a, topic)[0].values()) <= {1}


def test_what_is_gone_is_decided_before_a_switch(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Retention took records that were not copied, and `on_loss` is stop: no record is
    left to copy, yet a switch is refused at once, with the partition and the reason,
    until somebody has decided. Then it passes.
    """
    pair = Emptied(clusters, topic_name, on_loss="stop")
    with pair.there as there:
        passed(pair)
        flow = there.copying().own()
        found: list[PartitionReport] = []

        def faulted() -> bool:
            found[:] = [e for e in slot.run(flow.lease(1)) if e.partition == _EMPTY]
            return found[0].state == "FAULTED"

        with flow.slot() as slot:
            wait_for(faulted)
        shown = partition_status(
            topic_name, _EMPTY, state="FAULTED", reason=found[0].reason,
            since=time.time() - 60,
        )  # fmt: skip
        there.see(shown)
        with pytest.raises(MirrorError, match=rf"-{_EMPTY} is FAULTED.* deleted rec"):
            there.carry_out(step_seconds=20)
        assert not there.said

        path = tmp_path / "mirror.yaml"
        path.write_text(json.dumps(there.document))
        words = ("flow", "reset", flow.name, "--to", "earliest", "-c", str(path))
        run = CliRunner().invoke(app, [*words, "--yes"])
        assert run.exit_code == 0, run.output
        there.see(shown)  # as of before
        with copying(there):
            there.carry_out(step_seconds=20)


def all_copied(pair: Rehearsal, bootstrap: str) -> None:
    """The progress says so, of each partition that was ever written to."""
    ends = {n: end for n, end in end_offsets(bootstrap, pair.topic).items() if end}
    wait_for(lambda: positions(pair) == ends)


def proven(pair: Rehearsal) -> None:
    flow = pair.config.flows[pair.stage().flow.name]
    scope = Scope(pattern=pair.topic)
    found = prove(pair.config, flow, InProcess(), scope, show=lambda *_: None)
    assert found.findings == ()
