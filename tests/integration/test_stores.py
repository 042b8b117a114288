"""Stores made by Java's own keytool and by openssl can be opened, and speak TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.clusters.auth.security import tls_context
from mirror.config.cluster_settings import ClusterConfig
from mirror.config.load import load
from mirror.errors import AuthenticationError
from mirror.playground.secured import PASSWORDS, USER
from tests.harness import hostile_batches
from tests.harness.admin import create_topic
from tests.harness.load import keys, producer, send
from tests.harness.security import Doors, admit
from tests.harness.segments import attributes
from tests.harness.stores import STORE_PASSWORD, Stores
from tests.harness.topologies import RunningFile
from tests.harness.witness import assert_exactly_once, eventually, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

ALONE = "key-secret"


def cluster(**settings: object) -> ClusterConfig:
    return ClusterConfig.model_validate(
        {
            "alias": "A",
            "bootstrap_servers": "127.0.0.1:1",
            "security_protocol": "SSL",
            **settings,
        }
    )


@pytest.mark.parametrize(
    ("kind", "key_password"),
    [("JKS", None), ("JKS", ALONE), ("PKCS12", None), ("openssl", None)],
)
def test_a_wrong_password_is_refused_and_the_right_one_opens(
    tmp_path: Path, kind: str, key_password: str | None
) -> None:
    """Mutual TLS works with stores made by keytool, and in PKCS12 by openssl; errors
    name the file and no password.
    """
    stores = Stores(tmp_path)
    trust, keys = (
        stores.make_with_openssl()
        if kind == "openssl"
        else stores.make(kind, key_password=key_password)
    )
    good = {
        "ssl_ca_file": trust,
        "ssl_ca_password": STORE_PASSWORD,
        "ssl_certificate_file": keys,
        "ssl_certificate_password": STORE_PASSWORD,
        "ssl_key_password": key_password,
    }
    for wrong in ("ssl_ca_password", "ssl_certificate_password"):
        with pytest.raises(AuthenticationError, match="does not open") as caught:
            tls_context(cluster(**{**good, wrong: "wr0ng"}))
        assert "wr0ng" not in str(caught.value)
        assert STORE_PASSWORD not in str(caught.value)
    assert "mirror" in stores.shown_to_a_server(cluster(**good))


def test_damaged_and_empty_stores_are_refused(tmp_path: Path) -> None:
    """A damaged or empty store is an error; mirror never trusts the system's CAs
    instead.
    """
    for name, raw in {
        "empty": b"",
        "jks": b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\5" + b"\0" * 40,
        "p12": b"\x30\x82\x01\x01nothing",
        "text": b"hello",
    }.items():
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(AuthenticationError, match="cannot be used"):
            tls_context(cluster(ssl_ca_file=tmp_path / name))


def test_pem_within_a_properties_file_speaks_tls(tmp_path: Path) -> None:
    """Certificates and key inline, on joined lines, work as in MirrorMaker 2."""
    stores = Stores(tmp_path)
    joined = {
        name: text.replace("\n", "")
        for name, text in {
            "truststore.certificates": stores.authority,
            "keystore.certificate.chain": stores.client.chain_pem,
            "keystore.key": stores.client.key_pem,
        }.items()
    }
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\n"
        "B.bootstrap.servers = 127.0.0.1:2\nA->B.enabled = true\n"
        "A.security.protocol = SSL\nA.ssl.truststore.type = PEM\n"
        "A.ssl.keystore.type = PEM\n"
        + "".join(f"A.ssl.{name} = {text}\n" for name, text in joined.items())
    )
    config, warnings = load(path, environ={})
    assert warnings == ()
    assert "mirror" in stores.shown_to_a_server(config.clusters["A"])


SECURED = """
clusters = S, T
config.providers = file, env
config.providers.file.class = \\
    org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.env.class = \\
    org.apache.kafka.common.config.provider.EnvVarConfigProvider
security.protocol = SASL_SSL

S.bootstrap.servers = {source}
S.sasl.mechanism = SCRAM-SHA-512
S.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="{user}" password="${{file:{folder}/secrets.properties:source.password}}";
S.ssl.truststore.location = {folder}/trust.JKS
S.ssl.truststore.password = ${{env:STORE_PASSWORD}}
S.ssl.keystore.type = PKCS12
S.ssl.keystore.location = {folder}/keys.openssl.p12
S.ssl.keystore.password = ${{env:STORE_PASSWORD}}

T.bootstrap.servers = {target}
T.sasl.mechanism = PLAIN
T.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="{user}" password="${{env:TARGET_PASSWORD}}";
T.ssl.truststore.type = PKCS12
T.ssl.truststore.location = {folder}/trust.PKCS12
T.ssl.truststore.password = ${{file:{folder}/secrets.properties:store.password}}
T.ssl.keystore.location = {folder}/keys.JKS
T.ssl.keystore.password = ${{file:{folder}/secrets.properties:store.password}}

S->T.enabled = true
S->T.topics = {topic}
exactly.once.source.support = enabled
S.consumer.isolation.level = read_committed
T.producer.compression.type = zstd
producer.acks = 1
replication.factor = 1
tasks.max = 1
"""


@pytest.mark.full
def test_a_secured_file_runs_unchanged(
    make_clusters: Callable[..., dict[str, PlaygroundCluster]],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """MirrorMaker 2's file with login lines, stores of both kinds and makers, and
    secrets in a file and the environment copies every record once, in transactions and
    packed with zstd, between brokers that speak SASL_SSL; no secret is in the log.
    """
    doors = Doors(tmp_path / "doors")
    made = make_clusters("s", "t", **doors.options)
    for each in made.values():
        admit(each)
    stores = Stores(tmp_path, doors.authority)
    for kind in ("JKS", "PKCS12"):
        stores.make(kind)
    stores.make_with_openssl()
    (tmp_path / "secrets.properties").write_text(
        f"source.password={PASSWORDS[USER]}\nstore.password={STORE_PASSWORD}\n"
    )
    file = tmp_path / "mm2.properties"
    way = "SASL_SSL SCRAM-SHA-512"
    file.write_text(
        SECURED.format(
            source=doors.section(made["s"], way)["bootstrap_servers"],
            target=doors.section(made["t"], way)["bootstrap_servers"],
            user=USER,
            folder=tmp_path,
            topic=topic_name,
        )
    )
    source, target = (made[name].admin_bootstrap for name in "st")
    create_topic(source, topic_name)
    send(producer(source), topic_name, keys(1, 500), b"x" * 200)
    secrets = {"STORE_PASSWORD": STORE_PASSWORD, "TARGET_PASSWORD": PASSWORDS[USER]}
    with RunningFile(file, tmp_path / "run", **secrets) as mirror:
        found = eventually(target, f"S.{topic_name}", 500)
        assert_exactly_once(keys_of(found), keys(1, 500))
        mirror.wait_running()
        assert mirror.terminate() == 0, mirror.log_tail()
    packed = hostile_batches.ZSTD | hostile_batches.TRANSACTIONAL
    assert attributes(made["t"], f"S.{topic_name}") == {packed}
    said = mirror.log.read_text()
    assert "acks = all says" in said
    assert all(secret not in said for secret in secrets.values())
