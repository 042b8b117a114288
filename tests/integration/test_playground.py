"""The playground's clusters are real, and break and recover as real ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import signal
import socket
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import TopicAuthorizationFailedError
import psutil
import pytest

from mirror.errors import PlaygroundError
from mirror.playground.brokers import playground
from mirror.playground.cluster import PlaygroundCluster
from mirror.playground.secured import USER
from tests.harness.metadata import allow
from tests.harness.waiting import crowd, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

Make = Callable[..., dict[str, PlaygroundCluster]]


@contextmanager
def admin_of(bootstrap: str, **settings: Any) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, **settings)
    try:
        yield admin
    finally:
        admin.close()


def create_topic(bootstrap: str, topic: str, *, copies: int = 1) -> None:
    with admin_of(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, copies)])
        admin.wait_for_topics([topic])


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: Any) -> None:
    """Returns when every record is acknowledged."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", **settings)
    try:
        sent = [producer.send(topic, value) for value in values]
        for each in sent:
            each.get(timeout=60)
    finally:
        producer.close()


def consume(bootstrap: str, topic: str, count: int, **settings: Any) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=30_000,
        **settings,
    )
    values: list[bytes] = []
    try:
        for record in consumer:
            values.append(record.value)
            if len(values) == count:
                break
    finally:
        consumer.close()
    return values


VALUES = [b"record %d" % number for number in range(500)]


def test_record_goes_in_and_out(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """Both session clusters serve clients, and each has only its own records."""
    for name, cluster in clusters.items():
        create_topic(cluster.bootstrap, topic_name)
        produce(cluster.bootstrap, topic_name, [name.encode()])

    read = {
        name: consume(cluster.bootstrap, topic_name, 1)
        for name, cluster in clusters.items()
    }

    assert read == {"a": [b"a"], "b": [b"b"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaygroundCluster]:
    """Of one node, with a setting of its own, which tests stop, kill and start."""
    root = tmp_path_factory.mktemp("plain")
    settings = {"message.max.bytes": "2000000"}
    with playground(("a",), root=root, given=False, settings=settings) as made:
        yield made["a"]


def test_kill_and_restart_loses_nothing(
    cluster: PlaygroundCluster, topic_name: str
) -> None:
    """Every acknowledged record is there after SIGKILL and a restart."""
    create_topic(cluster.bootstrap, topic_name)
    produce(cluster.bootstrap, topic_name, VALUES)

    cluster.kill()
    assert cluster.pids() == {}
    cluster.start()

    assert consume(cluster.bootstrap, topic_name, len(VALUES)) == VALUES


def test_settings_reach_the_broker(cluster: PlaygroundCluster) -> None:
    """The caller's settings override the playground's own."""
    broker = ConfigResource(ConfigResourceType.BROKER, "1", ["message.max.bytes"])

    with admin_of(cluster.bootstrap) as admin:
        found = admin.describe_configs([broker], config_filter="all")

    assert "2000000" in str(found)


def test_clean_stop_and_start(cluster: PlaygroundCluster, topic_name: str) -> None:
    """A stopped node has no process, and serves its records again once started."""
    create_topic(cluster.bootstrap, topic_name)
    produce(cluster.bootstrap, topic_name, VALUES)

    cluster.stop(1)
    assert cluster.pids() == {}
    cluster.start(1)

    assert consume(cluster.bootstrap, topic_name, len(VALUES)) == VALUES


@pytest.mark.full
def test_three_nodes_survive_the_death_of_one(
    make_clusters: Make, topic_name: str
) -> None:
    """With three copies, records go in and out while any one node is dead."""
    cluster = make_clusters("a", nodes=3)["a"]
    create_topic(cluster.bootstrap, topic_name, copies=3)
    produce(cluster.bootstrap, topic_name, VALUES)

    cluster.kill(1)
    produce(cluster.bootstrap, topic_name, VALUES, request_timeout_ms=10_000)
    read = consume(cluster.bootstrap, topic_name, 2 * len(VALUES))
    cluster.start(1)

    assert sorted(read) == sorted(2 * VALUES)
    assert set(cluster.pids()) == {1, 2, 3}


def test_nodes_die_with_their_parent(tmp_path: Path) -> None:
    """No broker outlives the process that started it, even killed by SIGKILL."""
    script = (
        "import sys, time, pathlib\n"
        "from mirror.playground.brokers import playground\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "with playground(('a',), root=root, road='jars') as made:\n"
        "    print(made['a'].pids()[1], flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        broker = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)

    _gone, alive = psutil.wait_procs([broker], timeout=20 * crowd())

    assert not alive


def kafka_python_settings(config: dict[str, str], **changed: str) -> dict[str, str]:
    """A cluster's security settings in kafka-python's words."""
    words = {
        "sasl_username": "sasl_plain_username",
        "sasl_password": "sasl_plain_password",
        "ssl_ca_file": "ssl_cafile",
        "ssl_certificate_file": "ssl_certfile",
        "ssl_key_file": "ssl_keyfile",
    }
    return {words.get(name, name): text for name, text in {**config, **changed}.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaygroundCluster]:
    root = tmp_path_factory.mktemp("secured")
    with playground(("a",), root=root, given=False, secured=True) as made:
        yield made["a"]


def test_secured_cluster_lets_the_right_ones_in(
    secured: PlaygroundCluster, topic_name: str
) -> None:
    """Password and client certificate log in; ACLs decide what the user may do."""
    create_topic(secured.admin_bootstrap, topic_name)
    scram = kafka_python_settings(secured.client_config)
    with pytest.raises(TopicAuthorizationFailedError):
        produce(secured.bootstrap, topic_name, [b"x"], **scram)

    allow(secured.admin_bootstrap, USER, "ALL", topic_name)
    produce(secured.bootstrap, topic_name, [b"x"], enable_idempotence=False, **scram)

    tls = kafka_python_settings(secured.mutual_tls.client_config)
    assert consume(secured.mutual_tls.bootstrap, topic_name, 1, **tls) == [b"x"]


def test_secured_cluster_refuses_a_wrong_password(secured: PlaygroundCluster) -> None:
    """The broker refuses a wrong password; it does not end in a timeout."""
    access = secured.client_config
    said: list[ConfluentError] = []
    client = AdminClient(
        {
            "bootstrap.servers": secured.bootstrap,
            "security.protocol": access["security_protocol"],
            "sasl.mechanism": access["sasl_mechanism"],
            "sasl.username": access["sasl_username"],
            "sasl.password": "wrong",
            "ssl.ca.location": access["ssl_ca_file"],
            "error_cb": said.append,
        }
    )
    wait_for(lambda: client.poll(0.1) or said)
    assert said[0].code() == ConfluentError._AUTHENTICATION


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        ("expired", "certificate has expired"),
        pytest.param("wrong-host", "is not valid for", marks=pytest.mark.full),
    ],
)
def test_bad_certificates_are_refused(
    make_clusters: Make, certificate: str, reason: str
) -> None:
    """A client that checks certificates refuses a broker with a bad one."""
    cluster = make_clusters("a", secured=True, certificate=certificate)["a"]
    host, port = cluster.bootstrap.split(":")
    context = ssl.create_default_context(cafile=cluster.client_config["ssl_ca_file"])

    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        pytest.raises(ssl.SSLCertVerificationError, match=reason),
    ):
        context.wrap_socket(plain, server_hostname=host)


def test_given_clusters_are_used_and_spared(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster named by the environment is used, and never stopped or killed."""
    monkeypatch.delenv("MIRROR_TEST_BROKERS", raising=False)
    monkeypatch.setenv("MIRROR_TEST_BOOTSTRAP_A", clusters["a"].bootstrap)

    with playground(("a",), root=tmp_path) as made:
        create_topic(made["a"].bootstrap, topic_name)
        for verb in (made["a"].kill, made["a"].stop):
            with pytest.raises(PlaygroundError, match="only brokers that the play"):
                verb()

    produce(clusters["a"].bootstrap, topic_name, [b"still there"])


def test_given_road_without_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A given cluster without an address is refused, naming the variable."""
    monkeypatch.delenv("MIRROR_TEST_BOOTSTRAP_NOWHERE", raising=False)

    with (
        pytest.raises(PlaygroundError, match="MIRROR_TEST_BOOTSTRAP_NOWHERE is not"),
        playground(("nowhere",), root=tmp_path, road="env"),
    ):
        pass


def test_a_broker_that_cannot_start_says_why(make_clusters: Make) -> None:
    """The error of a failed start contains the broker's own last words."""
    with pytest.raises(PlaygroundError, match=r"ended with exit code[\s\S]*num\.io"):
        make_clusters("a", road="jars", settings={"num.io.threads": "none"})
