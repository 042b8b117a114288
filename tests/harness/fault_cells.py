"""One cell of the fault matrix: a flow under load, a fault, and what is seen of it.

`Cell` says what strikes which clusters, and what has to show. `Lab` is the flow that it
strikes. `trial` lets the fault last until status and alerts have told it, ends it,
measures until each partition has caught up, and holds the copy against what was sent,
with an ordinary consumer. Prometheus runs mirror's own rules, with their waits
shortened. `strikes` has the faults.
"""

from __future__ import annotations

from collections import Counter
import contextlib
from dataclasses import dataclass, field, replace
import re
import time
from typing import TYPE_CHECKING, Any, Literal, get_args

from mirror.pairs import losses
from tests.harness.admin import copied_records, delete_topic, topic_exists
from tests.harness.connections import connected
from tests.harness.waiting import deadline_in, wait_for
from tests.harness.witness import Witness, assert_exactly_once, compare, order_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.acceptance.test_alerts import Prometheus
    from tests.harness.load import NumberedLoad
    from tests.harness.security import Doors
    from tests.harness.service import RunningMirror
    from tests.harness.witness import Order

Shape = Literal["one way", "both ways", "merge", "chain", "same offsets"]
"""One flow; a second one copies what is written at the target back; flows from two more
sources write to the same copy; a second one copies it on; or one flow, whose copy has
the source's offsets. All but the first keep the topic's name.
"""
SHAPES: tuple[Shape, ...] = get_args(Shape)
SAME: Shape = "same offsets"

Alone = Literal["", "same", "pace", "own"]
"""Why a fault strikes one flow alone: each flow connects to its clusters and reads its
source in the same way; it changes only the pace at which brokers work; or it strikes
what belongs to one flow. Empty: it strikes every shape.
"""

PARTITIONS = 4
_SHOWN_SECONDS = 90.0
_RECOVERED_SECONDS = 120.0
_LEAST_SECONDS = 8.0
"""How long a fault lasts, whatever shows."""
_CALM_SECONDS = 30.0
"""How long one lasts that must not show: sessions and tokens end meanwhile."""


@dataclass(kw_only=True)
class Lab:
    """A flow under load."""

    source: PlaygroundCluster
    target: PlaygroundCluster
    alias: str
    """The source's."""
    topic: str
    load: NumberedLoad
    copy: str
    transactional_id: str
    """One of those that write the copy."""
    target_alias: str = "T"
    """Another one for each target of a cell's own."""
    mirror: RunningMirror | None = None
    """None: MirrorMaker 2 copies."""
    folder: Path | None = None
    """Where a service of the cell's own takes its clock or its hosts from."""
    doors: Doors | None = None
    """Certificates, passwords and tokens of a target that asks for them."""
    merged: tuple[NumberedLoad, ...] = ()
    """What others send to the topic, each at its cluster."""
    farther: tuple[str, ...] = ()
    """Clusters that have the topic's records, too, under the copy's name."""
    noted: dict[bytes, int] = field(default_factory=dict)
    """At which offset of the source each key of its load is."""
    gone: dict[str, set[bytes]] = field(default_factory=dict)
    """What a cluster itself lost of the topic after it was copied."""

    @property
    def loads(self) -> tuple[NumberedLoad, ...]:
        return (self.load, *self.merged)

    @property
    def flow(self) -> str:
        return f"{self.alias}->{self.target_alias}"

    def gone_from(self, bootstrap: str, shape: Shape) -> set[bytes]:
        """What a cluster of this shape need not have: what it lost itself. With the
        source's offsets that is copied again, as long as the source has it.
        """
        loser = self.source.admin_bootstrap if shape == SAME else bootstrap
        return self.gone.get(loser, set())

    @property
    def ends(self) -> tuple[str, ...]:
        """Where all records are to be."""
        return (self.target.admin_bootstrap, *self.farther)

    def wait_level(self) -> None:
        """Wait until they are; each cluster has lost nothing so far."""
        count = sum(load.total for load in self.loads)
        for bootstrap in self.ends:
            wait_for(lambda at=bootstrap: copied_records(at, self.copy) >= count)
            with Witness(bootstrap) as witness:
                witness.begin(self.copy)
                witness.wait(count, _RECOVERED_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A fault, and what a user sees of it."""

    fault: str
    """For the table."""
    strike: Callable[[Lab], AbstractContextManager[None]]
    """The fault lasts while its block runs."""
    reason: str = ""
    """Words of the reason that status gives. Empty: the fault need not show."""
    alert: str = ""
    """The alert that fires if the fault lasts as long as its rule waits; of several,
    one."""
    calm: bool = False
    """Whether no alert may fire."""
    source: Mapping[str, Any] | None = None
    """Options of a source of its own; None: the three brokers that cells share."""
    target: Mapping[str, Any] | None = None
    way: str = ""
    """How mirror reaches the target, which then has certificates, a password and tokens
    of the cell's own; see `Doors`.
    """
    disk: bool = False
    """Whether the third broker of the target has a small disk."""
    loses: bool = False
    """Whether the source itself loses records, of each partition: those are in the
    ledger."""
    idle: bool = False
    """Nothing is sent while the fault lasts."""
    shape: Shape = "one way"
    alone: Alone = ""
    same: Mapping[str, Any] = field(default_factory=dict)
    """What differs where the copy has the source's offsets."""
    stops: bool = False
    """Whether the copy stops as DIVERGED, until somebody deletes it."""
    false_clock: bool = False
    """Whether it is a service of its own, with a clock that can be set."""
    by_name: bool = False
    """Whether it is a service of its own, which reaches the target's only broker by a
    name."""
    pair: bool = False
    """Whether it is a service of its own, whose clusters are a pair."""
    quick: bool = False
    """Whether `make test` has it, too."""
    ours: bool = False
    """Whether it strikes what only mirror has: topics, a user, a client's name, a hosts
    file."""

    @property
    def id(self) -> str:
        said = f"{self.shape} {self.fault}".lower()
        return re.sub(r"[^a-z]+", "-", said).strip("-")

    def strikes(self, shape: Shape) -> bool:
        """Whether the fault is tried there. Where copies have the source's offsets they
        are written in another way, over connections that are made in the same one.
        """
        if shape == SAME:
            return not (self.way or self.by_name)
        return shape == SHAPES[0] or not self.alone

    def of(self, shape: Shape) -> Cell:
        """The same fault in another shape."""
        return replace(self, shape=shape, **(self.same if shape == SAME else {}))

    @property
    def strikes_any(self) -> bool:
        """Whether the same can happen to MirrorMaker 2."""
        return self.fault.startswith(("source:", "target:")) and not self.ours


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What happened, as the table has it."""

    state: str
    reason: str
    """What status said most often, with the words that it had to say."""
    alerts: list[str]
    seconds: float
    """From the end of the fault until each partition's copy had what was sent by then.
    """


_Seen = Counter[tuple[str, str]]
"""How often a state and its reason were seen."""


def trial(cell: Cell, lab: Lab, prometheus: Prometheus) -> Outcome:
    """Strike, look, mend, and wait until all is well; fails if a record is lost,
    doubled or out of order.
    """
    bootstrap = lab.target.admin_bootstrap
    seen: _Seen = Counter()
    alerts: set[str] = set()
    least_seconds = _CALM_SECONDS if cell.calm else _LEAST_SECONDS
    for load in lab.loads:
        load.send(200)
    lab.wait_level()
    wait_for(lambda: prometheus.ask("query?query=mirror_build_info")["result"])
    with contextlib.ExitStack() as sending:
        if not cell.idle:
            for load in lab.loads:
                sending.enter_context(load.streaming())
        with cell.strike(lab):
            deadline = deadline_in(_SHOWN_SECONDS)
            least = time.monotonic() + least_seconds
            while (
                not _look(cell, lab, prometheus, seen, alerts)
                or time.monotonic() < least
            ):
                assert time.monotonic() < deadline, (
                    f"{seen} {alerts}\n{lab.mirror.log_tail()}"
                )
                time.sleep(0.3)
        if cell.idle:
            lab.load.send(200)
        if cell.stops:
            delete_topic(bootstrap, lab.copy)
            wait_for(lambda: topic_exists(bootstrap, lab.copy))
        ended, sent = time.monotonic(), _sent(lab)
        if cell.loses:
            wait_for(lambda: _lost(lab).keys() == sent.keys())
        missed = _missed(lab) if cell.loses else set()
        with Witness(bootstrap) as witness:
            witness.begin(lab.copy)
            counts = without(missed | lab.gone_from(bootstrap, cell.shape), sent)
            witness.wait_each({p: len(keys) for p, keys in counts.items()})
        seconds = time.monotonic() - ended
        lab.mirror.wait_until(lambda _: _is_well(lab), _RECOVERED_SECONDS)
    for load in lab.loads:
        load.send(500)
    for each in lab.ends:
        expected = without(missed | lab.gone_from(each, cell.shape), _sent(lab))
        with Witness(each) as witness:
            witness.begin(lab.copy)
            witness.wait(sum(map(len, expected.values())), _RECOVERED_SECONDS)
        assert_exactly_once(_by_source(order_of(each, lab.copy)), expected)
    if cell.shape == SAME:
        ends = (lab.source.admin_bootstrap, lab.topic), (bootstrap, lab.copy)
        count = sum(map(len, expected.values()))
        assert compare(*ends) == (count, [])
    if cell.calm:
        fired = [each for each in prometheus.fired() if _is_ours(each, lab)]
        assert not fired, f"{fired}\n{lab.mirror.log_tail()}"
    state, reason = max(
        seen,
        key=lambda e: (cell.reason in e[1], e[0] != "", e[1] != "", seen[e]),
        default=("", ""),
    )
    return Outcome(
        state=state, reason=reason, alerts=sorted(alerts), seconds=round(seconds, 1)
    )


def _sent(lab: Lab) -> Order:
    """What all sources have sent to each partition, one source after the other."""
    orders = [load.order for load in lab.loads]
    return {p: [key for each in orders for key in each.get(p, ())] for p in orders[0]}


def without(gone: set[bytes], order: Order) -> Order:
    """What of it is not gone."""
    return {p: [key for key in keys if key not in gone] for p, keys in order.items()}


def _by_source(found: Order) -> Order:
    """The same records by the names of their sources, which are single letters before
    the numbers; each source's are in the order in which they were found.
    """
    return {
        p: sorted(keys, key=lambda key: key.rstrip(b"0123456789:"))
        for p, keys in found.items()
    }


def _look(
    cell: Cell, lab: Lab, prometheus: Prometheus, seen: _Seen, alerts: set[str]
) -> bool:
    """Note what status and alerts say now; whether the fault has shown by now."""
    for state, reason in _told(lab) if lab.mirror.runs else ():
        if reason or state != "RUNNING":
            seen[state, _plain(reason, lab)] += 1
    for found in prometheus.ask("alerts")["alerts"]:
        ours = _is_ours(found["labels"], lab) or not lab.mirror.runs
        if found["state"] == "firing" and ours:
            alerts.add(found["labels"]["alertname"])
    shown = any(cell.reason in reason for _, reason in seen) or not cell.reason
    return shown and (not cell.alert or not alerts.isdisjoint(cell.alert.split()))


def _is_ours(labels: Mapping[str, str], lab: Lab) -> bool:
    return not {lab.alias, lab.target_alias}.isdisjoint(labels.values())


def _told(lab: Lab) -> list[tuple[str, str]]:
    """States and reasons of the flow and its partitions; and, without a state, what is
    wrong with its jobs and the journals of its pair.
    """
    flow = lab.mirror.flow(lab.flow)
    told = [(each["state"], each["reason"]) for each in (flow, *flow["partitions"])]
    wrong = [
        f"job {job['name']}: {job['error']}" for job in flow["jobs"] if job["error"]
    ]
    for pair in lab.mirror.status()["pairs"]:
        wrong += [each["error"] for each in pair["members"] if each["error"]]
    return [*told, *(("", each) for each in wrong)]


def _lost(lab: Lab) -> dict[int, set[int]]:
    """The offsets of each partition that the flow's ledger names."""
    found: dict[int, set[int]] = {}
    with connected(lab.target.bootstrap) as cluster:
        for loss in losses.read(cluster, lab.alias):
            assert loss.topic == lab.topic
            assert loss.last is not None
            offsets = range(loss.first, loss.last + 1)
            found.setdefault(loss.partition, set()).update(offsets)
    return found


def _missed(lab: Lab) -> set[bytes]:
    """What was sent at those offsets."""
    lost = _lost(lab)
    return {
        key
        for p, keys in lab.load.order.items()
        for key in keys
        if lab.noted.get(key) in lost.get(p, ())
    }


def _plain(reason: str, lab: Lab) -> str:
    """Without what differs from run to run."""
    for name, word in (
        (str(lab.folder), "FOLDER"),
        (lab.topic, "TOPIC"),
        (lab.alias, "S"),
        (lab.target_alias, "T"),
    ):
        reason = reason.replace(name, word)
    reason = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME", reason)
    reason = re.sub(r"localhost:\d+", "PROVIDER", reason)
    return re.sub(r"127\.0\.0\.1:\d+", "BROKER", reason)


def _is_well(lab: Lab) -> bool:
    told = _told(lab)
    return told[0][0] == "RUNNING" and not any(reason for _, reason in told)
