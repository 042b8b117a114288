"""What is undone when runs are given up, from every step of every combination: on real
journals with steps that note what they change, and with the real steps and ACLs.
"""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass, field
from itertools import product
import json
from typing import TYPE_CHECKING, Any

import pytest

from mirror.errors import MirrorError
from mirror.pairs import journal, roles
from mirror.pairs.journal import JournalReader, Kind
from mirror.recovery import hooks, pending
from mirror.recovery.stage import NOTHING, Done, Stage, Step
from mirror.recovery.steps import fence
from mirror.service.standby import AccessJob
from tests.harness.cases import cases
from tests.harness.metadata import allow
from tests.harness.producers import all_acls, scram, write
from tests.harness.switching import Switch
from tests.harness.waiting import wait_for
from tests.harness.witness import order_of
from tests.integration.test_operator import Pair, lost, pair
from tests.integration.test_switch_fences import rehearsal_of, secured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror.pairs.journal import Entry
    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.rehearsal import Rehearsal

__all__ = ["pair", "secured"]

pytestmark = pytest.mark.integration

Ends = tuple["PlaygroundCluster", "PlaygroundCluster"]
REVERSIBLE = roles.STEPS[: roles.STEPS.index(roles.ROLE) + 1]
STOPPED = hooks.STOP_PRODUCERS


class DiedError(Exception):
    """The operator is gone, and undoes nothing."""


@dataclass(slots=True)
class World:
    """What steps change on both clusters: they follow the same rules as the real ones,
    and what they find out is in their notes alone.
    """

    closed_by: set[str] = field(default_factory=set)
    """The runs that have closed A's registry."""
    here: bool = False
    """Whether A is fenced."""
    there: bool = True
    """Whether B is."""

    def steps(self, dies_in: str = "") -> Mapping[str, Step]:
        """One operator's. It dies in a step, once that has done all its work."""

        def step(name: str) -> Step:
            def do(stage: Stage) -> Done:
                self._do(name, stage)
                if name == dies_in:
                    raise DiedError
                return Done(text="done")

            return Step(do=do, undo=lambda stage: self._undo(name, stage))

        return {name: step(name) for name in roles.STEPS}

    def _do(self, name: str, stage: Stage) -> None:
        if name == "hold" and stage.planned:
            self.closed_by.add(stage.run)
        if name == "fence":
            stage.note({STOPPED: {"call": "1"}})
            self.here |= stage.planned
        if name == roles.ROLE:
            if self.there:
                stage.note({"fenced": True})
            self.there = False

    def _undo(self, name: str, stage: Stage) -> str:
        if name == roles.ROLE:
            assert stage.target
            self.there |= bool(stage.notes[name].get("fenced"))
        elif name not in {"hold", "fence"} or not stage.planned:
            return NOTHING
        elif name == "fence":
            assert stage.source
            self.here = False
        else:
            assert stage.source
            self.closed_by.discard(stage.run)
        return "as before"


@dataclass(slots=True)
class Ended:
    """What one abort said."""

    lines: dict[str, str]
    hooks: str


def die(pair: Pair, world: World, kind: Kind, step: str) -> None:
    without = 0 if kind is Kind.FAILOVER else None
    with (
        pair.operator(kind=kind, without=without, steps=world.steps(step)) as operator,
        pytest.raises(DiedError),
    ):
        operator.carry_out()


def give_up(pair: Pair, world: World, kind: Kind, **how: Any) -> Ended:
    lost = how.pop("target_lost", False)
    with pair.operator(kind=kind, steps=world.steps(), **how) as operator:
        lines = operator.abort(target_lost=lost)
        return Ended(lines=dict(lines), hooks=operator.left)


def all_open(pair: Pair) -> list[str]:
    return [run.text for run in roles.runs(pair.journal(1)) if run.open]


REPLACED = (Kind.SWITCH, Kind.FAILOVER)
SOME = [("fence", "assess"), ("open", "open")]
EVERY = [*product(REVERSIBLE, REVERSIBLE)]


@pytest.mark.parametrize(
    ("kinds", "every"),
    [
        pytest.param((Kind.SWITCH,), [(s,) for s in REVERSIBLE], id="switch"),
        pytest.param((Kind.FAILOVER,), [(s,) for s in REVERSIBLE], id="failover"),
        pytest.param(REPLACED, SOME, id="replaced"),
        pytest.param(REPLACED, EVERY, id="every", marks=pytest.mark.full),
    ],
)
def test_given_up_in_every_step(
    pair: Pair, kinds: tuple[Kind, ...], every: Sequence[tuple[str, ...]]
) -> None:
    """Each operator dies once a step has done all its work, up to the point of no
    return; then the last run is given up, one combination after the other on one pair.
    A is open and its registry, too; B is fenced as before; hooks of all runs are named,
    and those of earlier combinations are not. While A does not answer, what is to be
    undone there is pending, is said and shown, and a second abort does it.
    """
    one, _ = pair.names
    world = World()
    for steps in every:
        for gone in (False, True):
            for kind, step in zip(kinds, steps, strict=True):
                die(pair, world, kind, step)
            said = give_up(pair, world, kinds[-1], without=0 if gone else None)
            called = any(step in REVERSIBLE[2:] for step in steps)
            assert (STOPPED in said.hooks) is called, steps
            assert all_open(pair) == []
            entries = pair.journal(1)
            left = roles.pending(entries, pair._settings)
            switched = steps[0] if kinds[0] is Kind.SWITCH else ""
            changed = [s for s in ("hold", "fence") if s in _up_to(switched)]
            assert [s for run in left for s in reversed(run.left)] == (
                changed if gone else []
            )
            for step in changed if gone else ():
                assert f"pending, as {one} does not answer" in said.lines[step]
            assert (one in roles.pending_text(entries, pair._settings)) is bool(left)
            if left:
                give_up(pair, world, Kind.SWITCH)
            assert world == World(), (steps, gone)
            assert pair.active(1) == one
    with pytest.raises(MirrorError, match="no run of"):
        give_up(pair, world, kinds[-1])


def _up_to(step: str) -> tuple[str, ...]:
    return REVERSIBLE[: REVERSIBLE.index(step) + 1] if step else ()


@pytest.mark.parametrize("step", cases(REVERSIBLE, some=["positions"]))
def test_the_target_of_a_failover_is_lost(pair: Pair, step: str) -> None:
    """A switch dies behind its fence, a failover takes its place and dies, A comes back
    and B is lost for good. Giving up is refused, and says that --force does it: then A
    is open, and active by a newer role, also once B is back.
    """
    one, two = pair.names
    world = World()
    die(pair, world, Kind.SWITCH, "fence")
    die(pair, world, Kind.FAILOVER, step)
    with pair.service():
        wait_for(pair.same)
    with pytest.raises(MirrorError, match=f"--force makes {one} active"):
        give_up(pair, world, Kind.FAILOVER, without=1)
    assert world.here
    said = give_up(pair, world, Kind.FAILOVER, without=1, target_lost=True)
    assert (world.here, world.closed_by) == (False, set())
    assert STOPPED in said.hooks
    with pair.service():
        wait_for(pair.same)
    assert (pair.active(0), pair.active(1), all_open(pair)) == (one, one, [])
    made = roles.owed(pair.journal(1))
    assert made is not None
    assert made.source == two, "what was done there is fenced"
    assert roles.to_undo(pair.journal(1), pair._settings) == ()


def test_the_target_comes_back_while_its_loss_is_noted(pair: Pair) -> None:
    """B is active by its own journal alone and taken for lost: A gets a newer role, and
    the operator dies right behind it. B comes back: the switch cannot be finished, and
    giving it up leaves A open and B fenced as before.
    """
    one, two = pair.names
    world = World()

    def journal_lost() -> None:
        stack.enter_context(pair.proxies[one].rules(*lost()))

    steps = dict(world.steps())
    steps[roles.ROLE] = _after(steps[roles.ROLE], journal_lost)
    with (
        contextlib.ExitStack() as stack,
        pair.operator(steps=steps) as operator,
        pytest.raises(MirrorError, match="step open failed"),
    ):
        operator.carry_out()
    assert (pair.active(0), pair.active(1)) == (one, two)

    dying = {name: Step(do=step.do, undo=_dies) for name, step in steps.items()}
    with (
        pair.operator(without=1, steps=dying) as operator,
        pytest.raises(DiedError),
    ):
        operator.abort(target_lost=True)
    with pytest.raises(MirrorError, match=f"{one} has become active again.*--abort"):
        pair.carry_out()
    give_up(pair, world, Kind.SWITCH)
    assert world == World()
    assert (pair.active(0), pair.active(1), all_open(pair)) == (one, one, [])
    assert roles.to_undo(pair.journal(1), pair._settings) == ()


def _after(step: Step, act: Callable[[], None]) -> Step:
    def do(stage: Stage) -> Done:
        done = step.do(stage)
        act()
        return done

    return Step(do=do, undo=step.undo)


def _dies(_stage: Stage) -> str:
    raise DiedError


class Secured:
    """A pair whose clusters have users: whether alice may write where, and how."""

    def __init__(self, made: Ends, there: Rehearsal, topic: str, folder: Path) -> None:
        self.there, self._made, self._topic = there, made, topic
        self.pair = next(iter(there.config.recovery.values()))
        self._folder = folder
        self._alice = [scram(cluster, "alice", "alice") for cluster in made]
        self.copied()
        self.before = self.acls()

    def copied(self) -> None:
        """What alice has written to A is on B."""
        one, two = self._made
        count = len(order_of(one.admin_bootstrap, self._topic)[0])
        name = f"{self.alias}.{self._topic}"
        self.there.copy(two.admin_bootstrap, name, count)
        self.there.see()
        flow, ends = self.there.stage().flow, map(self.there.cluster, self.pair.members)
        AccessJob(flow).job().work(*ends)

    @property
    def alias(self) -> str:
        return self.there.stage().flow.source

    def acls(self) -> list[set[tuple[str, ...]]]:
        return [all_acls(cluster.admin_bootstrap) for cluster in self._made]

    def may_write(self) -> list[bool]:
        return [write(each, self._topic) == "" for each in self._alice]

    def die(self, kind: Kind, step: str) -> None:
        def die() -> None:
            raise DiedError

        with pytest.raises(DiedError):
            self.there.carry_out(kind=kind, after={step: die})

    def entries(self) -> tuple[Entry, ...]:
        ends = map(self.there.cluster, self.pair.members)
        journals = [JournalReader(each).read(wait=False) for each in ends]
        return roles.merged(*journals, pair=self.pair.name)

    def service(self) -> None:
        """What a service does every ten seconds once A answers."""
        cluster = self.there.cluster(self.alias)
        pending.settle_fence(
            self.there.config, self.pair, cluster, self.entries, by="service"
        )

    def command(self, *words: str, without: str = "") -> str:
        """What a command prints, which cannot reach one of the clusters."""
        document = copy.deepcopy(self.there.document)
        if without:
            document["clusters"][without]["bootstrap_servers"] = "127.0.0.1:1"
        (self._folder / "mirror.yaml").write_text(json.dumps(document))
        switch = Switch(self._folder, *words)
        switch.succeeds()
        return "".join(switch.said)

    def require_as_before(self) -> None:
        assert self.acls() == self.before
        assert self.may_write() == [True, False]
        assert roles.to_undo(self.entries(), self.pair) == ()


@pytest.fixture
def alice(secured: Ends, topic_name: str, tmp_path: Path) -> Iterator[Secured]:
    with rehearsal_of(secured, topic_name, topic_name[-8:]) as there:
        assert write(scram(secured[0], "alice", "alice"), topic_name) == ""
        # As after a way home.
        allow(secured[1].admin_bootstrap, "alice", "WRITE", topic_name)
        stage = there.stage()
        fence.lay(stage, stage.target, stage.reverse)
        yield Secured(secured, there, topic_name, tmp_path)


@pytest.mark.parametrize(
    ("switch", "failover"),
    cases(
        [*product(("hold", "fence", roles.ROLE), ("assess", "drain", roles.ROLE))],
        some=[("fence", "assess")],
    ),
)
def test_who_may_write_after_it_was_given_up(
    alice: Secured, switch: str, failover: str
) -> None:
    """With real steps: a switch dies behind a step, then the failover that took its
    place does. Given up once A is back, alice may write on A alone, and all ACLs are as
    before. Given up before that, what is to be undone on A waits for a service.
    """
    for gone in (False, True):
        alice.die(Kind.SWITCH, switch)
        alice.die(Kind.FAILOVER, failover)
        fenced = switch != "hold"
        assert alice.may_write() == [not fenced, roles.ROLE in {switch, failover}]
        said = alice.there.abort(Kind.FAILOVER, source=not gone)
        if gone and fenced:
            assert alice.may_write() == [False, False]
            assert said["fence"] == f"pending, as {alice.alias} does not answer"
            assert "undoing fence is pending" in alice.command("pair")
        if gone:
            alice.service()
        alice.require_as_before()
        alice.copied()


def test_a_failover_through_after_a_switch(alice: Secured) -> None:
    """A switch dies behind its fence, and the failover that took its place is through:
    A stays fenced, which a service notes when it is back, and nothing is to be undone.
    On the way home A is opened and B closed.
    """
    alice.die(Kind.SWITCH, "fence")
    alice.there.carry_out(kind=Kind.FAILOVER)
    assert roles.owed(alice.entries()) is not None
    alice.service()
    assert alice.may_write() == [False, True]
    assert roles.owed(alice.entries()) is None
    assert roles.to_undo(alice.entries(), alice.pair) == ()


def test_commands_that_give_up(alice: Secured) -> None:
    """`mirror failover --abort --force` where B is lost for good opens A and fences B
    should it come back; `mirror switch --abort` once more does what was pending since A
    was gone, and says so.
    """
    one, two = alice.pair.members
    flow = f"{one}/{two}"
    alice.die(Kind.SWITCH, "fence")
    said = alice.command("switch", flow, "--abort", "--yes", without=one)
    assert f"fence pending, as {one} does not answer" in said
    assert alice.may_write() == [False, False]
    said = alice.command("switch", flow, "--abort", "--yes")
    assert f"fence undone: producers may write to {one}" in said
    alice.require_as_before()
    alice.copied()

    alice.die(Kind.SWITCH, "fence")
    alice.die(Kind.FAILOVER, "assess")
    journal.copy(alice.there.cluster(one), alice.entries())
    said = alice.command("failover", flow, "--abort", "--force", "--yes", without=two)
    assert f"fence undone: producers may write to {one}" in said
    assert alice.may_write() == [True, False]
    assert roles.role(alice.entries(), alice.pair).active == one
    made = roles.owed(alice.entries())
    assert made is not None
    assert made.source == two
