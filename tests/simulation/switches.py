"""Whole switches: real services, real commands, and applications that move.

Main function: `history`. A producer and a group use one cluster of a pair; one service
runs both flows, or two instances of it, or one beside each cluster. Operators type
`switch`, `failover`, `failback`, `tail`, `--abort` and the way back, at times two at
once, and die at any send; hooks move the applications, late or never; a cluster dies,
for good or for a while, and the service beside it, too. Whatever happened: every record
that the producer was told is written is handled exactly once, on either cluster, but
for what a failover and its tail say; and in the end every run can be finished or
undone, every tail can be settled, and a last switch passes.

One module, as what happens and what may follow from it are read together.
"""

from __future__ import annotations

from collections import Counter
import contextlib
import functools
import json
import re
import struct
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import typer

from mirror.cli import flow, tail
from mirror.cli import switch as commands
from mirror.cli.options import Change
from mirror.config.schema import MirrorConfig
from mirror.errors import MirrorError
from mirror.pairs import journal, roles
from mirror.pairs.journal import Kind, StepState, missing
from mirror.recovery import hooks
from mirror.recovery.hooks import HookAnswer, HookReply
from mirror.recovery.steps import positions
from tests.harness.configurations import configuration
from tests.simulation import administration, faults
from tests.simulation.clients import PARTITIONS, PRINCIPAL, Consumer, Producer
from tests.simulation.faults import Faults
from tests.simulation.judge import WrongError, explains, losses_in
from tests.simulation.model import ModelCluster
from tests.simulation.partition import committed, records_of
from tests.simulation.registry import ModelRegistry, answering
from tests.simulation.services import SimulatedService, without_spark
from tests.simulation.world import NOON, Process, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    import uuid

    from mirror.config.schema import MirrorConfig
    from mirror.pairs.journal import Entry
    from mirror.recovery.hooks import Call
    from tests.simulation.model import Topic
    from tests.simulation.network import Network, Wire
    from tests.simulation.partition import PartitionLog
    from tests.simulation.services import Worker

PAIR = "A<->B"
_FILE: Any = None
"""Commands read their configuration from the history."""
_IDLE = "t9"
"""A topic that retention had emptied before a flow came to it."""
_BEGIN_SECONDS = 4.0
_SECONDS = 22.0
"""Until then faults and commands come."""
_STRUCK_SECONDS = 14.0
"""Until then what happens once has begun."""
_CALM_SECONDS = 60.0
"""How long it may take until all goes on, once nothing more goes wrong."""
BOTH_SECONDS = 5.0
"""How long producers may write to both clusters, once one is back that a failover gave
up; as `docs/explanation/fences.md` says.
"""
NONE_SECONDS = 10.0
"""How long they may write to none, once no run is open."""
_STEP_SECONDS = 20.0
_THEMES = (
    "",
    "",
    "clusters",
    "journals",
    "topics",
    "operators",
    "clocks",
    "registries",
)
"""Half of what goes wrong in recovery takes several things to meet, so most histories
have much of one thing: clusters that come back, journals that are lost, topics that are
made again, operators that are in a hurry or have wrong clocks, schemas.
"""
_DEATHS = 0.3
"""In how many histories of other themes a cluster dies."""
_DEATHS_OF = {"clusters": 1.0, "journals": 1.0, "operators": 0.5, "registries": 0.5}
"""In these it mostly comes back."""
_REGISTRIES = 0.15
"""In how many histories of other themes schemas are copied as well."""
_LOSSES = 0.1
"""In how many histories of other themes a cluster loses its journal."""
_EXPIRIES = 0.1
"""In how many histories of other themes topics are emptied, or made again, thrice at
most.
"""
_GROWTHS = 0.15
"""In how many histories a topic gets another partition."""
_WATCH_SECONDS = 0.1
_STALE_SECONDS = 5.0
"""Until then each broker shows what is new."""
_EDITS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("tasks", (1, 2)),
    ("lease_seconds", (0.5, 2)),
    ("topics", (["t.*"], ["t0", "t1", "t9"], ["t[0-9]"])),
    ("refresh_topics_seconds", (3, 5)),
    ("emit_heartbeats", (True, False)),
    ("sync_group_offsets_seconds", (2, 5)),
)
"""Settings that somebody changes while services run, and that select the same."""
_WRITES = re.compile(r"somebody writes to (\w+) still")
_PERSON_SECONDS = 3.0
"""How often somebody looks after the applications."""
_STRIKES = frozenset(
    {
        *(*faults.AT_REQUESTS, "suspend", "stop broker", "isolate", "elect", "jump"),
        *("move coordinator", "cut", "stale views", "slow markers", "lose controller"),
        *("kill worker", "kill worker at send", "kill driver"),
    }
)


class _Hit:
    """What strikes hit, in place of a flow."""

    progress_topic = "mirror-progress.A.internal"

    def __init__(self, services: Sequence[SimulatedService]) -> None:
        self._services = services
        self.others: list[Process] = []

    @property
    def everyone(self) -> list[Process]:
        return [*(p for each in self._services for p in each.everyone), *self.others]

    @property
    def workers(self) -> list[Worker]:
        return [worker for each in self._services for worker in each.workers]

    @property
    def has_wrong_clocks(self) -> bool:
        return any(process.clock for process in self.everyone)

    @property
    def driver(self) -> Process:
        return self._services[0].world.random.choice(self._services).process


class _Switches:
    """One history."""

    def __init__(
        self, world: World, clusters: dict[str, ModelCluster], seed: int
    ) -> None:
        self.world = world
        self.clusters = clusters
        random = world.random
        self.theme = random.choice(_THEMES)
        acl = random.random() < (0.9 if self.theme == "clusters" else 0.6)
        named = {each: {"command": ["true"]} for each in hooks._STEPS}
        self.keeps_names = random.random() < (0.0 if self.theme == "topics" else 0.35)
        """Whether copies are called as their originals."""
        self.fed: ModelCluster | None = None
        """A third cluster, which the active one of the pair feeds."""
        feeding = self.keeps_names and random.random() < 0.6
        if feeding:
            self.fed = ModelCluster(
                clusters["A"].network, "c", brokers=1, v2=True, by_id=True
            )
        self.same = self.keeps_names and not feeding and random.random() < 0.7
        """Whether copies have the same offsets. Nobody may write to both clusters."""
        acl = acl or self.same
        fills = self.same and seed % 2 == 1
        """Whether producers use transactions all the same (`fill: visible`)."""
        begins = {"start": random.choice(("earliest", "latest"))}
        self.registries: dict[str, ModelRegistry] = {}
        """By the host that is in addresses; empty: no schemas are copied."""
        if random.random() < (0.9 if self.theme == "registries" else _REGISTRIES):
            for alias in self._reached():
                self.registries[alias.lower()] = ModelRegistry()
        self.document = {
            "service": {"group": None},
            "clusters": {
                alias: {
                    "bootstrap_servers": cluster.bootstrap,
                    "request_timeout_seconds": 3,
                    **self._registry_of(alias),
                }
                for alias, cluster in self._reached().items()
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
                "policy": "identity" if self.keeps_names else "default",
                "offsets": "same" if self.same else "translated",
                "fill": "visible" if fills else "refuse",
                "schemas": "require" if self.registries else "off",
                "schemas_seconds": 5,
            },
            "flows": {
                "A->B": {},
                "B->A": {
                    "start": random.choice(("earliest", "earliest", "latest"))
                    if not self.same
                    else "earliest"
                },
                **({"A->C": begins, "B->C": begins} if feeding else {}),
            },
            "recovery": {
                PAIR: {
                    "active": "A",
                    "fence": "acl" if acl else "hook",
                    "hooks": named,
                    "block_seconds": 30,
                    "drill_every_seconds": random.choice((0, 0, 10)),
                    "feeds": ["C"] if feeding else [],
                }
            },
        }
        for alias, cluster in clusters.items():
            for name, count in PARTITIONS.items():
                cluster.create(name, count, {})
            idle = cluster.create(_IDLE, 1, {}).partitions[0].log
            idle.start = idle.end = 10
            if acl:
                cluster.acls = set(_GRANTED) if alias == "A" else set()
                cluster.spread()
        self.config = configuration(self.document)
        older = {**self.document["defaults"], "topics": ["t0", "t9"]}
        self.older = configuration({**self.document, "defaults": older})
        """A file of before a topic was added, which somebody still has."""
        self.files: dict[Process, MirrorConfig] = {}
        """By operator."""
        self.errors: dict[Process, str] = {}
        self.pair = self.config.recovery[PAIR]
        self.edits = random.random() < 0.3
        dice = 0.0 if self.theme == "clusters" else random.random()
        places: tuple[str, ...] = tuple(self._reached())
        if dice >= 0.3:
            places = ("", "") if dice < 0.6 else ("",)
        if places == ("", ""):
            self.document["service"]["group"] = "mirror"
        self.services = [
            SimulatedService(
                world, f"service {each or number}", self.document, into=each
            )
            for number, each in enumerate(places)
        ]
        """One with both flows, two instances of it, or one beside each cluster, which
        dies with that.
        """
        self.hit = _Hit(self.services)
        self.producer = Producer(clusters, "A")
        self.producer.schema_id = self._schema_id
        self.producer.with_transactions = fills or not self.same
        self.producer.eager = acl and random.random() < 0.3
        self.consumer = Consumer(clusters)
        self.consumer.given_up = self._given_up
        self.working: list[Process] = []
        """Of operators."""
        self.lost: set[str] = set()
        """Hooks that never do what they are called for."""
        self.died: set[str] = set()
        """Clusters that died or were cut off, for a while or for good."""
        self.away: set[str] = set()
        """Those of them that are not back."""
        self.for_good = False
        self._since = 0.0
        """When it last could write to one cluster alone, or that was no wonder."""
        self.tail: set[bytes] = set()
        """What had no copy when somebody settled a tail: it may be handled again, since
        the group may have read it where it was written."""
        self.skipped: set[bytes] = set()
        self.made_at = -_STALE_SECONDS
        """When a topic was made again."""
        self.grown_at = -_STALE_SECONDS
        """When a topic got another partition."""
        self.back_at = -_STALE_SECONDS
        """When a cluster's brokers began again: they may know no topic yet."""
        self.resets = False
        """Whether somebody has set a flow back."""
        self.reported: set[str] = set()
        """Failovers whose reports were held against the logs."""
        self.schema = 0
        """The version that producers have of theirs."""
        self.looked_at: dict[tuple[uuid.UUID, int], int] = {}
        """Up to where records have the schemas that they should."""
        self.texts: dict[bytes, str] = {}
        """The schema of each record that has one."""
        self.expired: set[bytes] = set()
        """What was handled and copied when retention removed it somewhere."""
        self.known_before: tuple[Entry, ...] = ()
        """What the journals ever said before one of them was lost."""
        self.remembered: tuple[Entry, ...] = ()
        """What the journals said before one of them lost it."""
        self.loses_journals = self.told_lost = False
        """Whether one did, and a command has said so."""
        self.before: set[bytes] = set()
        """What was written before anything goes wrong: by then flows have begun."""

    def _reached(self) -> dict[str, ModelCluster]:
        """The clusters of the file."""
        return self.clusters if self.fed is None else {**self.clusters, "C": self.fed}

    # ---- what happens by itself ----

    def begin(self) -> None:
        for each in self.services:
            each.begin()
        self.consumer.start("A")
        self._write()
        self._consume()
        self._look_after()
        if self.edits:
            self._edit()
        if self.pair.fence == "acl":
            self.world.after(1.0, self._watch)  # brokers know their ACLs by then

    def _write(self) -> None:
        self.producer.step()
        self.world.after(self.world.random.expovariate(4), self._write)

    def _consume(self) -> None:
        self.consumer.step(self.world)
        self.world.after(self.world.random.expovariate(4), self._consume)

    def _watch(self) -> None:
        """How long producers may write to both clusters, or to none."""
        now = self.world.now
        a, b = (set(self.producer.topics_of(alias)) for alias in self.clusters)
        both, none = a & b, PARTITIONS.keys() - a - b
        # What is made while a run goes on is fenced before the role moves.
        new = now - self.made_at < _STALE_SECONDS
        if both and not self.died and not new and not self.loses_journals:
            raise WrongError(f"the producer may write to {both} of both clusters")
        fine = not both and not none
        if (
            fine
            or self.trouble
            or self.away
            or self.remembered
            or new
            or (none and roles.open_run(self.entries()) is not None)
        ):
            self._since = now
        spell = now - self._since
        if spell > (BOTH_SECONDS if both else NONE_SECONDS):
            where = f"{both} of both clusters" if both else f"{none} of no cluster"
            raise WrongError(f"the producer may write to {where} for {spell:.1f} s")
        self.world.after(_WATCH_SECONDS, self._watch)

    def _edit(self) -> None:
        """Somebody changes the file that all have."""
        random = self.world.random
        name, values = random.choice(_EDITS)
        if self.trouble:
            value = self.document["defaults"][name] = random.choice(values)
            self.config = configuration(self.document)
            self.world.note(f"the file says {name}: {value}")
        self.world.after(random.expovariate(1 / 10), self._edit)

    def _look_after(self) -> None:
        """Once no run is open, applications belong to the active cluster."""
        if self.over:
            return
        entries = self.entries()
        if not any(each.alive for each in self.working) and (
            roles.open_run(entries) is None
        ):
            active = roles.role(entries, self.pair).active
            self.producer.move(active)
            self.consumer.start(active)
        self.world.after(_PERSON_SECONDS, self._look_after)

    def call(self, _command: object, asked: Call, *, seconds: float) -> HookAnswer:
        """In place of `run_command`: somebody does it, at once, late, or never."""
        world = self.world
        self.newest_run = asked.run
        dice = world.random.random()
        if dice < 0.1 and self.trouble:
            self.lost.add(asked.hook)
        if dice > 0.7:  # somebody mends them
            self.lost.clear()
        if self.trouble and world.random.random() < 0.15:
            driver = self.hit.driver
            world.note(f"{driver.name} is killed as {asked.hook} is called")
            world.kill(driver)
        if asked.hook in self.lost and self.trouble:
            world.note(f"hook {asked.hook}: nothing is done")
            return HookAnswer(
                said=world.random.choice((HookReply.FAILED, HookReply.DONE))
            )
        if dice < 0.2 and self.trouble:
            world.sleep(min(seconds, world.random.choice((0.5, 5.0, 30.0))))
            return HookAnswer(said=HookReply.LATER)
        world.sleep(world.random.choice((0.0, 0.3, 2.0)))
        if asked.run != self.newest_run:
            world.note(f"hook {asked.hook}: another run has called meanwhile")
            return HookAnswer(said=HookReply.DONE)
        if asked.hook == hooks.STOP_PRODUCERS:
            self.producer.stop()
        elif asked.hook == hooks.STOP_CONSUMERS:
            self.consumer.stop()
        elif asked.hook == hooks.REDIRECT_PRODUCERS:
            self.producer.move(asked.target)
        else:
            self.consumer.start(asked.target)
        world.note(f"hook {asked.hook} for {asked.target}: done")
        return HookAnswer(said=HookReply.DONE)

    trouble = True
    over = False
    """Whether applications have written all that they ever write."""
    newest_run = ""
    """Of which a hook was called last: who gets a call late drops it then."""

    def _given_up(self, alias: str) -> bool:
        return bool(self.died) and roles.leaves_tail(self.entries(), alias)

    def strike(self) -> None:
        """Choose what happens once, and when."""
        random, fed = self.world.random, self.fed
        once: list[tuple[float, Callable[[], None]]] = [
            (_GROWTHS, self._grow),
            (_DEATHS_OF.get(self.theme, _DEATHS), self.lose_a_cluster),
            (_LOSSES, self.lose_a_journal),
            *[(0.9 if self.theme == "topics" else _EXPIRIES, self.expire)] * 3,
        ]
        if fed is not None:
            once.append((_DEATHS, lambda: self._lose_the_fed(fed)))
        if self.same:
            once = [
                each
                for each in once
                if each[1] not in (self.lose_a_journal, self.expire)
            ]
        for chance, happens in once:
            if random.random() < chance:
                self.world.after(random.uniform(1, _STRUCK_SECONDS), happens)

    # ---- what people type ----

    def command(
        self,
        source: str,
        target: str,
        *,
        abort: bool,
        kind: Kind = Kind.SWITCH,
        force: bool = False,
        failback: bool = False,
        role_only: bool = False,
    ) -> Process:
        """Type one of the commands that make a cluster active."""
        options = {" --abort": abort, " --force": force, " (failback)": failback}
        options[" --role-only"] = role_only
        text = f"{kind.lower()} {source}->{target}"
        asked = commands._Asked(
            kind=kind, flow=f"{source}->{target}", config=_FILE, abort=abort,
            force=force, step_timeout=_STEP_SECONDS, failback=failback,
            restore=failback and self.same,
            role_only=role_only, change=Change(yes=True),
        )  # fmt: skip
        text += "".join(name for name, given in options.items() if given)

        def carry_out() -> None:
            commands._run(asked)
            if abort:
                self.check_undone()

        return self._type(text, carry_out)

    def settle_tail(self, source: str, target: str, *, skips: bool) -> Process:
        """Type `mirror tail`."""
        self.producer.end_all()  # else nobody can tell what is copied
        left = self.uncopied(source)
        self.tail.update(left)
        settle = tail.skip if skips else tail.replay

        def carry_out() -> None:
            settle(f"{source}/{target}", config=_FILE, yes=True)
            if skips:
                self.skipped.update(left)

        return self._type(f"tail {settle.__name__} {source}/{target}", carry_out)

    def reset(self, source: str, target: str) -> None:
        """Somebody has a topic copied once more: its records may be handled again, and
        what a failover says is copied is less than what is.
        """
        self.resets = True
        self.tail.update(_keys(self.clusters[source].topics["t1"]))
        self._type(
            f"flow reset {source}->{target} --to earliest --topic t1",
            lambda: flow.reset_(
                f"{source}->{target}", config=_FILE, to="earliest", topic="t1",
                yes=True,
            ),
        )  # fmt: skip

    def _type(self, text: str, carry_out: Callable[[], None]) -> Process:
        random = self.world.random
        process = Process(f"operator {len(self.hit.others)}")
        if self.trouble and self.theme == "clocks" and random.random() < 0.4:
            process.clock = random.choice((-3600.0, -60.0, 60.0, 3600.0))
        self.hit.others.append(process)
        self.working.append(process)
        older = self.trouble and random.random() < 0.1
        self.files[process] = self.older if older else self.config
        with_which = " with an older file" if older else ""

        def body() -> None:
            self.world.note(f"{process.name}: {text}{with_which}")
            try:
                carry_out()
                self.world.note(f"{process.name}: done")
                self.check_reports()
            except (MirrorError, typer.Exit, typer.Abort) as error:
                self.errors[process] = str(error)
                self.world.note(f"{process.name} failed: {error}")
                self.check_said(str(error))
            self.world.kill(process)

        self.world.start(process, body)
        return process

    @property
    def in_a_hurry(self) -> bool:
        """Whether operators type more than others, and are killed more often."""
        return self.theme in ("operators", "registries")

    def type_something(self) -> None:
        random = self.world.random
        if self.told_lost:
            self.declare()
            return
        entries = self.entries()
        run = roles.open_run(entries)
        if run is not None and random.random() < 0.6:
            self.settle(run)
            return
        if run is None and random.random() < 0.7 and self.go_home(entries):
            return
        resets = self.trouble and self.fed is None and random.random() < 0.05
        resets &= not self.same
        active = roles.role(entries, self.pair).active
        other = "AB".replace(active, "")
        if resets and not self.away and "t1" in self.clusters[active].topics:
            self.reset(active, other)
            return
        if active in self.away and random.random() < 0.8:
            process = self.command(active, other, abort=False, kind=Kind.FAILOVER)
        else:
            source, target = (
                (active, other) if random.random() < 0.85 else (other, active)
            )
            process = self.command(source, target, abort=random.random() < 0.15)
        self._may_die(process)

    def go_home(self, entries: Sequence[Entry]) -> bool:
        """After a failover, once both clusters answer: settle the tail, or go back;
        whether there was a reason.
        """
        made = self.failover(entries)
        if made is None or self.away:
            return False
        dice = self.world.random.random()
        if dice < 0.6:
            skips = dice < 0.15 or self.same
            self.settle_tail(made.source, made.target, skips=skips)
        else:
            self.command(made.target, made.source, abort=False, failback=True)
        return True

    def settle(self, run: roles.Run) -> None:
        """Finish an open run, or undo it where that is possible."""
        random = self.world.random
        first = run.first
        ends = first.source, first.target
        if first.target in self.away and run.moved:
            process = self.command(*reversed(ends), abort=False, kind=Kind.FAILOVER)
        elif first.target in self.away:
            force = self.for_good
            process = self.command(*ends, abort=True, kind=first.kind, force=force)
        elif first.source in self.away and first.kind is Kind.SWITCH:
            process = self.command(*ends, abort=False, kind=Kind.FAILOVER)
        else:
            undoes = not run.moved and random.random() < 0.5
            unasked = first.kind is Kind.FAILOVER and not undoes
            process = self.command(*ends, abort=undoes, kind=first.kind, force=unasked)
        self._may_die(process)

    def _may_die(self, process: Process) -> None:
        """At some send, if anything may go wrong."""
        random = self.world.random
        if self.trouble and random.random() < (0.6 if self.in_a_hurry else 0.3):
            process.kill_at_send = random.randrange(600)

    def lose_a_cluster(self) -> None:
        """The active cluster, mostly: it dies, for good or for a while, or only the
        service beside it reaches it.
        """
        world, random = self.world, self.world.random
        entries = self.entries()
        if (
            self.in_a_hurry
            and roles.open_run(entries) is None
            and world.now < _STRUCK_SECONDS
        ):
            world.after(0.3, self.lose_a_cluster)  # rather in the middle of a run
            return
        active = roles.role(entries, self.pair).active
        alias = active if random.random() < 0.8 else "AB".replace(active, "")
        dies = random.random() < 0.7
        world.note(f"cluster {alias} {'dies' if dies else 'is cut off'}")
        self.died.add(alias)
        self.away.add(alias)
        returns = self.theme in _DEATHS_OF
        self.for_good = (
            dies and random.random() < (0.1 if returns else 0.5)
        ) and not self.loses_journals
        if dies:
            self.clusters[alias].lose()
            for each in self.services:
                if each.into == alias:
                    world.kill(each.process)
            if random.random() < 0.25:  # its controllers were there, too
                survivor = self.clusters["AB".replace(alias, "")]
                survivor.lose_controller(random.choice((3.0, 10.0, 25.0)))

        def back() -> None:
            other = "AB".replace(alias, "")
            took_over = roles.role(self.entries(), self.pair).active == other
            loses = random.random() < (0.8 if self.theme == "journals" else 0.2)
            if took_over and loses and not self.same:  # what only that journal says
                self._lose_journal_of(self.clusters[other], services_die=True)
            world.note(f"cluster {alias} is back")
            self.back_at = world.now
            self.away.discard(alias)
            if dies:
                self.clusters[alias].come_back()

        if not self.for_good:
            world.after(random.choice((5.0, 20.0, 40.0)), back)

    def _lose_the_fed(self, cluster: ModelCluster) -> None:
        """The third cluster is down for a while."""
        random = self.world.random
        self.world.note("cluster C dies")
        cluster.lose()

        def back() -> None:
            self.world.note("cluster C is back")
            cluster.come_back()

        self.world.after(random.choice((3.0, 15.0, 40.0)), back)

    # ---- schemas ----

    def _registry_of(self, alias: str) -> dict[str, Any]:
        if not self.registries:
            return {}
        url = f"http://{alias.lower()}"
        return {"schema_registry": {"url": url, "timeout_seconds": 3}}

    def _schema_id(self, topic: str) -> int:
        """What the producer begins values with: it has its schema registered, which at
        times is another one than before.
        """
        if not self.registries:
            return 0
        where = self.registries[self.producer.at.lower()]
        if self.died and self.producer.at not in self.away:
            # What both register apart from each other only people can bring together.
            return self._last_id(topic, where)
        if self.world.random.random() < 0.1:
            self.schema += 1
        text = json.dumps({"type": "string", "version": self.schema})
        return where.register(f"{topic}-value", text) or self._last_id(topic, where)

    def _last_id(self, topic: str, where: ModelRegistry) -> int:
        """Where it may not register, it goes on with the newest that is there."""
        ids = [e.id for e in where.versions if e.subject == f"{topic}-value"]
        return ids[-1] if ids else 0

    def _reaches(self, host: str) -> bool:
        """Whether this process reaches the registry of this name."""
        alias = host.upper()
        if self._reached()[alias].gone:
            return False
        return alias not in self.away or alias == self.world.process.site

    def registers(self, alias: str) -> bool:
        """Whether producers may register the next schema there."""
        where = self.registries[alias.lower()]
        return all(where.may_register(f"{name}-value") for name in PARTITIONS)

    def check_schemas(self) -> None:
        """
        Raises:
            WrongError: a record is where its schema is not, or another one.
        """
        for alias, cluster in self._reached().items() if self.registries else ():
            where = self.registries[alias.lower()]
            for name, topic in cluster.topics.items():
                if name.rpartition(".")[2] not in PARTITIONS:
                    continue
                for number, each in enumerate(topic.partitions):
                    first = self.looked_at.get((topic.id, number), 0)
                    for offset, key, value in committed(each.log, first):
                        if key and value and not value[0] and len(value) > 4:
                            (number_of,) = struct.unpack_from(">I", value, 1)
                            text = where.text(number_of)
                            if self.texts.setdefault(key, text or "") != text:
                                raise WrongError(
                                    f"{key!r} is {name}-{number}@{offset} of {alias}, "
                                    f"where schema {number_of} is {text}"
                                )
                    self.looked_at[topic.id, number] = each.log.stable

    def is_cut(self, wire: Wire) -> bool:
        """Whether a cluster that is cut off is on the other side."""
        site, cluster = wire.process.site, wire.address[0].upper()
        return any((alias == cluster) != (alias == site) for alias in self.away)

    def _grow(self) -> None:
        """Somebody gives a topic another partition, on both clusters."""
        there = all("t1" in cluster.topics for cluster in self.clusters.values())
        if self.trouble and there and not self.away:
            count = len(self.clusters["A"].topics["t1"].partitions) + 1
            self.world.note(f"t1 gets {count} partitions")
            self.grown_at = self.world.now
            for cluster in self.clusters.values():
                if cluster.working():
                    cluster.grow("t1", count)

    def expire(self) -> None:
        """Retention empties a log, of a topic of the active cluster or of its copy, of
        which all is handled and copied; or somebody makes that topic again.
        """
        random = self.world.random
        active = roles.role(self.entries(), self.pair).active
        name = random.choice([*PARTITIONS])
        there = self.clusters[active].topics.get(name)
        if not self.trouble or there is None or self.away:
            return
        self.producer.end_all()
        if not all(self.consumer.handled[key] for key in _keys(there)):
            return
        if left := {*self.uncopied(active), *self.unfed()} & _keys(there):
            self.world.note(f"{name} is not expired: {len(left)} are not copied")
            return
        self.expired |= _keys(there)
        other = self.clusters["AB".replace(active, "")]
        dice = random.random()
        if dice < (0.7 if self.theme == "topics" else 0.3) and not self.keeps_names:
            self._make_again(self.clusters[active], name)
            return
        cluster = self.clusters[active] if dice < 0.7 else other
        if cluster is other:
            name = self.copy_of(active, name)
        if name not in cluster.topics:
            return
        self.world.note(f"{cluster.name} {name} is emptied")
        for each in cluster.topics[name].partitions:
            each.log.delete_before(each.log.stable)
        cluster.stir()

    def _make_again(self, cluster: ModelCluster, name: str) -> None:
        if not cluster.working():
            return
        there = cluster.topics[name]
        count = len(there.partitions)
        self.world.note(f"{cluster.name} {name} is deleted")
        cluster.delete(name)
        self.consumer.forget(name)
        # Its group has no position there any more.
        self.tail.update(_keys(there))

        def create() -> None:
            if cluster.working():
                self.world.note(f"{cluster.name} {name} is created again")
                cluster.create(name, count, {})
                self.made_at = self.world.now
            else:
                self.world.after(0.5, create)

        self.world.after(self.world.random.choice((0.01, 0.5, 3.0)), create)

    def switch_at_last(self) -> None:
        """Where nothing is wrong any more, a switch passes; with a paused topic it is
        refused before it blocks anybody.

        Raises:
            WrongError: it is not so.
        """
        active = roles.role(self.entries(), self.pair).active
        other = "AB".replace(active, "")
        if other in self.away:
            return
        if self.world.random.random() < 0.3:
            self._pause(f"{active}->{other}", paused=True)
            process = self._done(self.command(active, other, abort=False))
            run = roles.runs(self.entries())[-1]
            if self.errors.get(process) and run.details("fence"):
                raise WrongError(f"a paused topic is seen late: {self.errors[process]}")
            self._pause(f"{active}->{other}", paused=False)
            active = roles.role(self.entries(), self.pair).active
            other = "AB".replace(active, "")
        self._switch_now(active, other)
        if self.world.random.random() < 0.3:
            self.world.run(3)
            self._switch_now(other, active)

    def _switch_now(self, active: str, other: str) -> None:
        end = self.world.now + _CALM_SECONDS
        made = self.failover(self.entries()) if self.same else None
        home = made is not None and (made.target, made.source) == (active, other)
        while True:
            process = self._done(
                self.command(active, other, abort=False, failback=home)
            )
            if (error := self.errors.get(process)) is None:
                break
            if self.world.now > end:
                raise WrongError(f"nothing is wrong, and a switch fails: {error}")
            self.world.run(2)
        if wrong := self.writable():
            raise WrongError(wrong)

    def _pause(self, name: str, *, paused: bool) -> None:
        verb = flow.pause if paused else flow.resume
        text = f"{verb.__name__} {name} --topic t1"
        self._done(
            self._type(text, lambda: verb(name, config=_FILE, topic="t1", yes=True))
        )

    def _done(self, process: Process) -> Process:
        """Once it has ended."""
        while process.alive:
            self.world.run(0.5)
        return process

    # ---- what is judged ----

    def entries(self) -> tuple[Entry, ...]:
        """What both journals have, as any consumer would read them."""
        return roles.merged(self.remembered, self._written(), pair=PAIR)

    def _failovers(self) -> list[Entry]:
        """What they noted, also in journals that are lost."""
        known = roles.merged(self.known_before, self.entries(), pair=PAIR)
        return [each for each in known if each.kind is Kind.FAILOVER]

    def _written(self) -> tuple[Entry, ...]:
        journals = map(journal_of, self.clusters.values())
        return roles.merged(*journals, pair=PAIR)

    def unwritten(self) -> tuple[Entry, ...]:
        """What people know, and no journal of a cluster that answers, if that matters:
        a service may have brought it back, a later role may have come, or it was of a
        run that changed no role.
        """
        written = self._written()
        left = missing(self.remembered, written)
        matters = [roles.newest_role, roles.open_run]
        past = roles.epochs(self.remembered).lacks(roles.epochs(written))
        if (
            left
            and not past
            and any(what(self.remembered) != what(written) for what in matters)
        ):
            return left
        self.remembered = ()
        return ()

    def lose_a_journal(self) -> None:
        """One of the clusters loses its journal, while the other one still has one."""
        random = self.world.random
        there = [each for each in self.clusters.values() if not each.gone]
        cluster = random.choice(there)
        if self.trouble and not self.for_good:
            self._lose_journal_of(cluster, services_die=random.random() < 0.5)

    def _lose_journal_of(self, cluster: ModelCluster, *, services_die: bool) -> None:
        """It has its journal from an older disk, or none."""
        random = self.world.random
        topic = cluster.topics.get(journal.TOPIC)
        if topic is None or not cluster.working():
            return
        self.remembered = self.entries()
        self.known_before = roles.merged(self.known_before, self.remembered, pair=PAIR)
        if services_die:  # what runs would write it again
            for each in self.services:
                self.world.kill(each.process)
        self.loses_journals = True
        if random.random() < 0.5:
            self.world.note(f"the journal of {cluster.name} is lost")
            cluster.delete(journal.TOPIC)
            return
        log = topic.partitions[0].log
        begins = [
            batch.base
            for batch in log.batches
            if not batch.control
            for _, key, value in records_of(batch)
            if key and value and not journal.decode(key, value).number
        ]
        until = random.choice(begins) if begins else 0
        self.world.note(f"the journal of {cluster.name} is as old as offset {until}")
        nodes = cluster.working()
        cluster.elect((journal.TOPIC, 0), random.choice(nodes), lose_from=until)

    def declare(self) -> None:
        """Somebody says which cluster is active, as the journals do not tell."""
        self.told_lost = False
        active = roles.role(self.entries(), self.pair).active
        other = "AB".replace(active, "")
        process = self._done(
            self.command(other, active, abort=False, kind=Kind.FAILOVER, role_only=True)
        )
        if process not in self.errors:
            self.remembered = ()

    def check_now(self) -> None:
        """
        Raises:
            WrongError: records were handled twice that no failover has announced, or
                two clusters have a role of one epoch.
        """
        self._check_roles()
        handled = self.consumer.handled - Counter([*self.tail, *self.consumer.stray])
        twice = [key for key, count in handled.items() if count > 1]
        again = sum(handled[key] - 1 for key in twice)
        announced, unknown = self._announced()
        if again > announced and not unknown:
            raise WrongError(
                f"{again} handled again, {announced} announced: {sorted(twice)[:3]}"
            )

    def _check_roles(self) -> None:
        made: dict[int, str] = {}
        for each in self._written():
            if (each.step, each.state) == (roles.ROLE, StepState.DONE):
                other = made.setdefault(each.epoch, each.target)
                if other != each.target:
                    raise WrongError(
                        f"{other} and {each.target} are active with epoch {each.epoch}"
                    )

    def untold(self) -> list[str]:
        """Services beside clusters that answer, and that say something else than the
        journals.
        """
        made = roles.role(self.entries(), self.pair)
        found = []
        for each in self.services:
            if each.into in self.away:
                continue
            assert each.service is not None
            said = next(p for p in each.service.store.pairs if p.name == PAIR)
            if (said.active, said.epoch) != (made.active, made.epoch) or said.problem:
                found.append(f"{each.name}: {said.active} {said.epoch} {said.problem}")
        return found

    def _announced(self) -> tuple[int, int]:
        """How many records groups may read again, as failovers say, and how often they
        do not know it, of a partition or of a group.
        """
        told = [
            each.details[positions.STANDING]
            for each in self._failovers()
            if positions.STANDING in each.details
        ]
        rows = [row for each in told for row in each]
        unnamed = sum(not each for each in told)
        return sum(row[2] for row in rows), unnamed + sum(row[3] for row in rows)

    def unhandled(self) -> list[bytes]:
        """What was written, and not handled, and is on a cluster that answers: what a
        failover loses is on none.
        """
        left = {
            name
            for name, record in self.producer.records.items()
            if record.committed and not self.consumer.handled[name]
        } - self.skipped
        if left and self.loses:
            active = self.clusters[roles.role(self.entries(), self.pair).active]
            left &= {
                key
                for name, topic in active.topics.items()
                if name.rpartition(".")[2] in PARTITIONS
                for key in _keys(topic)
            }
        return sorted(left)

    def copy_of(self, alias: str, name: str) -> str:
        """The topic with the copies of one of this cluster."""
        return name if self.keeps_names else f"{alias}.{name}"

    def uncopied(self, alias: str = "") -> list[bytes]:
        """What was written to a cluster, and has no copy on the other one; without an
        alias, to the active one.
        """
        alias = alias or roles.role(self.entries(), self.pair).active
        other = "AB".replace(alias, "")
        if other in self.away:
            return []
        left: set[bytes] = set()
        for name in PARTITIONS:
            copy = self.clusters[other].topics.get(self.copy_of(alias, name))
            there = self.clusters[alias].topics.get(name)
            left |= _keys(there) if there else set()
            left -= _keys(copy) if copy else set()
        return sorted(left - self.skipped - self.expired)

    def check_offsets(self) -> None:
        """
        Raises:
            WrongError: one offset has different records on the two clusters.
        """
        for name in PARTITIONS if self.same and not self.for_good else ():
            one, other = (each.topics[name] for each in self.clusters.values())
            for number, (a, b) in enumerate(
                zip(one.partitions, other.partitions, strict=True)
            ):
                first = max(a.log.start, b.log.start)
                both = zip(_keyed(a.log, first), _keyed(b.log, first), strict=False)
                if wrong := next((each for each in both if each[0] != each[1]), None):
                    raise WrongError(f"{name}-{number} on A and on B: {wrong}")

    def unfed(self) -> list[bytes]:
        """What the active cluster has, and the one that it feeds has not."""
        if self.fed is None:
            return []
        active = self.clusters[roles.role(self.entries(), self.pair).active]
        late = self.config.flows["A->C"].start == "latest"
        left = {key for each in _own(active) for key in _keys(each)} - self.expired
        left -= self.tail | (self.before if late else set())
        return sorted(left - self._on_fed().keys())

    def check_fed(self) -> None:
        """
        Raises:
            WrongError: records came to the cluster that the pair feeds more than once.
        """
        if twice := [key for key, count in self._on_fed().items() if count > 1]:
            raise WrongError(f"C has {len(twice)} more than once: {sorted(twice)[:3]}")

    def _on_fed(self) -> Counter[bytes]:
        there = [] if self.fed is None else _own(self.fed)
        return Counter(key for each in there for _, key in _places(each))

    @property
    def loses(self) -> bool:
        """Whether a failover has left records on a cluster that is gone for good."""
        return any(self.clusters[each.source].gone for each in self._failovers())

    def writable(self) -> str:
        """What is wrong with who may write and register schemas, once no run is open;
        empty: nothing.
        """
        active = roles.role(self.entries(), self.pair).active
        passive = "AB".replace(active, "")
        able = self.producer.topics_of(active)
        if left := PARTITIONS.keys() - {*able}:
            return f"{active} is active, and the producer may not write to {left} there"
        if self.registries and not self.registers(active):
            return f"{active} is active, and its registry is closed"
        if self.registries and not self.died and self.registers(passive):
            return f"{active} is active, and the registry of {passive} is open"
        if self.pair.fence != "acl" or passive in self.away:
            return ""
        if both := self.producer.topics_of(passive):
            return (
                f"{active} is active, and it may write to {both} of {passive} as well"
            )
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
        if left := self.unwritten():
            return f"{len(left)} entries of the journals are lost"
        if (run := roles.open_run(entries)) is not None:
            return run.text
        active = roles.role(entries, self.pair).active
        if active in self.away:
            return f"{active} is active, and gone"
        pending = self.pending(entries)
        if not pending and (left := self.tail_of(self.failover(entries))):
            return f"{len(left)} records of the tail are to be settled"
        return "; ".join(run.text for run in pending)

    def pending(self, entries: Sequence[Entry]) -> list[roles.Run]:
        """Runs of which something is still to be undone on a cluster that answers."""
        return [
            run
            for run in roles.pending(entries, self.pair)
            if run.first.source not in self.away
        ]

    def failover(self, entries: Sequence[Entry]) -> Entry | None:
        """The one that gave the pair its role, if the cluster that it left is back."""
        made = roles.newest_role(entries)
        if made is None or made.kind is not Kind.FAILOVER or made.source in self.away:
            return None
        return made

    def tail_of(self, made: Entry | None) -> list[bytes]:
        """What a failover left uncopied."""
        return [] if made is None else self.uncopied(made.source)

    def check_undone(self) -> None:
        """
        Raises:
            WrongError: a run was undone, with nothing left to undo, and producers may
                not write to the active cluster.
        """
        entries = self.entries()
        active = roles.role(entries, self.pair).active
        others = sum(each.alive for each in self.working) > 1
        left = any(roles.pending(entries, self.pair))
        if others or left or roles.open_run(entries) or active in self.away:
            return
        topics = self.clusters[active].topics
        there = {
            name
            for name in PARTITIONS.keys() & topics.keys()
            if any(each.leader > 0 for each in topics[name].partitions)
        }
        if blocked := there - {*self.producer.topics_of(active)}:
            raise WrongError(f"undone, and {blocked} of {active} cannot be written to")
        if self.registries and not self.registers(active):
            raise WrongError(f"undone, and the registry of {active} is closed")

    def check_reports(self) -> None:
        """Hold what a failover says that it did not copy against both logs, once.

        Raises:
            WrongError: it names fewer records than were there at its last look, or more
                than there are behind what was copied.
        """
        for each in self.entries():
            said = each.details
            if each.kind is not Kind.FAILOVER or "lost" not in said:
                continue
            if each.run in self.reported or said["unknown_partitions"] or self.resets:
                continue
            self.reported.add(each.run)
            if self.hit.has_wrong_clocks:
                continue  # its look may seem to be from another time
            known = said["as_of"] - NOON - max(self.grown_at, self.back_at)
            if 0 < known < _STALE_SECONDS:
                continue  # brokers did not show it all partitions yet
            if self.made_at > said["as_of"] - NOON - _STALE_SECONDS:
                continue  # it counts by an end of the earlier topic
            told = {(row["topic"], row["partition"]): row for row in said["lost"]}
            for name in PARTITIONS:
                copied_to = self.copy_of(each.source, name)
                copy = self.clusters[each.target].topics.get(copied_to)
                copied = self.expired | (_keys(copy) if copy else set())
                topic = self.clusters[each.source].topics.get(name)
                if topic is None:
                    continue
                for number, partition in enumerate(topic.partitions):
                    row = told.get((name, number))
                    announced = 0 if row is None else row["records"]
                    own = {
                        key
                        for key, record in self.producer.records.items()
                        if record.topic_id == topic.id.hex
                    }
                    seen, most = _left(partition.log, own, copied, said["as_of"] - NOON)
                    if not seen <= announced <= most:
                        raise WrongError(
                            f"{name}-{number}: it says {announced} records not "
                            f"copied; {seen} at its last look, {most} offsets now"
                        )

    def check_said(self, text: str) -> None:
        """
        Raises:
            WrongError: a command says of the world what is not so.
        """
        told = "have lost entries" in text
        wrong = told and not self.loses_journals
        self.told_lost = self.told_lost or told
        if found := _WRITES.search(text):
            alias = found[1]
            fences = [
                each.at - NOON
                for each in self.entries()
                if (each.source, each.step, each.state)
                == (alias, "fence", StepState.DONE)
            ]
            silent = self.producer.wrote.get(alias, 0.0) < fences[-1]
            wrong = silent and not self.hit.has_wrong_clocks
        if wrong:
            self.world.fail(WrongError(f"a command says what is not so: {text}"))

    def check_services_said(self) -> None:
        """
        Raises:
            WrongError: a service says that a copy was deleted. None is.
        """
        for _, text in self.world.history:
            if "was gone and has been re-created" in text:
                raise WrongError(f"a service says what is not so: {text}")

    def check_ledgers(self) -> None:
        """
        Raises:
            WrongError: what was skipped is not noted as lost, or what was not is.
        """
        losses = [
            loss
            for source, target in ("AB", "BA")
            for loss in losses_in(
                self.clusters[target], f"mirror-losses.{source}.internal"
            )
            if loss["cause"] != "RECREATED"  # how much is not known
        ]
        noted = {
            key
            for key, record in self.producer.records.items()
            if record.committed and any(explains(loss, record) for loss in losses)
        }
        if unnoted := self.skipped - noted:
            raise WrongError(f"skipped, and not in a ledger: {sorted(unnoted)[:3]}")
        # What is to be copied once more can be deleted before that.
        again = self.expired if self.resets else set()
        if others := noted - self.skipped - again:
            raise WrongError(f"in a ledger, and not skipped: {sorted(others)[:3]}")


def journal_of(cluster: ModelCluster) -> list[Entry]:
    """What a cluster's journal has, as any consumer would read it; nothing if the
    cluster is gone.
    """
    there = None if cluster.gone else cluster.topics.get(journal.TOPIC)
    if there is None:
        return []
    return [
        _entry(key, value)
        for _, key, value in committed(there.partitions[0].log, 0)
        if key is not None and value is not None
    ]


_entry = functools.lru_cache(maxsize=2048)(journal.decode)
"""Journals are read all the time."""


def _own(cluster: ModelCluster) -> list[Topic]:
    """The topics under the names to which applications write."""
    return [cluster.topics[name] for name in PARTITIONS if name in cluster.topics]


def _left(
    log: PartitionLog, own: set[bytes], copied: set[bytes], at: float
) -> tuple[int, int]:
    """How many of a log's own records, at least, had no copy at this time; and how many
    offsets there are behind the last copied one.
    """
    batches = {o: each for each in log.batches for o in range(each.base, each.last + 1)}
    there = [(offset, key) for offset, key, _ in committed(log, 0) if key in own]
    reached = max((offset + 1 for offset, key in there if key in copied), default=0)
    seen = sum(
        key not in copied
        and batches[offset].at <= at
        and not batches[offset].transactional
        for offset, key in there
    )
    return seen, log.end - reached


def _keyed(log: PartitionLog, first: int) -> list[tuple[int, bytes | None]]:
    """Without fillers, which alone have no key."""
    return [(offset, key) for offset, key, _ in committed(log, first) if key]


def _keys(topic: Topic) -> set[bytes]:
    """Of all records that consumers see."""
    return {key for _, key in _places(topic)}


def _places(topic: Topic) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Partition, offset and key of all records that consumers see."""
    for number, each in enumerate(topic.partitions):
        for offset, key, _ in committed(each.log, 0):
            if key is not None:
                yield (number, offset), key


_GRANTED: set[administration.Acl] = {
    (
        administration.TOPIC, name, administration.LITERAL, PRINCIPAL, "*",
        administration.WRITE, administration.ALLOW,
    )
    for name in (*PARTITIONS, _IDLE)
}  # fmt: skip


def history(net: Network, seed: int, *, with_faults: bool) -> int:
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
    switches = _Switches(world, clusters, seed)
    hit: Any = switches.hit
    trouble = Faults(
        net, (*clusters.values(),), hit, switches.producer, hit, kinds=_STRIKES,
        counts=(0, 1, 1, 2, 3), rates=(0.05, 0.2, 0.5),
    )  # fmt: skip
    ModelCluster.serve = staticmethod(trouble.serve)
    net.cut = lambda wire: trouble.cuts(wire) or switches.is_cut(wire)
    trouble.on = switches.trouble = False
    registries = answering(
        world,
        switches.registries,
        reached=switches._reaches,
        troubled=lambda: switches.trouble and random.random() < 0.03,
    )
    with without_spark(switches.services), _commands_of(switches), registries:
        switches.begin()
        world.run(_BEGIN_SECONDS)
        switches.before = {*switches.producer.records}
        trouble.on = switches.trouble = with_faults
        if with_faults:
            trouble.begin()

        def someone() -> None:
            if world.now < _SECONDS:
                switches.type_something()
                pause = 2 if switches.in_a_hurry else 5
                world.after(random.expovariate(1 / pause), someone)

        someone()
        if with_faults:
            switches.strike()
        while world.now < _SECONDS:
            world.run(2)
            switches.check_now()
            switches.check_schemas()
        trouble.end()
        switches.trouble = False
        for process in switches.hit.everyone:
            process.clock = 0.0
        while not switches.for_good and switches.away:
            world.run(1)
        began = world.now
        end = began + _CALM_SECONDS
        _settle(switches, end)
        world.note(f"all runs are through after {world.now - began:.1f} s")
        while wrong := switches.writable():
            if world.now > end:
                switches.tell_journal()
                raise WrongError(wrong)
            world.run(1)
        world.note(f"producers are right after {world.now - began:.1f} s")
        switches.switch_at_last()
        switches.over = True
        switches.producer.stop()
        for what, looks in (
            ("handled", switches.unhandled), ("copied", switches.uncopied),
            ("fed", switches.unfed), ("told", switches.untold),
        ):  # fmt: skip
            while left := looks():
                if world.now > end + _CALM_SECONDS:
                    raise WrongError(f"never {what}: {left[:3]} of {len(left)}")
                world.run(1)
                switches.check_now()
        world.note(f"all is handled after {world.now - began:.1f} s")
        switches.check_ledgers()
        switches.check_services_said()
        switches.check_fed()
        switches.check_schemas()
        switches.check_offsets()
    return len(switches.producer.records)


def _settle(switches: _Switches, end: float) -> None:
    """Whatever is open is finished or undone, by people who try again."""
    world = switches.world
    while left := switches.open():
        if world.now > end:
            switches.tell_journal()
            raise WrongError(f"a run can neither be finished nor undone: {left}")
        if switches.told_lost:
            switches.declare()
        elif not any(each.alive for each in switches.working):
            entries = switches.entries()
            run = roles.open_run(entries)
            pending = [*roles.pending(entries, switches.pair)]
            if run is not None or pending:
                switches.settle(run or pending[-1])
            elif (made := switches.failover(entries)) and switches.tail_of(made):
                skips = world.random.random() < 0.3 or switches.same
                switches.settle_tail(made.source, made.target, skips=skips)
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
    world = switches.world
    said = _Said(world, switches.check_said)

    def read_config(_: object) -> MirrorConfig:
        return switches.files[world.process]

    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (commands, "read_config", read_config),
            (tail, "read_config", read_config),
            (flow, "read_config", read_config),
            (flow, "read_config", read_config),
            (commands, "quicken", lambda: None),
            (hooks, "run_command", switches.call),
            (sys, "stdout", said),
            (sys, "stderr", said),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        yield


class _Said:
    """What a command prints."""

    def __init__(self, world: World, check: Callable[[str], None]) -> None:
        self._world = world
        self._check = check

    def write(self, text: str) -> int:
        self._check(text)
        if text.strip():
            self._world.note(f"{self._world.process.name}| {text.strip()}")
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False
