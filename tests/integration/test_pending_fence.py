"""A failover leaves a cluster without a fence: it is laid once the cluster answers."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from mirror.checks.permissions.rights import rights
from mirror.clusters.cluster import Cluster
from mirror.pairs import journal, roles
from mirror.pairs.journal import Entry, JournalReader, Kind, StepState
from mirror.playground.brokers import playground
from mirror.playground.secured import PASSWORDS, USER
from mirror.recovery import pending
from tests.harness.admin import create_topic
from tests.harness.configurations import configuration
from tests.harness.few_rights import grant
from tests.harness.metadata import allow
from tests.harness.producers import Persistent, add_users, all_acls, scram, write
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, command, secured_pair_of
from tests.harness.waiting import crowd, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

DENIED = "TOPIC_AUTHORIZATION_FAILED"
SECONDS = 5.0


@pytest.mark.full
def test_the_cluster_comes_back(topic_name: str, tmp_path: Path) -> None:
    """A is killed under load and comes back, with a producer that never stopped: A
    refuses it within five seconds of A's first answer to anyone, and after a second
    death at once. Meanwhile its user may write on B, also to a topic of which nothing
    was copied. The service counts as many writes on the passive cluster as the
    producer's acknowledgements say, and the way home lets it write there again.
    """
    root = tmp_path / "clusters"
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        one, two = made["a"], made["b"]
        empty = f"{topic_name}-empty"
        for cluster in (one, two):
            add_users(cluster, ["alice"])
            for topic in (topic_name, empty):
                create_topic(cluster.admin_bootstrap, topic, 1)
        for topic in (topic_name, empty):
            allow(one.admin_bootstrap, "alice", "WRITE", topic)
        before = all_acls(one.admin_bootstrap)
        document = secured_pair_of(("FA", one), ("FB", two), topic_name)
        document["defaults"]["topics"].append(empty)
        alice = scram(one, "alice", "alice")
        with (
            RunningMirror(document, tmp_path) as mirror,
            Persistent(alice, one.admin_bootstrap, topic_name) as producer,
        ):

            def pair() -> dict[str, Any]:
                (found,) = mirror.status()["pairs"]
                return dict(found)

            mirror.wait_running("FA->FB")
            mirror.wait_until(lambda _: mirror.flow("FA->FB")["standby_at"])
            wait_for(lambda: producer.acknowledged)
            one.kill()
            Switch(tmp_path, "failover", "FA/FB", "--yes").succeeds()
            for topic in (topic_name, empty):
                assert write(scram(two, "alice", "alice"), topic) == ""
            wait_for(lambda: pair()["fence_owed"] == "FA")
            told = len(producer.acknowledged)
            gone = len(producer.answered)
            one.start()
            wait_for(lambda: producer.refused)
            first, (refused, why) = producer.answered[gone], producer.refused[0]
            assert why == DENIED
            assert refused - first < SECONDS * crowd()
            wait_for(lambda: pair()["fence_owed"] == "")
            accepted = len(producer.acknowledged) - told
            wait_for(lambda: pair()["passive"]["writes"] == accepted)
            assert [run["text"] for run in pair()["runs"][:2]] == [
                "FENCE FA->FB: end DONE",
                "FAILOVER FA->FB: end DONE",
            ]

            one.kill()
            told = len(producer.acknowledged)
            one.start()
            refusals = len(producer.refused)
            wait_for(lambda: len(producer.refused) > refusals)
            assert len(producer.acknowledged) == told, "the fence outlives A"
            shown = json.loads(command(tmp_path, "pair", "-o", "json"))["pairs"][0]
            kinds = [run["kind"] for run in shown["runs"]]
            assert kinds == ["START", "FAILOVER", "FENCE"], "it is noted once"

            mirror.wait_running("FB->FA")
            command(tmp_path, "tail", "skip", "FA/FB", "--yes")
            Switch(tmp_path, "switch", "FB/FA", "--yes").succeeds()
            told = len(producer.acknowledged)
            wait_for(lambda: len(producer.acknowledged) > told)
            assert all_acls(one.admin_bootstrap) == before


@pytest.mark.full
def test_services_that_select_different_topics(topic_name: str, tmp_path: Path) -> None:
    """The failover was made with both topics. The service that meets A first selects
    one of them, and the next one selects the other: as soon as `mirror pair` says that
    no fence is owed, alice may write to neither, nor to one that only A ever had.
    """
    root = tmp_path / "clusters"
    topics = [f"{topic_name}-{name}" for name in ("orders", "billing", "late")]
    orders, billing, late = topics
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        one, two = made["a"], made["b"]
        for cluster in (one, two):
            add_users(cluster, ["alice"])
            for topic in (orders, billing):
                create_topic(cluster.admin_bootstrap, topic, 1)
        allow(one.admin_bootstrap, "alice", "WRITE", topic_name, pattern="PREFIXED")
        alice = scram(one, "alice", "alice")
        document = secured_pair_of(("DA", one), ("DB", two), f"{topic_name}-.*")
        with RunningMirror(document, tmp_path) as mirror:
            mirror.wait_running("DA->DB")
            mirror.wait_until(lambda _: mirror.flow("DA->DB")["standby_at"])
        create_topic(one.admin_bootstrap, late, 1)
        assert [write(alice, topic) for topic in topics] == ["", "", ""]
        one.kill()
        Switch(tmp_path, "failover", "DA/DB", "--yes").succeeds()
        one.start()

        for number, topic in enumerate((orders, billing)):
            narrow = json.loads(json.dumps(document))
            narrow["defaults"]["topics"] = [topic]
            with RunningMirror(narrow, tmp_path / str(number)) as mirror:
                mirror.wait_until(
                    lambda shown: [
                        pair
                        for pair in shown["pairs"]
                        if (pair["active"], pair["fence_owed"]) == ("DB", "")
                    ]
                )
                assert [write(alice, each) for each in topics] == [DENIED] * 3


# Dies by SIGKILL while it lays the fence: at a given number of ACLs, or else when it is
# about to look whether the role moved.
_DIES = """
import os, pathlib, signal, sys
from mirror.clusters.admin import acls
from mirror.clusters.cluster import Cluster
from mirror.config.load import load
from mirror.pairs import roles
from mirror.pairs.journal import JournalReader
from mirror.recovery import pending

config, _ = load(pathlib.Path(sys.argv[1]))
left = int(sys.argv[2])
(pair,) = config.recovery.values()
cluster = Cluster(config.clusters["FA"]).connect()
create, looks = acls.create, 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def one_by_one(cluster, wanted):
    global left
    refused = {}
    for acl in wanted:
        refused |= create(cluster, [acl])
        left -= 1
        if not left:
            die()
    return refused

def entries():
    global looks
    looks += 1
    if looks > 1:
        die()
    return roles.merged(JournalReader(cluster).read(), pair=pair.name)

acls.create = one_by_one
pending.settle_fence(config, pair, cluster, entries, by="test")
"""


@pytest.fixture
def owing(topic_name: str, tmp_path: Path) -> Iterator[Owing]:
    root = tmp_path / "clusters"
    with playground(("a",), root=root, given=False, secured=True) as made:
        add_users(made["a"], ["alice", "bob"])
        owing = Owing(made["a"], topic_name, tmp_path)
        with contextlib.closing(owing.cluster):
            yield owing


class Owing:
    """A cluster FA whose journal says that a failover left it, and on which mirror has
    the rights that it lists, no more.
    """

    def __init__(self, made: PlaygroundCluster, topic: str, folder: Path) -> None:
        create_topic(made.admin_bootstrap, topic, 1)
        for user in ("alice", "bob"):
            allow(made.admin_bootstrap, user, "WRITE", topic)
        self._made, self._topic = made, topic
        document = secured_pair_of(("FA", made), ("FB", made), topic)
        document["clusters"]["FA"]["sasl_username"] = USER
        document["clusters"]["FA"]["sasl_password"] = PASSWORDS[USER]
        document["clusters"]["FB"]["bootstrap_servers"] = "127.0.0.1:1"
        self._file = folder / "mirror.yaml"
        self._file.write_text(json.dumps(document))
        self._config = configuration(document)
        (self._pair,) = self._config.recovery.values()
        listed = [r for r in rights(self._config) if r.cluster == "FA"]
        grant(made.admin_bootstrap, listed)
        self.before = self.acls()
        self.cluster = Cluster(self._config.clusters["FA"]).connect()
        self._reader = JournalReader(self.cluster)
        self._epoch = max((e.epoch for e in self.entries()), default=0)
        self.change(Kind.FAILOVER, "FA", "FB")

    def change(
        self,
        kind: Kind,
        source: str,
        target: str,
        steps: Sequence[str] = (roles.ROLE, roles.END),
    ) -> None:
        """Write what a run writes."""
        self._epoch += 1
        journal.copy(
            self.cluster,
            [
                Entry(
                    pair=self._pair.name, run=f"run-{self._epoch}", number=number,
                    kind=kind, epoch=self._epoch, source=source, target=target,
                    step=step, state=StepState.DONE, at=time.time(), by="test",
                )
                for number, step in enumerate(steps)
            ],
        )  # fmt: skip

    def go_home(self) -> None:
        self.change(Kind.SWITCH, "FB", "FA")

    def begin_home(self) -> None:
        self.change(Kind.SWITCH, "FB", "FA", ["assess"])

    def entries(self) -> Sequence[Entry]:
        return roles.merged(self._reader.read(), pair="FA<->FB")

    def settle(self, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """As a service does; `meanwhile` is done while it lays the fence."""
        looks = 0

        def entries() -> Sequence[Entry]:
            nonlocal looks
            looks += 1
            if looks == 2:
                meanwhile()
            return self.entries()

        return pending.settle_fence(
            self._config, self._pair, self.cluster, entries, by="test"
        )

    def dies_laying(self, at: int) -> None:
        """A service on another machine dies; see `_DIES`."""
        done = subprocess.run(
            [sys.executable, "-c", _DIES, str(self._file), str(at)],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr

    @property
    def denied(self) -> int:
        return sum("DENY" in acl for acl in self.acls())

    def acls(self) -> set[tuple[str, ...]]:
        return all_acls(self._made.admin_bootstrap)

    def may_write(self, user: str) -> str:
        return write(scram(self._made, user, user), self._topic)


@pytest.mark.parametrize(
    ("at", "there"), [pytest.param(1, 1, marks=pytest.mark.full), (99, 2)]
)
def test_killed_while_laying(owing: Owing, at: int, there: int) -> None:
    """A service dies after the first ACL of the fence, or after the last one and before
    it notes that. The next one lays all of it, notes it, and has nothing to do later.
    """
    owing.dies_laying(at)
    assert owing.denied == there
    assert roles.owed(owing.entries()) is not None
    assert owing.settle()
    assert (owing.may_write("alice"), owing.may_write("bob")) == (DENIED, DENIED)
    assert roles.owed(owing.entries()) is None
    assert not owing.settle()
    assert owing.denied == 2


def test_the_role_goes_home_meanwhile(owing: Owing) -> None:
    """The cluster becomes active again while a service lays the fence, which slept: it
    looks again, and lifts what it laid. If it dies before that, the next one does.
    """
    assert not owing.settle(meanwhile=owing.go_home)
    assert owing.acls() == owing.before
    assert owing.may_write("alice") == ""

    owing.change(Kind.FAILOVER, "FA", "FB")
    owing.dies_laying(99)
    owing.go_home()
    assert owing.may_write("alice") == DENIED
    assert not owing.settle()
    assert owing.acls() == owing.before
    assert owing.may_write("alice") == ""


def test_a_switch_that_is_open_decides(owing: Owing) -> None:
    """While the way home is open, nobody else lays the fence; one that begins while the
    fence is being laid takes it away again.
    """
    assert not owing.settle(meanwhile=owing.begin_home)
    assert owing.acls() == owing.before
    assert not owing.settle()
    assert owing.acls() == owing.before
