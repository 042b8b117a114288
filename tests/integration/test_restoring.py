"""Topics of the cluster that is back are filled again: `mirror failback --restore`.

An ordinary client reads what was there before and what is there afterwards, record by
record; proofs of both flows agree.
"""

from __future__ import annotations

from dataclasses import replace
import signal
from typing import TYPE_CHECKING, Any
import uuid

from confluent_kafka import Producer as TransactionalProducer
import pytest
import yaml

from mirror.clusters.admin import configs
from mirror.clusters.transactions import Producer
from mirror.errors import FencedError
from mirror.offsets import progress
from mirror.offsets.progress import Position
from mirror.pairs.control import PausesReader
from mirror.pairs.journal import Kind
from mirror.recovery import failback
from mirror.recovery.stage import StepError
from mirror.service import ownership
from mirror.service.ownership import PositionUpdate
from tests.harness.admin import create_topic, delete_topic
from tests.harness.failed_over import KILLS, Failed, content
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_full = pytest.mark.full


@pytest.fixture
def identical(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> Iterator[Failed]:
    """After a failover A->B: 40 records were born on A, then 20 on B."""
    made = Failed(clusters, topic_name, policy="identity")
    try:
        made.fail()
        made.application.write(made.b, 20)
        yield made
    finally:
        made.rehearsal.__exit__(None, None, None)


def _require_home(
    failed: Failed, before: list[tuple[object, ...]], *, later: int = 0
) -> None:
    """What was born on A is there as it was, what was born on B with its stamp, in the
    order of B; both flows are proven, and nothing is left to do. `later`: how many
    records the flow home has copied since.
    """
    after, on_b = content(failed.a, failed.topic), content(failed.b, failed.topic)
    assert after[:40] == before
    assert [each[1:4] for each in after] == [each[1:4] for each in on_b]
    assert all(each[4] for each in after[40:])
    count = len(on_b)
    assert failed.proven(back=True) == (count, count, 0)
    count -= later
    assert failed.proven() == (count, 40, count - 40)
    found = failback.look(failed.stage())
    assert (found.rebuilt, found.wrong) == (False, ())
    assert (found.tail, found.unsettled) == (0, "")
    failback.require_ready(failed.stage(), found)
    assert (
        not PausesReader(
            failed.rehearsal.cluster(failed.ends[0][0]), failed.stage().flow
        )
        .read()
        .rules
    )


@_full
def test_a_recreated_topic_is_filled_again(identical: Failed) -> None:
    """A topic that was re-created on A gets what was born there back, record by record
    as it was, and what was born on B with its stamp; leftovers that the flow home wrote
    are there once. A proof by content takes none of what came home for a copy, nor for
    a finding.
    """
    failed, topic = identical, identical.topic
    before = content(failed.a, topic)
    assert len(before) == 40
    failed.rehearsal.copy(failed.a, topic, 60, back=True)
    delete_topic(failed.a, topic)
    create_topic(failed.a, topic, 1)
    # The flow home writes the next ones to the topic that is there now.
    failed.application.write(failed.b, 10)
    failed.rehearsal.copy(failed.a, topic, 10, back=True)
    found = failback.look(failed.stage())
    with pytest.raises(StepError, match="With --restore"):
        failback.require_ready(failed.stage(), found)
    assert found.restorable == (topic,)
    failed.restore()
    _require_home(failed, before)
    assert failed.proven(back=True, by_content=True) == (70, 30, 40)


@pytest.mark.parametrize("begun", [False, pytest.param(True, marks=_full)])
def test_a_topic_that_is_gone_is_created_and_filled(
    identical: Failed, begun: bool
) -> None:
    """A topic that is gone from A is created with B's partitions and configs, and
    filled; so it is before the flow home has ever run, which then goes on behind what
    came home. Heartbeats, which a service emits on A again, are none of its business.
    """
    failed, topic = identical, identical.topic
    before = content(failed.a, topic)
    beats = f"{failed.ends[1][0]}.heartbeats"
    at = Position(offset=3, topic_id=uuid.uuid4())
    create_topic(failed.a, beats, 1)
    ownership.rewrite_progress(
        failed.stage().reverse,
        failed.stage().source,
        lambda _: PositionUpdate(positions={(beats, 0): at}),
    )
    if begun:
        failed.rehearsal.copy(failed.a, topic, 60, back=True)
    b = failed.rehearsal.cluster(failed.ends[1][0])
    assert not configs.alter(b, {topic: {"max.message.bytes": "1234567"}})
    delete_topic(failed.a, topic)
    found = failback.look(failed.stage())
    assert ([each.kind for each in found.wrong], found.rebuilt) == (["ABSENT"], False)
    failed.restore()
    shown = configs.describe(failed.rehearsal.cluster(failed.ends[0][0]), [topic])
    assert shown[topic].configs["max.message.bytes"].value == "1234567"
    failed.application.write(failed.b, 10)
    failed.rehearsal.copy(failed.a, topic, 70, back=True)
    _require_home(failed, before, later=10)


@_full
def test_transactions_come_home(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Producers write in transactions on both clusters, of which some are aborted, also
    the last one: exactly the committed records of A come home as they were, those of B
    with their stamp, in order; and both flows are proven.
    """
    failed, topic = Failed(clusters, topic_name, policy="identity"), topic_name
    try:
        _write_in_transactions(failed.a, topic, b"a")
        failed.rehearsal.copy(failed.b, topic, 30)
        failed.rehearsal.see()
        failed.rehearsal.carry_out(kind=Kind.FAILOVER)
        _write_in_transactions(failed.b, topic, b"b")
        before = content(failed.a, topic)
        assert len(before) == 30
        delete_topic(failed.a, topic)
        failed.restore()
        after, on_b = content(failed.a, topic), content(failed.b, topic)
        assert after[:30] == before
        assert [each[1:4] for each in after] == [each[1:4] for each in on_b]
        assert [each[1] for each in after[30:]] == [
            key.replace(b"a", b"b") for _, key, *_ in before
        ]
        assert all(each[4] for each in after[30:])
        assert failed.proven(back=True) == (60, 60, 0)
        assert failed.proven() == (60, 30, 30)
    finally:
        failed.rehearsal.__exit__(None, None, None)


def _write_in_transactions(bootstrap: str, topic: str, name: bytes) -> None:
    """Three of ten records, each between two that are aborted."""
    client = TransactionalProducer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{name.decode()}"}
    )
    client.init_transactions(60)
    for number in range(7):
        client.begin_transaction()
        commits = number % 2 == 1
        for each in range(10):
            key = b"%s%d.%d" % (name, number, each)
            client.produce(topic, key=key, value=b"v" * 50, partition=0)
        assert client.flush(30) == 0
        (client.commit_transaction if commits else client.abort_transaction)(60)


@_full
@pytest.mark.parametrize("killed", [None, *KILLS])
def test_a_rebuilt_cluster_is_filled(
    identical: Failed,
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    killed: str | None,
) -> None:
    """A cluster with another id gets what was born on the old one, record by record as
    it was; from then on both flows and their proofs go by the new cluster. So it is
    when the restore was killed before any of its steps, and run again.
    """
    failed = identical
    before = content(failed.a, failed.topic)
    failed.rebuild(make_clusters("rebuilt")["rebuilt"].bootstrap)
    found = failback.look(failed.stage())
    assert found.rebuilt
    assert "was rebuilt" in found.text
    with pytest.raises(StepError, match="With --restore"):
        failback.require_ready(failed.stage(), found)
    if killed is not None:
        assert failed.dies_restoring(killed) == -signal.SIGKILL
        assert failback.look(failed.stage()).rebuilt
    failed.restore()
    failed.application.write(failed.b, 10)
    failed.rehearsal.copy(failed.a, failed.topic, 70, back=True)
    _require_home(failed, before, later=10)
    # What is written there now goes to B, and nothing else does.
    failed.application.write(failed.a, 5)
    failed.rehearsal.copy(failed.b, failed.topic, 75)
    assert failed.proven() == (75, 45, 30)
    assert failed.proven(back=True) == (70, 70, 0)


@_full
@pytest.mark.parametrize("killed", KILLS)
def test_a_restore_killed_is_done_again(identical: Failed, killed: str) -> None:
    """A restore of a topic that the flow home writes to, killed before any of its
    steps, is done by the next one.
    """
    failed, topic = identical, identical.topic
    before = content(failed.a, topic)
    failed.rehearsal.copy(failed.a, topic, 60, back=True)
    delete_topic(failed.a, topic)
    create_topic(failed.a, topic, 1)
    failed.application.write(failed.b, 10)
    failed.rehearsal.copy(failed.a, topic, 10, back=True)
    assert failed.dies_restoring(killed) == -signal.SIGKILL
    failed.restore()
    _require_home(failed, before)


@_full
def test_a_restore_killed_at_each_commit(
    identical: Failed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restores are killed one after the other, each of them right before or right after
    a later commit, until one comes to its end: what an ordinary client then reads is
    what was there before, once.
    """
    monkeypatch.setattr(failback, "_PIECE_BYTES", 1)
    failed, topic = identical, identical.topic
    before = content(failed.a, topic)
    failed.rehearsal.copy(failed.a, topic, 60, back=True)
    delete_topic(failed.a, topic)
    create_topic(failed.a, topic, 1)
    number = 1
    while failed.dies_at_commit(number, late=False):
        assert failback.look(failed.stage()).restorable == (topic,)
        failed.dies_at_commit(number, late=True)
        number += 1
    # Take-overs of both flows, the records, the end of the pause, the position.
    assert number > 6
    _require_home(failed, before)


@_full
def test_a_shorter_topic_is_refused(identical: Failed) -> None:
    """Where A lost the end of a topic, the command says so and names the way out, which
    restores all of it.
    """
    failed, topic = identical, identical.topic
    before = content(failed.a, topic)
    stage = failed.stage()
    out, b = stage.reverse, stage.source
    known = progress.read(b, progress.topic_name(out.source)).positions[topic, 0]
    # As if A's log had been longer before.
    ownership.rewrite_progress(
        out,
        b,
        lambda _: PositionUpdate(
            positions={(topic, 0): replace(known, offset=known.offset + 5)}
        ),
    )
    found = failback.look(stage)
    assert [each.kind for each in found.wrong] == ["SHORTER"]
    with pytest.raises(StepError, match=f"and no others: delete {topic} on"):
        failback.require_ready(stage, found, restores=True)
    delete_topic(failed.a, topic)
    failed.restore()
    _require_home(failed, before)


@pytest.mark.parametrize("absent", [pytest.param(False, marks=_full), True])
def test_where_copies_have_other_names(
    clusters: dict[str, PlaygroundCluster], topic_name: str, absent: bool
) -> None:
    """With the default policy, what was born on A comes home from the copy with A's
    prefix; what B's applications wrote stays in copies with theirs.
    """
    failed = Failed(clusters, topic_name)
    with failed.rehearsal:
        failed.fail()
        before = content(failed.a, topic_name)
        failed.application.write(failed.b, 20)
        delete_topic(failed.a, topic_name)
        if not absent:
            create_topic(failed.a, topic_name, 1)
        found = failed.restore()
        assert (found.wrong, found.tail, found.unsettled) == ((), 0, "")
        failback.require_ready(failed.stage(), found)
        assert content(failed.a, topic_name) == before
        assert failed.proven() == (40, 40, 0)
        failed.application.write(failed.a, 5)
        failed.rehearsal.copy(failed.b, failed.copy, 45)
        assert failed.proven() == (45, 45, 0)


@_full
@pytest.mark.parametrize("kind", ["recreated", "rebuilt", "other names"])
@pytest.mark.parametrize("killed", [False, True])
def test_home_again(
    *,
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    tmp_path: Path,
    killed: bool,
    kind: str,
) -> None:
    """With --restore the application goes home to a re-created topic, or to a cluster
    with another id, from the middle of what was born on A: its group reads each record
    once. So it is with the default policy, and when the switch was killed midway and
    run again on another machine.
    """
    settings = {} if kind == "other names" else {"policy": "identity"}
    failed, topic = Failed(clusters, topic_name, **settings), topic_name
    application = failed.application
    names = {topic}
    if kind == "other names":
        names.add(f"{failed.ends[1][0]}.{topic}")
    failed.fail()
    application.consume(failed.b, [failed.copy], most=20)
    application.write(failed.b, 10)
    if kind == "rebuilt":
        failed.rebuild(make_clusters("rebuilt")["rebuilt"].bootstrap)
    else:
        delete_topic(failed.a, topic)
        create_topic(failed.a, topic, 1)
    document = failed.rehearsal.document
    document["defaults"]["refresh_topics_seconds"] = 1
    flow = failed.home.replace("/", "->")
    with failed.rehearsal, RunningMirror(document, tmp_path) as mirror:
        mirror.wait_running(flow)
        mirror.wait_copied(failed.b, topic, flow=flow)
        words = ("failback", failed.home, "--restore", "--yes")
        if killed:
            elsewhere = tmp_path / "elsewhere"
            elsewhere.mkdir()
            (elsewhere / "mirror.yaml").write_text(yaml.safe_dump(document))
            run = Switch(elsewhere, *words, host="second", kill_at="6 positions")
            run.dies()
        run = Switch(tmp_path, *words)
        run.succeeds()
        application.write(failed.a, 20)
        application.consume(failed.a, sorted(names))
        application.require_each_once()
        mirror.wait_copied(failed.a, topic, flow=failed.there.replace("/", "->"))
        command(tmp_path, "verify", "--flow", failed.home)
        command(tmp_path, "verify", "--flow", failed.there)


@_full
def test_two_restores(identical: Failed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore that stalls while another one begins and fills the topic, deletes
    nothing of that, ends none of its pauses, and moves no position: it is fenced.
    """
    failed, topic = identical, identical.topic
    before = content(failed.a, topic)
    failed.rehearsal.copy(failed.a, topic, 60, back=True)
    delete_topic(failed.a, topic)
    create_topic(failed.a, topic, 1)
    stage, late = failed.stage(), failed.stage()

    def stalls(where: Any, name: str) -> None:
        does = getattr(where, name)

        def later(*arguments: Any, **named: Any) -> Any:
            monkeypatch.undo()
            failback.restore(late, {topic}, show=lambda _: None)
            return does(*arguments, **named)

        monkeypatch.setattr(where, name, later)
        with pytest.raises(FencedError):
            failback.restore(stage, {topic}, show=lambda _: None)
        after = content(failed.a, topic)
        assert (len(after), after[:40]) == (60, before)

    with pytest.MonkeyPatch.context() as patch:
        # The flow out stays where it is, so there is something to fill each time.
        patch.setattr(failback, "_pass", lambda *_: None)
        stalls(Producer, "retake")
        stalls(failback, "_empty")
        stalls(failback.writing, "write")
    stalls(failback, "rewrite_progress")
    _require_home(failed, before)
