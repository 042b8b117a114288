"""Sentences about TLS, made from what OpenSSL really says over a pair of sockets."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest

from mirror.clusters.auth.security import sasl_client
from mirror.clusters.wire.handshake import open_line, sasl_refusal, tls_refusal
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import ClusterError
from mirror.playground.certificates import LOCAL_HOSTS, CertificateAuthority

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


def cluster(**settings: Any) -> ClusterConfig:
    return ClusterConfig(
        alias="A",
        bootstrap_servers="127.0.0.1:1",
        **{"security_protocol": "SSL", **settings},
    )


def refusal(bundle: Path, config: ClusterConfig) -> str:
    """What mirror says about a server with this certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(bundle)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            accepted, _ = listener.accept()
            with accepted, pytest.raises(OSError):
                context.wrap_socket(accepted, server_side=True).recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ClusterError) as caught:
            open_line(config, "127.0.0.1", listener.getsockname()[1])
        thread.join(10)
    return str(caught.value)


@pytest.mark.parametrize(
    ("issue", "words"),
    [
        ({"expired": True}, "its certificate is not valid now: certificate has exp"),
        (
            {"hosts": ("elsewhere.example",)},
            "must use a name in the certificate, not 127.0.0.1; ssl_check_hostname",
        ),
    ],
)
def test_a_certificate_says_what_is_wrong_with_it(
    tmp_path: Path, issue: dict[str, Any], words: str
) -> None:
    """It has expired, or is for another host."""
    authority = CertificateAuthority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    made = authority.issue("broker", **{"hosts": LOCAL_HOSTS, **issue})
    (tmp_path / "broker.pem").write_text(made.bundle_pem)
    said = refusal(tmp_path / "broker.pem", cluster(ssl_ca_file=tmp_path / "ca.pem"))
    assert said.startswith("cluster A: 127.0.0.1:")
    assert words in said


def test_an_authority_that_nobody_named(tmp_path: Path) -> None:
    """Without ssl_ca_file the system's certificates count, and the message says so."""
    made = CertificateAuthority().issue("broker", hosts=LOCAL_HOSTS)
    (tmp_path / "broker.pem").write_text(made.bundle_pem)
    said = refusal(tmp_path / "broker.pem", cluster())
    assert (
        "ssl_ca_file (not set: the system's certificates are used) must contain" in said
    )


def test_what_a_broker_says_of_our_certificate(tmp_path: Path) -> None:
    """The message has the alert, the setting and what is right; a certificate that
    cannot be found hides nothing.
    """
    authority = CertificateAuthority()
    ours = tmp_path / "ours.pem"
    ours.write_text(authority.issue("mirror").bundle_pem)
    alert = ssl.SSLError(1, "[SSL: SSLV3_ALERT_CERTIFICATE_UNKNOWN] and so on")
    alert.reason = "SSLV3_ALERT_CERTIFICATE_UNKNOWN"
    said = tls_refusal(cluster(ssl_certificate_file=ours), "h", alert)
    assert "it refused our certificate (SSLV3_ALERT_CERTIFICATE_UNKNOWN)" in said
    assert f"ssl_certificate_file {ours}, of CN=mirror, must be signed by a CA" in said
    issued = authority.issue("mirror")
    inline = cluster(ssl_certificate_chain=issued.bundle_pem, ssl_key=issued.bundle_pem)
    assert "; ssl_certificate_chain, of CN=mirror" in tls_refusal(inline, "h", alert)
    ours.unlink()
    assert "it requires a client certificate" in tls_refusal(
        cluster(ssl_certificate_file=ours), "h", alert
    )
    other = ssl.SSLError(1, "something else")
    said = tls_refusal(cluster(), "h", other)
    assert said.startswith("TLS failed: ")
    assert "something else" in said


def test_a_login_that_is_refused_names_its_settings() -> None:
    """The message names the setting of the password, or the source of the tokens."""
    login = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    known = cluster(**login, sasl_username="u", sasl_password="s3cret")
    said = str(sasl_refusal(known, "cluster A: h:1", "no"))
    assert said == (
        "cluster A: h:1 refused 'u' with PLAIN: no; sasl_username and sasl_password "
        "must be those of a user of this cluster"
    )
    bearer = {**login, "sasl_mechanism": "OAUTHBEARER"}
    said = str(sasl_refusal(cluster(**bearer, sasl_token_provider="a"), "A", "invalid"))
    assert "refused our token: invalid; what sasl_token_provider returns must" in said


def test_names_with_a_comma_reach_the_broker_whole() -> None:
    """RFC 5802 escapes two characters of a name."""
    config = cluster(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username="a,b=c",
        sasl_password="x",
    )
    assert b"n=a=2Cb=3Dc,r=" in sasl_client(config, "h").auth_bytes()
