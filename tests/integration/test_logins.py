"""Tasks log in as other users than the rest of mirror; brokers say who did what.

The brokers have authorizers that log each decision. Records, groups and rights are
looked at with ordinary clients.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from mirror.checks.check import check
from mirror.checks.finding import State
from mirror.checks.permissions.rights import principal, rights
from mirror.checks.permissions.table import Operation, Who
from mirror.config.load import load
from mirror.playground.brokers import playground
from tests.harness.admin import create_topic
from tests.harness.authorizer_log import AUDITED, asked
from tests.harness.few_rights import PRINCIPAL, RestrictedFlow, grant, revoke_all
from tests.harness.load import keys, producer, send
from tests.harness.proofs import proven
from tests.harness.schemas import Raw, avro
from tests.harness.security import set_password
from tests.harness.slots import SparklessFlow, copy_until
from tests.harness.topologies import RunningFile
from tests.harness.waiting import wait_for
from tests.harness.witness import Witness, assert_exactly_once, eventually, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.config.schema import MirrorConfig
    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.registry_process import RegistryProcess

pytestmark = pytest.mark.integration

Secured = dict[str, "PlaygroundCluster"]
USERS = {"A": ("reader", "next-reader", "admin-a"), "B": ("writer", "admin-b")}
FILE = """
clusters = A, B
A.bootstrap.servers = {a}
B.bootstrap.servers = {b}
security.protocol = SASL_SSL
sasl.mechanism = SCRAM-SHA-512
A.ssl.truststore.type = PEM
A.ssl.truststore.location = {ca_a}
B.ssl.truststore.type = PEM
B.ssl.truststore.location = {ca_b}

A->B.enabled = true
A->B.topics = {topic}
A->B.groups = {topic}
A->B.source.consumer.{reader}
A->B.source.admin.{admin_a}
A->B.producer.override.{writer}
A->B.target.admin.{admin_b}
B->A.emit.heartbeats.enabled = false
sync.topic.acls.enabled = false
exactly.once.source.support = enabled
A.consumer.isolation.level = read_committed
replication.factor = 1
tasks.max = 1
"""
RECORDS = 300


def password(user: str) -> str:
    return f"{user}-secret"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Two clusters whose authorizers log, with users that may do nothing."""
    root = tmp_path_factory.mktemp("logins")
    with playground(
        ("a", "b"), root=root, given=False, secured=True, jvm=AUDITED
    ) as made:
        for alias, users in USERS.items():
            for user in users:
                set_password(made[alias.lower()], password(user), user=user)
        yield made


@pytest.fixture(autouse=True)
def _nothing_allowed(secured: Secured) -> Iterator[None]:
    yield
    for alias, users in USERS.items():
        for user in users:
            revoke_all(secured[alias.lower()].admin_bootstrap, f"User:{user}")


def written(secured: Secured, folder: Path, topic: str, reader: str = "reader") -> Path:
    """MirrorMaker 2's file, which names a user for each client of the flow."""
    logins = {
        each.replace("-", "_"): "sasl.jaas.config = org.apache.kafka.common.security."
        f'scram.ScramLoginModule required username="{user}" '
        f'password="{password(user)}";'
        for each, user in {
            "reader": reader,
            "writer": "writer",
            "admin-a": "admin-a",
            "admin-b": "admin-b",
        }.items()
    }
    file = folder / "mm2.properties"
    file.write_text(
        FILE.format(
            a=secured["a"].bootstrap,
            b=secured["b"].bootstrap,
            ca_a=secured["a"].client_config["ssl_ca_file"],
            ca_b=secured["b"].client_config["ssl_ca_file"],
            topic=topic,
            **logins,
        )
    )
    return file


def give(secured: Secured, config: MirrorConfig, *, but: str = "") -> None:
    """Each user gets the rights that mirror lists for it, without one of them."""
    for login in config.clusters:
        listed = [
            each
            for each in rights(config)
            if each.login == login and f"{login} {each.operation}" != but
        ]
        bootstrap = secured[login[0].lower()].admin_bootstrap
        grant(bootstrap, listed, principal(config.clusters[login]))


def test_who_does_what(secured: Secured, topic_name: str, tmp_path: Path) -> None:
    """A file of MirrorMaker 2 that names a user for each client of its flow runs as it
    stands, each user with its listed rights alone: the source's reader may not
    administer or write, its admin may not read, and by the brokers' authorizers neither
    ever asks to. Every record is copied once. Another reader in the file is taken up
    while the service runs, and no password is in its log.
    """
    a, b = (secured[name].admin_bootstrap for name in "ab")
    create_topic(a, topic_name, 2)
    send(producer(a), topic_name, keys(2, RECORDS), b"x" * 100)
    file = written(secured, tmp_path, topic_name)
    config, warnings = load(file, environ={})
    assert warnings == ()
    give(secured, config)
    held = {(each.login, each.operation) for each in rights(config)}
    assert {op for login, op in held if login == "A-reader"} == {Operation.READ}
    assert ("A", Operation.READ) not in held
    copy = f"A.{topic_name}"
    with RunningFile(file, tmp_path / "run") as mirror:
        found = eventually(b, copy, 2 * RECORDS)
        assert_exactly_once(keys_of(found), keys(2, RECORDS))
        mirror.wait_running()

        of_source = asked(secured["a"])
        about = {(e.user, e.operation) for e in of_source if e.name == topic_name}
        assert ("reader", "READ") in about
        assert about <= {
            *(("reader", each) for each in ("READ", "DESCRIBE")),
            *(("admin-a", each) for each in ("DESCRIBE", "DESCRIBE_CONFIGS")),
        }
        assert {e.operation for e in of_source if e.user == "reader"} <= {
            "READ", "DESCRIBE"
        }  # fmt: skip
        of_target = asked(secured["b"])
        about = {(e.user, e.operation) for e in of_target if e.name == copy}
        assert ("writer", "WRITE") in about
        assert ("admin-b", "CREATE") in about
        assert not about & {("admin-b", "WRITE"), ("writer", "CREATE")}
        refused = {
            (each.user, each.operation, each.name)
            for each in of_source | of_target
            if each.user in {"reader", "writer"} and not each.allowed
        }
        # A transaction that is open in the ledger alone is not looked for.
        assert refused <= {("writer", "READ", "mirror-losses.A.internal")}

        written(secured, tmp_path, topic_name, reader="next-reader")
        grant(a, [e for e in rights(config) if e.login == "A-reader"],
              "User:next-reader")  # fmt: skip
        wait_for(
            lambda: ("next-reader", "READ") in {
                (e.user, e.operation) for e in asked(secured["a"])
                if e.name == topic_name
            },
            60,
        )  # fmt: skip
        revoke_all(a, "User:reader")
        more = keys(2, RECORDS, first=RECORDS)
        send(producer(a), topic_name, more, b"x" * 100)
        found = eventually(b, copy, 4 * RECORDS)
        assert_exactly_once(keys_of(found), keys(2, 2 * RECORDS))
        assert mirror.terminate() == 0, mirror.log_tail()
    said = mirror.log.read_text()
    assert not [user for users in USERS.values() for user in users
                if password(user) in said]  # fmt: skip


WITH_REGISTRIES = """
clusters:
  A: &a
    bootstrap_servers: "{a}"
    security_protocol: SASL_SSL
    sasl_mechanism: SCRAM-SHA-512
    sasl_username: admin-a
    sasl_password: admin-a-secret
    ssl_ca_file: {ca_a}
    schema_registry: {{url: "{registry_a}"}}
  A-reader: {{<<: *a, sasl_username: reader, sasl_password: reader-secret}}
  B: &b
    <<: *a
    bootstrap_servers: "{b}"
    sasl_username: admin-b
    sasl_password: admin-b-secret
    ssl_ca_file: {ca_b}
    schema_registry: {{url: "{registry_b}"}}
  B-writer: {{<<: *b, sasl_username: writer, sasl_password: writer-secret}}
flows:
  A->B:
    topics: ["{topic}"]
    source_login: A-reader
    target_login: B-writer
    schemas: require
    schemas_seconds: 3600
    sync_topic_acls: false
    replication_factor: 1
    tasks: 1
"""


@pytest.mark.full
@pytest.mark.needs("registry")
def test_tasks_with_logins_bring_schemas_along(
    secured: Secured,
    processes: tuple[RegistryProcess, RegistryProcess],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """With `schemas: require` and both logins made by YAML anchors, each user with its
    listed rights alone, a record of a schema that is registered while the service runs
    is copied once, with its schema: the tasks bring that, and note it as the writer.
    """
    one, b = (each.url for each in processes)
    file = tmp_path / "mirror.yaml"
    file.write_text(
        WITH_REGISTRIES.format(
            a=secured["a"].bootstrap,
            b=secured["b"].bootstrap,
            ca_a=secured["a"].client_config["ssl_ca_file"],
            ca_b=secured["b"].client_config["ssl_ca_file"],
            registry_a=one,
            registry_b=b,
            topic=topic_name,
        )
    )
    config, _ = load(file, environ={})
    create_topic(secured["a"].admin_bootstrap, topic_name, 2)
    give(secured, config)
    with RunningFile(file, tmp_path / "run") as mirror:
        mirror.wait_running()
        number = Raw(one).register(f"{topic_name}-value", avro("O", "a"))
        framed = b"\0" + struct.pack(">I", number) + b"\0"
        send(producer(secured["a"].admin_bootstrap), topic_name, keys(2, RECORDS),
             framed)  # fmt: skip
        copy = f"A.{topic_name}"
        found = eventually(secured["b"].admin_bootstrap, copy, 2 * RECORDS)
        assert_exactly_once(keys_of(found), keys(2, RECORDS))
        assert Raw(b).versions() == Raw(one).versions() != {}
        assert mirror.terminate() == 0, mirror.log_tail()
    noted = {
        (each.user, each.operation)
        for each in asked(secured["b"])
        if each.name == "mirror-schemas.A.internal" and each.allowed
    }
    assert ("writer", "WRITE") in noted


@pytest.mark.full
def test_the_lists_of_tasks_are_enough_and_minimal(secured: Secured) -> None:
    """With the rights of the tasks' lists, and those of the clusters' own users, a flow
    does everything without a problem; without any line of the tasks' lists something
    fails, with a reason, but for those that only a failed broker or a record above the
    brokers' usual limit asks for.
    """
    logins = ("few-reader", "few-writer")
    for alias, user in zip("ab", logins, strict=True):
        set_password(secured[alias], user, user=user)

    def made(alias: str) -> RestrictedFlow:
        return RestrictedFlow(secured["a"], secured["b"], alias, logins).prepare()

    whole = made("E")
    listed = rights(whole.config)
    with whole.allowed(listed):
        assert list(whole.problems()) == []
    unneeded = set()
    for number, right in enumerate(listed):
        if right.login not in logins:
            continue
        flow = made(f"L{number}")
        needed = list(rights(flow.config))
        left_out = needed.pop(number)
        with flow.allowed(needed):
            if not next(flow.problems(), ""):
                unneeded.add((left_out.operation, *left_out.features))
    assert unneeded == {
        (Operation.READ, "transactions that brokers left open"),
        (Operation.READ, "offset map"),
        (Operation.DESCRIBE_CONFIGS, "records, limits of copies"),
    }


@pytest.mark.full
def test_a_proof_reads_as_the_tasks_do(secured: Secured, topic_name: str) -> None:
    """A proof of everything is made by tasks, so the source's own user may be without
    READ there, and the authorizer never sees it ask.
    """
    a, b = secured["a"], secured["b"]
    create_topic(a.admin_bootstrap, topic_name)
    send(producer(a.admin_bootstrap), topic_name, keys(1, RECORDS), b"x")
    reader = {"sasl_username": "reader", "sasl_password": password("reader")}
    ends = {
        name: {"bootstrap_servers": made.bootstrap, **made.client_config}
        for name, made in secured.items()
    }
    flow = SparklessFlow(
        source=ends["a"], target=ends["b"], topic=topic_name, alias="V",
        settings={"source_login": "reader"}, logins={"reader": {**ends["a"], **reader}},
    )  # fmt: skip
    config = flow.config()
    service, both = (rights(config, who=w) for w in ([Who.SERVICE], list(Who)))
    on_target = [each for each in both if each.cluster == "B"]
    for made, user, listed in (
        (a, "User:reader", [each for each in service if each.login == "reader"]),
        (a, PRINCIPAL, [each for each in service if each.login == "V"]),
        (b, PRINCIPAL, on_target),
    ):
        grant(made.admin_bootstrap, listed, user)
    try:
        with flow.own().slot() as slot, Witness(b.admin_bootstrap) as witness:
            witness.begin(flow.copy)
            copy_until(witness, slot, flow.lease(60), count=RECORDS, timeout=60)
        found = proven(flow)
    finally:
        for made in (a, b):
            revoke_all(made.admin_bootstrap)
    assert [each.findings for each in found.partitions] == [0]
    (partition,) = found.partitions
    assert partition.account.records == RECORDS
    reads = {e.user for e in asked(a) if e[1:4] == ("READ", "Topic", topic_name)}
    assert reads == {"reader"}


def test_check_names_the_user(
    secured: Secured, topic_name: str, tmp_path: Path
) -> None:
    """Without one right of the reader, or with its login refused, `mirror check` names
    the entry, the user and what grants it; an entry that leads to another cluster is no
    login.
    """
    create_topic(secured["a"].admin_bootstrap, topic_name)
    file = written(secured, tmp_path, topic_name)
    config, _ = load(file, environ={})
    give(secured, config, but="A-reader READ")

    def failures(config: MirrorConfig) -> list[tuple[str, str, str]]:
        return [
            (each.where, each.detail, each.fix)
            for each in check(config).findings
            if each.state is State.FAIL
        ]

    _heartbeats, found = failures(config)
    assert found[:2] == (
        "cluster A-reader",
        f"User:reader has no READ on topic {topic_name}, needed for records",
    )
    assert "--allow-principal User:reader --operation Read" in found[2]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MIRROR_CLUSTERS__A_reader__sasl_password", "wrong")
        refused, _ = load(file)
    (found,) = failures(refused)
    assert found[0] == "cluster A-reader"
    assert "refused 'reader'" in found[1]

    elsewhere = {
        **config.clusters,
        "A-reader": config.clusters["B-writer"].model_copy(
            update={"alias": "A-reader"}
        ),
    }
    (found, *_) = [
        each
        for each in failures(config.model_copy(update={"clusters": elsewhere}))
        if each[0] == "flow A->B"
    ]
    assert "it is no login of A" in found[1]
