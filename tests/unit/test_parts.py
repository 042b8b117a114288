"""Parts of a flow: who may write, who copies a topic, and what services are told."""

from __future__ import annotations

from dataclasses import dataclass, field
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
import uuid

import pytest

from mirror.adoption import back
from mirror.clusters import codes
from mirror.clusters.admin import groups
from mirror.clusters.topics import NO_ID, Topic
from mirror.config import changes, rules
from mirror.config.schema import MirrorConfig
from mirror.config.traits import Effect
from mirror.driver import parts, rivalry
from mirror.driver.copied_topics import CopiedTopics
from mirror.driver.flow_status import Problems
from mirror.driver.generation import Generation
from mirror.driver.parts import Instance
from mirror.errors import ClusterError, DividedError, MirrorError
from mirror.metadata import topics
from mirror.metadata.topics import MirroredTopic, TopicsResult
from mirror.metrics.exposition import exposition
from mirror.offsets import standby
from mirror.offsets.progress import Position, Progress
from mirror.preflight.permissions import names
from mirror.preflight.permissions.extent import Extent, beginning
from mirror.recovery import ends
from mirror.relay.target import owner_id, transactional_ids
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from mirror.status.values import FlowStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirror.config.schema import FlowConfig

pytestmark = pytest.mark.unit

_TARGET = cast("Any", None)


def config(**flow: Any) -> MirrorConfig:
    return MirrorConfig.model_validate(
        {
            "clusters": {
                alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("A", "B")
            },
            "flows": {"A->B": flow},
        }
    )


def flow(part: str | None, *topics: str, **settings: Any) -> FlowConfig:
    return config(part=part, topics=list(topics), **settings).flows["A->B"]


def begin(
    known: Generation,
    what: FlowConfig,
    *,
    copied: tuple[str, ...] = (),
    slots: int = 1,
    begun: bool = False,
    command: bool = False,
) -> Generation:
    """What the run of a service, or a command, makes of a generation."""
    positions = {(topic, 0): Position(offset=1) for topic in copied}
    made = parts.taken_up(
        what,
        *(known, known, Progress(positions=positions)),
        slots=slots,
        begun=begun,
        instance=None if command else Instance(what, group="g"),
    )
    return made if command else parts.reselected(what, made)


def test_a_part_that_begins_leaves_the_others_alone() -> None:
    """Another run's id changes with its own part only; without `part`, a command ends
    the runs of all. Slots find by the same text whether they may write.
    """
    one, two, whole = flow("one", "a"), flow("two", "b"), flow(None, "a", "b")
    first = begin(begin(Generation(), one, slots=3), two)
    again = begin(first, two, slots=2)
    assert again.run_of("one") == first.run_of("one")
    assert again.run_of("two") != first.run_of("two")
    assert [each.slots for each in again.parts] == [3, 2]
    forced = begin(again, whole, command=True)
    assert not {each.id for each in forced.parts} & {each.id for each in again.parts}
    assert [each.topics for each in forced.parts] == [("a",), ("b",)]
    for made in (again, forced):
        read = Progress(generation=made.text)
        for part in ("one", "two", None):
            assert read.run_of(part) == made.run_of(part)
        assert read.run_of("three") == ""
        assert Generation.parse(made.text).parts == made.parts


def test_whose_ids_are_fenced() -> None:
    """A part fences its own and those of a run without parts; a command all of them.
    All are covered by the flow's prefix, and a flow without parts has the ids it had.
    """
    one = flow("one", "a")
    made = begin(begin(Generation(slots=2), one, slots=3), flow("two", "b"), slots=4)
    assert parts.held(one, made) == [(None, 2), ("one", 3)]
    assert parts.held(flow(None, "a"), made) == [(None, 2), ("one", 3), ("two", 4)]
    assert transactional_ids("A->B", 1)[0] == "mirror.A->B.1.0"
    covered = beginning(names.transactional_ids(one))
    for name in (*transactional_ids("A->B", 0, "one"), owner_id("A->B")):
        assert covered.covers(Extent(name=name))
    every = {
        name
        for part in (None, "one", "two")
        for slot in range(3)
        for name in transactional_ids("A->B", slot, part)
    }
    assert len(every) == 27


def test_the_part_that_was_first_copies_a_topic() -> None:
    """Of parts that select a topic, the first one copies it; one whose topics change
    is behind the others from then on. What is left out is said.
    """
    one, two = flow("one", "a.*"), flow("two", "a.*", "b", topics_exclude=["x.*"])
    made = begin(begin(Generation(), one), two)
    assert parts.before(one, made) == ()
    (first,) = parts.before(two, made)
    left = parts.without(two, [first])
    assert not left.topic_filter.matches("a1")
    assert left.topic_filter.matches("b")
    (told,) = parts.left(two, [first], ["a1", "a2", "b", "other"])
    assert told.startswith("2 topics, such as a1: the part one ")
    same = begin(made, one)
    assert [each.name for each in same.parts] == ["one", "two"]
    turned = flow("two", "b", "a.*", topics_exclude=["x.*"])
    assert [each.name for each in begin(made, turned).parts] == ["one", "two"]
    wider = begin(made, flow("one", "a.*", "b"))
    assert [each.name for each in wider.parts] == ["two", "one"]
    assert [each.name for each in begin(wider, one, command=True).parts] == [
        "two",
        "one",
    ]


def test_a_part_gives_topics_up_once_its_earlier_run_is_fenced() -> None:
    """Until then its noted topics and its place stay, so no other part copies them
    beside a task of the earlier run.
    """
    made = begin(begin(Generation(), flow("one", "a", "b")), flow("two", "b"))
    less = flow("one", "a")
    first = parts.taken_up(
        less,
        *(made, made, Progress()),
        slots=1,
        begun=False,
        instance=Instance(less, group="g"),
    )
    assert [each.topics for each in first.parts] == [("a", "b"), ("b",)]
    assert first.run_of("one") != made.run_of("one")
    then = parts.reselected(less, first)
    assert [each.topics for each in then.parts] == [("b",), ("a",)]
    assert then.run_of("one") == first.run_of("one")
    assert then.id != first.id
    assert parts.reselected(less, then) is then


def test_what_a_run_would_leave_to_others() -> None:
    """As the run will: with the noted topics, to those before it; with others, or if it
    is new, to all; without `part`, to none.
    """
    noted = begin(begin(Generation(), flow("one", "a")), flow("two", "b")).parts
    for part, chosen, expected in (
        ("one", ["a"], []),
        ("two", ["b"], ["one"]),
        ("one", ["a", "b"], ["two"]),
        ("three", ["b"], ["one", "two"]),
        (None, ["b"], []),
    ):
        found = parts.ahead(flow(part, *chosen), noted)
        assert [each.name for each in found] == expected


class _Hides:
    """A source that lets us see no topic."""

    def topics(self, names: Iterable[str] = ()) -> dict[str, Topic]:
        return {
            name: Topic(
                name=name,
                topic_id=NO_ID,
                leaders={},
                error=codes.TOPIC_AUTHORIZATION_FAILED,
                replication_factor=0,
            )
            for name in names
        }


def test_a_hidden_topic_of_an_earlier_part_stays_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Topics that are hidden stay in a flow, but not those that turned out to be
    another part's: two would copy them once they are seen again.
    """
    whole = config(part="two", topics=["a", "b"])
    store = StatusStore(("A->B",))
    copied = CopiedTopics(
        whole.flows["A->B"],
        whole,
        store=store,
        problems=Problems("A->B", store),
        created=lambda: None,
        copy=lambda _found, _paused: None,
    )
    first = tuple(
        MirroredTopic(topic=each, target_topic=each, partitions=1, topic_id="1" * 32)
        for each in "ab"
    )
    found = iter([TopicsResult(topics=first), TopicsResult(topics=())])
    monkeypatch.setattr(topics, "sync", lambda *_: next(found))
    source = cast("Any", _Hides())
    copied.look(source, _TARGET)
    copied.leave(begin(Generation(), flow("one", "a")).parts)
    assert [each.topic for each in copied.look(source, _TARGET).topics] == ["b"]


def test_heartbeats_belong_to_the_part_that_spells_them_out() -> None:
    """A part with all topics does not take heartbeats from one that names them."""
    first = begin(Generation(), flow("one", ".*"))
    beats = flow("two", "heartbeats", "b")
    assert not flow("one", ".*").topic_filter.matches("heartbeats")
    left = parts.without(beats, first.parts).topic_filter
    assert left.matches("heartbeats")
    assert not left.matches("b")


@pytest.mark.parametrize(("copied", "begun"), [("a", True), ("other", False)])
def test_a_part_goes_on_with_what_the_flow_copied(copied: str, begun: bool) -> None:
    """A new part's other topics are new ones, unless the flow copied none of its."""
    made = begin(Generation(begun=True), flow("one", "a"), copied=(copied,))
    assert made.parts[0].begun is begun
    assert parts.has_begun(flow("one", "a"), made) is begun
    settled = parts.begun(flow("one", "a"), made)
    assert settled.parts[0].begun
    assert settled.run_of("one") != made.run_of("one")
    united = parts.united(begin(Generation(), flow("one", "a"), begun=True))
    assert (united.parts, united.begun) == ((), True)


@pytest.mark.parametrize(
    ("part", "runs"), [("one", True), ("two", False), (None, True)]
)
def test_the_way_back_finds_services_of_parts(
    monkeypatch: pytest.MonkeyPatch, part: str | None, runs: bool
) -> None:
    """Going back to MirrorMaker 2 is refused while a service leads the part, or any
    part of the whole flow.
    """
    led = json.dumps({"leaders": {"A->B/one": "host:1", "A->B2": "host:2"}}).encode()
    member = SimpleNamespace(assignment=led)
    monkeypatch.setattr(groups, "members", lambda *_: {"g": (member,)})
    refused = False
    try:
        back.require_no_service(flow(part, "a"), _TARGET, "g")
    except MirrorError:
        refused = True
    assert refused is runs


def test_positions_that_a_part_may_move() -> None:
    """Those of its topics; a flow without part has all."""
    known = {("a", 0): Position(offset=1), ("b", 0): Position(offset=2)}
    assert parts.own(flow("one", "a"), known).keys() == {("a", 0)}
    assert parts.own(flow(None, "a"), known) == known


def test_what_services_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service without `part` does not run beside parts. One whose flow another group
    leads does not begin; in the same group the leader decides. An instance of no group
    that takes over again and again is named the second time, so a rolling restart is
    not. Each message says what helps.
    """
    alive: set[tuple[str, str, str]] = {("host:1", "other", "A->B")}
    monkeypatch.setattr(
        parts, "_leads", lambda by, group, _target, name: (by, group, name) in alive
    )
    whole = Instance(flow(None, "a"), group="g")
    with pytest.raises(DividedError, match=r"parts \(one\).*`part: NAME`.*flow unite"):
        whole.require_room(begin(Generation(), flow("one", "a")), _TARGET)
    for each in (whole, Instance(flow("one", "a"), group="g")):
        with pytest.raises(DividedError, match=r"host:1 of the group other.*`part: N"):
            each.require_room(Generation(by="host:1", group="other"), _TARGET)
    whole.require_room(Generation(by=whole.by, group="other"), _TARGET)
    for _ in range(5):
        whole.require_room(Generation(by="host:1", group="g"), _TARGET)
    alone = Generation(by="host:2")
    for _ in range(5):  # it is gone, and this one's beginnings fail
        whole.require_room(alone, _TARGET)
    alone = Generation(by="host:2")
    with pytest.raises(DividedError, match="host:2, has taken it over again and again"):
        whole.require_room(alone, _TARGET)
    whole.require_room(alone, _TARGET)


@dataclass(frozen=True)
class _Wish:
    name: str
    selects: Mapping[str, str] = field(default_factory=dict)


def test_instances_that_select_other_topics() -> None:
    """They are named on all sides; those of an earlier release say nothing. Only after
    a rolling restart would be over does the text name `part`.
    """
    one, two = (rivalry.fingerprint(flow(None, each)) for each in "ab")
    assert one == rivalry.fingerprint(flow(None, "a", tasks=3))
    wishes = {
        "m1": _Wish("h1", {"A->B": one}),
        "m2": _Wish("h2", {"A->B": two}),
        "m3": _Wish("h3", {"A->B": one}),
        "m4": _Wish("h4"),
    }
    found = {member: rivalry.rivals(wishes, member) for member in wishes}
    assert found["m1"] == {"A->B": ["h2"]}
    assert found["m2"] == {"A->B": ["h1", "h3"]}
    assert found["m4"] == {}
    assert "rolling restart" in rivalry.rivalry("A->B", ["h2"], 1.0)
    assert "`part: NAME`" in rivalry.rivalry("A->B", ["h2"], 999.0)
    assert rivalry.rivalry("A->B", [], 999.0) == ""


def test_settings_that_do_not_fit() -> None:
    """Both flows of a pair have the same part; flows that a pair feeds have none."""
    both = {"policy": "identity"}
    made = MirrorConfig.model_validate(
        {
            "clusters": {a: {"bootstrap_servers": f"{a}:9092"} for a in "ABC"},
            "flows": {
                "A->B": {"part": "one", **both},
                "B->A": both,
                "A->C": {"part": "one", **both},
                "B->C": both,
            },
            "recovery": {"A<->B": {"active": "A", "feeds": ["C"]}},
        }
    )
    told = "\n".join(rules.problems(made))
    assert "part is one for A->B and None for B->A" in told
    assert "A->C cannot go on for the other flow as a part" in told


def test_other_topics_begin_another_run_of_a_part() -> None:
    """The other parts must know them before they are copied."""
    for part, effect in ((None, Effect.LOOK), ("one", Effect.RUN)):
        old, new = (config(part=part, topics=[each]) for each in "ab")
        assert changes.compare(old, new).effects == {"A->B": effect}


def test_the_label_is_there_only_with_parts() -> None:
    """Series of a flow without part are those of earlier releases."""
    for part in ("", "one"):
        store = StatusStore(("A->B",))
        store.update(
            "A->B",
            lambda _, part=part: FlowStatus(
                name="A->B", state=FlowState.RUNNING, source="A", target="B", part=part
            ),
        )
        text = exposition(store, per_partition=True)("")[1].decode()
        labels = (f'part="{part}",' if part else "") + 'source="A",target="B"'
        assert f"mirror_flow_lag_records{{{labels}}}" in text
        assert ('part="' in text) is bool(part)


def test_a_look_is_as_old_as_the_oldest_of_the_parts() -> None:
    """Unless the flow looks as a whole again."""

    def looked(*looks: tuple[str | None, float]) -> float:
        entries = {
            ("looks", standby.look_name(ends.KIND, part)): standby.StandbyEntry(
                at=at, fields={}
            )
            for part, at in looks
        }
        return standby._standby(entries, {ends.KIND}).looks[ends.KIND].at

    assert looked((None, 5.0)) == 5.0
    assert looked((None, 5.0), ("one", 7.0), ("two", 9.0)) == 7.0
    assert looked((None, 99.0), ("one", 7.0), ("two", 9.0)) == 99.0


def test_a_generation_of_an_earlier_release() -> None:
    """It has no parts, and nobody whose it is."""
    text = json.dumps({"id": uuid.uuid4().hex, "slots": 2, "begun": True})
    read = Generation.parse(text)
    assert (read.parts, read.by, read.slots) == ((), "", 2)
    assert Progress(generation=text).run_of(None) == text
    assert Progress(generation=text).run_of("one") == ""


@pytest.mark.parametrize("text", ["{", "[]", '{"parts": [3]}', '{"slots": 1}'])
def test_a_damaged_generation(text: str) -> None:
    """It is an error of the cluster with a message, wherever it is read."""
    with pytest.raises(ClusterError, match="damaged"):
        Generation.parse(text)
