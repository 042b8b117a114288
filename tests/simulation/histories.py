"""One seed from its first event to the verdict.

Main function: `run`, which builds the clusters, lets writer, flow and faults go on for
a while, ends the faults, waits until the copy is complete, and has the judge look.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, replace
from random import Random
import sys
import traceback
from typing import TYPE_CHECKING
from unittest import mock

import structlog

from mirror.clusters.cluster import Cluster
from mirror.copying import target as writing
from mirror.errors import BrokerError, MirrorError
from mirror.offsets import index, runs
from mirror.offsets.index import IndexKeeper
from mirror.offsets.translation import OffsetMap
from tests.simulation import earlier_copies, mapping, switches
from tests.simulation.applications import Applications
from tests.simulation.faults import KINDS as OF_COPYING
from tests.simulation.faults import OF_FILLED, OF_SAME, Faults
from tests.simulation.flows import SOURCE, TARGET, SimulatedFlow
from tests.simulation.judge import Judge, WrongError
from tests.simulation.model import ModelCluster
from tests.simulation.network import Network, simulated
from tests.simulation.sources import Writer
from tests.simulation.world import Process, StuckError, World

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from typing import Any

_STEPS = 60
_HEALING_SECONDS = 180.0
COPYING, GROUPS, SAME, SWITCHES = "copying", "groups", "same", "switches"
KINDS = (COPYING, GROUPS, SAME, SWITCHES)
"""What histories are about: `groups` have applications beside what is copied, `same`
copies have the source's offsets, `switches` also have whole services, operators, and a
second cluster for applications.
"""
_AGES = (
    lambda _: 0.0,
    lambda _: 2 * 86_400.0,
    lambda random: random.choice((0.0, 172_800.0)),
)
"""How old records are when they are written: all fresh, all old, or either."""
_SYNCED = {
    "groups": ["g.*"],
    "sync_group_offsets": True,
    "sync_group_offsets_seconds": 1,
    "follow_commits": "off",
}
_BEGINS_LATE = 0.4
"""How often logs of the source begin at n, where offsets are to be the same."""
_MIXED = 0.3
"""How often one topic of two is translated all the same."""
_CHANGES = 0.4
"""How often a flow is set to translated in the middle."""
_COPIED = 0.5
"""How often copies are there before the flow, where no fault deletes what they have."""
_COME_AGAIN = {"lose copy", "delete copy"}
"""Faults after which records come again only while offsets are the same."""
_PROMPT = {
    "lose copy", "lose", "kill worker", "kill driver", "jump", "elect",
    "delete copy", "forget producers",
}  # fmt: skip
"""Faults that do not delay an answer."""
_WORTH_OVERLAPPING = writing.WORTH_OVERLAPPING
_FILLED = 3
"""Every n-th seed of `same` has holes in the source's logs, and `fill: visible`."""
_SMALL = 5
"""Every n-th seed of `same` has topics of small batches, so that a slot sends several
of one partition, one after the other."""
_WITH_AN_INDEX = 6
"""Every n-th seed has an index of the offset map."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came of a seed."""

    seed: int
    wrong: str = ""
    """Empty if all is as promised."""
    seconds: float = 0.0
    """Of virtual time."""
    records: int = 0
    history: list[tuple[float, str]] = field(default_factory=list, repr=False)


def run(seed: int, *, kind: str = COPYING, faults: bool = True) -> Verdict:
    """One history."""
    world = World(seed)
    network = Network(world)
    wrong = ""
    records = 0
    structlog.configure(processors=[lambda _, level, event: _log(world, level, event)])
    with (
        simulated(network),
        mock.patch.object(index, "_SECONDS", 0.0),
        mock.patch.object(index, "_LEAST_GROWTH", 1),
        mock.patch.object(index, "_GROWTH_OF_PARTITION", 0),
        # What is small here uses all connections, as what is large does.
        mock.patch.object(
            writing, "WORTH_OVERLAPPING", 1 if kind == SAME else _WORTH_OVERLAPPING
        ),
    ):
        try:
            if kind == SWITCHES:
                records = switches.history(network, seed, with_faults=faults)
            else:
                records = _history(seed, network, kind=kind, faults=faults)
        except (WrongError, StuckError) as error:
            wrong = str(error) or type(error).__name__
        except Exception:  # noqa: BLE001  a verdict as well
            wrong = traceback.format_exc()
    return Verdict(
        seed=seed, wrong=wrong, seconds=world.now, records=records,
        history=world.history,
    )  # fmt: skip


def judged(seed: int, *, kind: str = COPYING) -> Verdict:
    """As `run`, with the history only where something is wrong."""
    verdict = run(seed, kind=kind)
    # Each history leaves gaps, which some thousand make gigabytes.
    ctypes.CDLL(None).malloc_trim(0)
    return verdict if verdict.wrong else replace(verdict, history=[])


def _log(world: World, level: str, event: MutableMapping[str, Any]) -> Any:
    world.note(f"{world.process.name} {level}: {dict(event)}")
    if event.get("exc_info"):
        world.note(traceback.format_exc())
        world.fail(
            WrongError(f"an exception that no one expects: {sys.exc_info()[1]!r}")
        )
    raise structlog.DropEvent


def _history(seed: int, network: Network, *, kind: str, faults: bool) -> int:
    world = network.world
    random = world.random
    v2, by_id = random.random() < 0.6, random.random() < 0.7
    source = ModelCluster(
        network, "a", brokers=random.choice((1, 2, 3)), v2=False, by_id=by_id
    )
    target = ModelCluster(
        network, "b", brokers=random.choice((1, 2, 3)), v2=v2, by_id=True
    )
    names = ["t0", "t1"][: random.choice((1, 2))]
    small = kind == SAME and seed % _SMALL == 2
    limits = {"max.message.bytes": "400"} if small else {}
    for name in names:
        source.create(name, random.choice((1, 2, 3)), {**limits})
    writer = Writer(source, names)
    same, old = kind == SAME, False
    once = random.random() < 0.9 or kind in (GROUPS, SAME)
    late = once and random.random() < 0.2 and not same
    excluded: list[str] = []
    fills = same and seed % _FILLED == 1
    if same:
        old = _with_ages(writer)
        writer.with_transactions = fills
        excluded = names[1:] if random.random() < _MIXED else []
    flow = SimulatedFlow(
        source,
        target,
        most_slots=random.choice((1, 1, 2, 3)),
        lease_seconds=random.choice((0.5, 2.0, 8.0)),
        settings={
            "exactly_once": once,
            "start": "latest" if late else "earliest",
            **(_SYNCED if kind == GROUPS else {}),
            **({"offsets": "same", "offsets_exclude": excluded} if same else {}),
            **({"fill": "visible"} if fills else {}),
        },
    )
    judge = Judge(
        writer,
        target,
        prefix=f"{SOURCE}.",
        ledger=f"mirror-losses.{SOURCE}.internal",
        progress_topic=f"mirror-progress.{SOURCE}.internal",
        once=once,
        same=same,
    )
    trouble = Faults(
        network, (source, target), flow, writer, judge,
        kinds=OF_FILLED if fills else OF_SAME if same else OF_COPYING,
    )  # fmt: skip
    judge.translated.update(f"{SOURCE}.{name}" for name in excluded)
    judge.fills = fills
    judge.slow = bool(trouble.chosen - _PROMPT)
    judge.forgetful = old and {"forget producers", "late work"} <= trouble.chosen
    ModelCluster.serve = staticmethod(trouble.serve)
    trouble.on = faults
    target.committed, target.deleting = judge.look, judge.product_deletes
    copied = same and not fills and Random(f"copied {seed}").random() < _COPIED
    if copied and trouble.chosen.isdisjoint(_COME_AGAIN | {"lose"}):
        wanted = [name for name in names if name not in excluded]
        earlier_copies.make(writer, target, judge, wanted, seed)
    if late:
        for _ in range(20):
            writer.step()
        judge.begins_late()
    flow.begin()
    changes = same and trouble.chosen.isdisjoint(_COME_AGAIN)
    if changes and random.random() < _CHANGES and not copied:
        world.after(random.uniform(1, 6), lambda: _translate(flow, judge))
    applications = None
    if kind == GROUPS:
        applications = Applications(world, source, judge, f"{SOURCE}.", seed)
        flow.begin_jobs()
    if faults:
        trouble.begin()
    if not seed % _WITH_AN_INDEX:
        _keep_index(world, flow)

    def write() -> None:
        if world.now < _STEPS * 0.1:
            writer.step()
            if applications is not None:
                applications.step()
            world.after(random.expovariate(10), write)

    write()
    world.run(_STEPS * 0.1 + 1)
    trouble.end()
    writer.end_all()
    _await_and_judge(flow, judge, source, applications, v2=v2, once=once)
    return len(writer.records)


def _translate(flow: SimulatedFlow, judge: Judge) -> None:
    """Somebody sets the flow to offsets: translated, and starts it again."""
    flow.world.note("offsets are to be translated")
    judge.look()
    judge.translated.update(f"{SOURCE}.{name}" for name in judge.topics)
    flow.flow = flow.flow.model_copy(update={"offsets": "translated"})
    flow.world.kill(flow.driver)


def _with_ages(writer: Writer) -> bool:
    """The source's logs have records of some age, none in a transaction so far, and may
    begin at n. Returns whether leaders may forget who has written these records, as
    they are old.
    """
    random = writer.cluster.world.random
    age = random.choice(_AGES)
    writer.with_transactions = False
    writer.age = lambda: age(random)
    if random.random() < _BEGINS_LATE:
        for _ in range(30):
            writer.step()
        for topic in writer.cluster.topics.values():
            for each in topic.partitions:
                each.log.delete_before(random.choice((0, 1, 2, each.log.end)))
    return age is not _AGES[0]


def _await_and_judge(
    flow: SimulatedFlow,
    judge: Judge,
    source: ModelCluster,
    applications: Applications | None,
    *,
    v2: bool,
    once: bool,
) -> None:
    """Once all faults have ended, everything is copied, and as promised."""
    world, target = flow.world, judge.target
    same = flow.flow.offsets == SAME
    end = world.now + _HEALING_SECONDS
    names = judge.progress_topic, runs.topic_name(SOURCE, flow.flow.separator)

    def waits_for_a_person() -> bool:
        """Whether a transaction in a topic that all slots read needs one to end it."""
        kept = [each.log for name in names if (each := target.partition((name, 0)))]
        is_open = any(log.stable < log.end for log in kept)
        return is_open and not v2 and (judge.same or bool(flow.beyond_help))

    def excused() -> set[tuple[str, int]]:
        stuck = set() if v2 else flow.beyond_help
        # One that has diverged when offsets are to be translated waits for a person.
        waiting = set() if same is judge.same else flow.waiting
        return judge.lost_ends | flow.diverged | stuck | waiting

    while missing := judge.missing(excused()):
        if world.now > end:
            if waits_for_a_person():
                break
            raise WrongError(f"still not copied: {missing}")
        world.run(0.5)
    if applications is not None:
        _await_groups(world, applications, unless=waits_for_a_person)
    # What is on its way now must change nothing; notes of positions may come later.
    world.run(1.0 if same is judge.same else _HEALING_SECONDS / 4)
    while same and not judge.is_noted(flow.diverged | flow.waiting) and world.now < end:
        world.run(0.5)
    judge.look()
    if same:
        _check_same_offsets(world, judge, flow, until=end)
    if once:  # else positions may lag behind what is copied
        judge.check_ledger()
    began = target.partition((judge.progress_topic, 0)) is not None
    if (
        once
        and began
        and not (waits_for_a_person() or judge.lost_ends or judge.diverged)
    ):
        _check_map(world, flow, judge, source, unless=waits_for_a_person)


def _check_same_offsets(
    world: World, judge: Judge, flow: SimulatedFlow, *, until: float
) -> None:
    """Reports come with the end of a lease."""
    while True:
        try:
            judge.check_same_offsets(flow.diverged | (flow.waiting & judge.lost_ends))
        except WrongError:
            if world.now > until:
                raise
            world.run(0.5)
        else:
            return


def _await_groups(
    world: World, applications: Applications, *, unless: Callable[[], bool]
) -> None:
    end = world.now + _HEALING_SECONDS
    while (text := applications.behind()) and not unless():
        if world.now > end:
            raise WrongError(text)
        world.run(0.5)


def _keep_index(world: World, flow: SimulatedFlow) -> None:
    """Follow the map and keep its index, as a service does, while the writer writes."""

    def body() -> None:
        target = Cluster(flow.config.clusters[TARGET])
        known, keeper = OffsetMap.of(flow.flow, target), IndexKeeper(flow.flow)
        while world.now < _STEPS * 0.1:
            try:
                if not target.cluster_id:
                    target.connect()
                known.refresh(wait=False)
                if known.keep_index(keeper):
                    world.note("an index of the map is kept")
            except MirrorError as error:
                world.note(f"no index of the map: {error}")
            world.sleep(0.5)

    process = Process("index")
    world.start(process, body)


def _check_map(
    world: World,
    flow: SimulatedFlow,
    judge: Judge,
    source: ModelCluster,
    *,
    unless: Callable[[], bool],
) -> None:
    """Ask the map about every offset, as a command would; again, if a slot that died
    has left a transaction open that its successor has still to end. There must be an
    answer in time `unless` that is true by then.
    """
    process = Process("reader")
    done = []

    def body() -> None:
        target = Cluster(flow.config.clusters[TARGET]).connect()
        offset_map = OffsetMap.of(flow.flow, target)
        while not done:
            try:
                count = mapping.check(
                    offset_map, judge, source, f"{SOURCE}.", waiting=flow.waiting
                )
                done.append(count)
            except BrokerError as error:
                world.note(f"the map cannot be read: {error}")
                world.sleep(0.5)

    world.start(process, body)
    end = world.now + _HEALING_SECONDS
    while not done and world.now < end:
        world.run(0.5)
    if not done and not unless():
        raise WrongError("the offset map gives no answer")
