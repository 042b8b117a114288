"""What single steps of a switch find out about real clusters."""

from __future__ import annotations

import contextlib
from dataclasses import replace
import json
import re
import shlex
import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer
import pytest
from typer.testing import CliRunner

from mirror.checks import of_cluster
from mirror.checks.finding import State
from mirror.cli.main import app
from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import MirrorError
from mirror.offsets.heartbeats import Heartbeats
from mirror.offsets.standby import StandbyWriter
from mirror.pairs import control, risk
from mirror.pairs.control import Rebuild, RebuildStep
from mirror.pairs.journal import Kind
from mirror.pairs.risk import PartitionEnd, TopicEnds
from mirror.records.writing import append
from mirror.recovery.drilling import runner as drilling
from mirror.recovery.stage import StepError
from mirror.recovery.steps import STEPS, opening
from mirror.service.pairs import PairFollower
from mirror.service.standby import AccessJob
from mirror.service.topics import CONFIGS, TopicJobs
from mirror.status.states import PartitionState
from mirror.status.store import StatusStore
from mirror.topics.topics import select
from tests.harness.admin import add_partitions, alter_topic, create_topic, delete_topic
from tests.harness.application import Application
from tests.harness.configurations import configuration
from tests.harness.load import producer
from tests.harness.metadata import overrides
from tests.harness.rehearsal import Rehearsal
from tests.harness.statuses import partition_status
from tests.harness.switching import make_active, pair_of
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


def rehearsal_of(
    made_of: dict[str, PlaygroundCluster], topic: str, **more: Any
) -> Rehearsal:
    """A pair with a topic of one partition, of which ten records are copied."""
    ends_of = [made_of[name].bootstrap for name in "ab"]
    one, other = f"A{topic[-6:]}", f"B{topic[-6:]}"
    create_topic(ends_of[0], topic, 1)
    assert Application(topic, 1, "app").write(ends_of[0], 10)
    made = Rehearsal((one, ends_of[0]), (other, ends_of[1]), topic, **more)
    copy = topic if more.get("policy") == "identity" else f"{one}.{topic}"
    made.copy(ends_of[1], copy, 10)
    return made


def test_a_copy_that_is_too_far_behind(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A switch is refused while the copy is further behind than `max_lag_seconds`, by
    what the service saw, and the refusal names both. If no service saw anything, it is
    not known and not taken for zero.
    """
    with rehearsal_of(clusters, topic_name, pair={"max_lag_seconds": 40}) as rehearsal:
        stage = rehearsal.stage()
        assert "lag 0" in STEPS["assess"].do(stage).text
        Application(topic_name, 1, "app").write(clusters["a"].bootstrap, 5)
        with pytest.raises(StepError, match="since when is not known"):
            STEPS["assess"].do(rehearsal.stage(seconds=1))
        seen = time.time() - 100
        (topic,) = select(stage.source, stage.flow).topics
        found = PartitionEnd(end=10, stable=10, at=seen)
        of_topic = TopicEnds(topic_id=topic.topic_id, partitions=(found,))
        StandbyWriter(stage.flow, {risk.ENDS}).keep(
            stage.target, risk.ENDS, {topic_name: of_topic.fields(seen)}, at=seen,
            look={"cluster_id": stage.source.cluster_id},
        )  # fmt: skip
        with pytest.raises(StepError, match=r"1\d\d s behind.* max_lag_seconds is 40"):
            STEPS["assess"].do(rehearsal.stage())


def test_a_partition_that_is_faulted(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A switch is refused while a partition is set aside, by the reason that the
    service saw, and not once all of it is copied, or if it was only set aside now.
    """
    faulted = partition_status(
        topic_name, 0, state=PartitionState.FAULTED, since=time.time() - 60,
        reason="target: MESSAGE_TOO_LARGE",
    )  # fmt: skip
    with rehearsal_of(clusters, topic_name) as rehearsal:
        rehearsal.see(faulted)
        assert "lag 0" in STEPS["assess"].do(rehearsal.stage()).text
        Application(topic_name, 1, "app").write(clusters["a"].bootstrap, 5)
        rehearsal.see(replace(faulted, since=time.time()))
        STEPS["assess"].do(rehearsal.stage())
        rehearsal.see(faulted)
        with pytest.raises(MirrorError, match=r"-0 is FAULTED.*: target: MESSAGE_TOO"):
            rehearsal.carry_out()


@pytest.mark.parametrize("new", [0, 1])
@pytest.mark.parametrize("pattern", [".*", "test-.*"])
def test_a_topic_that_is_paused(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    pattern: str,
    new: int,
) -> None:
    """A switch is refused before anything changes while a topic of the pair is paused,
    whether or not something of it is still to be copied, with the command that ends the
    pause; after that it passes. A failover takes what there is.
    """
    with rehearsal_of(clusters, topic_name) as rehearsal:
        stage = rehearsal.stage()
        control.change_pauses(stage.target, stage.flow, "elsewhere", paused=True)
        rehearsal.see()
        STEPS["assess"].do(stage)
        control.change_pauses(stage.target, stage.flow, pattern, paused=True)
        Application(topic_name, 1, "app").write(clusters["a"].bootstrap, new)
        with pytest.raises(
            MirrorError, match=f"topic {topic_name}: it is paused since"
        ) as refused:
            rehearsal.carry_out()
        assert not rehearsal.said
        STEPS["assess"].do(rehearsal.stage(Kind.FAILOVER))

        path = tmp_path / "mirror.yaml"
        path.write_text(json.dumps(rehearsal.document))
        resumes = r"mirror (resume \S+(?: --topic '[^']*')?)"
        (command,) = re.findall(resumes, str(refused.value))
        words = [*shlex.split(command), "-c", str(path), "--yes"]
        run = CliRunner().invoke(app, words)
        assert run.exit_code == 0, run.output
        copy = f"{stage.flow.source}.{topic_name}"
        rehearsal.copy(clusters["b"].bootstrap, copy, 10 + new)
        rehearsal.carry_out()


def test_a_copy_that_is_being_rebuilt(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A switch is refused while a copy is being rebuilt, which nobody may resume."""
    with rehearsal_of(clusters, topic_name) as rehearsal:
        stage = rehearsal.stage()
        control.change_pauses(stage.target, stage.flow, "elsewhere", paused=True)
        (topic,) = select(stage.source, stage.flow).topics
        begun = Rebuild(
            topic=topic_name, target_topic=topic.target_topic, step=RebuildStep.PAUSED,
            at=time.time(), source_id=stage.source.cluster_id, topic_id=topic.topic_id,
            copy_id=topic.topic_id, partitions=1, replication_factor=1,
        )  # fmt: skip
        record = begun.record(stage.flow.name)
        append(stage.target, control.topic_name(stage.flow.source), [record])
        with pytest.raises(StepError, match=f"{topic_name}: its copy is being rebuilt"):
            STEPS["assess"].do(stage)


def test_a_fence_without_an_authorizer(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A cluster without an authorizer cannot be fenced by ACLs: `check` says so, and a
    switch is refused before anything changes.
    """
    with rehearsal_of(clusters, topic_name, pair={"fence": "acl"}) as rehearsal:
        for alias in rehearsal.config.clusters:
            cluster = rehearsal.cluster(alias)
            (found,) = of_cluster.right_findings(cluster, rehearsal.config, [], {})
            assert found.state is State.FAIL
            assert "fence is acl" in found.detail
        with pytest.raises(MirrorError, match=r"step assess .* no authorizer"):
            rehearsal.carry_out()


def test_keys_that_would_move(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A topic with more partitions on the cluster that is to be active is refused, with
    both numbers: producers there would spread its keys differently.
    """
    with rehearsal_of(clusters, topic_name, policy="identity") as rehearsal:
        add_partitions(clusters["b"].bootstrap, topic_name, 2)
        with pytest.raises(StepError, match=r"has 2 partitions on .* keys would move"):
            STEPS["assess"].do(rehearsal.stage())


def test_who_else_writes(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A flow from a third cluster into what is to be quiet, a topic that was made again
    since it was copied, and one that producers would go on in, and that is not there,
    are named before anything changes.
    """
    one, other = f"A{topic_name[-6:]}", f"B{topic_name[-6:]}"
    third = {"C": {"bootstrap_servers": clusters["b"].bootstrap}}
    with rehearsal_of(
        clusters,
        topic_name,
        clusters=third,
        flows={f"C->{one}": {"policy": "identity"}},
    ) as rehearsal:
        rehearsal.see()
        STEPS["assess"].do(rehearsal.stage())
        missing, _, warning = rehearsal.found
        assert missing.startswith(f"cluster {other}: it does not have {topic_name}, to")
        assert f"flow C->{one}: it copies into {topic_name} on {one}" in warning
        create_topic(clusters["b"].bootstrap, topic_name, 1)
        delete_topic(clusters["a"].bootstrap, topic_name)
        create_topic(clusters["a"].bootstrap, topic_name, 1)
        STEPS["assess"].do(rehearsal.stage())
        again = f"flow {one}->{other}: made again on {one} since it was copied: "
        assert any(each.startswith(again) for each in rehearsal.found)


def test_what_applications_have_to_do(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Where copies have other names, a switch says which consumers have to subscribe to
    more; a failover names applications that write in transactions, from what the
    service has noted on the cluster that is left.
    """
    a, one, other = (
        clusters["a"].bootstrap,
        f"A{topic_name[-6:]}",
        f"B{topic_name[-6:]}",
    )
    with rehearsal_of(clusters, topic_name) as rehearsal:
        reader = Consumer(
            {
                "bootstrap.servers": a,
                "group.id": f"app-{topic_name}",
                "auto.offset.reset": "earliest",
            }
        )
        reader.subscribe([topic_name])
        with contextlib.closing(reader):
            wait_for(lambda: reader.poll(0.1) and reader.assignment())
            reader.commit(asynchronous=False)
            STEPS["assess"].do(rehearsal.stage())
        wanted = f"have to subscribe to {one}.{topic_name} on {other}"
        assert any(wanted in each for each in rehearsal.found)

        def failed_over() -> str:
            STEPS["assess"].do(rehearsal.stage(Kind.FAILOVER))
            return " ".join(rehearsal.found)

        rehearsal.see()
        assert f"who writes to {one} in transactions: not known" in failed_over()
        client = producer(a, transactional_id=f"app-{topic_name}")
        client.init_transactions(30)
        client.begin_transaction()
        client.produce(topic_name, b"in a transaction")
        client.commit_transaction(30)
        flow = rehearsal.config.flows[f"{one}->{other}"]
        ends = rehearsal.cluster(one), rehearsal.cluster(other)
        AccessJob(flow).job().work(*ends)
        said = failed_over()
        assert "transactions: not known" not in said
        assert f"of app-{topic_name} may be copied in part" in said


def test_a_flow_that_rests_writes_nothing_to_a_switch(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Another pair feeds the cluster that is to be quiet. A dry run names the flow out
    of that pair's active cluster as a writer and not the one that rests, before and
    after they change places, and so does the stage of a drill.
    """
    tag = topic_name[-6:]
    one, x, y = f"A{tag}", f"X{tag}", f"Y{tag}"
    # Under another address, or the flow into A would be within one cluster.
    ends = (
        made.bootstrap.replace("127.0.0.1", "localhost") for made in clusters.values()
    )
    feeding = pair_of(*zip((x, y), ends, strict=True), topic_name)
    feeding["recovery"][f"{x}<->{y}"]["feeds"] = [one]
    out = {f"{x}->{one}": {}, f"{y}->{one}": {}}
    with rehearsal_of(
        clusters,
        topic_name,
        policy="identity",
        clusters=feeding["clusters"],
        flows={**feeding["flows"], **out},
    ) as rehearsal:
        document = rehearsal.document
        document["recovery"].update(feeding["recovery"])
        path = tmp_path / "mirror.yaml"
        path.write_text(json.dumps(document))
        config = configuration(document)
        pair = next(iter(config.recovery.values()))
        flow = next(iter(config.flows.values()))
        assert flow.name == f"{one}->B{tag}"

        def named() -> set[str]:
            words = ("switch", flow.name, "-c", str(path), "--dry-run", "-o", "json")
            run = CliRunner().invoke(app, words)
            assert run.exit_code == 0, run.output
            step, *_ = map(json.loads, run.stdout.splitlines())
            said = {each["subject"] for each in step["findings"]}
            drilled = drilling.stage_of(config, pair, flow, rehearsal.cluster).config
            there = {each.name for each in drilled.enabled_flows}
            found = {name for name in out if f"flow {name}" in said}
            assert found == there & out.keys()
            return found

        assert named() == {f"{x}->{one}"}
        make_active(feeding, x, y, 2)
        assert named() == {f"{y}->{one}"}


def test_heartbeats_keep_no_switch_from_being_quiet(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """The fence of a flow that copies heartbeats finds its source quiet while somebody
    writes them there all the time, as the flow that rests does; the cut has none.
    """
    one, other = f"A{topic_name[-6:]}", f"B{topic_name[-6:]}"
    begun, over = threading.Event(), threading.Event()

    def beat() -> None:
        config = ClusterConfig(alias=one, bootstrap_servers=(clusters["a"].bootstrap,))
        with contextlib.closing(Cluster(config).connect()) as cluster:
            each = Heartbeats(other, one, "none")
            while not over.wait(0.1):
                each.sync(cluster, cluster)
                begun.set()

    with rehearsal_of(
        clusters,
        topic_name,
        flows={f"{one}->{other}": {"heartbeats_replication": True}},
    ) as rehearsal:
        beating = threading.Thread(target=beat)
        beating.start()
        assert begun.wait(60)
        try:
            done = STEPS["fence"].do(rehearsal.stage(seconds=10))
        finally:
            over.set()
            beating.join()
    assert done.notes["cut"] == {topic_name: [10]}


def test_where_the_way_back_begins(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """In a topic that both clusters write, a dry run shows the first record that was
    not copied there; a look changes nothing, so the next one shows the same.
    """
    with rehearsal_of(clusters, topic_name, policy="identity") as rehearsal:
        assert Application(topic_name, 1, "app").write(clusters["b"].bootstrap, 3)
        (begin,) = opening.starts_back(rehearsal.stage()).values()
        assert begin == (None, 11)  # ten copies and the end of their transaction
        assert list(opening.starts_back(rehearsal.stage()).values()) == [begin]


def test_configs_follow_the_role(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """In topics that both clusters write, configs that somebody changes on the cluster
    that is active now come to the other one, whichever flow stands first in the file;
    what is changed on the passive one is corrected.
    """
    a, b = (clusters[name].bootstrap for name in "ab")
    with rehearsal_of(
        clusters, topic_name, policy="identity", pair={"both_ways": True}
    ) as rehearsal:
        rehearsal.carry_out()
        alter_topic(a, topic_name, retention_ms="111000")
        alter_topic(b, topic_name, retention_ms="222000")
        store = StatusStore(tuple(rehearsal.config.flows))
        follower = PairFollower(rehearsal.config, store)
        follower.start()
        try:
            resting = next(iter(rehearsal.config.flows))
            wait_for(lambda: follower.passive() == {resting})
            for flow in rehearsal.config.flows.values():
                jobs = TopicJobs(
                    flow, rehearsal.config, store=store, tell=lambda *_: None,
                    passive=follower.passive,
                ).jobs()  # fmt: skip
                (work,) = [job.work for job in jobs if job.name == CONFIGS]
                work(rehearsal.cluster(flow.source), rehearsal.cluster(flow.target))
        finally:
            follower.close()
        for bootstrap in (a, b):
            wait_for(
                lambda at=bootstrap: (
                    overrides(at, topic_name)["retention.ms"] == "222000"
                )
            )
