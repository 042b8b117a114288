"""A pair is switched by a user with the listed rights, and no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import ResourceType
import pytest

from mirror.checks.permissions.rights import Right, rights
from mirror.checks.permissions.table import Operation, Who
from mirror.playground.brokers import playground
from mirror.playground.secured import USER
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.configurations import configuration
from tests.harness.few_rights import grant, revoke_all
from tests.harness.metadata import allow
from tests.harness.producers import add_users, scram, write
from tests.harness.service import RunningMirror
from tests.harness.switching import Switch, pair_of
from tests.harness.waiting import crowd
from tests.harness.witness import order_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

DENIED = "TOPIC_AUTHORIZATION_FAILED"


def listed(document: dict[str, Any], *who: Who) -> dict[tuple[Any, ...], Right]:
    found = rights(configuration(document), who=who)
    return {(r.cluster, r.kind, r.extent, r.operation): r for r in found}


@dataclass(kw_only=True)
class Restricted:
    """A pair whose service and operator are a user with few rights."""

    clusters: dict[str, PlaygroundCluster]
    document: dict[str, Any]
    topic: str
    folder: Path
    active: str = "FA"

    @property
    def passive(self) -> str:
        return next(alias for alias in self.clusters if alias != self.active)

    def give(self, wanted: Iterable[Right]) -> None:
        """Exactly these."""
        for alias, cluster in self.clusters.items():
            revoke_all(cluster.admin_bootstrap)
            grant(cluster.admin_bootstrap, [r for r in wanted if r.cluster == alias])

    def switch(self) -> Switch:
        seconds = f"{5 * crowd():.0f}"
        words = (f"{self.active}/{self.passive}", "--yes", "--step-timeout", seconds)
        return Switch(self.folder, "switch", *words)

    def may_write(self, alias: str) -> str:
        """Why a producer may not, that may write where the pair is active."""
        return write(scram(self.clusters[alias], "alice", "alice"), self.topic)


@pytest.fixture
def pair(topic_name: str, tmp_path: Path) -> Iterator[Restricted]:
    root = tmp_path / "clusters"
    with playground(("FA", "FB"), root=root, given=False, secured=True) as made:
        first = made["FA"].admin_bootstrap
        for cluster in made.values():
            create_topic(cluster.admin_bootstrap, topic_name, 2)
            add_users(cluster, ["alice"])
        group = f"app-{topic_name}"
        allow(first, "alice", "WRITE", topic_name)
        allow(first, "alice", "READ", group, kind=ResourceType.GROUP)
        document = pair_of(("FA", ""), ("FB", ""), topic_name)
        document["recovery"]["FA<->FB"] = {"active": "FA"}
        document["defaults"]["sync_topic_acls"] = False
        for alias, cluster in made.items():
            document["clusters"][alias] = {
                "bootstrap_servers": cluster.bootstrap,
                **cluster.client_config,
                "principal": f"User:{USER}",
            }
        application = Application(topic_name, 2, group)
        application.write(first, 100)
        application.consume(first, [topic_name], most=50)
        yield Restricted(
            clusters=made, document=document, topic=topic_name, folder=tmp_path
        )


@pytest.mark.full
def test_a_pair_is_switched_with_the_listed_rights(pair: Restricted) -> None:
    """With what `mirror config acls --for service --for recovery` lists and no more, a
    pair is switched there and back: the producer is refused where it was fenced, and
    every record is copied.
    """
    pair.give(listed(pair.document, Who.SERVICE, Who.RECOVERY).values())
    one, two = (pair.clusters[alias].admin_bootstrap for alias in ("FA", "FB"))
    with RunningMirror(pair.document, pair.folder) as mirror:
        mirror.wait_running("FA->FB")
        mirror.wait_copied(one, pair.topic, flow="FA->FB")
        pair.switch().succeeds()
        assert (pair.may_write("FA"), pair.may_write("FB")) == (DENIED, "")
        there, here = order_of(two, f"FA.{pair.topic}"), order_of(one, pair.topic)
        assert sum(map(len, there.values())) == sum(map(len, here.values())) == 100
        pair.active = "FB"
        mirror.wait_running("FB->FA")
        pair.switch().succeeds()
        assert (pair.may_write("FA"), pair.may_write("FB")) == ("", DENIED)


@pytest.mark.full
def test_no_right_of_recovery_is_too_much(pair: Restricted) -> None:
    """Without any line that recovery adds, a switch there or the one back does not get
    through; it is undone, and the producer may write where it did.
    """
    service = listed(pair.document, Who.SERVICE)
    every = listed(pair.document, Who.SERVICE, Who.RECOVERY)
    added = sorted(
        every.keys() - service.keys(),
        # A topic that exists need not be created.
        key=lambda what: (what[3] is not Operation.CREATE, str(what)),
    )
    needless = []
    pair.give(every.values())
    with RunningMirror(pair.document, pair.folder) as mirror:
        for what in added:
            for _ in range(2):
                mirror.wait_running(f"{pair.active}->{pair.passive}")
                pair.give(right for key, right in every.items() if key != what)
                tried = pair.switch()
                code = tried.ends()
                pair.give(every.values())
                if code:
                    assert "AUTHORIZATION" in "".join(tried.said), (what, tried.said)
                    assert pair.may_write(pair.active) == "", what
                    break
                pair.active = pair.passive
            else:
                needless.append(what)
    assert needless == []
