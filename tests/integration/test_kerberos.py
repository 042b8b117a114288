"""Clusters with Kerberos, on Debian's KDC: mirror logs in with its keytab alone."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.clusters.auth import kerberos
from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import AuthenticationError
from mirror.playground.brokers import playground
from tests.harness.admin import create_topic
from tests.harness.kerberos import BROKER, MIRROR, REALM, Realm, broker_options, section
from tests.harness.load import keys, producer, send
from tests.harness.security import admit
from tests.harness.service import RunningMirror
from tests.harness.slots import RunningLease, SparklessFlow
from tests.harness.witness import Witness
from tests.integration.test_security_service import Flow, wait_for_reason, wait_healed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.needs("kerberos")]

_TICKET_SECONDS = 4
_SESSION_SECONDS = 2.0


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """This process, and those that it starts, are in the realm."""
    with (
        Realm(tmp_path_factory.mktemp("realm")) as made,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("KRB5_CONFIG", str(made.config))
        # Tickets of the user who runs the tests must not help.
        patch.setenv("KRB5CCNAME", "FILE:/nowhere")
        made.add(MIRROR, lives=_TICKET_SECONDS)
        yield made


@pytest.fixture(scope="module")
def keytab(realm: Realm) -> Path:
    return realm.keytab("mirror.keytab", MIRROR)


@pytest.fixture(scope="module")
def guarded(
    realm: Realm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlaygroundCluster]:
    """A cluster whose brokers take tickets, in sessions of seconds."""
    root = tmp_path_factory.mktemp("guarded")
    options = broker_options(realm, session_seconds=_SESSION_SECONDS)
    with playground(("k",), root=root, given=False, **options) as made:
        admit(made["k"])
        yield made["k"]


def test_records_flow_for_longer_than_a_ticket_lives(
    realm: Realm,
    guarded: PlaygroundCluster,
    keytab: Path,
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
) -> None:
    """Sessions and tickets end several times while records flow from a cluster with
    Kerberos: the KDC gives new ones for the keytab, the slot takes over once, at its
    beginning, and an ordinary consumer finds every record once and in order.
    """
    target = clusters["b"].bootstrap
    create_topic(guarded.admin_bootstrap, topic_name, 2)
    flow = SparklessFlow(
        source=section(guarded, keytab),
        target=target,
        topic=topic_name,
        alias=f"k{uuid.uuid4().hex[:6]}",
    ).own()
    client = producer(guarded.admin_bootstrap, linger_ms=1)
    before, sent = realm.tickets_of(MIRROR), 0
    with flow.slot() as slot, Witness(target) as witness:
        lease = RunningLease(slot, flow.lease(120))
        witness.begin(flow.copy)
        try:
            # Each is renewed at half of its life at the earliest.
            while realm.tickets_of(MIRROR) < before + 3:
                send(client, topic_name, keys(2, 10, first=sent), b"x" * 500)
                sent += 10
                witness.wait(2 * sent, 60, lease)
        finally:
            reports = lease.end()
        witness.assert_exactly(flow.copy, keys(2, sent))
    assert {report.slot_takeovers for report in reports} == {1}
    assert {report.slot_aborted for report in reports} == {0}


def refused(settings: dict[str, Any]) -> str:
    """Why a cluster cannot be reached, in the words that users see."""
    config = ClusterConfig.model_validate({"alias": "A", **settings})
    with (
        contextlib.closing(Cluster(config)) as cluster,
        pytest.raises(AuthenticationError) as caught,
    ):
        cluster.connect()
    text = str(caught.value)
    assert text.startswith("cluster A: ")
    assert "\n" not in text
    assert len(text) < 600
    return text


def test_check_says_what_is_wrong_with_a_keytab(
    realm: Realm, guarded: PlaygroundCluster, keytab: Path, tmp_path: Path
) -> None:
    """`mirror check` has one message for each cluster: a keytab without this
    principal's key, and a principal that the realm does not know. It ends with 1, and
    without a traceback.
    """
    unknown = f"unknown@{REALM}"
    for principal in ("other", unknown):
        realm.add(principal)
    other = realm.keytab("other.keytab", "other")
    forgotten = realm.keytab("unknown.keytab", unknown)
    realm.drop(unknown)
    assert guarded.sasl is not None
    port = f"localhost:{guarded.sasl.bootstrap.rpartition(':')[2]}"
    file = tmp_path / "mirror.yaml"
    document = {
        "clusters": {
            "A": section(guarded, other),
            # Another address, or it would be known for the same cluster.
            "B": {**section(guarded, forgotten, unknown), "bootstrap_servers": port},
        },
        "flows": {"A->B": {"topics": ["orders"]}},
        "service": {"http_port": 0, "state_dir": str(tmp_path / "state")},
    }
    file.write_text(json.dumps(document))  # JSON is YAML
    ended = subprocess.run(
        [sys.executable, "-m", "mirror", "check", "-c", str(file), "-o", "json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    found = {
        each["where"]: each["detail"]
        for each in json.loads(ended.stdout)["checks"]
        if each["check"] == "connection"
    }
    for alias, principal in (("A", MIRROR), ("B", unknown)):
        said = found[f"cluster {alias}"]
        assert f"no Kerberos ticket for sasl_kerberos_principal {principal}" in said
        assert "sasl_kerberos_keytab_file " in said


def test_what_else_is_refused(
    realm: Realm, guarded: PlaygroundCluster, keytab: Path, tmp_path: Path
) -> None:
    """Another service name, a keytab that cannot be read, an old key, and a KDC that
    does not answer: each has its own message, with the setting to check.
    """
    good = section(guarded, keytab)
    said = refused({**good, "sasl_kerberos_service_name": "broker"})
    assert "no Kerberos ticket for the broker" in said
    assert "sasl_kerberos_service_name broker and the host 127.0.0.1" in said
    said = refused({**good, "sasl_kerberos_keytab_file": str(tmp_path)})
    assert "sasl_kerberos_keytab_file cannot be read" in said
    old = tmp_path / "old.keytab"
    realm.add("renewed")
    old.write_bytes(realm.keytab("renewed.keytab", "renewed").read_bytes())
    realm.keytab("renewed.keytab", "renewed")
    said = refused(section(guarded, old, f"renewed@{REALM}"))
    assert f"no Kerberos ticket for sasl_kerberos_principal renewed@{REALM}" in said
    realm.add("waiting")
    waiting = realm.keytab("waiting.keytab", "waiting")
    realm.stop()
    try:
        said = refused(section(guarded, waiting, f"waiting@{REALM}"))
    finally:
        realm.start()
    assert "krb5.conf must name the realm's KDC" in said
    assert "contact" in said


def test_a_broker_gets_another_key(
    realm: Realm, guarded: PlaygroundCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ticket for the broker's old key is refused, with a message of its own; then it
    is dropped, and the next connection gets one for the new key.
    """
    realm.add("patient")
    keytab = realm.keytab("patient.keytab", "patient")
    way = section(guarded, keytab, f"patient@{REALM}")
    config = ClusterConfig.model_validate({"alias": "A", **way})
    with contextlib.closing(Cluster(config).connect()) as cluster:
        assert cluster.cluster_id
    realm.keytab("broker.keytab", BROKER)  # Java reads the file again by itself
    assert "refused our Kerberos ticket: " in refused(way)
    assert "current key of its principal kafka/HOST" in refused(way)
    monkeypatch.setattr(kerberos, "_KEPT_SECONDS", 0.0)
    refused(way)
    with contextlib.closing(Cluster(config).connect()) as cluster:
        assert cluster.cluster_id


def test_without_the_extra_the_message_names_it(
    guarded: PlaygroundCluster, keytab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the package is missing, the message says what installs it, and where."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    said = refused(section(guarded, keytab))
    assert "pip install 'mirror[kerberos]', in the service and in Spark's" in said


@pytest.mark.full
def test_a_service_outlives_its_tickets_and_the_kdc(
    realm: Realm,
    guarded: PlaygroundCluster,
    keytab: Path,
    clusters: dict[str, PlaygroundCluster],
    tmp_path: Path,
) -> None:
    """A whole service, with Spark's workers, copies out of a cluster with Kerberos
    through many tickets; while no KDC answers it says why, and goes on by itself when
    one does: no record is lost or doubled.
    """
    target = clusters["b"].bootstrap
    sections = {
        f"k{uuid.uuid4().hex[:6]}": section(guarded, keytab),
        "B": {"bootstrap_servers": target},
    }
    topic = f"outlives-{uuid.uuid4().hex[:8]}"
    flow = Flow(guarded.admin_bootstrap, target, topic, sections)
    flow.send()
    with RunningMirror(flow.config, tmp_path) as mirror:
        flow.wait_copied()
        before = realm.tickets_of(MIRROR)
        while realm.tickets_of(MIRROR) < before + 6:
            flow.send(20)
            flow.wait_copied()
        mirror.assert_never_failed()
        realm.stop()
        try:
            flow.send()
            wait_for_reason(mirror, "no Kerberos ticket", "KDC")
        finally:
            realm.start()
        flow.wait_copied(timeout=90)
        wait_healed(mirror)
