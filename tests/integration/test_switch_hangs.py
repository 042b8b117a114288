"""Switches while a whole cluster accepts connections and answers nothing."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirror import patience
from mirror.cli import switch
from mirror.cli.main import app
from mirror.cli.options import Change
from mirror.cli.output import Form
from mirror.cli.switch import Home
from mirror.clusters.admin.acls import ANSWER_SECONDS
from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import MirrorError, UnreachableError
from mirror.pairs import roles
from mirror.pairs.journal import Kind
from mirror.recovery.runner import Operator, Terms
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.failed_over import Failed
from tests.harness.group_moves import commit_for, committed
from tests.harness.metadata import allow
from tests.harness.producers import all_acls
from tests.harness.rehearsal import Rehearsal
from tests.harness.suspending import granted, suspended
from tests.harness.switching import pair_of, secured_pair_of
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_STEP_SECONDS = ANSWER_SECONDS
"""Undoing gives brokers as long for ACLs, whatever is left of a step."""


def frozen(cluster: PlaygroundCluster) -> AbstractContextManager[None]:
    """Its brokers accept connections and answer nothing."""
    return suspended(cluster.pids().values())


def test_work_ends_in_time() -> None:
    """Within a piece of work a cluster that accepts connections and is silent costs
    what is left of the work's time, not what each connection would wait.
    """
    with socket.create_server(("127.0.0.1", 0)) as silent, granted() as waits:
        port = silent.getsockname()[1]
        config = ClusterConfig(alias="A", bootstrap_servers=(f"127.0.0.1:{port}",))
        with (
            patience.until(time.monotonic() + 3),
            pytest.raises(UnreachableError, match=f"127.0.0.1:{port}: no answer"),
        ):
            Cluster(config).connect()
        assert max(waits) <= 3


@pytest.mark.full
@pytest.mark.parametrize("after", ["read_config", "_as_it_is", "agreed"])
def test_a_command_waits_no_longer_than_a_step(
    make_clusters: Any, topic_name: str, tmp_path: Path, after: str
) -> None:
    """A cluster falls silent before the command connects to it, before it looks at the
    journals, or while it asks the user: it waits for no answer longer than
    `--step-timeout`, and names the broker.
    """
    made = make_clusters("a", "b")
    ends = [(f"{name.upper()}1", made[name].bootstrap) for name in "ab"]
    document = pair_of(*ends, topic_name)
    for pair in document["recovery"].values():
        pair["fence"] = "acl"
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(document))
    act = getattr(switch, after)
    with (
        contextlib.ExitStack() as hung, granted() as waits,
        pytest.MonkeyPatch.context() as patch,
    ):  # fmt: skip

        def hangs_then(*arguments: Any, **more: Any) -> Any:
            found = act(*arguments, **more)
            hung.enter_context(frozen(made["b"]))
            waits.clear()
            return found

        patch.setattr(switch, after, hangs_then)
        words = ["switch", "A1/B1", "-c", str(file), "--yes", "--step-timeout", "3"]
        run = CliRunner().invoke(app, words)
        assert run.exit_code == 1
        assert f"{ends[1][1]}: no answer" in run.stderr
        assert max(waits) <= 3


@pytest.mark.full
def test_a_failover_to_a_cluster_that_hangs(
    make_clusters: Any, topic_name: str
) -> None:
    """The cluster that is to be active falls silent before a failover begins to write,
    and as each of its steps begins. The command waits for no answer longer than
    `--step-timeout`, and names step and broker; once the cluster answers, it goes
    through.
    """
    made = make_clusters("a", "b")
    one, two = (made[name].bootstrap for name in "ab")
    for number, step in enumerate(roles.STEPS):
        topic, names = f"{topic_name}-{number}", (f"A{number}", f"B{number}")
        create_topic(one, topic, 1)
        assert Application(topic, 1, f"app-{topic}").write(one, 10)
        with (
            Rehearsal((names[0], one), (names[1], two), topic) as rehearsal,
            contextlib.ExitStack() as hung,
        ):
            copy = f"{names[0]}.{topic}"
            rehearsal.copy(two, copy, 10)
            rehearsal.see()

            waits = hung.enter_context(granted())

            def hang(waits: list[float] = waits) -> None:
                hung.enter_context(frozen(made["b"]))
                waits.clear()  # a cluster that answers may be given longer

            with pytest.raises(MirrorError) as told:
                rehearsal.carry_out(
                    {step: hang}, kind=Kind.FAILOVER, step_seconds=_STEP_SECONDS
                )
            hung.close()
            print(f"{step}: {told.value}")
            assert str(told.value).startswith(f"step {step} failed: cluster ")
            assert "no answer in time" in str(told.value)
            assert max(waits) <= _STEP_SECONDS
            wait_for(lambda other=names[1]: rehearsal.cluster(other).topics())
            rehearsal.carry_out(kind=Kind.FAILOVER)
            assert rehearsal.run is not None
            assert rehearsal.run.state(roles.ROLE) == "DONE"


@pytest.mark.full
def test_a_failback_to_a_cluster_that_hangs(
    make_clusters: Any, topic_name: str
) -> None:
    """After a failover the cluster that came back falls silent once the command has
    connected to it: the survey, the look right before the switch, and the switch's
    begin wait for no answer longer than `--step-timeout`.
    """
    made = make_clusters("a", "b")
    failed = Failed(made, topic_name)
    with failed.rehearsal:
        failed.fail()
        stage = failed.stage()
        back = stage.flow.target
        terms = Terms(
            step_seconds=_STEP_SECONDS, tell=lambda *_: None, did=lambda *_: None
        )
        operator = Operator(stage, terms)
        asked = switch._Asked(
            kind=Kind.SWITCH, flow="", config=Path(), abort=False,
            step_timeout=_STEP_SECONDS, change=Change(output=Form.JSON),
        )  # fmt: skip
        home = Home(stage, asked)
        home.look()

        for act in (
            home.look,
            home.prepare,
            operator.carry_out,
        ):
            with (
                frozen(made["a"]), granted() as waits,
                pytest.raises(MirrorError, match="no answer in time"),
            ):  # fmt: skip
                act()
            assert max(waits) <= _STEP_SECONDS
            wait_for(lambda: failed.rehearsal.cluster(back).topics())


@pytest.mark.full
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_cluster_hangs_in_each_step(
    make_clusters: Any, topic_name: str, side: str
) -> None:
    """A cluster falls silent as a step begins, for each step of a switch that fences by
    ACLs. The command waits for no answer longer than `--step-timeout`, and its message
    names step and broker. What it could undo is undone: unless the silent cluster is
    the one with the fence, its ACLs are as before. Once the cluster answers, the same
    command goes through, and the group goes on at its record.
    """
    made = make_clusters("a", "b", secured=True)
    one, two = (made[name].admin_bootstrap for name in "ab")
    assert made[side].sasl is not None
    silent = made[side].sasl.bootstrap
    for number, step in enumerate(roles.STEPS):
        topic, names = f"{topic_name}-{number}", (f"A{number}", f"B{number}")
        create_topic(one, topic, 1)
        allow(one, "alice", "WRITE", topic)
        assert Application(topic, 1, f"app-{topic}").write(one, 10)
        commit_for(one, f"app-{topic}", {topic: 7})
        secured = secured_pair_of(*zip(names, made.values(), strict=True), topic)
        with (
            Rehearsal(
                *((alias, "") for alias in names), topic,
                clusters=secured["clusters"], pair={"fence": "acl"},
                sync_topic_acls=False,
            ) as rehearsal,
            contextlib.ExitStack() as hung,
        ):  # fmt: skip
            copy = f"{names[0]}.{topic}"
            rehearsal.copy(two, copy, 10)
            before = all_acls(one)

            waits = hung.enter_context(granted())

            def hang(waits: list[float] = waits) -> None:
                hung.enter_context(frozen(made[side]))
                waits.clear()  # a cluster that answers may be given longer

            with pytest.raises(MirrorError) as told:
                rehearsal.carry_out({step: hang}, step_seconds=_STEP_SECONDS)
            hung.close()
            print(f"{step} {side}: {told.value}")
            assert str(told.value).startswith(f"step {step} failed: cluster ")
            assert f"{silent}: no answer in time" in str(told.value)
            assert max(waits) <= _STEP_SECONDS
            moved = "Run the same command again to go on" in str(told.value)
            assert moved == (roles.STEPS.index(step) > roles.STEPS.index(roles.ROLE))
            if side == "b" and not moved:
                assert all_acls(one) == before
            hit = names["ab".index(side)]
            wait_for(lambda hit=hit: rehearsal.cluster(hit).topics())
            rehearsal.carry_out()
            assert rehearsal.run is not None
            assert rehearsal.run.state(roles.ROLE) == "DONE"
            assert committed(two, f"app-{topic}", copy) == 7
