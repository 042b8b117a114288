"""Stores made by Java's own keytool can be opened, and speak TLS."""

from __future__ import annotations

from contextlib import closing
import socket
import ssl
import subprocess
import threading
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.serialization import pkcs12
import pytest

from mirror.clusters.auth.security import tls_context
from mirror.clusters.wire.handshake import open_line
from mirror.config.cluster_settings import ClusterConfig
from mirror.config.load import load
from mirror.errors import AuthenticationError
from mirror.host import require_java
from mirror.playground.certificates import LOCAL_HOSTS, CertificateAuthority

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

STORE_PASSWORD = "store-secret"
ALONE = "key-secret"


class Stores:
    """One authority's certificates, and a server that asks for a client's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = CertificateAuthority()
        server = authority.issue("broker", hosts=LOCAL_HOSTS)
        self.client = authority.issue("mirror", hosts=("mirror",))
        self.authority = authority.pem
        (folder / "ca.pem").write_text(authority.pem)
        (folder / "client.pem").write_text(self.client.bundle_pem)
        (folder / "server.pem").write_text(server.bundle_pem)

    def make(self, kind: str, *, key_password: str | None = None) -> tuple[Path, Path]:
        """A trust store and a key store of this kind, by keytool."""
        trust, keys = (self.folder / f"{name}.{kind}" for name in ("trust", "keys"))
        self._keytool(
            *("-importcert", "-noprompt", "-alias", "ca", "-storetype", kind),
            *("-file", str(self.folder / "ca.pem"), "-keystore", str(trust)),
            *("-storepass", STORE_PASSWORD),
        )
        bundle = self.folder / "client.p12"
        bundle.write_bytes(self._pkcs12())
        self._keytool(
            *("-importkeystore", "-noprompt", "-alias", "mirror"),
            *("-srckeystore", str(bundle), "-srcstoretype", "PKCS12"),
            *("-srcstorepass", STORE_PASSWORD, "-destkeystore", str(keys)),
            *("-deststoretype", kind, "-deststorepass", STORE_PASSWORD),
            *("-destkeypass", key_password or STORE_PASSWORD),
        )
        return trust, keys

    def _pkcs12(self) -> bytes:
        chain = x509.load_pem_x509_certificates(self.client.chain_pem.encode())
        return pkcs12.serialize_key_and_certificates(
            b"mirror",
            forms.load_pem_private_key(self.client.key_pem.encode(), None),
            chain[0],
            chain[1:],
            forms.BestAvailableEncryption(STORE_PASSWORD.encode()),
        )

    def _keytool(self, *arguments: str) -> None:
        keytool = require_java().with_name("keytool")
        subprocess.run(
            [keytool, *arguments], check=True, capture_output=True, timeout=120
        )

    def shown_to_a_server(self, cluster: ClusterConfig) -> str:
        """The certificate that a server saw when the cluster's settings spoke TLS."""
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=self.folder / "ca.pem"
        )
        context.load_cert_chain(self.folder / "server.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        seen: list[str] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve() -> None:
                accepted, _ = listener.accept()
                with context.wrap_socket(accepted, server_side=True) as secured:
                    peer = secured.getpeercert() or {}
                    seen.append(str(peer.get("subject")))

            thread = threading.Thread(target=serve)
            thread.start()
            port = listener.getsockname()[1]
            with closing(open_line(cluster, "127.0.0.1", port)) as ours:
                ours.wait_to_read()
                ours.read(memoryview(bytearray(1)))
            thread.join(10)
        return seen[0]


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
    ("kind", "key_password"), [("JKS", None), ("JKS", ALONE), ("PKCS12", None)]
)
def test_a_wrong_password_is_refused_and_the_right_one_opens(
    tmp_path: Path, kind: str, key_password: str | None
) -> None:
    """Mutual TLS works with stores made by keytool; errors name the file and no
    password.
    """
    stores = Stores(tmp_path)
    trust, keys = stores.make(kind, key_password=key_password)
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
