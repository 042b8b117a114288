"""The event trail: what is found in statuses, what is kept, what is returned."""

from __future__ import annotations

from dataclasses import replace
import json
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
import pytest
from structlog.testing import capture_logs

from mirror.cli import status
from mirror.clusters.codes import NONE, UNKNOWN_TOPIC_OR_PARTITION
from mirror.clusters.topics import Topic
from mirror.config.schema import FlowConfig
from mirror.observing.server import StatusServer
from mirror.service.topics import TopicChanges
from mirror.status import events
from mirror.status.events import MOST_OF_A_KIND, Event, EventKind, Trail, noticed
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from mirror.status.values import FlowStatus, JobStatus
from mirror.topics.topics import MirroredTopic, TopicsResult
from tests.harness.commands import mirror
from tests.harness.pages import ROOT
from tests.harness.statuses import partition_status, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.unit

RUNS = FlowStatus(name="A->B", state=FlowState.RUNNING, source="A", target="B")


def seen(before: FlowStatus, **changes: Any) -> list[tuple[str, str, str]]:
    """Kind, subject and text of the events of this change of a status."""
    found = noticed(before, replace(before, **changes))
    return [(event.kind.value, event.subject, event.text) for event in found]


# ---- What is noticed ----------------------------------------------------------------


def test_a_flow_that_fails_and_runs_again():
    """Each failure has its reason; a start is an event once leases run."""
    assert seen(RUNS, state=FlowState.RETRYING, reason="no broker", restarts=1) == [
        ("flow-failed", "", "flow failed and will restart: no broker")
    ]
    failed = replace(RUNS, state=FlowState.RETRYING, reason="no broker", restarts=1)
    assert seen(failed, state=FlowState.STARTING, reason="") == []
    assert seen(failed, state=FlowState.RUNNING, reason="") == [
        ("flow-started", "", "flow runs again, after 1 failure")
    ]
    assert seen(failed, reason="wrong password")[0][2].endswith("wrong password")


def test_a_change_of_the_leader():
    """A known leader is an event, even on an instance that does not lead."""
    assert seen(RUNS, leader="one:7") == [
        ("leader-changed", "", "one:7 leads the flow")
    ]
    led = replace(RUNS, leader="one:7")
    assert seen(led, leader="", state=FlowState.STANDBY) == []
    assert [kind for kind, _, _ in seen(led, leader="two:8")] == ["leader-changed"]


def test_partitions_set_aside_and_back():
    """Partitions of a topic are one event; another reason is another event."""
    well = tuple(partition_status("t", number) for number in range(3))
    bad = tuple(replace(p, state="FAULTED", reason="too large") for p in well)
    before = replace(RUNS, partitions=well)
    after = replace(RUNS, partitions=bad)

    assert seen(before, partitions=bad) == [
        ("partition-faulted", "t", "3 partitions of t are set aside: too large")
    ]
    assert seen(before, partitions=(bad[0], *well[1:])) == [
        ("partition-faulted", "t-0", "t-0 is set aside: too large")
    ]
    assert seen(after, partitions=tuple(bad)) == []
    other = (replace(bad[0], reason="no rights"), *bad[1:])
    assert [subject for _, subject, _ in seen(after, partitions=other)] == ["t-0"]
    assert seen(after, partitions=(*bad[:2], well[2])) == [
        ("partition-recovered", "t-2", "t-2 is being copied again")
    ]
    resting = (*bad[:2], replace(well[2], state="PAUSED"))
    assert seen(after, partitions=resting) == []


def test_a_cluster_that_is_down_is_few_events():
    """Thousands of partitions fail at once: some topics stand for all."""
    bad = tuple(
        partition_status(f"t{n}", p, state="FAULTED", reason=f"t{n}-{p}: no leader")
        for n in range(300)
        for p in range(3)
    )
    found = list(noticed(RUNS, replace(RUNS, partitions=bad)))

    assert len(found) == 21
    assert found[-1].text == "the same for 280 more topics, such as t20"
    assert {event.flow for event in found} == {"A->B"}


def test_losses_are_told_once():
    """A loss that was reported is not reported again."""
    before = replace(RUNS, partitions=(partition_status("t", 0, lost=5),))

    (lost,) = seen(before, partitions=(partition_status("t", 0, lost=12),))
    assert lost[:2] == ("offsets-lost", "t-0")
    assert lost[2].startswith("7 offsets of t-0")
    assert seen(before, partitions=(partition_status("t", 0, lost=5),)) == []


def test_problems_come_and_go():
    """A starting flow has not checked yet, so it reports nothing as resolved."""
    before = replace(RUNS, problems=("p1", "p2"))

    assert seen(before, problems=("p2", "p3")) == [
        ("problem", "", "p3"),
        ("problem-gone", "", "resolved: p1"),
    ]
    starting = replace(before, state=FlowState.STARTING)
    assert seen(starting, problems=()) == []


def test_failing_jobs():
    """Every failed run is an event (the trail merges them), then the first good one."""
    job = JobStatus(name="acls", failures=1, error="denied", succeeded_at=1.0)
    before = replace(RUNS, jobs=(job,))

    again = replace(job, failures=2)
    assert [kind for kind, _, _ in seen(before, jobs=(again,))] == ["job-failed"]
    assert seen(before, jobs=(replace(job, error=""),)) == [
        ("job-recovered", "acls", "job acls works again")
    ]
    assert seen(before, jobs=(replace(job, seconds=2.0),)) == []


def test_an_ordinary_lease_is_no_event():
    """An event every ten seconds would drown what matters."""
    before = replace(RUNS, partitions=(partition_status("t", 0, lag=5),))

    assert seen(before, leases=7, partitions=(partition_status("t", 0, lag=9),)) == []


# ---- What is kept -------------------------------------------------------------------


def test_often_does_not_push_out_seldom():
    """Each kind has its own place, of a bounded size."""
    trail = Trail()
    trail.add(Event(kind=EventKind.TOPIC_CREATED, subject="t", text="created"))
    for number in range(3 * MOST_OF_A_KIND):
        trail.add(Event(kind=EventKind.ACL_ADDED, subject=f"{number}", text="added"))
    found = trail.read()

    assert found[0].kind is EventKind.TOPIC_CREATED
    assert len(found) == 1 + MOST_OF_A_KIND
    assert found[-1].subject == str(3 * MOST_OF_A_KIND - 1)


def test_what_repeats_is_one_event_and_one_line_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flow that fails all night is one event that says how often and since when."""
    now = 1000.0
    monkeypatch.setattr(events.time, "time", lambda: now)
    monkeypatch.setattr(events.time, "monotonic", lambda: now)
    trail = Trail()
    other = Event(kind=EventKind.FLOW_FAILED, flow="A->C", text="down")
    failed = Event(kind=EventKind.FLOW_FAILED, flow="A->B", text="down")
    with capture_logs() as logs:
        for _ in range(7):
            trail.add(failed)
            trail.add(other)
            now += 30
    found = trail.read()

    assert [(e.flow, e.times, e.first, e.time) for e in found] == [
        ("A->B", 7, 1000.0, 1180.0),
        ("A->C", 7, 1000.0, 1180.0),
    ]
    assert [log["log_level"] for log in logs] == ["error"] * 8
    assert logs[-1]["times"] == 7
    assert logs[0] == {
        "log_level": "error", "event": "down", "kind": "flow-failed", "flow": "A->B",
    }  # fmt: skip


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=60))
def test_ids_grow_and_nothing_new_is_missed(texts: list[str]) -> None:
    """Asking again with the last id seen returns everything that came since."""
    trail, last = Trail(), 0
    for text in texts:
        added = trail.add(Event(kind=EventKind.PROBLEM, text=text))
        assert [event.id for event in trail.read(since=last)] == [added.id]
        assert added.id > last
        last = added.id
    assert len(trail.read()) <= len(texts)


def test_ids_go_on_after_a_restart():
    """A client that follows over a restart neither repeats nor misses events."""
    first = Trail().add(Event(kind=EventKind.PROBLEM, text="x"))
    time.sleep(0.002)

    assert Trail().add(Event(kind=EventKind.PROBLEM, text="x")).id > first.id


def test_many_threads_add():
    """Threads add at the same time; no event is lost and no id is given twice."""
    trail = Trail()
    threads = [
        threading.Thread(
            target=lambda thread=number: [
                trail.add(
                    Event(kind=EventKind.PROBLEM, subject=f"{thread}", text=f"{n}")
                )
                for n in range(25)
            ]
        )
        for number in range(8)
    ]
    with capture_logs():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len({event.id for event in trail.read()}) == 200


# ---- What is asked for --------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[tuple[StatusStore, str]]:
    store = StatusStore(("A->B", "A->C"))
    with StatusServer(store, "127.0.0.1", 0) as server:
        yield store, server.url


def test_events_over_http(served: tuple[StatusStore, str]) -> None:
    """Programs ask for what is new since the last answer, also of one flow or kind."""
    store, url = served
    for flow in ("A->B", "A->C"):
        show(store, flow, state=FlowState.RUNNING)
    with urlopen(f"{url}/events") as answer:
        whole = json.load(answer)
    with urlopen(f"{url}/events?since={whole['last']}") as answer:
        later = json.load(answer)
    with urlopen(f"{url}/events?flow=A-%3EC&kind=flow-started") as answer:
        chosen = json.load(answer)

    assert whole["format_version"] == 1
    assert [event["kind"] for event in whole["events"]] == ["flow-started"] * 2
    assert (later["last"], later["events"]) == (whole["last"], [])
    assert [event["flow"] for event in chosen["events"]] == ["A->C"]
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{url}/events?since=yesterday")
    refused.value.close()
    assert refused.value.code == 400


def test_events_for_people(served: tuple[StatusStore, str]) -> None:
    """A table, oldest first, and the same as JSON."""
    store, url = served
    show(store, "A->B", state=FlowState.RUNNING)
    show(store, "A->C", state=FlowState.RETRYING, reason="no broker")
    columns, *rows = mirror("events", "-u", url).stdout.splitlines()
    newest = mirror("events", "-u", url, "-n", "1", "-o", "json").stdout
    of_flow = mirror("events", "-u", url, "--flow", "A/B").stdout.splitlines()

    assert tuple(columns.split()) == status.EVENTS_COLUMNS
    assert [row.split()[2] for row in rows] == ["flow-started", "flow-failed"]
    assert rows[1].endswith("no broker")
    assert [e["level"] for e in json.loads(newest)["events"]] == ["error"]
    assert len(of_flow) == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--kind", "topic-create"), 'did you mean "topic-created"?'),
        (("--since", "yesterday"), "2030-01-31T09:00:00Z"),
        (("--flow", "A"), "A->B"),
    ],
)
def test_wrong_questions(arguments: tuple[str, ...], complaint: str) -> None:
    """An invalid request is refused with what is valid."""
    result = mirror("events", *arguments)

    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.replace("│", " ").split())


def test_following(
    served: tuple[StatusStore, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are shown as they come, once each, until Ctrl-C; names cannot steer the
    terminal.
    """
    store, url = served
    show(store, "A->B", state=FlowState.RUNNING)
    turns = iter(range(3))

    def pause(_seconds: float) -> None:
        if (turn := next(turns)) == 2:
            raise KeyboardInterrupt
        store.trail.add(
            Event(kind=EventKind.GROUP_FOUND, text=f"group {turn}\x1b[2J\n")
        )

    monkeypatch.setattr(status.time, "sleep", pause)
    with capture_logs():
        result = mirror("events", "-u", url, "--follow")
    lines = result.stdout.splitlines()

    assert result.exit_code == 0
    assert len(lines) == 3
    assert all(
        word in line
        for word, line in zip(
            ("flow-started", "group 0", "group 1"), lines, strict=True
        )
    )
    assert "\x1b" not in result.stdout


# ---- Events from the code that changes something -----------------------------------


def topics_found(**ids: str) -> TopicsResult:
    return TopicsResult(
        topics=tuple(
            MirroredTopic(
                topic=t, target_topic=f"A.{t}", partitions=1, topic_id=topic_id
            )
            for t, topic_id in ids.items()
        )
    )


def test_a_recreated_topic_is_told_once():
    """A topic with another id is another topic; without ids, of old brokers or in old
    progress, there is no event.
    """
    store = StatusStore(("A->B",))
    changes = TopicChanges(FlowConfig(source="A", target="B"), store)
    nothing_asked: Any = None  # while no topic is missing, no cluster is asked
    one, two, none = "1" * 32, "2" * 32, "0" * 32
    with capture_logs():
        changes.look(nothing_asked, nothing_asked, topics_found(t=one, old=none))
        changes.look(nothing_asked, nothing_asked, topics_found(t=two, old=one))
        changes.look(nothing_asked, nothing_asked, topics_found(t=two, old=one))
    told = store.trail.read()

    assert [(e.kind, e.subject, e.cluster) for e in told] == [
        (EventKind.TOPIC_RECREATED, "t", "A")
    ]


class Showing:
    """A cluster that has no topics but these."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return {
            name: Topic(
                name=name,
                topic_id=UUID(int=0),
                leaders={},
                error=NONE if name in self.names else UNKNOWN_TOPIC_OR_PARTITION,
                replication_factor=1,
            )
            for name in names
        }


def test_a_deleted_topic_is_remembered_as_long_as_its_copy():
    """Once the copy is deleted, too, the topic is no longer told of, nor asked about:
    topics that come and go leave nothing behind.
    """
    store = StatusStore(("A->B",))
    store.update(
        "A->B", lambda flow: replace(flow, partitions=(partition_status("t", 0),))
    )
    changes: Any = TopicChanges(FlowConfig(source="A", target="B"), store)
    gone = "source topic t was deleted; its copy A.t stays"
    with capture_logs():
        changes.look(None, None, topics_found(t="1" * 32))
        changes.look(Showing(), Showing("A.t"), topics_found())
        assert store.flow("A->B").gone == (gone,)
        changes.look(Showing(), Showing(), topics_found())
        changes.look(None, None, topics_found())  # nothing is missing
    told = store.trail.read()

    assert store.flow("A->B").gone == ()
    assert [(e.kind, e.text) for e in told] == [
        (EventKind.TOPIC_GONE, gone),
        (EventKind.TOPIC_GONE, "source topic t was deleted, and its copy A.t, too"),
    ]


def test_a_copy_that_never_was_is_not_called_remade():
    """Where a copy could not be created at first, no earlier records are missed."""
    changes: Any = TopicChanges(FlowConfig(source="A", target="B"), StatusStore(()))
    late, found = topics_found(t="1" * 32), topics_found(t="1" * 32)

    for _ in range(2):
        assert not changes.look(None, None, replace(late, missing=("A.t",)))[1]
    assert not changes.look(None, None, replace(found, created=("A.t",)))[1]
    (told,) = changes.look(None, None, replace(found, created=("A.t",)))[1]
    assert "was gone and has been re-created" in told


def test_every_kind_stands_in_the_reference():
    """The reference of formats lists every kind."""
    page = (ROOT / "docs/reference/formats.md").read_text()

    assert [kind.value for kind in EventKind if f"`{kind.value}`" not in page] == []
