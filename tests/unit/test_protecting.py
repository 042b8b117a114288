"""The job that protects copies, when what it asks for fails or stays unknown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from mirror.errors import AuthorizationError, FenceError, PrincipalError
from mirror.service import protecting
from mirror.service.protecting import ProtectJob
from mirror.service.scheduler import Job
from mirror.topics import fences
from mirror.topics.fences import KnownGrants
from tests.harness.configurations import config

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.errors import MirrorError
    from mirror.topics.acl_notes import AclPlan

pytestmark = pytest.mark.unit

COPY = "A.orders"


@dataclass
class Target:
    """What the job asks of the target, and what it is answered."""

    everyone: bool | None = None
    refusal: MirrorError | None = None
    meanwhile: Callable[[], None] = lambda: None
    """Happens while a plan is laid."""
    probes: list[bool] = field(default_factory=list)
    laid: list[AclPlan] = field(default_factory=list)
    lifted: int = 0
    told: list[str] = field(default_factory=list)

    def look(self, *_: Any, probe: bool) -> KnownGrants:
        self.probes.append(probe)
        found = self.everyone if probe else None
        return KnownGrants(own="User:mirror", acls=frozenset(), everyone=found)

    def lay(self, _: Any, plan: AclPlan, *, hold: Callable[[], None]) -> None:
        self.meanwhile()
        hold()
        if self.refusal is not None:
            raise self.refusal
        self.laid.append(plan)

    def lift(self, *_: Any, but: AclPlan | None = None, **__: Any) -> None:
        self.lifted += but is None

    def tell(self, _: str, problems: Any) -> None:
        self.told = list(problems)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    made = Target()
    monkeypatch.setattr(protecting, "copies_of", lambda *_: frozenset({COPY}))
    monkeypatch.setattr(protecting, "known_grants", made.look)
    monkeypatch.setattr(fences, "stands", lambda *_: False)
    monkeypatch.setattr(fences, "lay", made.lay)
    monkeypatch.setattr(fences, "lift", made.lift)
    return made


def job_of(target: Target) -> ProtectJob:
    whole = config({"A->B": {"protect": "acl"}})
    return ProtectJob(whole.flows["A->B"], whole, tell=target.tell)


def turns(job: ProtectJob, count: int) -> None:
    (made,) = job.jobs()
    nowhere: Any = None
    for _ in range(count):
        made.work(nowhere, nowhere)


@pytest.mark.parametrize("everyone", [True, None])
def test_who_may_write_is_tried_once(target: Target, *, everyone: bool | None) -> None:
    """An ACL is tried once in a run, not in each turn, and what it showed is kept."""
    target.everyone = everyone
    job = job_of(target)
    turns(job, 3)
    assert target.probes == [True, False, False]
    assert len(target.laid) == 3
    assert all(bool(plan.bridges) is bool(everyone) for plan in target.laid)
    assert bool(target.told) is not bool(everyone)
    turns(job, 1)
    assert target.probes[-1]


def test_somebody_elses_principal(target: Target) -> None:
    """Where the fence takes mirror's own rights, it is taken back and not tried again
    before the next run; the reason stays a problem.
    """
    target.everyone = True
    target.refusal = PrincipalError("is that whom the brokers take it for?")
    job = job_of(target)
    turns(job, 2)
    assert target.told == [
        "copies are not protected: is that whom the brokers take it for?"
    ]
    assert len(target.probes) == 1
    assert target.lifted
    target.refusal = None
    turns(job, 1)
    assert target.told == []
    assert target.laid


@pytest.mark.parametrize("kind", [FenceError, AuthorizationError])
def test_a_refusal_is_a_problem_until_it_ends(
    target: Target, kind: type[FenceError | AuthorizationError]
) -> None:
    """What stands stays as it is."""
    target.everyone = True
    target.refusal = kind("not now")
    job = job_of(target)
    turns(job, 1)
    assert target.told == ["copies are not protected: not now"]
    target.refusal = None
    turns(job, 1)
    assert target.told == []
    assert target.lifted == 0


def test_a_flow_that_rests_takes_back_what_stands(target: Target) -> None:
    """No run has looked for that; it is done once, by a job that the flow has anyway,
    and one that protects goes on to do so.
    """
    job = job_of(target)
    guarded: list[int] = []
    nowhere: Any = None
    guard = Job(name="guard", seconds=1.0, work=lambda *_: guarded.append(1))
    assert [each.name for each in job.resting(guard)] == ["guard", "protect"]
    whole = config({"A->B": {}})
    job.adopt(whole.flows["A->B"], whole)
    (both,) = job.resting(guard)
    for _ in range(2):
        both.work(nowhere, nowhere)
    assert (len(guarded), target.lifted) == (2, 1)
    assert job.resting(guard) == [guard]


def test_a_turn_ends_with_its_run(target: Target) -> None:
    """It changes nothing more, and that is no problem of the flow."""
    target.everyone = True
    job = job_of(target)
    target.meanwhile = job.stop
    turns(job, 1)
    assert target.laid == []
    assert target.told == []
