"""What is undone when runs are given up, from every step of every combination of runs:
on real journals with steps that note what they change, and with the real steps and ACLs.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from mirror.errors import MirrorError
from mirror.recovery import roles
from mirror.recovery.journal import Kind
from mirror.switching import hooks
from mirror.switching.stage import NOTHING, Done, Stage, Step
from tests.harness.cases import cases
from tests.harness.waiting import wait_for
from tests.integration.test_operator import TERMS, Pair, lost, pair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["pair"]

pytestmark = pytest.mark.integration

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
    with pair.operator(kind=kind, without=without) as (operator, stage):
        with pytest.raises(DiedError):
            operator.carry_out(world.steps(step), stage, TERMS)


def give_up(pair: Pair, world: World, kind: Kind, **how: Any) -> Ended:
    lost = how.pop("target_lost", False)
    with pair.operator(kind=kind, **how) as (operator, stage):
        lines = operator.abort(world.steps(), stage, TERMS, target_lost=lost)
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
    with pytest.raises(MirrorError, match="no run of .* is open"):
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

    with contextlib.ExitStack() as stack, pair.operator() as (operator, stage):
        steps = dict(world.steps())
        steps[roles.ROLE] = _after(steps[roles.ROLE], journal_lost)
        with pytest.raises(MirrorError, match="step open failed"):
            operator.carry_out(steps, stage, TERMS)
    assert (pair.active(0), pair.active(1)) == (one, two)

    with pair.operator(without=1) as (operator, stage):
        dying = {name: Step(do=step.do, undo=_dies) for name, step in steps.items()}
        with pytest.raises(DiedError):
            operator.abort(dying, stage, TERMS, target_lost=True)
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
