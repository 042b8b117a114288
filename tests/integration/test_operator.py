"""Operators of a pair and the services beside them, on real journals: who may do what,
and what holds after either cluster was lost at the worst moment. The steps themselves
do nothing here.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
import time
from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.cluster import Cluster
from mirror.errors import FencedError, MirrorError
from mirror.pairs import journal, roles
from mirror.pairs.journal import JournalReader, Kind, StepState
from mirror.records.reading import TopicReader
from mirror.recovery.runner import Operator, Terms
from mirror.recovery.stage import Done, Stage, Step
from mirror.service.pairs import PairFollower
from mirror.status.store import StatusStore
from tests.harness.cases import cases
from tests.harness.configurations import configuration
from tests.harness.mishaps import Mishap, Rule
from tests.harness.proxy import BrokerProxy
from tests.harness.waiting import crowd, deadline_in, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror.config.schema import MirrorConfig
    from mirror.pairs.journal import Entry
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

TERMS = Terms(
    step_seconds=10, tell=lambda _step, _text: None, did=lambda _step, _done, _s: None
)


def lost() -> tuple[Rule, ...]:
    """A cluster that does not answer, however it is asked."""
    apis = ("Produce", "EndTxn", "FindCoordinator", "Metadata", "ListOffsets", "Fetch")
    return tuple(Rule(api=api, mishap=Mishap.LOST, times=None) for api in apis)


@dataclass(slots=True)
class Pair:
    """A pair of clusters that can be lost, under names of its own."""

    names: tuple[str, str]
    proxies: dict[str, BrokerProxy]
    happens: dict[str, Callable[[], object]] = field(default_factory=dict)
    """What happens in a step."""
    done: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)

    def config(self, **recovery: Any) -> MirrorConfig:
        one, two = self.names
        given = {"active": one, "fence": "confirmed", "block_seconds": 5} | recovery
        return configuration(
            {
                "clusters": {
                    alias: {"bootstrap_servers": proxy.bootstrap}
                    for alias, proxy in self.proxies.items()
                },
                "flows": {f"{one}->{two}": {}, f"{two}->{one}": {}},
                "recovery": {f"{one}<->{two}": given},
            }
        )

    @property
    def steps(self) -> dict[str, Step]:
        def step(name: str) -> Step:
            def do(_stage: Stage) -> Done:
                self.done.append(name)
                self.happens.get(name, lambda: None)()
                return Done(text="done")

            def undo(stage: Stage) -> str:
                self.undone.append(name)
                if name == roles.ROLE:
                    assert stage.target  # which that of the real step changes
                return "undone"

            return Step(do=do, undo=undo)

        return {name: step(name) for name in roles.STEPS}

    @contextlib.contextmanager
    def operator(
        self,
        *,
        kind: Kind = Kind.SWITCH,
        back: bool = False,
        without: int | None = None,
        steps: Mapping[str, Step] | None = None,
    ) -> Iterator[Operator]:
        """One for a run there or `back`, `without` one of the clusters."""
        config = self.config()
        (pair,) = config.recovery.values()
        with contextlib.ExitStack() as stack:
            ends = [
                (
                    alias,
                    None
                    if number == without
                    else stack.enter_context(
                        contextlib.closing(Cluster(config.clusters[alias]).connect())
                    ),
                )
                for number, alias in enumerate(self.names)
            ]
            source, target = reversed(ends) if back else ends
            here = Stage(
                kind=kind,
                config=config,
                pair=pair,
                flow=config.flows[f"{source[0]}->{target[0]}"],
                reverse=config.flows[f"{target[0]}->{source[0]}"],
                source_or_none=source[1],
                target_or_none=target[1],
                notes={},
                note=lambda _notes: None,
                tell=lambda _text: None,
                deadline=deadline_in(10),
            )
            yield Operator(here, TERMS, steps or self.steps)

    def carry_out(self, **which: Any) -> None:
        with self.operator(**which) as operator:
            operator.carry_out()

    def abort(self, *, target_lost: bool = False, **which: Any) -> None:
        with self.operator(**which) as operator:
            operator.abort(target_lost=target_lost)

    def fails(self, text: str, call: Callable[..., None], **arguments: Any) -> None:
        with pytest.raises(MirrorError, match=text):
            call(**arguments)

    def lose_in(self, step: str, number: int, *rules: Rule) -> contextlib.ExitStack:
        """From the middle of a step on, one of the clusters answers no more."""
        stack = contextlib.ExitStack()
        proxy = self.proxies[self.names[number]]
        chosen = rules or lost()
        self.happens[step] = lambda: stack.enter_context(proxy.rules(*chosen))
        return stack

    def journal(self, number: int) -> tuple[Entry, ...]:
        """The pair's entries on one of the clusters."""
        config = self.config()
        settings = config.clusters[self.names[number]]
        with contextlib.closing(Cluster(settings).connect()) as cluster:
            entries = JournalReader(cluster).read()
        return roles.merged(entries, pair=next(iter(config.recovery)))

    def active(self, number: int) -> str:
        """The active cluster, by the journal of one of them."""
        return roles.role(self.journal(number), self._settings).active

    @property
    def _settings(self) -> Any:
        (pair,) = self.config().recovery.values()
        return pair

    def same(self) -> bool:
        one, other = ({e.identity for e in self.journal(n)} for n in (0, 1))
        return one == other and bool(one)

    @contextlib.contextmanager
    def service(self, **recovery: Any) -> Iterator[StatusStore]:
        """What follows the journals in a service."""
        config = self.config(**recovery)
        store = StatusStore(tuple(config.flows))
        follower = PairFollower(config, store)
        follower.start()
        try:
            yield store
        finally:
            follower.close()


@pytest.fixture
def pair(clusters: dict[str, PlaygroundCluster], topic_name: str) -> Iterator[Pair]:
    name = topic_name[-8:]
    names = (f"A{name}", f"B{name}")
    with (
        BrokerProxy(clusters["a"].bootstrap) as one,
        BrokerProxy(clusters["b"].bootstrap) as other,
    ):
        yield Pair(names, dict(zip(names, (one, other), strict=True)))


def killed_in(pair: Pair, step: str) -> None:
    """The operator dies in this step."""

    def die() -> None:
        raise KeyboardInterrupt

    pair.happens = {step: die}
    with pytest.raises(KeyboardInterrupt):
        pair.carry_out()
    pair.happens = {}


def test_the_end_of_a_step_is_noted_with_what_follows(pair: Pair) -> None:
    """In either journal the end of each step and the beginning of the next one, or of
    the run, are one batch, so that neither is there without the other.
    """
    pair.carry_out()
    for number in (0, 1):
        settings = pair.config().clusters[pair.names[number]]
        with contextlib.closing(Cluster(settings).connect()) as cluster:
            batches: dict[int, list[str]] = {}
            for at, key, value in TopicReader(cluster, journal.TOPIC).read():
                entry = journal.decode(key, value)
                if entry.pair == next(iter(pair.config().recovery)):
                    batches.setdefault(at, []).append(f"{entry.step} {entry.state}")
        following = [f"{step} BEGUN" for step in roles.STEPS] + ["end DONE"]
        assert list(batches.values()) == [
            following[:1],
            *(
                [f"{s} DONE", n]
                for s, n in zip(roles.STEPS, following[1:], strict=True)
            ),
        ]


def test_a_step_without_news_notes_nothing(pair: Pair) -> None:
    """That a step has begun is noted before: again only with something to keep. Without
    that, it still finds out that a later operator took over.
    """

    def says(stage: Stage) -> Done:
        stage.note({})
        stage.note({"kept": 1})
        return Done(text="done")

    def is_late(stage: Stage) -> Done:
        pair.carry_out(back=True)
        stage.note({})
        return Done(text="done")

    step = Step(do=says, undo=pair.steps["fence"].undo)
    with pair.operator(steps={**pair.steps, "fence": step}) as operator:
        operator.carry_out()
    for number in (0, 1):
        said = [e.details for e in pair.journal(number) if e.step == "fence"]
        assert said == [{}, {"kept": 1}, {}]
    steps = {**pair.steps, "fence": Step(do=is_late, undo=step.undo)}
    with (
        pair.operator(back=True, steps=steps) as operator,
        pytest.raises(FencedError, match="took over"),
    ):
        operator.carry_out()


def test_the_role_is_in_one_journal_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A is lost just as B becomes active, so only B's journal says that. It is decided:
    nothing is undone, --abort is refused, a service brings it to A although nobody goes
    on with the switch, and the same command goes forward from there.
    """
    one, two = pair.names
    monkeypatch.setattr(journal, "PATIENCE_SECONDS", 3.0)
    with pair.lose_in("open", 0):
        pair.fails("step open failed.*same command again to go on", pair.carry_out)
    assert pair.undone == []
    assert (pair.active(0), pair.active(1)) == (one, two)
    pair.fails(f"{two} is active since switch", pair.abort)
    pair.fails(f"{two} is active since switch", pair.abort, without=0)

    with pair.service() as store:
        wait_for(lambda: pair.active(0) == two)
        said = f"SWITCH {one}->{two}: redirect BEGUN"
        wait_for(lambda: bool(store.pairs) and store.pairs[0].run == said)

    pair.happens, pair.done = {}, []
    pair.carry_out()
    assert pair.done == ["redirect", "prove"]
    assert pair.same()


def test_it_is_not_known_whether_the_role_was_written(pair: Pair) -> None:
    """B is lost after it was told to be active, before it answered. Nothing is undone,
    since B may be active; A alone does not suffice to abort. Once B answers, the same
    command finds out and goes forward.
    """
    _, two = pair.names
    gone = (
        Rule(api="EndTxn", mishap=Mishap.ANSWER_LOST, times=None),
        Rule(api="FindCoordinator", mishap=Mishap.LOST, times=None),
    )
    with pair.lose_in("open", 1, *gone):
        pair.fails(f"Whether {two} is active is not known", pair.carry_out)
        assert pair.undone == []
        pair.fails("only its own journal tells", pair.abort, without=1)
    assert pair.undone == []
    pair.happens, pair.done = {}, []
    pair.carry_out()
    assert pair.done == ["redirect", "prove"]
    assert (pair.active(0), pair.active(1)) == (two, two)


def test_the_source_dies_after_the_role_has_moved(pair: Pair) -> None:
    """A dies after B became active, and so does the operator: the switch needs A, but a
    failover goes on with it and ends it, and B stays active.
    """
    _, two = pair.names
    killed_in(pair, "redirect")
    pair.done = []
    pair.carry_out(kind=Kind.FAILOVER, without=0)
    assert pair.done == ["redirect", "prove"]
    assert pair.active(1) == two
    assert not roles.runs(pair.journal(1))[-1].open
    with pair.service():
        wait_for(pair.same)


@pytest.mark.parametrize(
    "step", cases(["hold", "fence", "positions", "open"], some=["open"])
)
def test_the_target_dies(pair: Pair, step: str) -> None:
    """B dies before it was told to be active: everything is undone on A within seconds,
    and A's journal says so, although A loses a request when producers have been blocked
    for too long already. Once B is back, a service brings it what it missed, and the
    next switch goes through.
    """
    one, two = pair.names
    stumble = Rule(api="Produce", mishap=Mishap.LOST, times=1)
    with pair.lose_in(step, 1) as rules:
        lose = pair.happens[step]
        pair.happens[step] = lambda: (
            lose(), rules.enter_context(pair.proxies[one].rules(stumble))
        )  # fmt: skip
        began = time.monotonic()
        pair.fails("Everything was undone", pair.carry_out)
        assert time.monotonic() - began < 20 * crowd()
    # That the next step begins is in A's journal already, but never so of step 7.
    assert pair.undone[0] == {"hold": "fence", "fence": "drain"}.get(step, step)
    assert pair.undone[-1] == "assess"
    run = roles.runs(pair.journal(0))[-1]
    assert (run.open, run.last.state) == (False, StepState.UNDONE)
    failed = next(n for n, e in enumerate(run.entries) if e.state is StepState.FAILED)
    waited = run.entries[failed + 1].at - run.entries[failed].at
    assert waited < TERMS.step_seconds * 0.7, "for B's journal, on the way back"
    assert run.last.at - run.entries[failed + 1].at < 6, "for it once more each time"
    with pair.service():
        wait_for(pair.same)
    assert (pair.active(0), pair.active(1)) == (one, one)
    pair.happens = {}
    pair.carry_out()
    assert (pair.active(0), pair.active(1)) == (two, two)


def test_aborted_without_the_target(pair: Pair) -> None:
    """The operator and B die. In any step before 7, A's journal is enough to abort. In
    step 7 it is not, as B may be active; with B lost for good, A gets a newer role,
    which also counts should B come back with its own.
    """
    one, _ = pair.names
    killed_in(pair, "positions")
    pair.abort(without=1)
    assert not roles.runs(pair.journal(0))[-1].open
    killed_in(pair, "open")
    pair.fails("may be active since switch", pair.abort, without=1)
    last = roles.runs(pair.journal(0))[-1]
    assert last.open
    pair.abort(without=1, target_lost=True)
    assert pair.active(0) == one
    newest = roles.role(pair.journal(0), pair._settings)
    assert newest.epoch > last.first.epoch, "above what B may have"
    with pair.service() as store:
        wait_for(pair.same)
        wait_for(lambda: store.pairs and store.pairs[0].epoch == newest.epoch)
        assert (store.pairs[0].active, store.pairs[0].run) == (one, "")


def test_a_refused_command_fences_no_producer(pair: Pair) -> None:
    """In the middle of a switch, commands for the other direction or another kind of
    run are refused; so is, at its end, one that has nothing to do. The operator at work
    goes on. The same command again takes its place.
    """
    one, two = pair.names

    def others() -> None:
        for which in ({"back": True}, {"kind": Kind.FAILOVER, "back": True}):
            with pytest.raises(MirrorError, match=r"is open, at step drain"):
                pair.carry_out(**which)

    def late() -> None:
        pair.happens = {}
        pair.carry_out(back=True)

    pair.happens = {"drain": others}
    pair.carry_out()
    assert pair.active(1) == two
    with pair.operator() as operator:
        assert not operator.due
    pair.happens = {"drain": late}
    with pytest.raises(FencedError):
        pair.carry_out(back=True)
    assert (pair.active(0), pair.active(1)) == (one, one)


@pytest.mark.parametrize("lost_one", [None, 0, 1], ids=["both", "not A", "not B"])
def test_an_operator_that_slept_within_a_step(pair: Pair, lost_one: int | None) -> None:
    """An operator that goes on within a step after a later one took over is told by
    either journal before its next round of changes; a journal that is silent for a
    moment stops nobody who is alone.
    """
    held: list[str] = []

    def sleeps(stage: Stage) -> Done:
        if lost_one is not None:
            with pair.proxies[pair.names[lost_one]].rules(*silent):
                stage.hold()
        stage.hold()
        held.append("alone")
        pair.carry_out()
        if lost_one is not None:
            with pair.proxies[pair.names[lost_one]].rules(*silent):
                stage.hold()
        stage.hold()
        held.append("not alone")
        return Done(text="done")

    silent = [Rule(api="DescribeTransactions", mishap=Mishap.LOST, times=None)]
    steps = {**pair.steps, "fence": Step(do=sleeps, undo=pair.steps["fence"].undo)}
    with (
        pair.operator(steps=steps) as operator,
        pytest.raises(FencedError, match="took over"),
    ):
        operator.carry_out()
    assert held == ["alone"]
    assert pair.undone == []
    assert pair.same()


def test_services_with_different_files(pair: Pair) -> None:
    """Two services start a new pair, and their files name different active clusters.
    The first to write A's journal decides: both journals and both services say the
    same, and the other service says what is wrong with its file.
    """
    one, two = pair.names
    with pair.service(active=one) as first, pair.service(active=two) as second:
        wait_for(lambda: all(s.pairs and s.pairs[0].epoch for s in (first, second)))
        wait_for(pair.same)
        time.sleep(2.5)  # either may still write
        (active,) = {pair.active(0), pair.active(1)}
        other = two if active == one else one
        wait_for(lambda: {s.pairs[0].active for s in (first, second)} == {active})
        wait_for(lambda: any(s.pairs[0].remark for s in (first, second)))
        remarks = {s.pairs[0].remark for s in (first, second)}
        assert sorted(map(bool, remarks)) == [False, True]
        assert any(f"says active: {other}" in remark for remark in remarks)
