"""Going home after a failover: `mirror failback`, with an application that counts."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
import pytest
import yaml

from mirror.clusters.transactions import Producer
from mirror.driver import ownership
from mirror.errors import FencedError
from mirror.recovery.journal import Kind
from mirror.recovery.roles import STEPS
from mirror.switching import failback, restoring
from mirror.switching.stage import Stage, StepError
from tests.harness.admin import add_partitions, create_topic, delete_topic
from tests.harness.application import Application
from tests.harness.proofs import proven
from tests.harness.rehearsal import Rehearsal
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


class Failed:
    """A pair of one topic, after a failover A->B that lost nothing."""

    def __init__(
        self,
        clusters: dict[str, PlaygroundCluster],
        topic: str,
        **settings: str,
    ) -> None:
        self.a, self.b = clusters["a"].bootstrap, clusters["b"].bootstrap
        tag = topic[-6:]
        self.topic = topic
        self.ends = (f"FA{tag}", self.a), (f"FB{tag}", self.b)
        self.there = f"{self.ends[0][0]}/{self.ends[1][0]}"
        self.home = f"{self.ends[1][0]}/{self.ends[0][0]}"
        self.application = Application(topic, 1, f"app-{topic}")
        create_topic(self.a, topic, 1)
        create_topic(self.b, topic, 1)
        self.rehearsal = Rehearsal(*self.ends, topic, **settings)
        self.copy = topic if settings else f"{self.ends[0][0]}.{topic}"

    def fail(self) -> None:
        assert self.application.write(self.a, 40)
        self.rehearsal.copy(self.b, self.copy, 40)
        self.rehearsal.see()
        self.rehearsal.carry_out(kind=Kind.FAILOVER)

    def stage(self) -> Stage:
        return _home(self.rehearsal)

    def dies_restoring(self) -> int | None:
        """The exit code of a process that restores, and gets SIGKILL before it commits
        what it has written.
        """

        def restore() -> None:
            empty = restoring._empty

            def last(*arguments: Any) -> None:
                empty(*arguments)
                ownership.commit = _die

            restoring._empty = last
            with Rehearsal(*self.ends, self.topic, policy="identity") as own:
                restoring.restore(_home(own), [self.topic], show=lambda _: None)

        process = multiprocessing.get_context("fork").Process(target=restore)
        process.start()
        process.join(60)
        return process.exitcode


def _home(rehearsal: Rehearsal) -> Stage:
    """Of the switch home."""
    out = rehearsal.stage(Kind.SWITCH)
    return Stage(
        kind=Kind.SWITCH, config=out.config, pair=out.pair, flow=out.reverse,
        reverse=out.flow, source_or_none=out.target, target_or_none=out.source,
        notes={}, note=out.note, tell=out.tell, deadline=out.deadline,
    )  # fmt: skip


@pytest.fixture
def failed(clusters: dict[str, PlaygroundCluster], topic_name: str) -> Iterator[Failed]:
    made = Failed(clusters, topic_name)
    with made.rehearsal:
        made.fail()
        yield made


def test_what_came_back(failed: Failed) -> None:
    """The survey says of the returned cluster that it is as it was, that it has records
    that were not copied, that it has more partitions, and that a topic was re-created
    or is gone; it refuses all but the first and the third, and names the way out.
    """
    stage = failed.stage()
    found = failback.look(stage)
    assert (found.rebuilt, found.wrong, found.larger, found.tail) == (False, (), {}, 0)
    assert not found.unsettled
    assert "back as it was" in found.text
    failback.require_ready(stage, found)

    Application(failed.topic, 1, "late").write(failed.a, 3)
    found = failback.look(stage)
    assert found.tail == 3
    with pytest.raises(StepError, match=r"3 records .*mirror tail list"):
        failback.require_ready(stage, found)

    add_partitions(failed.a, failed.topic, 3)
    assert failback.look(stage).larger == {failed.topic: 3}

    delete_topic(failed.a, failed.topic)
    found = failback.look(stage)
    assert [each.kind for each in found.wrong] == ["ABSENT"]
    assert "is empty" in found.text
    create_topic(failed.a, failed.topic, 1)
    found = failback.look(stage)
    assert [each.kind for each in found.wrong] == ["RECREATED"]
    with pytest.raises(StepError, match="other topics than before"):
        failback.require_ready(stage, found)


def test_a_plan_with_growth(failed: Failed, tmp_path: Path) -> None:
    """Where the returned cluster has more partitions, a dry run shows the survey and
    then each step of the switch, and adds no partition.
    """
    failed.application.write(failed.b, 30)
    copy = f"{failed.ends[1][0]}.{failed.topic}"
    failed.rehearsal.copy(failed.a, copy, 30, back=True)
    add_partitions(failed.a, failed.topic, 3)
    (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(failed.rehearsal.document))
    words = ("failback", failed.home, "--dry-run", "-o", "json")
    survey, *steps = map(json.loads, command(tmp_path, *words).splitlines())
    assert survey["step"] == "survey"
    assert [each["step"] for each in steps] == list(STEPS)
    assert {each["state"] for each in steps} == {"PLANNED"}
    assert failback.look(failed.stage()).larger == {failed.topic: 3}


@pytest.mark.full
@pytest.mark.parametrize("case", ["as it was", "more partitions", "killed"])
def test_home_again(failed: Failed, tmp_path: Path, case: str) -> None:
    """After a failover the application goes on at B, then home: its group has read each
    record once. So it is when A came back with more partitions, which B then gets, and
    when the command was killed midway and run again.
    """
    application, topic = failed.application, failed.topic
    copies = [f"{alias}.{topic}" for alias, _ in failed.ends]
    application.write(failed.b, 30)
    application.consume(failed.b, [topic, copies[0]], most=50)
    if case == "more partitions":
        add_partitions(failed.a, topic, 3)
    document = failed.rehearsal.document
    document["defaults"]["refresh_topics_seconds"] = 1
    flow = failed.home.replace("/", "->")
    with RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(flow)
        mirror.wait_copied(failed.b, topic, flow=flow)
        planned = command(
            tmp_path, "failback", failed.home, "--dry-run", "-o", "json"
        ).splitlines()
        assert json.loads(planned[0])["tail"] == 0
        words = ("failback", failed.home, "--yes")
        if case == "killed":
            Switch(tmp_path, *words, kill_at="6 positions").dies()
        run = Switch(tmp_path, *words)
        run.succeeds()
        if case == "more partitions":
            assert any("3 partitions instead of 1" in line for line in run.said)
        application.write(failed.a, 20)
        application.consume(failed.a, [topic, copies[1]])
        application.require_each_once()


def _content(bootstrap: str, topic: str) -> list[tuple[object, ...]]:
    """Every record of the topic's only partition, as an ordinary client sees it."""
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"content-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[object, ...]] = []
    with contextlib.closing(client):
        while (message := client.poll(30)) is not None:
            if (error := message.error()) is None:
                found.append(
                    (
                        *(message.partition(), message.key(), message.value()),
                        *(message.timestamp(), message.headers()),
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
    raise AssertionError("the end of the topic was not reached")


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_recreated_topic_is_filled_again(
    clusters: dict[str, PlaygroundCluster], topic_name: str, killed: bool
) -> None:
    """A topic that was re-created on A gets what was born there back, record by record
    as it was, and what was born on B with its stamp; leftovers that the flow home wrote
    are there once; a restore killed midway is done again; then A is as it was, without
    a tail, and a proof of the flow home finds as many equal copies.
    """
    failed = Failed(clusters, topic_name, policy="identity")
    with failed.rehearsal:
        failed.fail()
        before = _content(failed.a, topic_name)
        assert len(before) == 40
        failed.application.write(failed.b, 20)
        failed.rehearsal.copy(failed.a, topic_name, 60, back=True)
        delete_topic(failed.a, topic_name)
        create_topic(failed.a, topic_name, 1)
        # The flow home writes the next ones to the topic that is there now.
        failed.application.write(failed.b, 10)
        failed.rehearsal.copy(failed.a, topic_name, 10, back=True)
        stage = failed.stage()
        found = failback.look(stage)
        with pytest.raises(StepError, match="With --restore"):
            failback.require_ready(stage, found)
        failback.require_ready(stage, found, restores=True)
        assert found.restorable == (topic_name,)
        if killed:
            assert failed.dies_restoring() == -signal.SIGKILL
            again = failback.look(stage)
            assert again.restorable == (topic_name,)
            failback.require_ready(stage, again, restores=True)
        restoring.restore(stage, found.restorable, show=lambda _: None)

        after = _content(failed.a, topic_name)
        assert after[:40] == before
        on_b = _content(failed.b, topic_name)
        assert [each[1:4] for each in after] == [each[1:4] for each in on_b]
        assert all(each[4] for each in after[40:])
        found = failback.look(stage)
        assert (found.wrong, found.tail, found.unsettled) == ((), 0, "")
        failback.require_ready(stage, found)
        proof = proven(failed.rehearsal.copying(back=True))
        assert proof.findings == ()
        account = proof.partitions[0].account
        assert (account.records, account.equal, account.filtered) == (70, 70, 0)
        proof = proven(failed.rehearsal.copying())
        assert proof.findings == ()
        account = proof.partitions[0].account
        assert (account.records, account.equal, account.filtered) == (70, 40, 30)


@pytest.mark.full
@pytest.mark.parametrize("killed", [False, True])
def test_home_again_to_a_recreated_topic(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    killed: bool,
) -> None:
    """With --restore the application goes home to a re-created topic, from the middle
    of what was born on A: its group reads each record once. So it is when the switch
    was killed midway.
    """
    failed = Failed(clusters, topic_name, policy="identity")
    application, topic = failed.application, failed.topic
    with failed.rehearsal:
        failed.fail()
        application.consume(failed.b, [topic], most=20)
        application.write(failed.b, 10)
        delete_topic(failed.a, topic)
        create_topic(failed.a, topic, 1)
        document = failed.rehearsal.document
        document["defaults"]["refresh_topics_seconds"] = 1
        flow = failed.home.replace("/", "->")
        with RunningMirror(document, tmp_path) as mirror:
            mirror.wait_running(flow)
            mirror.wait_copied(failed.b, topic, flow=flow)
            words = ("failback", failed.home, "--restore", "--yes")
            if killed:
                Switch(tmp_path, *words, kill_at="6 positions").dies()
            run = Switch(tmp_path, *words)
            run.succeeds()
            application.write(failed.a, 20)
            application.consume(failed.a, [topic])
            application.require_each_once()
            command(tmp_path, "verify", "--flow", failed.home)


@pytest.mark.full
def test_two_restores(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restore that stalls before it empties the topic, while another one fills it,
    deletes nothing of that: it is fenced.
    """
    failed = Failed(clusters, topic_name, policy="identity")
    with failed.rehearsal:
        failed.fail()
        before = _content(failed.a, topic_name)
        failed.application.write(failed.b, 20)
        failed.rehearsal.copy(failed.a, topic_name, 60, back=True)
        delete_topic(failed.a, topic_name)
        create_topic(failed.a, topic_name, 1)
        stage, other = failed.stage(), failed.stage()
        retake = Producer.retake

        def late(self: Producer) -> None:
            monkeypatch.undo()
            restoring.restore(other, [topic_name], show=lambda _: None)
            retake(self)

        monkeypatch.setattr(Producer, "retake", late)
        with pytest.raises(FencedError):
            restoring.restore(stage, [topic_name], show=lambda _: None)
        after = _content(failed.a, topic_name)
        assert (len(after), after[:40]) == (60, before)

        empty = restoring._empty

        def later(*arguments: Any) -> None:
            monkeypatch.undo()
            restoring.restore(other, [topic_name], show=lambda _: None)
            empty(*arguments)

        monkeypatch.setattr(restoring, "_empty", later)
        with pytest.raises(FencedError):
            restoring.restore(stage, [topic_name], show=lambda _: None)
        after = _content(failed.a, topic_name)
        assert (len(after), after[:40]) == (60, before)


def _die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
