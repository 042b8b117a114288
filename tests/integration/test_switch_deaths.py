"""Switches in which a whole cluster of the pair dies."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from mirror.errors import MirrorError
from mirror.pairs import roles
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.group_moves import commit_for, committed
from tests.harness.metadata import allow
from tests.harness.producers import add_users, all_acls, scram, write
from tests.harness.rehearsal import Rehearsal
from tests.harness.switching import Played, Switch, secured_pair_of
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.full]

STEPS = ("fence", "positions", "open", "redirect")
TIMEOUT = ("--step-timeout", "10")
DENIED = "TOPIC_AUTHORIZATION_FAILED"


def after(step: str) -> bool:
    """Whether a step comes behind the point of no return."""
    return roles.STEPS.index(step) > roles.STEPS.index(roles.ROLE)


def undone(said: str, *, died: str) -> bool:
    """Whether everything was undone. If B died no failure before step 7 goes without
    that.
    """
    found = "Everything was undone" in said
    failed = re.search(r"step (\w+) failed: ", said)
    assert failed is not None
    if died == "b" and roles.STEPS.index(failed[1]) < roles.STEPS.index(roles.ROLE):
        assert found
    return found


@pytest.mark.parametrize("step", STEPS)
def test_the_other_cluster_dies(
    make_clusters: Any, topic_name: str, tmp_path: Path, step: str
) -> None:
    """SIGKILL of all brokers of B as a step begins. The command ends, and says how:
    everything is undone and the application goes on at A, or the same command goes on
    once B is back. It then does, and over both clusters the group reads every record
    once.
    """
    clusters = make_clusters("a", "b")
    with Played(clusters, topic_name, f"DB{step[0]}", tmp_path) as played:
        one = played.ends[played.active]
        switch = played.switch(*TIMEOUT)
        switch.reaches(one, step)
        clusters["b"].kill()
        said = switch.fails()
        if undone(said, died="b"):
            assert not after(step)
            assert played.application.write(one, 10)
            played.application.consume(one, [topic_name], most=20)
        else:
            assert "the same command again" in said or after(step)
        clusters["b"].start()
        played.switch().succeeds()
        played.go_on()


@pytest.mark.parametrize("step", STEPS)
def test_the_active_cluster_dies(
    make_clusters: Any, topic_name: str, tmp_path: Path, step: str
) -> None:
    """SIGKILL of all brokers of A as a step begins. The command ends, says that it
    failed, and that a failover is the way out; that goes through, and the group goes on
    at B: it reads every record once, as all were copied and its position was known.
    """
    clusters = make_clusters("a", "b")
    with Played(clusters, topic_name, f"DA{step[0]}", tmp_path) as played:
        played.settle()
        switch = played.switch(*TIMEOUT)
        switch.reaches(played.ends[played.other], step)
        clusters["a"].kill()
        said = switch.fails()
        print(step, said)
        flow = f"{played.active}/{played.other}"
        assert "mirror failover" in played.switch(*TIMEOUT).fails()
        began = time.monotonic()
        Switch(tmp_path, "failover", flow, "--yes", *TIMEOUT).succeeds()
        print(f"failover: {time.monotonic() - began:.1f} s")
        played.go_on()


def test_the_cluster_that_became_active_dies_for_good(
    make_clusters: Any, topic_name: str, tmp_path: Path
) -> None:
    """SIGKILL of all brokers of B once it is active, before the switch is through: a
    failover makes A active again, whether a flow back has ever run or not, and the
    group goes on there where it was.
    """
    clusters = make_clusters("a", "b")
    with Played(clusters, topic_name, "DG", tmp_path) as played:
        one, way_back = played.ends[played.active], f"{played.other}/{played.active}"
        switch = played.switch(*TIMEOUT)
        switch.reaches(one, "redirect")
        clusters["b"].kill()
        assert "Everything was undone" not in switch.fails()
        assert f"failover '{way_back.replace('/', '->')}'" in (
            played.switch("--abort", *TIMEOUT).fails()
        )
        Switch(tmp_path, "failover", way_back, "--yes", *TIMEOUT).succeeds()
        assert played.application.write(one, 20)
        played.application.consume(one, [topic_name])
        played.application.require_each_once()


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("first", [0, 3, 6])
def test_a_cluster_with_a_fence_dies_in_each_step(
    make_clusters: Any, topic_name: str, side: str, first: int
) -> None:
    """SIGKILL of all brokers of a cluster while each step of a switch that fences by
    ACLs is under way. The command ends and names the step. If it was B, before it was
    active, A's ACLs are as before at once; if it was A, or B was to become active, an
    abort brings them back once the cluster is there, one by one, and alice writes to A
    again. From step 7 on A refuses her. The same command then goes through, and the
    group goes on at its record.
    """
    made = make_clusters("a", "b", secured=True)
    one, two = (made[name].admin_bootstrap for name in "ab")
    add_users(made["a"], ["alice"])
    alice = scram(made["a"], "alice", "alice")
    for number, step in enumerate(roles.STEPS[first : first + 3]):
        topic, names = f"{topic_name}-{number}", (f"A{number}", f"B{number}")
        create_topic(one, topic, 1)
        allow(one, "alice", "WRITE", topic)
        assert Application(topic, 1, f"app-{topic}").write(one, 10)
        commit_for(one, f"app-{topic}", {topic: 7})
        secured = secured_pair_of(*zip(names, made.values(), strict=True), topic)
        with Rehearsal(
            *((alias, "") for alias in names), topic,
            clusters=secured["clusters"], pair={"fence": "acl"},
            sync_topic_acls=False,
        ) as rehearsal:  # fmt: skip
            copy = f"{names[0]}.{topic}"
            rehearsal.copy(two, copy, 10)
            before = all_acls(one)
            dying = threading.Thread(target=made[side].kill)
            with pytest.raises(MirrorError) as told:
                rehearsal.carry_out({step: dying.start}, step_seconds=10)
            dying.join()
            said = str(told.value)
            print(step, side, said)
            assert said.startswith("step ")
            assert rehearsal.run is not None
            gone_back = undone(said, died=side)
            if side == "b" and gone_back:
                assert all_acls(one) == before
            made[side].start()
            for name in names:
                wait_for(lambda name=name: rehearsal.cluster(name).topics())
            try:
                if not gone_back:
                    rehearsal.abort()
            except MirrorError as error:
                assert "is active since" in str(error)  # noqa: PT017  it may also go through
                assert roles.STEPS.index(step) >= roles.STEPS.index("positions")
                assert write(alice, topic) == DENIED
            else:
                assert all_acls(one) == before
                assert write(alice, topic) == ""
                rehearsal.copy(two, copy, 11)
            rehearsal.carry_out()
            assert rehearsal.run.state(roles.ROLE) == "DONE"
            assert committed(two, f"app-{topic}", copy) == 7
            assert write(alice, topic) == DENIED
