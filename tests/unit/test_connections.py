"""Connections that a broker ended while they were idle cost nothing."""

from __future__ import annotations

from contextlib import closing
import random
import select
import socket
import ssl
import time
from typing import TYPE_CHECKING

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import EndTxnRequest
import pytest

from mirror.clusters.cluster import Cluster
from mirror.clusters.wire import handshake
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import UnreachableError
from mirror.playground.certificates import CertificateAuthority
from tests.harness.fake_broker import Broker
from tests.harness.waiting import crowd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.clusters.wire.connection import Connection

pytestmark = pytest.mark.unit

_CONTROL = "control"


@pytest.fixture(params=["plain", "tls"])
def ends(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Broker, Cluster]]:
    """A broker and a cluster that is connected to it, with and without TLS."""
    tls, settings = None, {}
    if request.param == "tls":
        authority = CertificateAuthority()
        for name, text in (
            ("server.pem", authority.issue("server").bundle_pem),
            ("ca.pem", authority.pem),
        ):
            (tmp_path / name).write_text(text)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(tmp_path / "server.pem")
        settings = {
            "security_protocol": "SSL",
            "ssl_ca_file": str(tmp_path / "ca.pem"),
        }
    with Broker(tls=tls) as broker:
        config = ClusterConfig(
            alias="A",
            bootstrap_servers=broker.address,
            request_timeout_seconds=0.5,
            **settings,
        )
        with closing(Cluster(config).connect()) as cluster:
            yield broker, cluster


def _has_come(connection: Connection) -> None:
    """Wait for something to read, such as the end when the broker closes."""
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    assert poller.poll(5000)


def _used(cluster: Cluster, purpose: str = _CONTROL) -> Connection:
    connection = cluster.connection(1, purpose)
    connection.call(_find())
    return connection


def _find() -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g"])


@pytest.mark.parametrize("how", ["hang_up", "reset", "take_leave"])
def test_what_ended_while_idle_is_replaced(
    ends: tuple[Broker, Cluster], how: str
) -> None:
    """A connection that the broker closed, reset or ended in TLS while no response was
    outstanding is replaced without an error, whatever its purpose.
    """
    broker, cluster = ends
    used = _used(cluster, "commit")
    getattr(broker, how)()
    _has_come(used)
    _used(cluster, "commit")
    assert len(broker.taken) == 3  # the first one was for metadata alone
    assert used.closed


def test_connections_that_wait_for_nothing_may_stay(
    ends: tuple[Broker, Cluster],
) -> None:
    """Who leaves answers behind drops only the connections on which some may come."""
    _, cluster = ends
    used = _used(cluster)
    cluster.drop(_CONTROL, idle=False)
    assert cluster.connection(1) is used
    used.send(_find())
    cluster.drop(_CONTROL, idle=False)
    assert used.closed


def test_what_nobody_asked_for_ends_a_connection(
    ends: tuple[Broker, Cluster],
) -> None:
    """Bytes without a request would pass for the next response, so such a connection is
    replaced as well.
    """
    broker, cluster = ends
    used = _used(cluster)
    broker.taken[-1].do(lambda line: line.sendall(b"unasked"))
    _has_come(used)
    _used(cluster)
    assert len(broker.taken) == 3


def test_a_good_connection_is_kept(ends: tuple[Broker, Cluster]) -> None:
    """A connection that is idle and open is used again, also while responses on it are
    still unread.
    """
    broker, cluster = ends
    used = _used(cluster)
    owed = used.send(_find())
    _has_come(used)
    assert cluster.connection(1) is used
    assert owed.result().node_id == 1
    assert cluster.connection(1) is used
    assert len(broker.taken) == 2


def test_what_must_not_arrive_alone_waits_for_the_next(
    ends: tuple[Broker, Cluster],
) -> None:
    """Requests that belong together leave with the last of them: a process that dies
    before it leaves none of them behind.
    """
    broker, cluster = ends
    used = _used(cluster)
    used.together = True
    first = used.send(_find())
    poller = select.poll()
    poller.register(used, select.POLLIN)
    assert not poller.poll(100)
    assert broker.taken[-1].asked.count("FindCoordinator") == 1
    used.together = False
    second = used.send(_find())
    assert [each.result().node_id for each in (first, second)] == [1, 1]


@pytest.mark.parametrize("ends", ["tls"], indirect=True)
def test_words_of_tls_itself_do_not_end_a_line(
    ends: tuple[Broker, Cluster],
) -> None:
    """Session tickets may come at any time, and are neither an end nor a response."""
    broker, cluster = ends
    with closing(
        handshake.open_line(cluster._config, "127.0.0.1", broker.port)
    ) as fresh:
        _has_come(fresh)  # tickets, since nothing is asked
        assert fresh.silent
        assert not fresh.unread


def test_one_that_ends_beneath_a_question_is_asked_again(
    ends: tuple[Broker, Cluster],
) -> None:
    """If the broker closes the connection just as a question arrives, it is asked once
    more over a new connection, without an error.
    """
    broker, cluster = ends
    _used(cluster)
    broker.hangs_up_on = {"FindCoordinator"}
    assert cluster.group_coordinators(["g"]) == {"g": 1}
    assert broker.taken[-2].asked[-1] == broker.taken[-1].asked[-1] == "FindCoordinator"


def test_what_changes_something_is_not_sent_again(
    ends: tuple[Broker, Cluster],
) -> None:
    """A request that changes something, and may have done so, raises an error when its
    connection ends: only its sender knows what to do.
    """
    broker, cluster = ends
    broker.hangs_up_on = {"EndTxn"}
    commit = EndTxnRequest(
        transactional_id="t", producer_id=7, producer_epoch=0, committed=True
    )
    with pytest.raises(UnreachableError):
        cluster.call(commit, node=1)
    assert broker.asked.count("EndTxn") == 1


def test_silence_is_not_asked_again(ends: tuple[Broker, Cluster]) -> None:
    """A broker that does not answer within the timeout is not asked a second time: it
    would take twice as long to notice that it is gone.
    """
    broker, cluster = ends
    broker.silent_on = {"FindCoordinator"}
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="no answer in time"):
        cluster.group_coordinators(["g"])
    assert time.monotonic() - began < 0.9 * crowd()
    assert broker.asked.count("FindCoordinator") == 1


def test_a_silent_broker_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several brokers that could answer, one is silent: the question goes to another
    one, and so do later ones, until a minute has passed.
    """
    monkeypatch.setattr(random, "sample", lambda nodes, count: list(nodes)[:count])
    with Broker(node=1) as silent, Broker(node=2) as other:
        silent.names = other.names = [silent, other]
        config = ClusterConfig(
            alias="A",
            bootstrap_servers=other.address,
            request_timeout_seconds=0.5,
        )
        with closing(Cluster(config).connect()) as cluster:
            silent.silent_on = {"FindCoordinator"}
            for _ in range(3):
                assert cluster.group_coordinators(["g"]) == {"g": 2}
    assert silent.asked.count("FindCoordinator") == 1
    assert other.asked.count("FindCoordinator") == 3


def test_a_session_that_ends_on_a_dead_connection_is_no_error(
    ends: tuple[Broker, Cluster],
) -> None:
    """Where it is time to authenticate again and the broker has closed the connection
    meanwhile, a new one replaces it.
    """
    broker, cluster = ends
    used = _used(cluster)
    used.reauthenticate_at = time.monotonic() - 1
    broker.hang_up()
    _has_come(used)
    assert cluster.connection(1) is not used


def test_a_cluster_that_names_no_broker_is_not_reached() -> None:
    """Brokers that its controller does not count as alive are in no answer: the error
    says so, and once one is named the same cluster connects.
    """
    with Broker() as broker:
        config = ClusterConfig(alias="A", bootstrap_servers=broker.address)
        with closing(Cluster(config)) as cluster:
            broker.names = []
            with pytest.raises(UnreachableError, match="A answers but"):
                cluster.connect()
            broker.names = [broker]
            assert cluster.connect().nodes == (1,)


def test_a_machine_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses no connection, and keeps one that could ask another broker waiting for
    3 s, in place of 10.
    """
    monkeypatch.setattr(random, "shuffle", lambda _servers: None)
    with Broker() as broker, socket.create_server(("127.0.0.1", 0), backlog=0) as gone:
        address = gone.getsockname()
        servers = [f"127.0.0.1:{address[1]}", broker.address]
        config = ClusterConfig(alias="A", bootstrap_servers=servers)
        with socket.create_connection(address):  # the queue is full: no SYN is answered
            began = time.monotonic()
            with closing(Cluster(config).connect()) as cluster:
                assert cluster.nodes == (1,)
            assert time.monotonic() - began < 3 + 5 * crowd()
