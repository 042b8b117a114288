"""Certificates in stores of Java's keytool and of openssl, and a server that asks for
one of them.
"""

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

from mirror.clusters.wire.handshake import open_line
from mirror.host import require_java
from mirror.playground.certificates import LOCAL_HOSTS, CertificateAuthority
from tests.harness.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.cluster_settings import ClusterConfig

STORE_PASSWORD = "store-secret"


class Stores:
    """One authority's certificates, and a server that asks for a client's."""

    def __init__(
        self, folder: Path, authority: CertificateAuthority | None = None
    ) -> None:
        self.folder = folder
        authority = authority or CertificateAuthority()
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

    def make_with_openssl(self) -> tuple[Path, Path]:
        """The same in PKCS12, as `openssl pkcs12 -export` writes it."""
        trust, keys = (
            self.folder / f"{name}.openssl.p12" for name in ("trust", "keys")
        )
        bundle = self.folder / "client.pem"
        for store, *what in (
            (trust, "-nokeys", "-in", self.folder / "ca.pem"),
            (keys, "-name", "mirror", "-inkey", bundle, "-in", bundle),
        ):
            subprocess.run(
                ["openssl", "pkcs12", "-export", *what, "-out", store,
                 "-passout", f"pass:{STORE_PASSWORD}"],
                check=True, capture_output=True, timeout=120,
            )  # fmt: skip
        return trust, keys

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
            thread.join(PATIENCE_SECONDS)
        return seen[0]
