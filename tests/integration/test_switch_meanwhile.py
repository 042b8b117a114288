"""What others do while a switch is under way: it stops, or it takes it along."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
import json
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.errors import FencedError, MirrorError
from mirror.offsets import progress
from mirror.pairs import journal, roles
from mirror.pairs.journal import JournalReader, JournalWriter, Kind
from mirror.records.reading import TopicReader
from mirror.recovery.steps.changes import changes
from mirror.recovery.steps.positions import places_of
from tests.harness.admin import (
    add_partitions,
    closed_ends,
    create_topic,
    delete_topic,
)
from tests.harness.application import Application
from tests.harness.configurations import configuration
from tests.harness.group_moves import Reader, commit_for, committed
from tests.harness.load import producer
from tests.harness.rehearsal import Rehearsal
from tests.harness.service import RunningMirror
from tests.harness.waiting import wait_for
from tests.harness.witness import order_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

RECORDS = 50


class Play:
    """A pair with a topic of one partition, of which everything is copied, and a group
    that has read a part of it.
    """

    def __init__(
        self, clusters: dict[str, PlaygroundCluster], topic: str, **settings: Any
    ) -> None:
        tag = topic[-6:]
        self.a, self.b = clusters["a"].bootstrap, clusters["b"].bootstrap
        self.one, self.other, self.topic = f"A{tag}", f"B{tag}", topic
        self.group = f"app-{topic}"
        identity = settings.get("policy") == "identity"
        self.copy = topic if identity else f"{self.one}.{topic}"
        create_topic(self.a, topic, 1)
        self.application = Application(topic, 1, self.group)
        self.rehearsal = Rehearsal(
            (self.one, self.a), (self.other, self.b), topic, **settings
        )

    def fill(self) -> None:
        assert self.application.write(self.a, RECORDS)
        self.rehearsal.copy(self.b, self.copy, RECORDS)
        commit_for(self.a, self.group, {self.topic: 10})

    def never_back(self, policy: str) -> str:
        """The flow back has never run: what it would copy into. In a topic of their own
        there, producers have written before.
        """
        self.rehearsal.copying().own()
        if policy != "default":
            return self.topic
        create_topic(self.b, self.topic, 1)
        assert Application(self.topic, 1, "old").write(self.b, 5)
        self.fill()
        return f"{self.other}.{self.topic}"

    def there(self) -> int | None:
        """The group's offset in the copy."""
        return committed(self.b, self.group, self.copy)

    def active(self) -> bool:
        """Whether the switch went through."""
        assert self.rehearsal.run is not None
        return self.rehearsal.run.state("open") == "DONE"


@pytest.fixture
def play(clusters: dict[str, PlaygroundCluster], topic_name: str) -> Iterator[Play]:
    made = Play(clusters, topic_name)
    made.fill()
    with made.rehearsal:
        yield made


def test_a_record_after_the_drain(play: Play) -> None:
    """What somebody writes to the cluster that is left after everything was copied
    would never be copied: the switch is undone, and says where.
    """
    with pytest.raises(MirrorError, match=f"{play.topic}-0, which ended at 50") as told:
        play.rehearsal.carry_out({"open": lambda: play.application.write(play.a, 1)})
    assert "Everything was undone" in str(told.value)
    assert not play.active()


@pytest.mark.parametrize("times", [1, 2])
def test_a_record_within_the_second(play: Play, times: int) -> None:
    """What somebody writes right after the logs were cut is copied as well: steps 3, 4
    and 6 are done again, and the group has read it. Who writes again undoes the switch.
    """
    written = RECORDS

    def write() -> None:
        nonlocal written
        if written < RECORDS + times:
            written += 1
            assert play.application.write(play.a, 1)
            play.rehearsal.copy(play.b, play.copy, written)
            commit_for(play.a, play.group, {play.topic: written})

    told: list[str] = []
    with ExitStack() as stack:
        if times > 1:
            stack.enter_context(
                pytest.raises(MirrorError, match="Everything was undone")
            )
        play.rehearsal.carry_out(
            {"positions": write}, tell=lambda _step, text: told.append(text)
        )
    assert any(f"{play.topic}-0: steps 3, 4 and 6 again" in each for each in told)
    assert written == RECORDS + times
    assert play.active() == (times == 1)
    if times == 1:
        assert play.there() == written + 1  # behind the end of the first transaction


def test_a_commit_after_the_positions(play: Play) -> None:
    """A group that commits on the cluster that is left after its position was set goes
    on at what it committed last.
    """
    play.rehearsal.carry_out(
        {"open": lambda: commit_for(play.a, play.group, {play.topic: 20})}
    )
    assert play.active()
    assert play.there() == 20


def test_a_group_that_comes_back(play: Play) -> None:
    """A consumer that joins again after the groups were empty reads on where nothing is
    copied from: the switch is undone.
    """
    with ExitStack() as stack:

        def join() -> None:
            stack.enter_context(Reader(play.a, play.group, [play.topic])).join()

        with pytest.raises(MirrorError, match="they came back"):
            play.rehearsal.carry_out({"open": join})
    assert not play.active()


def test_a_group_that_reads_there(play: Play) -> None:
    """A group with a member on the cluster that is to be active, which would commit
    over the position that is set: the switch is refused before anything changes.
    """
    commit_for(play.b, play.group, {play.copy: 3})
    with Reader(play.b, play.group, [play.copy]) as reader:
        reader.join()
        refusal = f"step assess failed: group {play.group}: it has members on "
        with pytest.raises(MirrorError, match=refusal + play.other):
            play.rehearsal.carry_out()
    assert play.there() == 3


def test_offsets_in_a_transaction(play: Play) -> None:
    """A transaction that is about to set a group's offset, and has written nothing, is
    waited for: the group goes on at what it commits.
    """
    client = producer(play.a, transactional_id=f"mover-{play.topic}")
    client.init_transactions(30)
    reader = Consumer({"bootstrap.servers": play.a, "group.id": play.group})
    client.begin_transaction()
    place = TopicPartition(play.topic, 0, 30)
    client.send_offsets_to_transaction([place], reader.consumer_group_metadata(), 30)
    reader.close()
    waits: list[str] = []

    def tell(_step: str, text: str) -> None:
        if "open transactions" in text and not waits:
            waits.append(text)
            client.commit_transaction(30)

    play.rehearsal.carry_out(tell=tell)
    assert waits
    assert play.there() == 30


def test_an_operator_that_was_superseded(play: Play) -> None:
    """An operator that slept while a later one took over changes nothing when it wakes
    up: it finds that out right before it would set offsets.
    """

    def take_over() -> None:
        pair = next(iter(play.rehearsal.config.recovery))
        JournalWriter(play.rehearsal.cluster(play.other), pair)

    with pytest.raises(FencedError):
        play.rehearsal.carry_out({"positions": take_over})
    assert play.there() is None


def test_a_position_in_an_earlier_topic(play: Play) -> None:
    """A topic that was deleted and made again is not drained because the earlier one
    was copied further: the switch waits for its records, and is undone.
    """

    def renew() -> None:
        delete_topic(play.a, play.topic)
        create_topic(play.a, play.topic, 1)
        assert play.application.write(play.a, 5)

    with pytest.raises(MirrorError, match="step drain failed: still waiting"):
        play.rehearsal.carry_out({"fence": renew}, in_vain="drain")
    assert not play.active()


def test_topics_that_come_meanwhile(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """What is written after everything was copied to a topic, or to a partition, that
    did not exist at the cut would never be copied: the switch is undone, and names it,
    also if the flow has made the copy already.
    """
    play = Play(clusters, topic_name)
    rehearsal = play.rehearsal
    new = f"{topic_name}-new"
    names = {"topics": [f"{topic_name}.*"]}
    rehearsal.config = configuration(
        {**rehearsal.document, "defaults": {**rehearsal.document["defaults"], **names}}
    )

    def come() -> None:
        create_topic(play.a, new, 1)
        create_topic(play.b, f"{play.one}.{new}", 1)
        write(play.a, new, "lost", 1)

    def grow() -> None:
        add_partitions(play.a, topic_name, 2)
        add_partitions(play.b, play.copy, 2)
        write(play.a, topic_name, "lost", 1, partition=1)

    with rehearsal:
        play.fill()
        for act, where in ((come, f"{new}-0"), (grow, f"{topic_name}-1")):
            with pytest.raises(MirrorError, match=f"such as {where}, which") as told:
                rehearsal.carry_out({"open": act})
            assert "Everything was undone" in str(told.value)
            assert not play.active()
            if act is come:
                delete_topic(play.a, new)
                delete_topic(play.b, f"{play.one}.{new}")


@pytest.mark.parametrize(
    ("step", "at"), [("", "assess"),
                     pytest.param("drain", "drain", marks=pytest.mark.full),
                     pytest.param("open", "open", marks=pytest.mark.full)]
)  # fmt: skip
def test_a_topic_that_has_grown(
    clusters: dict[str, PlaygroundCluster], topic_name: str, step: str, at: str
) -> None:
    """A topic that both flows write got partitions on the cluster that is left, and
    its copy has not: the switch waits for them and is then undone, before producers are
    fenced if that was before it began. It says what is missing, and who adds it. Once
    the flow has, the same command goes through.
    """
    play = Play(clusters, topic_name, policy="identity")
    with play.rehearsal as rehearsal:
        create_topic(play.b, topic_name, 1)
        play.fill()

        def grow() -> None:
            add_partitions(play.a, topic_name, 3)

        if not step:
            grow()
        clear = f"step {at} failed.*has 3 partitions on {play.one} and fewer on"
        with pytest.raises(MirrorError, match=clear) as told:
            rehearsal.carry_out({step: grow} if step else {}, in_vain=at)
        assert "refresh_topics_seconds" in str(told.value)
        assert "Everything was undone" in str(told.value)
        rehearsal.copying().own()
        rehearsal.carry_out()
        assert play.active()
        assert play.there() == 10


def test_a_dry_run_waits_for_no_copies(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Two topics whose copies the service has still to make, and one that it has to
    grow: a dry run names all three at once, and shows the rest of the plan.
    """
    play = Play(clusters, topic_name)
    play.fill()
    document = play.rehearsal.document
    document["defaults"]["topics"] = [f"{topic_name}.*"]
    (tmp_path / "mirror.yaml").write_text(json.dumps(document))
    add_partitions(play.a, topic_name, 3)
    for name in ("one", "two"):
        create_topic(play.a, f"{topic_name}-{name}", 1)
    words = ("switch", f"{play.one}/{play.other}", "--dry-run", "-o", "json")
    run = CliRunner().invoke(app, [*words, "-c", str(tmp_path / "mirror.yaml"),
                                   "--step-timeout", "10"])  # fmt: skip
    assert run.exit_code == 0, run.output
    found, *planned = map(json.loads, run.stdout.splitlines())
    steps = {each["step"]: each for each in planned}
    lacks = [e["reason"] for e in found["findings"] if "a switch waits" in e["fix"]]
    assert lacks == [
        f"it has 3 partitions on {play.one} and fewer on {play.other}",
        *[f"it has 1 partition on {play.one} and no copy on {play.other}"] * 2,
    ]
    assert steps["positions"]["changes"]


@pytest.mark.full
def test_a_topic_that_grows_at_last(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A topic gets partitions after everything was copied: step 7 waits until the flow
    has added them, and goes on.
    """
    play = Play(clusters, topic_name, policy="identity")
    waits: list[str] = []

    def tell(step: str, text: str) -> None:
        if "has 3 partitions" in text and not waits:
            waits.append(step)
            play.rehearsal.copying().own()

    with play.rehearsal as rehearsal:
        create_topic(play.b, topic_name, 1)
        play.fill()
        rehearsal.carry_out(
            {"open": lambda: add_partitions(play.a, topic_name, 3)}, tell=tell
        )
        assert waits == ["open"]
        assert play.active()
        assert play.there() == 10


@pytest.mark.full
def test_a_topic_that_goes_meanwhile(play: Play) -> None:
    """A topic that is deleted after everything was copied cannot be fenced, nor come
    back unseen: the switch is undone, and names it.
    """
    with pytest.raises(MirrorError, match=f"topic {play.topic} on .* was deleted"):
        play.rehearsal.carry_out({"open": lambda: delete_topic(play.a, play.topic)})
    assert not play.active()


@pytest.mark.full
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_journal_is_lost(make_clusters: Any, topic_name: str, side: str) -> None:
    """Somebody deletes the journal on one side before a step, for each step. The switch
    ends with an error, or goes on; the same command again brings it to its end, and
    both journals say so. The group goes on at its record.
    """
    clusters = make_clusters("a", "b")
    for step in roles.STEPS[1:]:
        play = Play(clusters, f"{topic_name}-{step}")
        lost = {"a": play.a, "b": play.b}[side]

        def lose(bootstrap: str = lost) -> None:
            delete_topic(bootstrap, journal.TOPIC)

        with play.rehearsal as rehearsal:
            play.fill()
            said = ""
            try:
                rehearsal.carry_out({step: lose}, step_seconds=10)
            except MirrorError as error:
                said = str(error)
            print(f"{step} {side}: {said}")
            wait_for(partial(went_through, play))
            assert play.there() == 10
            ours = next(iter(rehearsal.config.recovery))
            for alias in (play.one, play.other):
                entries = JournalReader(rehearsal.cluster(alias)).read()
                found = roles.merged(entries, pair=ours)
                pair = rehearsal.config.recovery[ours]
                assert roles.role(found, pair).active == play.other
                assert roles.open_run(found) is None


def went_through(play: Play) -> bool:
    """Whether the same command has nothing left to do."""
    try:
        play.rehearsal.carry_out()
    except MirrorError as error:
        print(f"again: {error}")
        return False
    return True


@pytest.mark.parametrize(
    "read", [25, pytest.param(5, marks=pytest.mark.full),
             pytest.param(33, marks=pytest.mark.full)]
)  # fmt: skip
def test_what_comes_again_is_predicted(
    clusters: dict[str, PlaygroundCluster], topic_name: str, read: int
) -> None:
    """Both clusters write one topic at the same time, so their logs have different
    orders and one offset cannot split both. After the switch a group skips none of the
    records, and reads as many again as a dry run has said.
    """
    play = Play(clusters, topic_name, policy="identity")
    rehearsal, application = play.rehearsal, play.application
    create_topic(play.b, topic_name, 1)
    with rehearsal:
        assert application.write(play.a, 20)
        assert application.write(play.b, 20)
        rehearsal.copy(play.a, topic_name, 40, back=True)
        assert application.write(play.a, 1)  # behind the copies: it passes these
        rehearsal.copy(play.b, topic_name, 41)
        assert application.consume(play.a, [topic_name], most=read) == read
        stage = rehearsal.stage()
        (change,) = changes(stage, places_of(stage))["positions"].changes
        rehearsal.carry_out()
        application.consume(play.b, [topic_name])
    assert application.read.keys() == set(application.written)
    repeated = [key for key, count in application.read.items() if count > 1]
    assert change["again"] == len(repeated) > 0


@pytest.mark.parametrize(
    "policy", ["identity", pytest.param("default", marks=pytest.mark.full)]
)
def test_the_way_back_begins_at_the_cut(
    clusters: dict[str, PlaygroundCluster], topic_name: str, policy: str
) -> None:
    """A flow back with `start: latest` that has never run copies all that producers
    write to the new active cluster before it first runs, and not what was there before:
    in a topic of their own there, and in one that both flows write, empty so far.
    """
    play = Play(clusters, topic_name, policy=policy, start="latest")
    with play.rehearsal as rehearsal:
        back = play.never_back(policy)
        rehearsal.carry_out()
        assert play.application.write(play.b, 7)
        rehearsal.copy(play.a, back, 7, back=True)


@pytest.mark.full
@pytest.mark.parametrize("policy", ["default", "identity"])
def test_the_way_back_after_a_failover(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    policy: str,
) -> None:
    """After a failover, too, a flow back with `start: latest` that has never run copies
    all that producers write to the new active cluster before it first runs, and not
    what was there before. The failover asks nothing of the cluster that it leaves.
    """
    play = Play(clusters, topic_name, policy=policy, start="latest")
    with play.rehearsal as rehearsal:
        back = play.never_back(policy)
        rehearsal.see()
        rehearsal.carry_out(kind=Kind.FAILOVER)
        assert play.application.write(play.b, 7)
        with RunningMirror(rehearsal.document, tmp_path) as mirror:
            mirror.wait_running(f"{play.other}->{play.one}")
            mirror.wait_copied(play.b, topic_name, flow=f"{play.other}->{play.one}")
        assert len(order_of(play.a, back)[0]) == 7


@pytest.mark.parametrize(
    "policy", ["identity", pytest.param("default", marks=pytest.mark.full)]
)
def test_the_way_back_passes_copies(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    policy: str,
) -> None:
    """After a failover a flow back with `start: earliest` that has run before reads
    none of the 2,000 copies that came since, although its positions were out of reach:
    it goes on at the first record that was born on the new active cluster, and the
    other one has each of these once, also of a topic that never was copied there.
    """
    play = Play(clusters, topic_name, policy=policy)
    new, born = f"{topic_name}-new", play.topic
    with play.rehearsal as rehearsal:
        rehearsal.document["defaults"]["topics"] = [f"{topic_name}.*"]
        create_topic(play.b, born, 1)
        create_topic(play.b, new, 1)
        back = born if policy == "identity" else f"{play.other}.{born}"
        write(play.b, born, "old", 5)
        rehearsal.copy(play.a, back, 5, back=True)
        assert play.application.write(play.a, 2000)
        copied = 2005 if policy == "identity" else 2000
        rehearsal.copy(play.b, play.copy, copied)
        rehearsal.see()
        rehearsal.carry_out(kind=Kind.FAILOVER)
        starts = closed_ends(play.b, born)[0]
        if policy == "identity":
            assert starts > 2000
        write(play.b, born, "born", 20)
        write(play.b, new, "new", 3)
        flow = f"{play.other}->{play.one}"
        with RunningMirror(rehearsal.document, tmp_path) as mirror:
            mirror.wait_running(flow)
            mirror.wait_copied(play.b, born, flow=flow)
            mirror.wait_copied(play.b, new, flow=flow)
            partitions = mirror.flow(flow)["partitions"]
        assert sum(each["filtered"] for each in partitions) == 0
        home = rehearsal.cluster(play.one)
        reader = TopicReader(home, progress.topic_name(play.other))
        places = []
        for _, key, value in reader.read():
            found = progress.decode(key, value)
            if not isinstance(found, str) and found[0] == (born, 0):
                places.append(found[1].offset)
        assert starts in places
        keys = [key for key in order_of(play.a, back)[0] if not key[:1].isdigit()]
        wanted = [b"old-%d" % n for n in range(5)] + [b"born-%d" % n for n in range(20)]
        assert keys == wanted
        copy = new if policy == "identity" else f"{play.other}.{new}"
        assert order_of(play.a, copy)[0] == [b"new-%d" % n for n in range(3)]


def write(
    bootstrap: str, topic: str, what: str, count: int, *, partition: int = 0
) -> None:
    client = producer(bootstrap)
    for number in range(count):
        key = f"{what}-{number}"
        client.produce(topic, key=key, value=b"v", partition=partition)
    assert client.flush(30) == 0


def test_a_service_that_comes_back(play: Play) -> None:
    """A service that slept begins to copy again after the failover had stopped all: it
    is fenced before the role moves.
    """
    flow = play.rehearsal.copying()
    known = progress.topic_name(play.one)

    def wake_up() -> None:
        flow.own()

    play.rehearsal.see()
    play.rehearsal.carry_out({"open": wake_up}, kind=Kind.FAILOVER)
    assert play.active()
    now = progress.read(play.rehearsal.cluster(play.other), known).generation
    assert now != flow.generation
