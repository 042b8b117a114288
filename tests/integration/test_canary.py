"""Canaries: a topic and a group of mirror's own go there and back, and no others."""

from __future__ import annotations

from collections import Counter
import contextlib
import json
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka.admin import AdminClient
import pytest
import yaml

from mirror.drilling.canaries import rehearsal
from mirror.offsets import progress
from mirror.playground.brokers import playground
from mirror.policy.naming import CANARY
from mirror.recovery.journal import Kind
from mirror.recovery.roles import STEPS
from mirror.switching.runner import Operator, Terms
from tests.harness.admin import create_topic, end_offsets
from tests.harness.application import Application
from tests.harness.dying import dies_after
from tests.harness.failed_over import content, leave_open
from tests.harness.group_moves import commit_for, committed
from tests.harness.metadata import acls_of, allow
from tests.harness.producers import add_users
from tests.harness.rehearsal import Rehearsal
from tests.harness.service import RunningMirror
from tests.harness.slots import RunningLease
from tests.harness.switching import Switch, command, secured_pair_of
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from mirror.clusters.cluster import Cluster
    from mirror.drilling.canaries.outcome import Canary
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_ATTEMPTS = 3
"""A step may be done in less time than a client needs to see that it has begun."""


class Pair:
    """A pair of two clusters whose flow there copies all the time, without a service
    unless it `runs`, with an application of which a canary must not touch anything; a
    context manager.
    """

    def __init__(
        self,
        clusters: Mapping[str, PlaygroundCluster],
        topic: str,
        folder: Path,
        *,
        secured: bool = False,
        runs: bool = False,
        hooks: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.one, self.other = f"A{topic[-6:]}", f"B{topic[-6:]}"
        self.ends = {
            self.one: clusters["a"].admin_bootstrap,
            self.other: clusters["b"].admin_bootstrap,
        }
        self.topic, self.folder, self._secured = topic, folder, secured
        self._runs = runs
        self.copies = {
            here: [CANARY]
            if settings.get("policy") == "identity"
            else [CANARY, f"{there}.{CANARY}"]
            for here, there in ((self.one, self.other), (self.other, self.one))
        }
        self.application = Application(topic, 1, f"app-{topic}")
        for alias, name in (
            (self.one, topic),
            (self.other, topic),
            (self.one, CANARY),
        ):
            if name not in topics_of(self.ends[alias]):
                create_topic(self.ends[alias], name)
        ends = ((self.one, clusters["a"]), (self.other, clusters["b"]))
        self._pair = Rehearsal(
            *((alias, each.bootstrap) for alias, each in ends),
            f"{topic}|{CANARY}",
            clusters=secured_pair_of(*ends, topic)["clusters"] if secured else None,
            pair={
                "fence": "acl" if secured else "confirmed",
                **({"hooks": hooks} if hooks else {}),
            },
            groups=["app-.*", CANARY],
            sync_topic_acls=False,
            **settings,
        )

    def __enter__(self) -> Self:
        (self.folder / "mirror.yaml").write_text(yaml.safe_dump(self._pair.document))
        here = self.ends[self.one]
        self.application.write(here, 10)
        self.application.consume(here, [self.topic], most=5)
        # Also there is something to be left as it is.
        commit_for(self.ends[self.other], self.application.group, {self.topic: 3})
        self._open = contextlib.ExitStack()
        if self._runs:
            self.mirror = RunningMirror(self._pair.document, self.folder)
            self._open.enter_context(self.mirror)
            self.mirror.wait_running(f"{self.one}->{self.other}")
            return self
        flow = self._pair.copying().own()
        slot = self._open.enter_context(flow.slot())
        running = RunningLease(slot, flow.lease(3600))
        self._open.callback(running.end)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._pair.__exit__(None, None, None)

    def rehearse(self, before_home: Callable[[], object] = lambda: None) -> Canary:
        """A canary in this process. `before_home`: done once it is there."""
        config, reach = self._pair.config, self._pair.cluster
        (pair,) = config.recovery.values()
        flow = config.flows[f"{self.one}->{self.other}"]
        ready = rehearsal.ready(config, pair, flow, reach)

        looks = rehearsal._require_turn
        # It looks when it begins, and before the way home.
        acts = iter((lambda: None, before_home))

        def look(*given: Any) -> Any:
            next(acts)()
            return looks(*given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rehearsal, "_require_turn", look)
            terms = Terms(step_seconds=60.0, tell=lambda *_: None, did=lambda *_: None)
            done, not_kept = rehearsal.rehearse(ready, terms, by="test")
        assert not_kept == ""
        return done

    def reach(self, alias: str) -> Cluster:
        return self._pair.cluster(alias)

    def take_home_over(self) -> str:
        """As a service does once the pair is switched; returns what names its run."""
        return self._pair.copying(back=True).own().generation

    def canary(self, *, host: str = "") -> Switch:
        return Switch(self.folder, *self._words(), host=host)

    def dies_after(self, step: str, *, source: str) -> None:
        """A canary on another machine gets SIGKILL right after this step of the switch
        from there.
        """
        dies_after(self.folder, *self._words(), step=step, source=source)

    def _words(self) -> tuple[str, ...]:
        flow = f"{self.one}/{self.other}"
        return ("drill", flow, "--canary", "--yes", "-o", "json")

    def passes(self) -> Any:
        """A canary that goes there and back: its outcome, of which an ordinary consumer
        finds each record once on either cluster.
        """
        found = json.loads(self.canary().succeeds())
        assert (found["passed"], found["lost"], found["repeated"]) == (True, 0, 0)
        assert [(e["source"], e["target"]) for e in found["switches"]] == [
            (self.one, self.other),
            (self.other, self.one),
        ]
        self._require_each_once(found["written"])
        return found

    def passes_here(self) -> Canary:
        """The same in this process."""
        done = self.rehearse()
        assert (done.passed, done.lost, done.repeated) == (True, 0, 0), done.failure
        self._require_each_once(done.written)
        return done

    def _require_each_once(self, count: int) -> None:
        run = content(self.ends[self.one], CANARY)[-1][1]
        written = Counter(b"%d" % number for number in range(count))
        for alias in self.copies:
            wait_for(lambda alias=alias: self._read(alias, run) == written)

    def operator(self) -> Operator:
        """Of a switch of the whole pair, who has only looked."""
        (pair,) = self._pair.config.recovery.values()
        ends = ((alias, self.reach(alias)) for alias in (self.one, self.other))
        return Operator(pair, Kind.SWITCH, *ends)

    def _read(self, alias: str, run: object) -> Counter[object]:
        """How often each number of this run is on a cluster."""
        return Counter(
            each[2]
            for name in self.copies[alias]
            for each in content(self.ends[alias], name)
            if each[1] == run
        )

    def untouched(self) -> tuple[object, ...]:
        """What a canary must leave as it is."""
        return (
            self.operator().entries(),
            *(acls_of(each) for each in self.ends.values() if self._secured),
            committed(self.ends[self.one], self.application.group, self.topic),
            committed(self.ends[self.other], self.application.group, self.topic),
            *(CANARY in groups_of(each) for each in self.ends.values()),
        )

    def shown(self) -> Any:
        return json.loads(command(self.folder, "pair", "-o", "json"))["pairs"]


def topics_of(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics().topics)


def groups_of(bootstrap: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_consumer_groups().result(30)
    return {each.group_id for each in found.valid}


def test_there_and_back(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A canary goes there and back: ordinary consumers find each of its records once on
    both clusters, its group has read each once, and the pair's role, the application's
    group and everyone's ACLs are as before. The journals keep it, with the seconds for
    which producers were blocked. A dry run changes nothing.
    """
    with Pair(clusters, topic_name, tmp_path) as pair:
        before = pair.untouched()
        planned = json.loads(
            command(tmp_path, "drill", f"{pair.one}/{pair.other}", "--canary",
                    "--dry-run", "-o", "json")
        )  # fmt: skip
        assert CANARY in planned["changes"][0]
        assert pair.shown()[0]["canaries"] == []

        found = pair.passes()

        assert pair.untouched() == before
        (kept,) = pair.shown()[0]["canaries"]
        assert kept["passed"]
        assert kept["block_seconds"] == max(
            each["block_seconds"] for each in found["switches"]
        )
        for each in found["switches"]:
            assert 1.0 < each["block_seconds"] < each["rto_seconds"]


class Denied:
    """Sees who is ever denied to write to the canary's topic; a context manager."""

    def __init__(self, bootstrap: str) -> None:
        self.principals: set[str] = set()
        self._bootstrap = bootstrap
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.principals |= {
                each[0]
                for each in acls_of(self._bootstrap, about=CANARY)
                if each[1:3] == ("WRITE", "DENY")
            }


@pytest.mark.full
@pytest.mark.parametrize("policy", ["default", "identity"])
def test_fences(topic_name: str, tmp_path: Path, policy: str) -> None:
    """With ACLs those who may write to the canary's topic are kept out on the cluster
    that is left, there and on the way home, and in the end everyone's ACLs are as they
    were. A second canary is like the first one.
    """
    root = tmp_path / "clusters"
    settings = {} if policy == "default" else {"policy": policy}
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        for cluster in made.values():
            add_users(cluster, ["alice"])
        allow(made["a"].admin_bootstrap, "alice", "WRITE", "mirror", pattern="PREFIXED")
        with Pair(made, topic_name, tmp_path, secured=True, **settings) as pair:
            before = pair.untouched()
            for _ in range(2):
                with (
                    Denied(pair.ends[pair.one]) as there,
                    Denied(pair.ends[pair.other]) as home,
                ):
                    pair.passes()
                for each in (there, home):
                    assert each.principals == {"User:alice", "User:mirror-canary"}
                assert pair.untouched() == before


@pytest.fixture(scope="module")
def with_users(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, PlaygroundCluster]]:
    root = tmp_path_factory.mktemp("with-users")
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        yield made


@pytest.fixture(scope="module")
def again_and_again(
    with_users: dict[str, PlaygroundCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Pair, tuple[object, ...]]]:
    """A pair for one kill after the other, and what canaries must leave as it is."""
    folder = tmp_path_factory.mktemp("killed")
    with Pair(with_users, "killed-canary", folder, secured=True) as pair:
        pair.passes_here()
        yield pair, pair.untouched()


@pytest.mark.full
@pytest.mark.parametrize("way", ["there", "home"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_within_a_step(
    again_and_again: tuple[Pair, tuple[object, ...]], step: str, way: str
) -> None:
    """A canary that gets SIGKILL within this step, there or on the way home, leaves its
    fence and its open run to the next one, on another machine, which says so, clears
    them and passes; a switch of the pair is not kept from beginning.
    """
    pair, before = again_and_again
    ends = (pair.one, pair.other) if way == "there" else (pair.other, pair.one)
    source, target = ends
    for _ in range(_ATTEMPTS):
        # An operator notes each step at its target first.
        canary = pair.canary(host="second")
        canary.kill_within(pair.ends[target], step, 0.0, source=source)
        assert pair.operator().due
        cleared = pair.passes_here().cleared
        assert pair.untouched() == before
        if f"SWITCH {source}->{target}: {step} BEGUN is ended" in cleared:
            return
    raise AssertionError(f"no kill came while {step} was not done")


@pytest.mark.full
@pytest.mark.parametrize("way", ["there", "home"])
def test_killed_after_the_last_step(
    again_and_again: tuple[Pair, tuple[object, ...]], way: str
) -> None:
    """The last step is noted as done together with the end of the run, so a canary that
    gets SIGKILL right after that leaves no open run; the next one passes, and begins
    where the pair is. After any other step it is as at the beginning of the next one.
    """
    pair, before = again_and_again
    ends = (pair.one, pair.other) if way == "there" else (pair.other, pair.one)
    pair.dies_after(STEPS[-1], source=ends[0])
    assert pair.operator().due
    cleared = pair.passes_here().cleared
    assert pair.untouched() == before
    assert not [each for each in cleared if each.endswith("is ended")]


@pytest.mark.full
@pytest.mark.parametrize("comes", ["canary", "switch"])
def test_a_transaction_is_left_open(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path, comes: str
) -> None:
    """A canary that was killed on its way home left a transaction open in the progress
    of the flow home: the next one ends it, and passes. A switch goes through, too.
    """
    with Pair(clusters, topic_name, tmp_path) as pair:
        pair.passes_here()
        leave_open(pair.ends[pair.one], pair.other, pair.one)
        if comes == "canary":
            pair.passes_here()
            return
        flow = f"{pair.one}/{pair.other}"
        Switch(tmp_path, "switch", flow, "--yes").succeeds()


@pytest.mark.full
def test_another_fence_meanwhile(
    with_users: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A canary that fenced by ACLs is killed, and the next one runs after the pair got
    another fence: it takes the ACLs back all the same.
    """
    with Pair(with_users, topic_name, tmp_path, secured=True) as pair:
        pair.passes()
        before = pair.untouched()
        pair.canary().kill_within(pair.ends[pair.one], "drain", 0.0, source=pair.one)
        assert pair.untouched() != before
        file = tmp_path / "mirror.yaml"
        document = yaml.safe_load(file.read_text())
        (settings,) = document["recovery"].values()
        settings["fence"] = "confirmed"
        file.write_text(yaml.safe_dump(document))
        found = pair.passes()
        assert any(each.startswith("fence ") for each in found["cleared"])
        assert pair.untouched() == before


@pytest.mark.full
def test_a_switch_before_the_way_home(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Once a canary is there, the pair is really switched, and a service takes the flow
    home over. The canary looks again, says so, and does not fence the service.
    """
    with Pair(clusters, topic_name, tmp_path) as pair:
        service: list[str] = []

        def switch() -> None:
            flow = f"{pair.one}/{pair.other}"
            Switch(tmp_path, "switch", flow, "--yes").succeeds()
            service.append(pair.take_home_over())

        found = pair.rehearse(switch)
        assert (found.passed, len(found.switches)) == (False, 1)
        assert f"{pair.other} is the active cluster" in found.failure
        home = pair.reach(pair.one)
        known = progress.read(home, progress.topic_name(pair.other))
        assert known.generation == service[0]


@pytest.mark.full
@pytest.mark.parametrize("policy", ["default", "identity"])
def test_beside_a_service(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
    policy: str,
) -> None:
    """A running service copies canaries there, and its flow home rests all the time. It
    goes on with the application's records, in the same role, and tells how the last
    canary went.
    """
    settings = {} if policy == "default" else {"policy": policy}
    # Another pair's canaries would leave records that the flow home has not copied.
    clusters = make_clusters("a", "b")
    with Pair(clusters, topic_name, tmp_path, runs=True, **settings) as pair:
        before = pair.untouched()
        for _ in range(2):
            found = pair.passes()
            assert pair.untouched() == before
        pair.application.write(pair.ends[pair.one], 10)
        copy = topic_name if settings else f"{pair.one}.{topic_name}"
        wait_for(lambda: end_offsets(pair.ends[pair.other], copy)[0] >= 20)
        states = {e["name"]: e["state"] for e in pair.mirror.status()["flows"]}
        there = f"{pair.one}->{pair.other}"
        assert states.pop(there) == "RUNNING"
        assert set(states.values()) == {"RESTING"}
        block = max(each["block_seconds"] for each in found["switches"])

        def told() -> Any:
            return pair.mirror.status()["pairs"][0]["canary"]

        wait_for(lambda: (told() or {}).get("block_seconds") == block)
        assert told()["passed"]


@pytest.mark.full
def test_hooks(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """Only hooks that are marked are called, there and back, and are told that it is a
    canary. Where one fails the canary says so, undoes what it did and clears the rest;
    the journals keep that, too.
    """
    calls = tmp_path / "calls"
    record = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
    marked = {"command": [sys.executable, "-c", record, str(calls)], "canary": True}
    forbidden = {"command": [sys.executable, "-c", "raise SystemExit(3)"]}
    hooks = {"stop_producers": marked, "stop_consumers": forbidden}
    with Pair(clusters, topic_name, tmp_path, hooks=hooks) as pair:
        pair.passes()
        told = [json.loads(line) for line in calls.read_text().splitlines()]
        assert [(each["from"], each["canary"]) for each in told] == [
            (pair.one, True), (pair.other, True)
        ]  # fmt: skip
    fails = {**forbidden, "canary": True}
    for hook in ("stop_consumers", "redirect_producers"):
        with Pair(clusters, topic_name, tmp_path, hooks={hook: fails}) as pair:
            before = pair.untouched()
            canary = pair.canary()
            assert canary.ends() == 1
            assert pair.untouched() == before
            kept = pair.shown()[0]["canaries"][-1]
            assert not kept["passed"]
            assert f"hook {hook} failed: exit code 3" in kept["text"]


@pytest.mark.full
def test_beside_a_switch(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """While a switch of the pair is under way a canary is refused, with the switch's
    name and step. A switch that begins beside a canary goes through, and the canary
    gives way.
    """
    with Pair(clusters, topic_name, tmp_path) as pair:
        pair.passes()
        flow = f"{pair.one}/{pair.other}"
        switch = Switch(tmp_path, "switch", flow, "--yes")
        switch.kill_within(pair.ends[pair.one], "fence", 0.0)
        said = pair.canary().fails()
        assert f"switch {pair.one}->{pair.other}" in said
        assert "is open, at step fence" in said
        Switch(tmp_path, "switch", flow, "--yes", "--abort").succeeds()
        canary = pair.canary()
        canary.reaches(pair.ends[pair.one], "fence", source=pair.one)
        with canary.stopped():
            Switch(tmp_path, "switch", flow, "--yes").succeeds()
        assert canary.ends() == 1
        (kept,) = pair.shown()
        assert kept["active"] == pair.other
        assert "the canary gave way" in kept["canaries"][-1]["text"]
