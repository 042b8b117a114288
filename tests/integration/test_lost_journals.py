"""A journal that goes back: somebody deletes its topic, as an admin client can."""

from __future__ import annotations

import contextlib
from dataclasses import replace
import json
from typing import TYPE_CHECKING, Any, Self

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.errors import MirrorError, UnknownRoleError
from mirror.pairs import journal, roles
from mirror.pairs.journal import JournalReader, Kind
from mirror.pairs.roles import Epochs
from mirror.playground.brokers import playground
from mirror.recovery.pending import settle_fence
from mirror.recovery.runner import Operator, Terms
from mirror.recovery.stage import Stage, both_flows
from mirror.service.ownership import Generation, take_over, take_ownership
from mirror.service.pairs import PairFollower
from mirror.status.store import StatusStore
from tests.harness.admin import create_topic, delete_topic, topic_exists
from tests.harness.application import Application
from tests.harness.rehearsal import Rehearsal
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, make_active, pair_of
from tests.harness.waiting import wait_for
from tests.harness.witness import order_of, read_topic
from tests.integration.test_pair_roles import answers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.pairs.journal import Entry

pytestmark = pytest.mark.integration

PAIR = "RA<->RB"
TERMS = Terms(step_seconds=20, tell=lambda *_: None, did=lambda *_: None)


def count(bootstrap: str, topic: str) -> int:
    if not topic_exists(bootstrap, topic):
        return 0
    return sum(len(keys) for keys in order_of(bootstrap, topic).values())


@pytest.mark.parametrize(
    "restarted", [pytest.param(False, marks=pytest.mark.full), True]
)
def test_the_journal_of_a_failover_is_deleted(
    topic_name: str, tmp_path: Path, *, restarted: bool
) -> None:
    """A is down, B is active by its own journal alone, and that is deleted; A comes
    back with its old role, and a producer writes there. A service that was there writes
    the journal again. One that starts then copies nothing under the old role; it says
    so, as do the commands, until one says which cluster is active. Either way what was
    written on B comes to A, once, and B gets nothing more from A.
    """
    with playground(("a", "b"), root=tmp_path / "clusters", given=False) as made:
        ends = {"RA": made["a"].bootstrap, "RB": made["b"].bootstrap}
        for bootstrap in ends.values():
            create_topic(bootstrap, topic_name, 1)
        document = pair_of(*ends.items(), topic_name)
        there, back = f"RA.{topic_name}", f"RB.{topic_name}"
        application = Application(topic_name, 1, f"app-{topic_name}")
        with RunningMirror(document, tmp_path) as mirror:

            def pair() -> Any:
                found = mirror.status()["pairs"]  # none while it starts
                return (
                    found[0]
                    if found
                    else dict.fromkeys(("active", "problem", "run"), "")
                )

            mirror.wait_running("RA->RB")
            application.write(ends["RA"], 20)
            mirror.wait_copied(ends["RA"], topic_name, flow="RA->RB")
            mirror.wait_until(lambda _: mirror.flow("RA->RB")["standby_at"])
            made["a"].kill()
            Switch(tmp_path, "failover", "RA/RB", "--yes").succeeds()
            application.write(ends["RB"], 10)
            mirror.wait_until(lambda _: (pair()["active"], pair()["run"]) == ("RB", ""))
            if restarted:
                mirror.terminate()
            delete_topic(ends["RB"], journal.TOPIC)
            if not restarted:
                wait_for(lambda: topic_exists(ends["RB"], journal.TOPIC))
                wait_for(lambda: moved(ends["RB"]))
            made["a"].start()
            application.write(ends["RA"], 5)
            if restarted:
                mirror.start()
                mirror.wait_until(lambda _: pair()["problem"])
                mirror.wait_until(
                    lambda _: "lost entries" in mirror.flow("RA->RB")["reason"]
                )
                assert mirror.flow("RA->RB")["state"] == "RETRYING"
                shown = CliRunner().invoke(app, ["status", "--url", mirror.url])
                assert "have lost entries" in shown.output
                wait_for(lambda: answers(mirror, "RA") == 503)
                for words in (
                    ("pair",), ("switch", "RA/RB", "--yes"), ("drill", "RA/RB"),
                    ("switch", "RA/RB", "--dry-run"),
                ):  # fmt: skip
                    said = Switch(tmp_path, *words).fails()
                    assert (
                        "`mirror failover 'RA->RB' --role-only` if that is RB" in said
                    )
                assert count(ends["RB"], there) == 20
                Switch(tmp_path, "failover", "RA/RB", "--role-only", "--yes").succeeds()
            mirror.wait_running("RB->RA")
            wait_for(lambda: count(ends["RA"], back) == 10)
            mirror.wait_leases("RB->RA")
            assert (pair()["active"], pair()["problem"]) == ("RB", "")
            assert mirror.flow("RA->RB")["state"] == "RESTING"
            assert count(ends["RB"], there) == 20
            assert count(ends["RA"], back) == 10
            wait_for(lambda: answers(mirror, "RB") == 200)
            assert answers(mirror, "RA") == 503
            said = Switch(tmp_path, "failover", "RA/RB", "--role-only", "--yes").fails()
            assert "lack nothing: RB is the active cluster" in said


def moved(bootstrap: str) -> bool:
    """Whether the journal on a cluster says that a failover is through."""
    if not topic_exists(bootstrap, journal.TOPIC):
        return False
    found = read_topic(bootstrap, journal.TOPIC).get(0, [])
    entries = [json.loads(each.value() or b"{}") for each in found]
    said = [(e["kind"], e["step"], e["state"]) for e in entries]
    return ("FAILOVER", roles.ROLE, "DONE") in said


class Lab:
    """A pair of two clusters of which tests may delete the journals; its steps are the
    real ones, and parts of a service can be run.
    """

    def __init__(self, ends: dict[str, str], topic: str, **settings: Any) -> None:
        tag = topic[-8:]
        self.names = f"A{tag}", f"B{tag}"
        self.ends = dict(zip(self.names, ends.values(), strict=True))
        self.topic = topic
        for bootstrap in ends.values():
            create_topic(bootstrap, topic, 1)
        one, other = self.ends.items()
        self.there = Rehearsal(one, other, topic, **settings)
        self.config = self.there.config
        self.pair = next(iter(self.config.recovery.values()))
        self.roles: list[int] = []
        """The epochs that a service has gone by."""

    @contextlib.contextmanager
    def service(self) -> Iterator[tuple[PairFollower, StatusStore]]:
        """What follows the journals."""
        store = StatusStore(tuple(self.config.flows))
        self.roles = []
        changed = lambda: self.roles.append(made.role(self.pair).epoch)  # noqa: E731
        made = PairFollower(self.config, store, changed=changed)
        made.start()
        try:
            wait_for(
                lambda: store.pairs and all(m.read_at for m in store.pairs[0].members)
            )
            yield made, store
        finally:
            made.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.there.__exit__()

    def begun(self) -> Self:
        """The pair has its first role, and the first record is copied."""
        one, other = self.names
        with self.service() as (follower, _):
            wait_for(lambda: follower.role(self.pair).epoch == 1)
            wait_for(lambda: topic_exists(self.ends[other], journal.TOPIC))
        Application(self.topic, 1, "app").write(self.ends[one], 1)
        self.there.copy(self.ends[other], f"{one}.{self.topic}", 1)
        self.there.see()
        return self

    def delete(self, *names: str) -> None:
        for name in names:
            delete_topic(self.ends[name], journal.TOPIC)

    def entries(self, name: str) -> tuple[Entry, ...]:
        found = JournalReader(self.there.cluster(name)).read(wait=False)
        return roles.merged(found, pair=self.pair.name)

    def own(self, follower: PairFollower) -> Generation:
        """The flow there begins a run, as a service lets it."""
        flow = self.there.stage().flow
        source, target = map(self.there.cluster, self.names)
        known = follower.epochs(*self.names)
        owned = take_ownership(
            flow, source, target, slots=1, partitions={}, roles=known
        )
        return Generation.parse(owned.run)

    def declare(self, source: str, target: str) -> None:
        stage = self.stage(Kind.FAILOVER, source, target)
        made = Operator(stage, TERMS, declares=True)
        assert made.due
        made.declare()

    def stage(self, kind: Kind, source: str, target: str) -> Stage:
        flow, reverse = both_flows(self.there.config, self.pair, source, target)
        return replace(
            self.there.stage(),
            kind=kind,
            flow=flow,
            reverse=reverse,
            source_or_none=self.there.cluster(source),
            target_or_none=self.there.cluster(target),
        )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    root = tmp_path_factory.mktemp("clusters")
    with playground(("a", "b"), root=root, given=False) as made:
        yield {name: each.bootstrap for name, each in made.items()}


@pytest.fixture
def lab(two: dict[str, str], topic_name: str) -> Iterator[Lab]:
    with Lab(two, topic_name) as lab:
        yield lab.begun()


@pytest.mark.parametrize("lost", ["first", "second", "both"])
def test_a_service_writes_a_deleted_journal_again(lab: Lab, lost: str) -> None:
    """Whichever journal is deleted, a service that had read it writes all of it again,
    and never goes by an older role meanwhile.
    """
    make_active(lab.there.document, *lab.names, 2)
    with lab.service() as (follower, _):
        wait_for(lambda: follower.role(lab.pair).epoch == 2)
        known = {each.identity for each in follower.entries(lab.pair)}
        lab.roles.clear()
        lab.delete(
            *{"first": lab.names[:1], "second": lab.names[1:]}.get(lost, lab.names)
        )
        for name in lab.names:
            wait_for(lambda name=name: {e.identity for e in lab.entries(name)} == known)
        assert set(lab.roles) <= {2}
        assert follower.may_copy(*lab.names) is False
        assert follower.may_copy(*lab.names[::-1]) is True


def test_both_journals_are_deleted_after_a_switch(lab: Lab) -> None:
    """A service that starts then gives the pair no first role, and copies nothing: the
    flow there has noted that it rests. No operator begins. One says that the second
    cluster is active, which services follow, and the way home begins above all epochs.
    """
    one, other = lab.names
    lab.there.carry_out()
    lab.delete(*lab.names)
    with lab.service() as (follower, store):
        before = [m.read_at for m in store.pairs[0].members]
        wait_for(
            lambda: all(
                member.read_at > at + 2
                for member, at in zip(store.pairs[0].members, before, strict=True)
            )
        )
        assert "newest role has epoch 0, and" in store.pairs[0].problem
        assert not any(topic_exists(each, journal.TOPIC) for each in lab.ends.values())
        assert {member.active for member in store.pairs[0].members} == {""}
        assert follower.role(lab.pair).epoch == 0
        assert follower.may_copy(one, other) is follower.may_copy(other, one) is None
        assert "have lost entries" in follower.trouble(one, other)
        with pytest.raises(UnknownRoleError):
            lab.own(follower)
        with pytest.raises(MirrorError, match="have lost entries"):
            lab.there.carry_out()
        lab.declare(one, other)
        wait_for(lambda: follower.role(lab.pair).epoch)
        assert follower.role(lab.pair).active == other
        wait_for(lambda: not store.pairs[0].problem)
        assert follower.may_copy(other, one) is True
        lab.own(follower)
    home = Operator(lab.stage(Kind.SWITCH, other, one), TERMS)
    assert home.due
    stage = lab.stage(Kind.FAILOVER, one, other)
    with pytest.raises(MirrorError, match="lack nothing"):
        Operator(stage, TERMS, declares=True).declare()


class DiedError(Exception):
    """The operator is gone, and undoes nothing."""


def die() -> None:
    raise DiedError


def test_the_role_is_declared_while_a_switch_is_open(lab: Lab) -> None:
    """A switch died, and the journals have lost what came behind it: it can neither go
    on nor be given up. Once the first cluster is said to be active, the switch is over
    and a service undoes it there.
    """
    one, other = lab.names
    with pytest.raises(DiedError):
        lab.there.carry_out({"drain": die})
    ours = lab.there.stage().flow
    take_over(ours, lab.there.cluster(other), roles={lab.pair.name: Epochs(role=7)})
    for act in (lab.there.carry_out, lab.there.abort):
        with pytest.raises(MirrorError, match="have lost entries"):
            act()
    lab.declare(other, one)
    entries = lab.entries(one)
    assert roles.role(entries, lab.pair).active == one
    assert roles.role(entries, lab.pair).epoch == 8
    assert roles.open_run(entries) is None
    assert [run.left[-1] for run in roles.pending(entries, lab.pair)] == ["assess"]
    settle_fence(
        lab.config, lab.pair, lab.there.cluster(one), lambda: lab.entries(one), by="s"
    )
    assert roles.to_undo(lab.entries(one), lab.pair) == ()
    with lab.service() as (follower, _):
        lab.own(follower)
        assert follower.may_copy(one, other) is True


def test_a_failover_that_was_given_up_leaves_the_flow_free(lab: Lab) -> None:
    """A failover stops the flow, with a note of the role to come, and is given up: the
    journals know of it, so nothing is lost, and the flow begins its next run.
    """
    with pytest.raises(DiedError):
        lab.there.carry_out({"consumers": die}, kind=Kind.FAILOVER)
    lab.there.abort(Kind.FAILOVER)
    with lab.service() as (follower, store):
        assert lab.own(follower).roles == {lab.pair.name: Epochs(role=1, begun=2)}
        assert store.pairs[0].problem == ""
        wait_for(lambda: follower.may_copy(*lab.names) is True)


def test_one_of_several_pairs_has_lost_entries(
    two: dict[str, str], topic_name: str
) -> None:
    """Pairs with names share their flows: only the topics of the one whose journal went
    back are left alone, by both flows; a run notes the epochs of the others alone.
    """
    pairs = {"one": {"topics": [topic_name], "groups": []},
             "two": {"topics": ["other"], "groups": []}}  # fmt: skip
    with Lab(two, topic_name, pairs=pairs) as lab:
        one_is_left_alone(lab.begun())


def one_is_left_alone(lab: Lab) -> None:
    ours = lab.there.stage().flow
    later = {lab.pair.name: Epochs(role=5)}
    lost = {each.name: each is lab.pair for each in lab.config.recovery.values()}
    take_over(ours, lab.there.cluster(lab.names[1]), roles=later)
    with lab.service() as (follower, store):
        wait_for(lambda: follower.may_copy(*lab.names) is True)
        # What the other cluster's flows have noted comes with its own journal.
        wait_for(lambda: {e.name: bool(e.problem) for e in store.pairs} == lost)
        for ends in (lab.names, lab.names[::-1]):
            assert lab.pair in follower.rests_in(*ends)
        assert lab.own(follower).roles == {
            **later, f"{'<->'.join(lab.names)}/two": Epochs(role=1, begun=1),
        }  # fmt: skip
