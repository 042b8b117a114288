"""Operators and services of one pair: which cluster is active, whatever happens.

Main function: `history`. Two services follow the journals with the real code, and real
operators switch, fail over and abort, at times two at once, and are killed at any send.
The steps themselves are stood for by flags that say whether applications may write to a
cluster. Whatever happened, there is one role of each epoch, applications never write to
both clusters without a failover, and in the end every run can be finished or undone.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING, Any

from mirror.clusters.cluster import Cluster
from mirror.config.schema import MirrorConfig
from mirror.driver.pairs import PairFollower
from mirror.errors import MirrorError, UnreachableError
from mirror.recovery import journal, roles
from mirror.recovery.journal import Kind
from mirror.status.store import StatusStore
from mirror.switching import procedure
from mirror.switching.runner import Operator, Terms
from mirror.switching.stage import Done, Stage, Step, both_flows
from tests.simulation import faults
from tests.simulation.faults import Faults
from tests.simulation.judge import WrongError
from tests.simulation.model import ModelCluster
from tests.simulation.partition import committed
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.recovery.journal import Entry
    from mirror.recovery.roles import Run
    from tests.simulation.network import Network

_PAIR = "A<->B"
_SECONDS = 60.0
"""How long faults and commands come."""
_CALM_SECONDS = 60.0
_STEP_SECONDS = 20.0
_ATTEMPTS = 10
_STRIKES = frozenset(
    {
        *(*faults.AT_REQUESTS, "suspend", "stop broker", "isolate", "elect", "jump"),
        *("move coordinator", "cut", "stale views", "slow markers", "skip markers"),
    }
)


@dataclass(eq=False)
class _Everyone:
    """What strikes hit, in place of a flow's processes."""

    everyone: list[Process] = field(default_factory=list)
    workers: tuple[Any, ...] = ()
    progress_topic: str = journal.TOPIC


class _Pair:
    """The pair of one history, and whether applications may write."""

    def __init__(self, world: World, clusters: dict[str, ModelCluster]) -> None:
        self.world = world
        self.clusters = clusters
        self.config = MirrorConfig.model_validate(
            {
                "clusters": {
                    alias: {
                        "bootstrap_servers": cluster.bootstrap,
                        "request_timeout_seconds": 3,
                    }
                    for alias, cluster in clusters.items()
                },
                "flows": {name: {"topics": ["t.*"]} for name in ("A->B", "B->A")},
                "recovery": {_PAIR: {"active": "A", "fence": "confirmed"}},
            }
        )
        self.pair = self.config.recovery[_PAIR]
        self.may_write = {"A": True, "B": False}
        self.failed_over = False
        self.followers: list[PairFollower] = []
        self.hit = _Everyone()

    # ---- what runs ----

    def begin_service(self, number: int) -> None:
        process = Process(f"service {number}")
        self.hit.everyone.append(process)

        def body() -> None:
            follower = PairFollower(self.config, StatusStore(("A->B", "B->A")))
            self.followers.append(follower)
            follower.start()

        self.world.start(process, body)

    def command(self, number: int) -> Process:
        """Somebody types something."""
        random = self.world.random
        source, target = random.choice((("A", "B"), ("B", "A")))
        kind = random.choices((Kind.SWITCH, Kind.FAILOVER), (4, 1))[0]
        abort = random.random() < 0.3
        process = Process(f"operator {number}")
        self.hit.everyone.append(process)
        if random.random() < 0.4:
            process.kill_at_send = random.randrange(250)
        text = f"{kind} {source}->{target}{' --abort' if abort else ''}"

        def body() -> None:
            self.world.note(f"{process.name}: {text}")
            try:
                self._operate(kind, source, target, abort=abort)
                self.world.note(f"{process.name}: {text} is done")
            except MirrorError as error:
                self.world.note(f"{process.name}: {text} failed: {error}")

        self.world.start(process, body)
        return process

    def settle(self, run: Run, number: int) -> Process:
        """Somebody finishes an open run, or undoes it where that is possible."""
        process = Process(f"helper {number}")
        first = run.first
        undoes = not run.moved and self.world.random.random() < 0.5

        def body() -> None:
            try:
                self._operate(first.kind, first.source, first.target, abort=undoes)
            except MirrorError as error:
                self.world.note(f"{process.name}: {error}")

        self.world.start(process, body)
        return process

    def _operate(self, kind: Kind, source: str, target: str, *, abort: bool) -> None:
        found: dict[str, Cluster] = {}
        for alias in (source, target):
            if alias == source and kind is Kind.FAILOVER and not abort:
                continue  # --force: it is not asked
            made = Cluster(self.config.clusters[alias])
            with contextlib.suppress(UnreachableError):
                found[alias] = made.connect()
        if target not in found and not abort:
            raise UnreachableError(f"cluster {target} does not answer")
        if kind is Kind.SWITCH and source not in found:
            raise UnreachableError(f"cluster {source} does not answer")
        ends = (source, found.get(source)), (target, found.get(target))
        operator = Operator(self.pair, kind, *ends)
        flow, reverse = both_flows(self.config, self.pair, source, target)
        stage = Stage(
            kind=kind, config=self.config, pair=self.pair, flow=flow, reverse=reverse,
            source_or_none=found.get(source), target_or_none=found.get(target),
            notes={}, note=lambda _: None, tell=lambda _: None,
            deadline=time.monotonic() + _STEP_SECONDS,
        )  # fmt: skip
        terms = Terms(
            step_seconds=_STEP_SECONDS, tell=lambda *_: None, did=lambda *_: None
        )
        steps = {name: Step(do=self._step(name), undo=self._undo(name)) for name in
                 roles.STEPS}  # fmt: skip
        if abort:
            operator.abort(steps, stage, terms)
        elif operator.due:
            operator.carry_out(steps, stage, terms)

    def _step(self, name: str) -> Callable[[Stage], Done]:
        def do(stage: Stage) -> Done:
            self.world.sleep(self.world.random.choice((0.001, 0.1, 2.0)))
            stage.hold()
            if name == "fence":
                if stage.source_or_none is None:
                    self.failed_over = True
                else:
                    self.allow(stage.flow.source, allowed=False)
            elif name == roles.ROLE:
                self.allow(stage.flow.target, allowed=True)
            return Done(text=name)

        return do

    def _undo(self, name: str) -> Callable[[Stage], str]:
        def undo(stage: Stage) -> str:
            if name == "fence":
                self.allow(stage.source.alias, allowed=True)
            elif name == roles.ROLE:
                self.allow(stage.flow.target, allowed=False)
            return name

        return undo

    # ---- what is judged ----

    def allow(self, alias: str, *, allowed: bool) -> None:
        self.may_write[alias] = allowed
        self.world.note(f"{self.world.process.name}: writes to {alias}: {allowed}")
        if all(self.may_write.values()) and not self.failed_over:
            raise WrongError("applications may write to both clusters")

    def entries(self) -> tuple[Entry, ...]:
        """What both journals have, as any consumer would read them."""
        journals = [journal_of(each) for each in self.clusters.values()]
        return roles.merged(*journals, pair=_PAIR)

    def check_roles(self) -> None:
        """
        Raises:
            WrongError: two clusters have a role of one epoch.
        """
        made: dict[int, str] = {}
        for each in self.entries():
            if (each.step, str(each.state)) == (roles.ROLE, "DONE"):
                other = made.setdefault(each.epoch, each.target)
                if other != each.target:
                    raise WrongError(
                        f"{other} and {each.target} are active with epoch {each.epoch}"
                    )

    def check_end(self) -> None:
        """
        Raises:
            WrongError: a run is open, applications may not write where they should, or
                a service says something else than the journals.
        """
        entries = self.entries()
        if (run := roles.open_run(entries)) is not None:
            raise WrongError(f"a run can neither be finished nor undone: {run.text}")
        active = roles.role(entries, self.pair).active
        wanted = {alias: alias == active for alias in self.may_write}
        if not self.failed_over and self.may_write != wanted:
            raise WrongError(f"{active} is active, writes: {self.may_write}")
        for follower in self.followers:
            if follower.role(self.pair).active != active:
                raise WrongError(
                    f"{active} is active, a service says {follower.role(self.pair)}"
                )


def journal_of(cluster: ModelCluster) -> list[Entry]:
    """What a cluster's journal has, as any consumer would read it; nothing if the
    cluster is gone.
    """
    there = None if cluster.gone else cluster.topics.get(journal.TOPIC)
    if there is None:
        return []
    return [
        journal.decode(key, value)
        for _, key, value in committed(there.partitions[0].log, 0)
        if key is not None and value is not None
    ]


def history(net: Network, *, with_faults: bool) -> int:
    """One history; returns how many commands were typed.

    Raises:
        WrongError: it is not as promised.
    """
    world = net.world
    random = world.random
    clusters = {
        alias: ModelCluster(
            net, alias.lower(), brokers=random.choice((1, 2, 3)),
            v2=random.random() < 0.6, by_id=True,
        )
        for alias in "AB"
    }  # fmt: skip
    pair = _Pair(world, clusters)
    hit: Any = pair.hit
    trouble = Faults(net, (*clusters.values(),), hit, hit, hit, kinds=_STRIKES)
    ModelCluster.serve = staticmethod(trouble.serve)
    trouble.on = False
    for number in range(2):
        pair.begin_service(number)
    world.run(5)
    trouble.on = with_faults
    if with_faults:
        trouble.begin()
    typed: list[Process] = []

    def someone() -> None:
        if world.now < _SECONDS:
            typed.append(pair.command(len(typed)))
            pair.check_roles()
            world.after(random.expovariate(0.25), someone)

    someone()
    world.run(_SECONDS)
    trouble.end()
    world.run(_CALM_SECONDS)
    _settle(pair)
    pair.check_roles()
    world.run(5)
    pair.check_end()
    return len(typed)


def _settle(pair: _Pair) -> None:
    """Whatever is open is finished or undone, by people who try again."""
    for number in range(_ATTEMPTS):
        entries = pair.entries()
        run = roles.open_run(entries)
        if run is None:
            left = [*roles.pending(entries, pair.pair)]
            if not left:
                return
            run = left[-1]
        elif procedure.overruled(run, roles.role(entries, pair.pair)):
            pair.world.note(f"{run.text} is overruled")
        pair.settle(run, number)
        pair.world.run(2 * _STEP_SECONDS)
