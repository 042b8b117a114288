"""Going home after a failover: `mirror failback`, with an application that counts."""

from __future__ import annotations

from itertools import cycle
import json
import signal
from typing import TYPE_CHECKING

import pytest
import yaml

from mirror.pairs.roles import STEPS
from mirror.recovery import failback
from mirror.recovery.stage import StepError
from tests.harness.admin import (
    add_partitions,
    create_topic,
    delete_topic,
    end_offsets,
)
from tests.harness.application import Application
from tests.harness.dying import dies_after
from tests.harness.failed_over import Failed
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


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

    assert Application(failed.topic, 1, "late").write(failed.a, 3)
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
    assert failed.application.write(failed.b, 30)
    copy = f"{failed.ends[1][0]}.{failed.topic}"
    failed.rehearsal.copy(failed.a, copy, 30, back=True)
    add_partitions(failed.a, failed.topic, 3)
    (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(failed.rehearsal.document))
    words = ("failback", failed.home, "--dry-run", "-o", "json")
    survey, found, *steps = map(json.loads, command(tmp_path, *words).splitlines())
    assert (survey["step"], found["step"]) == ("survey", "checks")
    assert [each["step"] for each in steps] == list(STEPS)
    assert {each["state"] for each in steps} == {"PLANNED"}
    assert failback.look(failed.stage()).larger == {failed.topic: 3}


@pytest.mark.full
def test_a_new_topic(failed: Failed, tmp_path: Path) -> None:
    """A topic that nothing was copied of yet is named as new. Its records are a tail:
    the way home is refused until they are settled, here as skipped, and then it is
    open.
    """
    assert failed.application.write(failed.b, 30)
    copy = f"{failed.ends[1][0]}.{failed.topic}"
    failed.rehearsal.copy(failed.a, copy, 30, back=True)
    document, new = failed.rehearsal.document, f"{failed.topic}-new"
    document["defaults"]["topics"] = [failed.topic, new]
    (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(document))
    create_topic(failed.a, new, 2)
    assert Application(new, 2, "new").write(failed.a, 7)
    words = ("failback", failed.home, "--dry-run", "-o", "json")

    survey = json.loads(command(tmp_path, *words, fails=True))
    kinds = {each["topic"]: each["kind"] for each in survey["topics"]}
    assert kinds == {failed.topic: "SAME", new: "NEW"}
    assert survey["tail"] == 7
    command(tmp_path, "tail", "skip", failed.there, "--topic", new, "--yes")
    survey, _, *steps = map(json.loads, command(tmp_path, *words).splitlines())
    assert survey["tail"] == 0
    assert {each["state"] for each in steps} == {"PLANNED"}


@pytest.mark.full
@pytest.mark.parametrize(
    "case",
    ["as it was", "more partitions", "killed", "killed after", "killed growing"],
)
def test_home_again(failed: Failed, tmp_path: Path, case: str) -> None:
    """After a failover the application goes on at B, then home: its group has read each
    record once. So it is when A came back with more partitions, which B then gets, and
    when the command was killed within and after each of its steps, or between growing
    two topics, and run again on another machine.
    """
    application, topic = failed.application, failed.topic
    copies = [f"{alias}.{topic}" for alias, _ in failed.ends]
    application.write(failed.b, 30)
    application.consume(failed.b, [topic, copies[0]], most=50)
    grows = case in {"more partitions", "killed growing"}
    if grows:
        add_partitions(failed.a, topic, 3)
    document = failed.rehearsal.document
    second = f"{topic}-second"
    if case == "killed growing":
        document["defaults"]["topics"] = [topic, second]
        create_topic(failed.a, second, 3)
        create_topic(failed.b, second, 1)
    document["defaults"]["refresh_topics_seconds"] = 1
    for pair in document["recovery"].values():
        pair["block_seconds"] = 600  # for so many commands
    elsewhere = [tmp_path / name for name in ("first", "second")]
    for machine in elsewhere:
        machine.mkdir()
        (machine / "mirror.yaml").write_text(yaml.safe_dump(document))
    machines = cycle(elsewhere)
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
            for step in STEPS:
                machine = next(machines)
                run = Switch(machine, *words, host=machine.name)
                run.kill_within(failed.a, step, 0.0)
                # Else an earlier kill came after this step; the last one may end.
                assert run.ends() == -signal.SIGKILL or step == STEPS[-1], step
        if case == "killed after":
            for step in STEPS:
                machine = next(machines)
                dies_after(machine, *words, step=step, host=machine.name)
        if case == "killed growing":
            assert failed.dies_growing(second, elsewhere[0]) == -signal.SIGKILL
            assert [len(end_offsets(failed.b, t)) for t in (topic, second)] == [3, 1]
        run = Switch(tmp_path, *words, host="third")
        run.succeeds()
        if grows:
            (grown,) = [
                line for line in run.said if "3 partitions instead of 1" in line
            ]
            assert "on keys are spread differently" in grown
            assert len(end_offsets(failed.b, topic)) == 3
        if case == "killed growing":
            assert len(end_offsets(failed.b, second)) == 3
        application.write(failed.a, 20)
        application.consume(failed.a, [topic, copies[1]])
        application.require_each_once()
