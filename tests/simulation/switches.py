"""Whole switches: real services, real commands, and applications that move.

Main function: `history`. A producer and a group use one cluster of a pair; operators
type `switch`, `failover`, `--abort` and the way back, at times two at once, and die at
any send; hooks move the applications, late or never; a cluster dies, for good or for a
while. Whatever happened: every record that the producer was told is written is handled
exactly once, on either cluster, but for what a failover says that it costs; and in the
end every run can be finished or undone, and all of it goes on.
"""

from __future__ import annotations

from collections import Counter
import contextlib
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import typer

from mirror.cli import switch as commands
from mirror.cli.output import Form
from mirror.config.schema import MirrorConfig
from mirror.errors import MirrorError
from mirror.recovery import roles
from mirror.recovery.journal import Kind
from mirror.switching import failover_report, hook_calls, hooks
from mirror.switching.hook_calls import HookAnswer, Said
from tests.simulation import administration, faults
from tests.simulation.faults import Faults
from tests.simulation.groups import Group
from tests.simulation.judge import WrongError
from tests.simulation.model import ModelCluster
from tests.simulation.pairs import journal_of
from tests.simulation.partition import committed
from tests.simulation.services import SimulatedService, without_spark
from tests.simulation.sources import Writer
from tests.simulation.world import NOON, Process, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.recovery.journal import Entry
    from mirror.switching.hook_calls import Call
    from tests.simulation.model import Topic
    from tests.simulation.network import Network
    from tests.simulation.services import Worker

PAIR = "A<->B"
PRINCIPAL = "User:application"
_GROUP = "g0"
_TOPIC = "t0"
_BEGIN_SECONDS = 6.0
_SECONDS = 30.0
"""Until then faults and commands come."""
_CALM_SECONDS = 60.0
"""How long it may take until all goes on, once nothing more goes wrong."""
_STEP_SECONDS = 20.0
_DEATHS = 0.4
"""In how many histories a cluster dies."""
_WATCH_SECONDS = 0.1
_PERSON_SECONDS = 3.0
"""How often somebody looks after the applications."""
_STRIKES = frozenset(
    {
        *(*faults.AT_REQUESTS, "suspend", "stop broker", "isolate", "elect", "jump"),
        *("move coordinator", "cut", "stale views", "slow markers"),
        *("kill worker", "kill worker at send", "kill driver"),
    }
)


class Producer(Writer):
    """Writes where it is told to, if brokers let it."""

    def __init__(self, clusters: dict[str, ModelCluster], at: str) -> None:
        super().__init__(clusters[at], [_TOPIC])
        self._clusters = clusters
        self.at = at
        self.writes = True

    def move(self, alias: str) -> None:
        if alias != self.at:
            self.end_all()
            self.at, self.cluster = alias, self._clusters[alias]
        self.writes = True

    def stop(self) -> None:
        self.end_all()
        self.writes = False

    def step(self) -> None:
        if self.writes and self.may_write(self.at):
            super().step()

    def may_write(self, alias: str) -> bool:
        """By the ACLs that any leader of its topic knows."""
        cluster = self._clusters[alias]
        topic = cluster.topics[_TOPIC]
        return any(
            administration.may_write(cluster.broker(each.leader), PRINCIPAL, _TOPIC)
            for each in topic.partitions
            if each.leader > 0
        )


class Consumer:
    """The member of a group: it handles what it reads, and commits that."""

    def __init__(self, clusters: dict[str, ModelCluster]) -> None:
        self._clusters = clusters
        self.at = ""
        """Where it runs; empty: nowhere."""
        self.handled: Counter[bytes] = Counter()
        self._places: dict[tuple[str, int], int] = {}

    def start(self, alias: str) -> None:
        if self.at == alias:
            return
        self.stop()
        self.at = alias
        group = self._clusters[alias].groups.setdefault(_GROUP, Group())
        group.members += 1
        self._places = {where: at for where, (at, _) in group.offsets.items()}

    def stop(self) -> None:
        if self.at:
            self._clusters[self.at].groups[_GROUP].members -= 1
        self.at = ""

    def step(self, world: World) -> None:
        if not self.at:
            return
        cluster = self._clusters[self.at]
        if cluster.coordinators.get(_GROUP, 1) < 0:
            return  # it could not commit
        for name, topic in cluster.topics.items():
            if name.rpartition(".")[2] != _TOPIC:
                continue
            for number, partition in enumerate(topic.partitions):
                self._read(world, cluster, (name, number), partition)

    def _read(
        self, world: World, cluster: ModelCluster, where: tuple[str, int], there: Any
    ) -> None:
        log = there.log
        at = self._places.get(where, 0)
        if there.leader < 0 or log.stable <= at:
            return
        keys = [key for offset, key, _ in committed(log, 0) if key and offset >= at]
        self.handled.update(keys)
        if keys:
            first, last = keys[0].decode(), keys[-1].decode()
            world.note(f"{first} to {last} handled: {cluster.name} {where}@{at}")
        self._places[where] = log.stable
        cluster.groups[_GROUP].offsets[where] = (log.stable, "")


class _Hit:
    """What strikes hit, in place of a flow."""

    progress_topic = "mirror-progress.A.internal"

    def __init__(self, service: SimulatedService) -> None:
        self._service = service
        self.others: list[Process] = []

    @property
    def everyone(self) -> list[Process]:
        return [*self._service.everyone, *self.others]

    @property
    def workers(self) -> list[Worker]:
        return self._service.workers

    @property
    def driver(self) -> Process:
        return self._service.process


class _Switches:
    """One history."""

    def __init__(self, world: World, clusters: dict[str, ModelCluster]) -> None:
        self.world = world
        self.clusters = clusters
        random = world.random
        acl = random.random() < 0.6
        named = {each: {"command": ["true"]} for each in hooks._STEPS}
        self.document = {
            "service": {"group": None},
            "clusters": {
                alias: {
                    "bootstrap_servers": cluster.bootstrap,
                    "request_timeout_seconds": 3,
                }
                for alias, cluster in clusters.items()
            },
            "defaults": {
                "tasks": random.choice((1, 2)),
                "lease_seconds": random.choice((0.5, 2)),
                "topics": ["t.*"],
                "groups": ["g.*"],
                "sync_group_offsets": True,
                "sync_group_offsets_seconds": 5,
                "refresh_topics_seconds": 5,
                "emit_heartbeats": False,
            },
            "flows": {"A->B": {}, "B->A": {}},
            "recovery": {
                PAIR: {
                    "active": "A",
                    "fence": "acl" if acl else "hook",
                    "hooks": named,
                    "block_seconds": 30,
                    "drill_every_seconds": 0,
                }
            },
        }
        for alias, cluster in clusters.items():
            cluster.create(_TOPIC, 2, {})
            if acl:
                cluster.acls = set(_GRANTED) if alias == "A" else set()
                cluster.spread()
        self.config = MirrorConfig.model_validate(self.document)
        self.pair = self.config.recovery[PAIR]
        self.service = SimulatedService(world, "service", self.document)
        self.hit = _Hit(self.service)
        self.producer = Producer(clusters, "A")
        self.consumer = Consumer(clusters)
        self.working: list[Process] = []
        """Of operators."""
        self.lost: set[str] = set()
        """Hooks that never do what they are called for."""
        self.died: set[str] = set()
        """Clusters that died, for a while or for good."""
        self.for_good = False

    # ---- what happens by itself ----

    def begin(self) -> None:
        self.service.begin()
        self.consumer.start("A")
        self._write()
        self._consume()
        self._look_after()
        if self.pair.fence == "acl":
            self.world.after(1.0, self._watch)  # brokers know their ACLs by then

    def _write(self) -> None:
        self.producer.step()
        self.world.after(self.world.random.expovariate(4), self._write)

    def _consume(self) -> None:
        self.consumer.step(self.world)
        self.world.after(self.world.random.expovariate(4), self._consume)

    def _watch(self) -> None:
        """Without a failover, producers may never write to both clusters."""
        if self.died:
            return
        if all(self.producer.may_write(alias) for alias in self.clusters):
            raise WrongError("the producer may write to both clusters")
        self.world.after(_WATCH_SECONDS, self._watch)

    def _look_after(self) -> None:
        """Once no run is open, applications belong to the active cluster."""
        entries = self.entries()
        if not any(each.alive for each in self.working) and (
            roles.open_run(entries) is None
        ):
            active = roles.role(entries, self.pair).active
            self.producer.move(active)
            self.consumer.start(active)
        self.world.after(_PERSON_SECONDS, self._look_after)

    def call(self, _command: object, asked: Call, *, seconds: float) -> HookAnswer:
        """In place of `hook_calls.run`: somebody does it, at once, late, or never."""
        world = self.world
        self.newest_run = asked.run
        dice = world.random.random()
        if dice < 0.1 and self.trouble:
            self.lost.add(asked.hook)
        if dice > 0.7:  # somebody mends them
            self.lost.clear()
        if self.trouble and world.random.random() < 0.15:
            world.note(f"{self.service.name} is killed as {asked.hook} is called")
            world.kill(self.service.process)
        if asked.hook in self.lost and self.trouble:
            world.note(f"hook {asked.hook}: nothing is done")
            return HookAnswer(said=world.random.choice((Said.FAILED, Said.DONE)))
        if dice < 0.2 and self.trouble:
            world.sleep(min(seconds, world.random.choice((0.5, 5.0, 30.0))))
            return HookAnswer(said=Said.LATER)
        world.sleep(world.random.choice((0.0, 0.3, 2.0)))
        if asked.run != self.newest_run:
            world.note(f"hook {asked.hook}: another run has called meanwhile")
            return HookAnswer(said=Said.DONE)
        if asked.hook == hooks.STOP_PRODUCERS:
            self.producer.stop()
        elif asked.hook == hooks.STOP_CONSUMERS:
            self.consumer.stop()
        elif asked.hook == hooks.REDIRECT_PRODUCERS:
            self.producer.move(asked.target)
        else:
            self.consumer.start(asked.target)
        world.note(f"hook {asked.hook} for {asked.target}: done")
        return HookAnswer(said=Said.DONE)

    trouble = True
    newest_run = ""
    """Of which a hook was called last: who gets a call late drops it then."""

    # ---- what people type ----

    def command(
        self,
        source: str,
        target: str,
        *,
        abort: bool,
        kind: Kind = Kind.SWITCH,
        force: bool = False,
    ) -> Process:
        """Type it."""
        process = Process(f"operator {len(self.hit.others)}")
        self.hit.others.append(process)
        self.working.append(process)
        options = f"{' --abort' if abort else ''}{' --force' if force else ''}"
        text = f"{kind.lower()} {source}->{target}{options}"
        asked = commands._Asked(
            kind=kind, flow=f"{source}->{target}", config=None, abort=abort,
            force=force, dry_run=False, yes=True, output=Form.TABLE,
            step_timeout=_STEP_SECONDS,
        )  # fmt: skip

        def body() -> None:
            self.world.note(f"{process.name}: {text}")
            try:
                commands._run(asked)
                self.world.note(f"{process.name}: done")
            except (MirrorError, typer.Exit, typer.Abort) as error:
                self.world.note(f"{process.name} failed: {error}")
            self.world.kill(process)

        self.world.start(process, body, process.name)
        return process

    def type_something(self) -> None:
        random = self.world.random
        entries = self.entries()
        run = roles.open_run(entries)
        if run is not None and random.random() < 0.6:
            self.settle(run)
            return
        active = roles.role(entries, self.pair).active
        other = "AB".replace(active, "")
        if self.clusters[active].gone and random.random() < 0.8:
            process = self.command(active, other, abort=False, kind=Kind.FAILOVER)
        else:
            source, target = (
                (active, other) if random.random() < 0.85 else (other, active)
            )
            process = self.command(source, target, abort=random.random() < 0.15)
        if self.trouble and random.random() < 0.35:
            process.kill_at_send = random.randrange(600)

    def settle(self, run: roles.Run) -> None:
        """Finish an open run, or undo it where that is possible."""
        first = run.first
        ends = first.source, first.target
        if self.clusters[first.target].gone and run.moved:
            self.command(*reversed(ends), abort=False, kind=Kind.FAILOVER)
        elif self.clusters[first.target].gone:
            self.command(*ends, abort=True, kind=first.kind, force=self.for_good)
        elif self.clusters[first.source].gone and first.kind is Kind.SWITCH:
            self.command(*ends, abort=False, kind=Kind.FAILOVER)
        else:
            undoes = not run.moved and self.world.random.random() < 0.5
            unasked = first.kind is Kind.FAILOVER and not undoes
            self.command(*ends, abort=undoes, kind=first.kind, force=unasked)

    def lose_a_cluster(self) -> None:
        """The active cluster, mostly; for good, half of the time."""
        world = self.world
        active = roles.role(self.entries(), self.pair).active
        alias = active if world.random.random() < 0.8 else "AB".replace(active, "")
        world.note(f"cluster {alias} dies")
        self.died.add(alias)
        self.clusters[alias].lose()
        self.for_good = world.random.random() < 0.5

        def back() -> None:
            world.note(f"cluster {alias} is back")
            self.clusters[alias].come_back()

        if not self.for_good:
            world.after(world.random.choice((5.0, 20.0, 40.0)), back)

    # ---- what is judged ----

    def entries(self) -> tuple[Entry, ...]:
        """What both journals have, as any consumer would read them."""
        journals = map(journal_of, self.clusters.values())
        return roles.merged(*journals, pair=PAIR)

    def check_now(self) -> None:
        """
        Raises:
            WrongError: records were handled twice that no failover has announced.
        """
        twice = [key for key, count in self.consumer.handled.items() if count > 1]
        again = sum(self.consumer.handled[key] - 1 for key in twice)
        announced, unknown = self._announced()
        if again > announced and not unknown:
            raise WrongError(
                f"{again} handled again, {announced} announced: {sorted(twice)[:3]}"
            )

    def _announced(self) -> tuple[int, int]:
        """How many records groups may read again, as failovers say, and in how many
        partitions they do not know it.
        """
        rows = [
            row
            for each in self.entries()
            if each.kind is Kind.FAILOVER and each.step == "positions"
            for row in each.details.get(failover_report.STANDING, ())
        ]
        return sum(row[2] for row in rows), sum(row[3] for row in rows)

    def unhandled(self) -> list[bytes]:
        """What was written, and not handled, and is on a cluster that answers: what a
        failover loses is on none.
        """
        left = {
            name
            for name, record in self.producer.records.items()
            if record.committed and not self.consumer.handled[name]
        }
        if left and self.failed_over:
            active = self.clusters[roles.role(self.entries(), self.pair).active]
            left &= {
                key
                for name, topic in active.topics.items()
                if name.rpartition(".")[2] == _TOPIC
                for key in _keys(topic)
            }
        return sorted(left)

    def uncopied(self) -> list[bytes]:
        """What was written to the active cluster, and has no copy on the other one."""
        active = roles.role(self.entries(), self.pair).active
        passive = self.clusters["AB".replace(active, "")]
        if passive.gone:
            return []
        copy = passive.topics.get(f"{active}.{_TOPIC}")
        return sorted(
            _keys(self.clusters[active].topics[_TOPIC])
            - (_keys(copy) if copy else set())
        )

    @property
    def failed_over(self) -> bool:
        return any(each.kind is Kind.FAILOVER for each in self.entries())

    def writable(self) -> str:
        """What is wrong with who may write, once no run is open; empty: nothing."""
        active = roles.role(self.entries(), self.pair).active
        passive = "AB".replace(active, "")
        if not self.producer.may_write(active):
            return f"{active} is active, and the producer may not write to it"
        if self.pair.fence != "acl" or self.clusters[passive].gone:
            return ""
        if self.producer.may_write(passive):
            return f"{active} is active, and it may write to {passive} as well"
        return ""

    def tell_journal(self) -> None:
        """Into the history."""
        for each in self.entries():
            way = f"{each.kind} {each.source}->{each.target} {each.epoch}"
            said = f"{each.run[:8]} {each.number} {each.step} {each.state}"
            self.world.note(f"journal: {way} {said} {each.at - NOON:.3f}")

    def open(self) -> str:
        """What is still to be done by somebody who can; empty: nothing."""
        entries = self.entries()
        if (run := roles.open_run(entries)) is not None:
            return run.text
        active = roles.role(entries, self.pair).active
        if self.clusters[active].gone:
            return f"{active} is active, and gone"
        return "; ".join(
            run.text
            for run in roles.pending(entries, self.pair)
            if not self.clusters[run.first.source].gone
        )


def _keys(topic: Topic) -> set[bytes]:
    """Of all records that consumers see."""
    return {
        key
        for each in topic.partitions
        for _, key, _ in committed(each.log, 0)
        if key is not None
    }


_GRANTED: set[administration.Acl] = {
    (
        administration.TOPIC, _TOPIC, administration.LITERAL, PRINCIPAL, "*",
        administration.WRITE, administration.ALLOW,
    )
}  # fmt: skip


def history(net: Network, *, with_faults: bool) -> int:
    """One history; returns how many records were written.

    Raises:
        WrongError: it is not as promised.
    """
    world = net.world
    random = world.random
    clusters = {
        alias: ModelCluster(
            net, alias.lower(), brokers=random.choice((1, 2, 3)), v2=True, by_id=True
        )
        for alias in "AB"
    }  # fmt: skip
    switches = _Switches(world, clusters)
    hit: Any = switches.hit
    trouble = Faults(
        net, (*clusters.values(),), hit, switches.producer, hit, kinds=_STRIKES,
        counts=(0, 1, 1, 2, 3), rates=(0.05, 0.2, 0.5),
    )  # fmt: skip
    ModelCluster.serve = staticmethod(trouble.serve)
    trouble.on = switches.trouble = False
    with without_spark([switches.service]), _commands_of(switches):
        switches.begin()
        world.run(_BEGIN_SECONDS)
        trouble.on = switches.trouble = with_faults
        if with_faults:
            trouble.begin()

        def someone() -> None:
            if world.now < _SECONDS:
                switches.type_something()
                world.after(random.expovariate(1 / 6), someone)

        someone()
        if with_faults and random.random() < _DEATHS:
            world.after(random.uniform(1, 20), switches.lose_a_cluster)
        while world.now < _SECONDS:
            world.run(2)
            switches.check_now()
        trouble.end()
        switches.trouble = False
        began = world.now
        _settle(switches)
        world.note(f"all runs are through after {world.now - began:.1f} s")
        end = world.now + _CALM_SECONDS
        while wrong := switches.writable():
            if world.now > end:
                switches.tell_journal()
                raise WrongError(wrong)
            world.run(1)
        world.note(f"producers are right after {world.now - began:.1f} s")
        switches.producer.stop()
        for what, looks in (
            ("handled", switches.unhandled), ("copied", switches.uncopied),
        ):  # fmt: skip
            while left := looks():
                if world.now > end:
                    raise WrongError(f"never {what}: {left[:3]} of {len(left)}")
                world.run(1)
                switches.check_now()
        world.note(f"all is handled after {world.now - began:.1f} s")
    return len(switches.producer.records)


def _settle(switches: _Switches) -> None:
    """Whatever is open is finished or undone, by people who try again."""
    world = switches.world
    end = world.now + _CALM_SECONDS
    while left := switches.open():
        if world.now > end:
            switches.tell_journal()
            raise WrongError(f"a run can neither be finished nor undone: {left}")
        if not any(each.alive for each in switches.working):
            entries = switches.entries()
            run = roles.open_run(entries)
            pending = [*roles.pending(entries, switches.pair)]
            if run is not None or pending:
                switches.settle(run or pending[-1])
            else:
                switches.type_something()
        world.run(2)
        switches.check_now()
    while any(each.alive for each in switches.working):
        world.run(1)
    world.run(2 * _PERSON_SECONDS)


@contextlib.contextmanager
def _commands_of(switches: _Switches) -> Iterator[None]:
    """Commands read their configuration from the history, and print there."""
    said = _Said(switches.world)
    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (commands, "read_config", lambda _: switches.config),
            (commands, "quicken", lambda: None),
            (hook_calls, "run", switches.call),
            (sys, "stdout", said),
            (sys, "stderr", said),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        yield


class _Said:
    """What a command prints."""

    def __init__(self, world: World) -> None:
        self._world = world

    def write(self, text: str) -> int:
        if text.strip():
            self._world.note(f"{self._world.process.name}| {text.strip()}")
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False
