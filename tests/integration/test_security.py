"""Every way into a cluster, on real brokers: refused with a reason, or records flow."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.clusters.auth import tokens
from mirror.clusters.cluster import Cluster
from mirror.clusters.wire import handshake
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import AuthenticationError, UnreachableError
from mirror.playground.brokers import playground
from mirror.playground.certificates import CertificateAuthority
from mirror.playground.secured import USER
from tests.harness.admin import create_topic
from tests.harness.cases import cases
from tests.harness.identity_provider import IdentityProvider, Key
from tests.harness.load import keys, producer, send
from tests.harness.security import WAYS, Doors, admit
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.waiting import crowd
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

Made = dict[str, "PlaygroundCluster"]
_SESSION_SECONDS = 3.0
_SOME = (
    "SSL mutual",
    "SASL_PLAINTEXT PLAIN",
    "SASL_SSL SCRAM-SHA-512",
    "SASL_SSL OAUTHBEARER",
)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with IdentityProvider() as provider:
        folder = tmp_path_factory.mktemp("doors")
        yield Doors(folder, provider, session_seconds=_SESSION_SECONDS)


@pytest.fixture(scope="module")
def secured(doors: Doors, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """Two clusters with every listener, shared by this module."""
    root = tmp_path_factory.mktemp("secured")
    with playground(("a", "b"), root=root, given=False, **doors.options) as made:
        for cluster in made.values():
            admit(cluster)
        yield made


def reach(section: dict[str, Any]) -> ClusterConfig:
    return ClusterConfig.model_validate({"alias": "A", **section})


def refused(section: dict[str, Any]) -> str:
    """Why a cluster cannot be reached, in the words that users see."""
    with (
        contextlib.closing(Cluster(reach(section))) as cluster,
        pytest.raises(AuthenticationError) as caught,
    ):
        cluster.connect()
    text = str(caught.value)
    assert text.startswith("cluster A: ")
    assert "\n" not in text
    assert len(text) < 600
    return text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_wrong_users_and_passwords(secured: Made, doors: Doors, mechanism: str) -> None:
    """A wrong password and an unknown user are refused with the settings to check, and
    without the password.
    """
    section = doors.section(secured["a"], f"SASL_SSL {mechanism}")
    for wrong in ({"sasl_password": "wr0ng"}, {"sasl_username": "no,b=dy"}):
        text = refused({**section, **wrong})
        user = wrong.get("sasl_username", USER)
        assert f"refused '{user}' with {mechanism}: " in text
        assert "sasl_username and sasl_password must be those of a user" in text
        assert "wr0ng" not in text


def test_a_mechanism_that_is_not_offered(
    doors: Doors, clusters: Made, secured: Made
) -> None:
    """A listener without any login is named as such, with the setting to check."""
    section = doors.section(secured["a"], "SASL_PLAINTEXT PLAIN")
    text = refused({**section, "bootstrap_servers": clusters["a"].bootstrap})
    assert "does not offer sasl_mechanism PLAIN" in text


def test_certificates_that_are_not_to_be_trusted(
    doors: Doors, secured: Made, tmp_path: Path
) -> None:
    """A broker's CA that is unknown here, ours that is unknown there or has expired,
    and no client certificate: each has its own message.
    """
    other = CertificateAuthority("other")
    (tmp_path / "other.pem").write_text(other.pem)
    one_way = doors.section(secured["a"], "SSL one-way")
    text = refused({**one_way, "ssl_ca_file": str(tmp_path / "other.pem")})
    assert "its certificate is not trusted" in text
    assert f"ssl_ca_file {tmp_path}/other.pem must contain the CA" in text

    mutual = doors.section(secured["a"], "SSL mutual")
    text = refused({**mutual, "ssl_certificate_file": None})
    assert "it requires a client certificate" in text
    assert "ssl_certificate_file must name one that it trusts" in text

    ours = tmp_path / "ours.pem"
    ours.write_text(other.issue(USER).bundle_pem)
    text = refused({**mutual, "ssl_certificate_file": str(ours)})
    assert "it refused our certificate" in text
    assert f"ssl_certificate_file {ours}, of CN={USER}, must be signed by" in text

    ours.write_text(doors.authority.issue(USER, expired=True).bundle_pem)
    text = refused({**mutual, "ssl_certificate_file": str(ours)})
    assert f"ssl_certificate_file {ours}, of CN={USER}, expired 20" in text
    assert "renew it" in text


@contextlib.contextmanager
def stranger(folder: Path) -> Iterator[str]:
    """The address of a server with an untrusted certificate."""
    (folder / "stranger.pem").write_text(
        CertificateAuthority("x").issue("x").bundle_pem
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "stranger.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                accepted, _ = listener.accept()
                with accepted:
                    if not accepted.recv(1, socket.MSG_PEEK):
                        return
                    with contextlib.suppress(OSError):
                        context.wrap_socket(accepted, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            socket.create_connection(listener.getsockname()).close()
            thread.join()


def test_one_broker_with_a_bad_certificate_is_passed_over(
    doors: Doors, secured: Made, tmp_path: Path
) -> None:
    """Whichever is asked first, mirror connects to another broker; if there is no
    other, the reason says why.
    """
    section = doors.section(secured["a"], "SSL one-way")
    with stranger(tmp_path) as address:
        both = f"{address},{section['bootstrap_servers']}"
        for _ in range(6):
            config = reach({**section, "bootstrap_servers": both})
            with contextlib.closing(Cluster(config).connect()) as cluster:
                assert cluster.cluster_id
        text = refused({**section, "bootstrap_servers": address})
        assert f"cluster A: {address}: its certificate is not trusted" in text


def test_listeners_of_another_protocol(
    doors: Doors, secured: Made, clusters: Made
) -> None:
    """TLS where there is none, none where it is needed, no login where one is needed:
    each reason names security_protocol.
    """
    one_way = doors.section(secured["a"], "SSL one-way")
    for section, words in (
        (
            {**one_way, "bootstrap_servers": clusters["a"].bootstrap},
            "speak TLS, as security_protocol SSL says",
        ),
        ({"bootstrap_servers": one_way["bootstrap_servers"]}, "does it require TLS?"),
        (
            {**one_way, "bootstrap_servers": secured["a"].bootstrap},
            "require SASL? security_protocol is SSL",
        ),
    ):
        with (
            contextlib.closing(Cluster(reach(section))) as cluster,
            pytest.raises(UnreachableError) as caught,
        ):
            cluster.connect()
        assert words in str(caught.value)


def test_tokens_that_brokers_do_not_accept(secured: Made, doors: Doors) -> None:
    """A token signed by another key, for another audience, or without a user is refused
    with the broker's reason, and the very next token may be accepted.
    """
    provider = doors.provider
    assert provider is not None
    section = doors.section(secured["a"], "SASL_SSL OAUTHBEARER")
    good, audience = provider.key, provider.audience
    tokens.forget(reach(section))
    try:
        provider.key = Key()
        text = refused(section)
        assert "refused our token: invalid_token" in text
        assert "what sasl_oauthbearer_token_endpoint_url gives must be" in text
        provider.key, provider.audience = good, "others"
        assert "refused our token: invalid_token" in refused(section)
    finally:
        provider.key, provider.audience = good, audience
    with contextlib.closing(Cluster(reach(section)).connect()) as cluster:
        assert cluster.cluster_id


@pytest.mark.parametrize("way", cases(WAYS, some=_SOME))
def test_every_way_carries_records(
    secured: Made, doors: Doors, way: str, topic_name: str
) -> None:
    """With source and target reached in this way, the copy is created and filled in
    transactions, as an ordinary consumer sees it.
    """
    a, b = secured["a"], secured["b"]
    create_topic(a.admin_bootstrap, topic_name, 2)
    wanted = keys(2, 200)
    send(producer(a.admin_bootstrap), topic_name, wanted, b"x" * 100)
    flow = SparklessFlow(
        source=doors.section(a, way),
        target=doors.section(b, way),
        topic=topic_name,
        alias=f"w{uuid.uuid4().hex[:6]}",
    ).own()
    with flow.slot() as slot, Witness(b.admin_bootstrap) as witness:
        lease = RunningLease(slot, flow.lease(600))
        witness.begin(flow.copy)
        try:
            witness.wait(400, 60, lease)
        finally:
            reports = lease.end()
        witness.assert_exactly(flow.copy, wanted)
    assert {report.state for report in reports} == {"RUNNING"}


def test_a_session_that_is_not_renewed_ends(secured: Made, doors: Doors) -> None:
    """The brokers of these tests enforce it: a client that does not reauthenticate is
    cut off; one that does so in time, or a little late, is not.
    """
    section = doors.section(secured["a"], "SASL_PLAINTEXT OAUTHBEARER")
    with contextlib.closing(Cluster(reach(section)).connect()) as cluster:
        node = cluster.nodes[0]
        connection = cluster.connection(node)
        assert connection.reauthenticate_at is not None
        connection.reauthenticate_at = None
        time.sleep(_SESSION_SECONDS + 0.5)
        with pytest.raises(UnreachableError):
            connection.call(handshake.question())

        assert cluster.topics()  # a new connection, with a session of its own
        connection = cluster.connection(node)
        due = connection.reauthenticate_at
        assert due is not None
        for pause in (0.9, 1.2):
            time.sleep(_SESSION_SECONDS * pause)
            assert cluster.topics()
            assert cluster.connection(node) is connection
            assert connection.reauthenticate_at > due
            due = connection.reauthenticate_at


@pytest.mark.full
def test_sessions_are_renewed_under_load(
    secured: Made, doors: Doors, topic_name: str
) -> None:
    """Records flow through many sessions with requests under way all the time: the slot
    takes over once, at its beginning, and every record is there once and in order.
    """
    a, b = secured["a"], secured["b"]
    way = "SASL_SSL SCRAM-SHA-256"
    create_topic(a.admin_bootstrap, topic_name, 2)
    flow = SparklessFlow(
        source=doors.section(a, way),
        target=doors.section(b, way),
        topic=topic_name,
        alias=f"w{uuid.uuid4().hex[:6]}",
    ).own()
    client = producer(a.admin_bootstrap, linger_ms=1)
    sent = 0
    with flow.slot() as slot, Witness(b.admin_bootstrap) as witness:
        lease = RunningLease(slot, flow.lease(600))
        witness.begin(flow.copy)
        try:
            end = time.monotonic() + 7.5 * _SESSION_SECONDS
            while time.monotonic() < end:
                send(client, topic_name, keys(2, 10, first=sent), b"x" * 500)
                sent += 10
                time.sleep(0.05)
            witness.wait(2 * sent, 60, lease)
        finally:
            reports = lease.end()
        witness.assert_exactly(flow.copy, keys(2, sent))
    assert {report.slot_takeovers for report in reports} == {1}
    assert {report.slot_aborted for report in reports} == {0}


def ask_for(cluster: Cluster, *, seconds: float) -> None:
    """Keep asking a cluster; brokers may hang up when a token has expired."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(UnreachableError):
            cluster.topics()
        time.sleep(0.2)


def test_no_token_while_a_session_lasts(
    make_clusters: Callable[..., Made], topic_name: str, tmp_path: Path
) -> None:
    """When no token can be obtained any more, the cluster says so once the last one has
    expired, and works again by itself when tokens come back.
    """
    with IdentityProvider(lives=6) as provider:
        doors = Doors(tmp_path / "short", provider, session_seconds=60)
        made = make_clusters("a", **doors.options)
        admit(made["a"])
        way = "SASL_PLAINTEXT OAUTHBEARER"
        section = doors.section(made["a"], way)
        config = reach({**section, "alias": f"c{uuid.uuid4().hex[:6]}"})
        with contextlib.closing(Cluster(config).connect()) as cluster:
            provider.failing = 503
            with pytest.raises(AuthenticationError, match="answered 503"):
                ask_for(cluster, seconds=20 * crowd())
            provider.failing = 0
            time.sleep(1.2)  # for so long a failure counts
            assert cluster.topics() is not None
