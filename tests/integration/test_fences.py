"""Fences of real clusters: who is kept from writing, and that nothing else changes.

Witnesses are producers and consumers of confluent-kafka. The clusters let everyone do
everything with topics that have no ACLs; a topic with ACLs is closed to all others.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import ResourceType
import pytest

from mirror.clusters.admin import acls
from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.config.schema import FlowConfig, MirrorConfig
from mirror.errors import BrokerError, FencedError, FenceError
from mirror.offsets.standby import read as read_standby
from mirror.offsets.standby import topic_name as topic_name_of
from mirror.pairs import access
from mirror.playground.brokers import playground
from mirror.playground.secured import PASSWORDS, USER
from mirror.recovery import quiet, rights
from mirror.recovery.quiet import ActivityReason
from mirror.service.standby import AccessJob
from mirror.topics import fences
from mirror.topics.acl_notes import AclNotes, AclPlan
from tests.harness.admin import create_topic
from tests.harness.metadata import Sides, allow, revoke
from tests.harness.producers import (
    Going,
    add_users,
    all_acls,
    mutual_tls,
    read,
    scram,
    write,
)
from tests.harness.security import Doors, admit
from tests.harness.waiting import wait_for
from tests.harness.witness import read_topic
from tests.integration.test_topic_acls import settle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_DENIED = "TOPIC_AUTHORIZATION_FAILED"
_LONG_SECONDS = 900
_TRANSACTIONAL = ResourceType.TRANSACTIONAL_ID


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Doors:
    return Doors(tmp_path_factory.mktemp("doors"))


@pytest.fixture(scope="module")
def cluster(
    doors: Doors, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlaygroundCluster]:
    """Two brokers, which hear of ACLs at different times, and some users."""
    options = doors.options
    options["settings"] |= {
        "allow.everyone.if.no.acl.found": "true",
        # As many as are allowed, for the open transaction of 15 minutes.
        "transaction.max.timeout.ms": str(_LONG_SECONDS * 1000),
    }
    root = tmp_path_factory.mktemp("fences")
    with playground(("a",), root=root, given=False, nodes=2, **options) as made:
        add_users(made["a"], ("alice", "bob", "carol", "dave"))
        yield made["a"]


@pytest.fixture(scope="module")
def config(cluster: PlaygroundCluster) -> ClusterConfig:
    """Mirror's own section: a user that is no super user."""
    assert cluster.sasl is not None
    return section(cluster, **cluster.sasl.client_config)


def section(cluster: PlaygroundCluster, **settings: Any) -> ClusterConfig:
    assert cluster.sasl is not None
    return ClusterConfig(
        alias="A", bootstrap_servers=cluster.sasl.bootstrap, **settings
    )


@pytest.fixture
def own(config: ClusterConfig) -> Iterator[Cluster]:
    with contextlib.closing(Cluster(config).connect()) as made:
        yield made


def only(config: ClusterConfig) -> MirrorConfig:
    """A configuration of this cluster alone."""
    return MirrorConfig(clusters={config.alias: config}, flows={})


def plan(own: Cluster, config: ClusterConfig, topics: list[str], pair: str) -> AclPlan:
    """What a step of a switch would lay."""
    known = fences.look(own, only(config), topics)
    return fences.plan_fence(known, topics, pair=pair)


def one_by_one(changes: Iterable[Any], _most: int) -> Iterator[list[Any]]:
    """A request for each ACL, with time in between."""
    for each in changes:
        yield [each]
        time.sleep(0.03)


def test_what_stands_is_not_laid_again(
    cluster: PlaygroundCluster,
    config: ClusterConfig,
    own: Cluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fence that every broker shows takes no change; an ACL of it that somebody took
    away is added again.
    """
    create_topic(cluster.admin_bootstrap, topic_name)
    for user, operation in (("alice", "WRITE"), (USER, "ALL")):
        allow(cluster.admin_bootstrap, user, operation, topic_name)
    made = plan(own, config, [topic_name], topic_name)
    fences.lay(own, made)
    added: list[Any] = []
    create = acls.create

    def watched(where: Cluster, wanted: Iterable[Any]) -> Any:
        added.extend(wanted)
        return create(where, wanted)

    monkeypatch.setattr(acls, "create", watched)
    fences.lay(own, plan(own, config, [topic_name], topic_name))
    assert added == []
    acls.delete(own, made.adds)
    wait_for(lambda: not acls.describe_all(own) & {*made.adds})
    fences.lay(own, plan(own, config, [topic_name], topic_name))
    assert added == list(made.adds)
    fences.lift(own, made.by)


def test_every_kind_of_grant(
    cluster: PlaygroundCluster,
    config: ClusterConfig,
    own: Cluster,
    doors: Doors,
    topic_name: str,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Producers that may write through a literal ACL, a prefix, ALL with a certificate,
    a grant to everyone or the want of ACLs are refused once `lay` returns, and may
    write once `lift` does. Meanwhile mirror writes to each topic, and readers read all,
    without a single refusal, though ACLs come one by one here; nor is anyone let in by
    laying the fence again. The ACLs after are those before, one by one.
    """
    monkeypatch.setattr(acls, "in_parts", one_by_one)
    admin = cluster.admin_bootstrap
    one, two, open_one, bare, outside = (
        f"{topic_name}-{n}" for n in ("one", "two", "everyone", "bare", "outside")
    )
    fenced = [one, two, open_one, bare]
    for topic in (*fenced, outside):
        create_topic(admin, topic)
    for topic in (one, two, outside):
        for user, operation in (
            ("alice", "WRITE"), ("carol", "ALL"), (USER, "ALL"), ("*", "READ"),
        ):  # fmt: skip
            allow(admin, user, operation, topic)
    allow(admin, "bob", "WRITE", f"{topic_name}-t", pattern="PREFIXED")
    allow(admin, "*", "ALL", open_one)
    before = all_acls(admin)
    certified = mutual_tls(cluster, doors, "carol", tmp_path)
    alice, bob, dave = (scram(cluster, u, u) for u in ("alice", "bob", "dave"))
    refused = [
        (alice, one), (certified, one), (alice, two), (bob, two), (certified, two),
        (dave, open_one), (dave, bare),
    ]  # fmt: skip
    assert [write(settings, topic) for settings, topic in refused] == [""] * 7

    made = plan(own, config, fenced, topic_name)
    mirrors = scram(cluster, USER, PASSWORDS[USER])
    with (
        Going(mirrors, writes=fenced, reads=fenced) as mirror,
        Going(dave, reads=fenced) as reader,
        Going(alice, writes=[one]) as writer,
        Going(alice, writes=[outside]) as stranger,
        Going(dave, writes=[bare]) as anyone,
    ):
        going = (mirror, reader, writer, stranger, anyone)
        wait_for(lambda: all(each.done for each in going), pause=0.05)
        began = time.monotonic()
        fences.lay(own, made)
        through = writer.done
        found = {write(settings, topic) for settings, topic in refused}
        assert found == {_DENIED}
        written = (writer.done, anyone.done)
        fences.lay(own, made)  # nothing happens
        assert {write(settings, topic) for settings, topic in refused} == {_DENIED}
        refusals = len(writer.refused)
        wait_for(lambda: len(writer.refused) > refusals, pause=0.05)
        assert (writer.done, anyone.done) == written
        assert writer.done <= through + 1  # which was on its way
        seen, counted = mirror.done, reader.done

        assert set(AclNotes(own).noted(made.by).changes) == set(made.changes)
        fences.lift(own, made.by)
        assert [write(settings, topic) for settings, topic in refused] == [""] * 7
        wait_for(lambda: mirror.done > seen and reader.done > counted, pause=0.05)
    assert mirror.refused == reader.refused == stranger.refused == []
    assert began < writer.refused[0][0]
    assert all_acls(admin) == before
    assert AclNotes(own).noted(made.by).changes == {}


def test_no_user_of_mirror_is_fenced(
    cluster: PlaygroundCluster, config: ClusterConfig, own: Cluster, topic_name: str
) -> None:
    """The user that a flow's tasks log in as goes on writing, where it was granted that
    and where everyone may; another user who could do the same is refused. If the
    tasks' principal is not known, the message names the entry to set it in.
    """
    admin = cluster.admin_bootstrap
    named, bare = (f"{topic_name}-{n}" for n in ("named", "bare"))
    for topic in (named, bare):
        create_topic(admin, topic)
    for user in ("alice", "bob", USER):
        allow(admin, user, "WRITE", named)
    alice, bob = (scram(cluster, user, user) for user in ("alice", "bob"))

    writer = config.model_copy(update={"alias": "A-writer", "sasl_username": "bob"})
    unknown = writer.model_copy(update={"sasl_username": None})
    flow = FlowConfig(source="B", target="A", target_login="A-writer")
    whole = MirrorConfig(
        clusters={"A": config, "A-writer": writer}, flows={flow.name: flow}
    )
    known = fences.look(own, whole, [named, bare])
    made = fences.plan_fence(known, [named, bare], pair=topic_name)
    fences.lay(own, made)
    try:
        assert {write(alice, topic) for topic in (named, bare)} == {_DENIED}
        assert {write(bob, topic) for topic in (named, bare)} == {""}
    finally:
        fences.lift(own, made.by)
    assert {write(alice, topic) for topic in (named, bare)} == {""}
    clusters = {"A": config, "A-writer": unknown}
    with pytest.raises(FenceError, match=r"set clusters\.A-writer\.principal, such"):
        fences.look(own, whole.model_copy(update={"clusters": clusters}), [named])


def test_killed_anywhere(
    cluster: PlaygroundCluster,
    config: ClusterConfig,
    own: Cluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fence whose maker dies before or after any change is completed, or taken back,
    by another one that knows only the cluster and the journal.
    """
    admin = cluster.admin_bootstrap
    given, bare = f"{topic_name}-given", f"{topic_name}-bare"
    for topic in (given, bare):
        create_topic(admin, topic)
    allow(admin, "alice", "WRITE", given)
    allow(admin, "*", "WRITE", given)
    before = all_acls(admin)
    made = plan(own, config, [given, bare], topic_name)
    create, delete = acls.create, acls.delete

    class KilledError(Exception):
        pass

    def killing(number: int) -> None:
        """Die at this change, at even numbers before it is made."""
        count = iter(range(100))

        def each(change: Any) -> Any:
            def changing(cluster: Cluster, acls: Any) -> Any:
                now = next(count) if acls else -1
                if 2 * now == number:
                    raise KilledError
                done = change(cluster, acls)
                if 2 * now + 1 == number:
                    raise KilledError
                return done

            return changing

        monkeypatch.setattr(acls, "create", each(create))
        monkeypatch.setattr(acls, "delete", each(delete))

    alice = scram(cluster, "alice", "alice")
    for number in range(6):
        killing(number)
        with pytest.raises(KilledError):
            fences.lay(own, made)
        monkeypatch.undo()
        if number % 3:
            again = plan(own, config, [given, bare], topic_name)
            assert again.changes == made.changes  # a half-made fence is no reason
            fences.lay(own, made)
            assert {write(alice, topic) for topic in (given, bare)} == {_DENIED}
            killing(number)
            with pytest.raises(KilledError):
                fences.lift(own, made.by)
            monkeypatch.undo()
        fences.lift(own, made.by)
        assert all_acls(admin) == before
    assert {write(alice, topic) for topic in (given, bare)} == {""}


def test_a_super_user_is_found(
    cluster: PlaygroundCluster, config: ClusterConfig, own: Cluster, topic_name: str
) -> None:
    """No ACL stops a super user: the logs show that it writes, and that all is quiet
    once it stops.
    """
    create_topic(cluster.admin_bootstrap, topic_name)
    made = plan(own, config, [topic_name], topic_name)
    fences.lay(own, made)

    def is_writing() -> bool:
        found = quiet.look(own, [topic_name], pause=0.3)
        writes = found.active == {(topic_name, 0): ActivityReason.WRITES}
        return writes and "super user" in found.text and not found.cuts

    try:
        with Going(
            scram(cluster, "admin", PASSWORDS["admin"]), writes=[topic_name]
        ) as producer:
            wait_for(is_writing)
        found = quiet.wait(own, [topic_name], seconds=60, pause=0.2)
        assert found.cuts == {(topic_name, 0): producer.done}
        assert (found.active, found.text) == ({}, "")
    finally:
        fences.lift(own, made.by)


def transactional(cluster: PlaygroundCluster, topic: str) -> Producer:
    """A producer with an open transaction that may last 15 minutes."""
    client = Producer(
        {
            **scram(cluster, "alice", "alice"),
            "transactional.id": topic,
            "transaction.timeout.ms": _LONG_SECONDS * 1000,
        }
    )
    client.init_transactions(30)
    client.begin_transaction()
    client.produce(topic, b"open")
    assert client.flush(30) == 0
    return client


def test_an_open_transaction(
    cluster: PlaygroundCluster, config: ClusterConfig, own: Cluster, topic_name: str
) -> None:
    """A transaction that is open when the fence is laid is named, with how long it may
    last; it may still be committed, after which all is quiet. One that is aborted
    fences its producer, and leaves nothing behind it.
    """
    create_topic(cluster.admin_bootstrap, topic_name)
    made = plan(own, config, [topic_name], topic_name)
    before = time.time()
    client = transactional(cluster, topic_name)
    fences.lay(own, made)
    try:
        found = quiet.look(own, [topic_name], pause=0.1)
        assert found.active == {(topic_name, 0): ActivityReason.TRANSACTION}
        (left_open,) = found.open
        assert left_open.transactional_id == topic_name
        assert left_open.timeout_seconds == _LONG_SECONDS
        assert before - 1 < left_open.began < time.time() + 1
        assert topic_name in found.text
        client.commit_transaction(30)
        found = quiet.wait(own, [topic_name], seconds=60, pause=0.1)
        assert found.cuts == {(topic_name, 0): 2}  # the record, and its marker
    finally:
        fences.lift(own, made.by)

    client = transactional(cluster, topic_name)
    fences.lay(own, made)
    try:
        found = quiet.look(own, [topic_name], pause=0.1)
        assert quiet.abort(own, found.open) == ((topic_name,), {})
        assert quiet.wait(own, [topic_name], seconds=60, pause=0.1).active == {}
        with pytest.raises(KafkaException, match=r"FENCED|fenced"):
            client.commit_transaction(30)
    finally:
        fences.lift(own, made.by)


def test_what_is_refused(
    cluster: PlaygroundCluster,
    clusters: dict[str, PlaygroundCluster],
    config: ClusterConfig,
    own: Cluster,
    doors: Doors,
    topic_name: str,
) -> None:
    """Where ACLs cannot fence, there is one reason, and no ACL is changed."""
    admin = cluster.admin_bootstrap
    create_topic(admin, topic_name)
    create_topic(admin, f"{topic_name}-other")
    before = all_acls(admin)
    assert cluster.mutual_tls is not None
    tls = {"security_protocol": "SSL", "ssl_ca_file": doors.ca,
           "ssl_certificate_file": doors.client}  # fmt: skip

    def refusal(config: ClusterConfig, connected: Cluster = own) -> str:
        with pytest.raises(FenceError) as caught:
            plan(connected, config, [topic_name], "p")
        return str(caught.value)

    plain = ClusterConfig(alias="P", bootstrap_servers=clusters["a"].admin_bootstrap)
    with contextlib.closing(Cluster(plain).connect()) as without:
        assert "cluster P has no authorizer" in refusal(plain, without)
    assert "clusters.A.principal" in refusal(section(cluster, **tls))
    wrong = section(cluster, **tls, principal="User:someone")
    assert "brokers do not take mirror for User:someone" in refusal(wrong)
    root = ClusterConfig(alias="A", bootstrap_servers=admin, principal="User:ANONYMOUS")
    with contextlib.closing(Cluster(root).connect()) as everyone:
        assert "does not tell whether everyone may write" in refusal(root, everyone)
    allow(admin, "*", "WRITE", topic_name, pattern="PREFIXED")
    try:
        assert f"{topic_name}-other, which must not be fenced" in refusal(config)
        copies = [f"{topic_name}-other"]
        known = fences.look(own, only(config), [topic_name], copies=copies)
        assert fences.plan_fence(known, [topic_name], pair="p").removes
    finally:
        revoke(admin, "*", "WRITE", topic_name, pattern="PREFIXED")
    assert all_acls(admin) == before


def test_mirror_is_never_fenced(
    cluster: PlaygroundCluster, config: ClusterConfig, own: Cluster, topic_name: str
) -> None:
    """With a `principal` that is not mirror's, the fence would stop mirror: laying it
    fails with the reason, and lifting it leaves the ACLs as they were. Without the
    right to change ACLs it fails, too.
    """
    admin = cluster.admin_bootstrap
    create_topic(admin, topic_name)
    allow(admin, USER, "ALL", topic_name)
    before = all_acls(admin)
    wrong = config.model_copy(update={"principal": "User:someone"})
    made = plan(own, wrong, [topic_name], topic_name)
    with pytest.raises(FenceError, match=f"takes WRITE on {topic_name} from mirror"):
        fences.lay(own, made)
    fences.lift(own, made.by)
    assert all_acls(admin) == before

    allow(admin, "alice", "WRITE", topic_name)
    made = plan(own, config, [topic_name], topic_name)
    everything = {"kind": ResourceType.BROKER}
    for operation in ("DESCRIBE", "CREATE"):
        allow(admin, "*", operation, "kafka-cluster", **everything)
    try:
        with pytest.raises(FenceError, match="CLUSTER_AUTHORIZATION_FAILED"):
            fences.lay(own, made)
    finally:
        for operation in ("DESCRIBE", "CREATE"):
            revoke(admin, "*", operation, "kafka-cluster", **everything)
    fences.lift(own, made.by)
    assert write(scram(cluster, "alice", "alice"), topic_name) == ""


def test_a_broker_that_does_not_answer(
    cluster: PlaygroundCluster, config: ClusterConfig, own: Cluster, topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A broker that shows the ACLs late is waited for, and named when time is up; so is
    a controller that is not there for a moment.
    """
    create_topic(cluster.admin_bootstrap, topic_name)
    made = plan(own, config, [topic_name], topic_name)
    shown = fences.acls.describe_by_broker

    def late(cluster: Cluster) -> Any:
        return {**shown(cluster), 2: frozenset()}

    with monkeypatch.context() as patch:
        patch.setattr(fences.acls, "describe_by_broker", late)
        with pytest.raises(FenceError, match="broker 2 does not show"):
            fences.lay(own, made, seconds=0.5)
    fences.lift(own, made.by)

    create, said = acls.create, [BrokerError(name="X", what="x", retriable=True)]

    def later(cluster: Cluster, wanted: Any) -> Any:
        """As without a controller, once."""
        return dict.fromkeys(wanted, said.pop()) if said else create(cluster, wanted)

    with monkeypatch.context() as patch:
        patch.setattr(acls, "create", later)
        fences.lay(own, made)
    assert write(scram(cluster, "dave", "dave"), topic_name) == _DENIED
    fences.lift(own, made.by)


def test_an_operator_that_is_fenced_meanwhile(
    cluster: PlaygroundCluster, config: ClusterConfig, own: Cluster, topic_name: str
) -> None:
    """An operator that another one replaces between two rounds of changes makes none of
    the next round, neither while it lays a fence nor while it lifts one.
    """
    admin = cluster.admin_bootstrap
    create_topic(admin, topic_name)
    allow(admin, "*", "ALL", topic_name)
    before = all_acls(admin)
    made = plan(own, config, [topic_name], topic_name)
    for change, asked, stays in (
        (lambda hold: fences.lay(own, made, hold=hold), 2, "*"),
        (lambda hold: fences.lift(own, made.by, hold=hold), 1, USER),
    ):
        left = [None] * asked

        def hold(left: list[None] = left) -> None:
            if not left:
                raise FencedError("replaced")
            left.pop()

        with pytest.raises(FencedError):
            change(hold)
        about = {acl[3] for acl in all_acls(admin) if acl[1] == topic_name}
        assert f"User:{stays}" in about
        fences.lay(own, made)
    fences.lift(own, made.by)
    assert all_acls(admin) == before


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaygroundCluster]:
    """Where applications move to; without ACLs no one may do anything there."""
    root = tmp_path_factory.mktemp("standby")
    with playground(("b",), root=root, given=False, secured=True) as made:
        add_users(made["b"], ("alice", "bob"))
        admit(made["b"])
        yield made["b"]


def both(
    cluster: PlaygroundCluster, standby: PlaygroundCluster, topics: str, alias: str
) -> Sides:
    """Flows both ways, as a super user sees both clusters."""
    common = {"topics": [topics], "policy": "identity"}
    return Sides(
        {alias: cluster.admin_bootstrap, "B": standby.admin_bootstrap},
        {f"{alias}->B": common, f"B->{alias}": common},
    )


def about(bootstrap: str, topic: str) -> set[tuple[Any, ...]]:
    return {acl for acl in all_acls(bootstrap) if topic in acl[1]}


def test_no_flow_copies_a_fence(
    cluster: PlaygroundCluster,
    standby: PlaygroundCluster,
    config: ClusterConfig,
    own: Cluster,
    topic_name: str,
) -> None:
    """While topics are fenced, flows give their copies the ACLs that the topics had
    before, and flows into the fenced cluster leave the fence alone. What a flow wants
    as well stays when the fence goes, until the flow no longer wants it.
    """
    here, there = cluster.admin_bootstrap, standby.admin_bootstrap
    alias = topic_name[-8:]
    given, everyone, bare = (f"{topic_name}-{n}" for n in ("given", "all", "bare"))
    for topic in (given, everyone, bare):
        create_topic(here, topic)
        create_topic(there, topic)
    for operation in ("READ", "WRITE"):
        allow(here, "alice", operation, given)
    allow(here, "*", "ALL", everyone)
    deny = ("User:alice", "WRITE", "DENY")
    with both(cluster, standby, f"{topic_name}.*", alias) as made:
        settle(made, f"{alias}->B")
        copied = about(there, topic_name)
        assert {acl[3:7:2] for acl in copied} == {
            ("User:alice", "READ"), ("User:*", "READ"),
        }  # fmt: skip
        before = about(here, topic_name)
        laid = plan(own, config, [given, everyone, bare], topic_name)
        fences.lay(own, laid)
        fenced = about(here, topic_name)
        for _ in range(2):
            for flow in (f"{alias}->B", f"B->{alias}"):
                settle(made, flow)
        assert about(there, topic_name) == copied
        assert about(here, topic_name) == fenced

        allow(there, "alice", "WRITE", given, permission="DENY")
        settle(made, f"B->{alias}")
        fences.lift(own, laid.by)
        added = {acl[3:4] + acl[5:] for acl in about(here, topic_name) - before}
        assert added == {deny}
        revoke(there, "alice", "WRITE", given, permission="DENY")
        settle(made, f"B->{alias}")
        settle(made, f"{alias}->B")
    assert about(here, topic_name) == before
    assert about(there, topic_name) == copied


def test_what_others_do_between_a_look_and_a_change(
    cluster: PlaygroundCluster,
    standby: PlaygroundCluster,
    config: ClusterConfig,
    own: Cluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An ACL that somebody adds by hand after a fence was planned with it stays when
    the fence goes. A fence that goes while a flow, the standby topic or another fence
    looks at ACLs is not taken for ACLs of users.
    """
    here, there = cluster.admin_bootstrap, standby.admin_bootstrap
    alias = topic_name[-8:]
    for bootstrap in (here, there):
        create_topic(bootstrap, topic_name)
    allow(here, "alice", "WRITE", topic_name)
    made = plan(own, config, [topic_name], topic_name)
    allow(here, "alice", "WRITE", topic_name, permission="DENY")
    before = about(here, topic_name)
    fences.lay(own, made)
    fences.lift(own, made.by)
    assert about(here, topic_name) == before
    revoke(here, "alice", "WRITE", topic_name, permission="DENY")

    def lifting(look: Any) -> Any:
        """It looks right before the fence goes, once."""

        done = False

        def looking(seen: Cluster, **options: Any) -> Any:
            nonlocal done
            found = look(seen, **options)
            if seen.alias in {alias, "A"} and not done:
                done = True
                fences.lift(own, made.by)
            return found

        return looking

    whole = only(config)
    with both(cluster, standby, topic_name, alias) as flows:
        name = f"{alias}->B"
        for room, read, look in (
            (acls, "describe", lambda: flows.sync_acls(name)),
            (acls, "describe_all", lambda: access.look(flows.reach(alias))),
            (acls, "describe_all", lambda: fences.look(own, whole, [topic_name])),
        ):
            fences.lay(own, made)
            with monkeypatch.context() as patch:
                patch.setattr(room, read, lifting(getattr(room, read)))
                found = look()
            assert not AclNotes(own).noted(made.by).changes
            mine = [acl for acl in str(found).split("Acl(") if topic_name in acl]
            assert not [acl for acl in mine if "DENY" in acl]


def test_rights_move_with_producers(
    cluster: PlaygroundCluster,
    standby: PlaygroundCluster,
    config: ClusterConfig,
    own: Cluster,
    topic_name: str,
) -> None:
    """From the standby cluster alone: who could write or read there may do so here,
    with its transactions and groups, and no one else may. Taken back, the ACLs are as
    before.
    """
    here, there = cluster.admin_bootstrap, standby.admin_bootstrap
    alias, start = topic_name[-8:], topic_name[:-4]
    create_topic(here, topic_name)
    create_topic(there, topic_name)
    allow(here, "alice", "WRITE", start, pattern="PREFIXED")
    allow(here, "alice", "WRITE", start, pattern="PREFIXED", kind=_TRANSACTIONAL)
    allow(here, "bob", "ALL", topic_name)
    allow(here, "bob", "READ", topic_name, kind=ResourceType.GROUP)
    allow(here, "bob", "WRITE", f"{topic_name}-elsewhere")
    allow(there, "bob", "READ", topic_name)  # a flow copies it
    before = all_acls(there)
    fences.lay(own, laid := plan(own, config, [topic_name], topic_name))
    with both(cluster, standby, topic_name, alias) as made:
        flow = made.flow(f"{alias}->B")
        job = AccessJob(flow).job()
        job.work(*made.clusters(flow.name))
        written = len(kept(there, alias))
        job.work(*made.clusters(flow.name))
        assert len(kept(there, alias)) == written + 4  # when it looked
        fences.lift(own, laid.by)
        revoke(here, "bob", "WRITE", f"{topic_name}-elsewhere")
        job.work(*made.clusters(flow.name))
        assert len(kept(there, alias)) == written + 9  # and what is gone
        found = read_standby(made.reach("B"), alias, access.KINDS)
    assert found is not None
    told = access.read(found, alias)
    assert told.users["alice"] == ("SCRAM-SHA-512",)
    assert told.unseen == {}
    assert not any(acl.permission == "DENY" for acl in told.acls)

    assert standby.sasl is not None
    config_of_b = ClusterConfig(
        alias="B",
        bootstrap_servers=standby.sasl.bootstrap,
        **standby.sasl.client_config,
    )
    alice, bob = (scram(standby, user, user) for user in ("alice", "bob"))
    assert write(alice, topic_name) == write(bob, topic_name) == _DENIED
    with contextlib.closing(Cluster(config_of_b).connect()) as target:
        granted = rights.plan(
            flow,
            pair="p",
            topics=[topic_name],
            groups=[topic_name],
            there=told.acls,
            here=fences.look(target, only(config_of_b), ()),
            own=[config.own_principal],
        )
        fences.lay(target, granted)
        assert write(alice, topic_name) == write(bob, topic_name) == ""
        client = transactional(standby, topic_name)
        client.commit_transaction(30)
        assert read(bob, topic_name, topic_name) == ""
        assert read(alice, topic_name, topic_name) == "GROUP_AUTHORIZATION_FAILED"
        fences.lift(target, granted.by)
    assert write(alice, topic_name) == write(bob, topic_name) == _DENIED
    assert all_acls(there) == before


def kept(bootstrap: str, alias: str) -> list[Any]:
    """Every record of the standby topic, but for those on other tests' producers."""
    found = read_topic(bootstrap, topic_name_of(alias)).get(0, [])
    return [each for each in found if not each.key().startswith(b"producers/")]


def test_what_may_not_be_seen(
    standby: PlaygroundCluster, config: ClusterConfig, own: Cluster, topic_name: str,
) -> None:  # fmt: skip
    """Without the right to see ACLs, quotas or users the job goes on, keeps what it
    knew, and says why it knows no more.
    """
    alias = topic_name[-8:]
    assert standby.sasl is not None
    with Sides(
        {alias: standby.admin_bootstrap, "B": standby.admin_bootstrap},
        {f"{alias}->B": {"topics": [topic_name]}},
    ) as made:
        flow = made.flow(f"{alias}->B")
        job = AccessJob(flow).job()
        source, target = made.clusters(flow.name)
        job.work(source, target)
        few = section(
            standby,
            **{
                **standby.sasl.client_config,
                "sasl_username": "alice",
                "sasl_password": "alice",
            },
        )
        with contextlib.closing(Cluster(few).connect()) as restricted:
            job.work(restricted, target)
        found = read_standby(target, alias, access.KINDS)
    assert found is not None
    told = access.read(found, alias)
    hidden = {*access.KINDS} - {access.PRODUCERS}  # of these, brokers leave some out
    assert told.unseen == dict.fromkeys(hidden, "not permitted")
    assert told.acls
    assert {"alice", "bob"} <= told.users.keys()


@pytest.mark.full
@pytest.mark.parametrize("killed", [1, 2, 3])
def test_a_dead_broker(
    make_clusters: Any, doors: Doors, topic_name: str, killed: int
) -> None:
    """With one of three brokers killed a moment ago, the fence is laid and the logs are
    shown to be quiet, once the others know that it is gone. One of them is the
    controller.
    """
    (made,) = make_clusters("a", nodes=3, **doors.options).values()
    admin = made.admin_bootstrap
    add_users(made, ["alice"])
    admit(made)
    create_topic(admin, topic_name, 3)
    allow(admin, "alice", "WRITE", topic_name)
    alice = scram(made, "alice", "alice")
    config = section(made, **made.sasl.client_config)
    with contextlib.closing(Cluster(config).connect()) as own:
        assert write(alice, topic_name) == ""
        wanted = plan(own, config, [topic_name], topic_name)
        made.kill(killed)
        fences.lay(own, wanted, seconds=60)
        assert write(alice, topic_name) == _DENIED
        found = quiet.wait(own, [topic_name], seconds=60, pause=0.1)
        assert found.active == {}
        assert sum(found.cuts.values()) == 1
        fences.lift(own, wanted.by, seconds=60)
        assert write(alice, topic_name) == ""
